"""CSV and Parquet files to codes, beside the time that pyarrow takes to read and decode them."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.timing import best_together, line

LABELS = ["alpha", "beta", "gamma", "delta"]
SMALL_FILES = 1000


def schema(rows: int) -> dps.Schema:
    """The schema of `table`."""
    columns: dict[str, dict[str, object]] = {f"x{i}": {"kind": "number", "lower": -5, "upper": 5} for i in range(4)}
    columns |= {f"i{i}": {"kind": "integer", "lower": 0, "upper": 10_000} for i in range(2)}
    columns |= {f"c{i}": {"kind": "category", "values": LABELS} for i in range(2)}
    columns |= {"d": {"kind": "datetime", "lower": "2020-01-01", "upper": "2026-01-01"}, "b": {"kind": "boolean"}}
    return dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})


def table(rows: int, seed: int = 1) -> pa.Table:
    """Ten columns of every kind: rounded numbers, whole numbers, labels, days and flags."""
    rng = np.random.default_rng(seed)
    columns: dict[str, object] = {f"x{i}": rng.normal(size=rows).round(4) for i in range(4)}
    columns |= {f"i{i}": rng.integers(0, 10_000, rows) for i in range(2)}
    columns |= {f"c{i}": np.array(LABELS)[rng.integers(0, 4, rows)] for i in range(2)}
    days = np.datetime64("2020-01-01") + rng.integers(0, 2000, rows)
    return pa.table(columns | {"d": days.astype("datetime64[D]"), "b": rng.random(rows) < 0.5})


def tables(rows: int, most: int = 1_000_000) -> Iterator[pa.Table]:
    """The same in pieces, for tables that would not fit in memory."""
    for seed, start in enumerate(range(0, rows, most)):
        yield table(min(most, rows - start), seed + 1)


def csv_files(folder: Path, rows: int = 1_000_000) -> None:
    path, packed = folder / "t.csv", folder / "t.csv.gz"
    pa.csv.write_csv(table(rows), path)
    with path.open("rb") as plain, gzip.open(packed, "wb", 6) as stream:
        shutil.copyfileobj(plain, stream)
    recipe, facts = dps.Recipe([dps.Part(dps.Count(), 1.0)]), schema(rows)
    one = pa.csv.ReadOptions(use_threads=False)

    def unpack() -> None:
        with pa.CompressedInputStream(pa.OSFile(str(packed)), "gzip") as stream:
            while stream.read(1 << 20):
                pass

    ours, theirs = best_together(
        lambda: dps.accumulate(path, facts, recipe), lambda: pa.csv.read_csv(path, read_options=one), repeats=5
    )
    line("CSV to codes, CPU seconds of pyarrow's reader", ours / theirs, "×", 2, at_most=True)
    # The thread that reads unpacks; others split and encode meanwhile. Its time is that of the whole with enough cores.
    reading, unpacked = best_together(
        lambda: dps.accumulate(packed, facts, recipe), unpack, repeats=5, clock=time.thread_time
    )
    line("CSV.gz, CPU seconds of the reading thread beside unpacking", reading / unpacked, "×", 1.3, at_most=True)


def parquet_files(folder: Path, rows: int = 5_000_000) -> None:
    whole = table(rows)
    pq.write_table(whole, folder / "large.parquet")
    many = folder / "many"
    many.mkdir()
    for start in range(SMALL_FILES):
        first, last = start * rows // SMALL_FILES, (start + 1) * rows // SMALL_FILES
        pq.write_table(whole.slice(first, last - first), many / f"{start:04}.parquet")
    facts = schema(rows)
    general = dps.Recipe.general(facts, budget=dps.Budget(1.0))

    def decode() -> None:
        with pq.ParquetFile(folder / "large.parquet") as file:
            for _ in file.iter_batches(use_threads=False):
                pass

    one, thousand, decoded = best_together(
        lambda: dps.accumulate(folder / "large.parquet", facts, general),
        lambda: dps.accumulate(many, facts, general),
        decode,
        repeats=3,
    )
    line(f"{SMALL_FILES} small Parquet files, CPU seconds of one large one", thousand / one, "×", 1.3, at_most=True)
    line("general recipe from Parquet, CPU seconds of decoding", one / decoded, "×", 4, at_most=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        csv_files(Path(name))
        parquet_files(Path(name))


if __name__ == "__main__":
    main()
