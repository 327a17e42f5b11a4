"""`dpsketch release` of 5,000,000 x 10 rows from Parquet, as a user runs it: peak memory and time."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.timing import line

ROWS, COLUMNS, BLOCK = 5_000_000, 10, 500_000


def write_table(folder: Path) -> tuple[Path, Path]:
    names = [f"c{j}" for j in range(COLUMNS)]
    schema = f"[privacy]\nrows = {ROWS}\n" + "".join(
        f'[columns.{name}]\nkind = "number"\nlower = -5\nupper = 5\n' for name in names
    )
    (folder / "t.toml").write_text(schema)
    rng = np.random.default_rng(3)
    with pq.ParquetWriter(folder / "t.parquet", pa.schema([(name, pa.float32()) for name in names])) as writer:
        for _ in range(ROWS // BLOCK):
            writer.write_table(pa.table({name: rng.normal(size=BLOCK).astype(np.float32) for name in names}))
    return folder / "t.parquet", folder / "t.toml"


def main() -> None:
    command = Path(sys.executable).with_name("dpsketch")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, schema = write_table(folder)
        options: list[str | Path] = [
            "--schema",
            schema,
            "--epsilon",
            "1",
            "--frequencies",
            "500",
            "--ledger",
            folder / "l.db",
            "--create-ledger",
            "--dataset",
            "t",
        ]
        start = time.perf_counter()
        subprocess.run(
            [command, "release", table, *options, "-o", folder / "t.sketch"], check=True, capture_output=True
        )
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"release of {ROWS:,} x {COLUMNS} with 500 frequencies: {seconds:.1f} s in all")
        line("release of 5M x 10: peak memory", peak, "GiB", 1.0, at_most=True)
        start = time.perf_counter()
        subprocess.run(
            [command, "ask", folder / "t.sketch", "select avg(c0) from sketch"], check=True, capture_output=True
        )
        print(f"first answer in a new process: {time.perf_counter() - start:.2f} s")
