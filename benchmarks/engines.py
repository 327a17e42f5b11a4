"""`make bench-engines`: one table in six kinds of storage through every engine: the same sums, seconds and memory.

    python -m benchmarks.engines [--rows 5000000] [--only KIND …]
    python -m benchmarks.engines --postgresql-memory

Memory is the peak of all processes of a pass together, Java's and the workers' too, without the database's server.
Seconds are those of the pass alone, with a session or cluster that has started.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.files import schema, tables
from benchmarks.timing import line

TESTS = Path(__file__).parents[1] / "tests"
MEMORY_ROWS = 1_000_000, 4_000_000
MORE = 64  # MB
NAME = "people"


def store(rows: int, folder: Path, database: str, kinds: list[str]) -> None:
    """Write the table to Parquet, and to what else is asked for."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog: Any = None
    if "iceberg" in kinds:
        (folder / "warehouse").mkdir()
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse"))
        catalog.create_namespace("home")
    parquet: pq.ParquetWriter | None = None
    for number, piece in enumerate(tables(rows)):
        if parquet is None:
            parquet = pq.ParquetWriter(folder / "t.parquet", piece.schema)
        parquet.write_table(piece)
        if "delta" in kinds:
            from deltalake import write_deltalake

            write_deltalake(folder / "delta", piece, mode="append")
        if catalog is not None:
            target = catalog.load_table("home.t") if number else catalog.create_table("home.t", piece.schema)
            target.append(piece)
        if "sqlite" in kinds:
            from adbc_driver_sqlite import dbapi as sqlite

            with sqlite.connect(str(folder / "t.db")) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(NAME, piece, mode="append" if number else "create")
                connection.commit()
        if "postgresql" in kinds:
            from adbc_driver_postgresql import dbapi as postgresql

            with postgresql.connect(database) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(NAME, piece, mode="append" if number else "create")
                connection.commit()
    if parquet is not None:
        parquet.close()


def local(source: Callable[[Path, str], Any]) -> Callable[[Path, str], tuple[Any, Any]]:
    return lambda folder, database: (source(folder, database), None)


def spark(kind: str) -> Callable[[Path, str], tuple[Any, Any]]:
    def start(folder: Path, database: str) -> tuple[Any, Any]:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.config("spark.ui.enabled", "false")
        threads = f"local[{os.cpu_count()}]"
        session = (builder.remote(threads) if kind == "connect" else builder.master(threads)).getOrCreate()
        session.range(1).collect()
        return folder / "t.parquet", dps.Spark(session)

    return start


def dask(folder: Path, database: str) -> tuple[Any, Any]:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=os.cpu_count(), threads_per_worker=1, dashboard_address=None)
    return folder / "t.parquet", dps.Dask(Client(cluster))


KINDS: dict[str, Callable[[Path, str], tuple[Any, Any]]] = {
    "parquet": local(lambda folder, database: folder / "t.parquet"),
    "postgresql": local(lambda folder, database: dps.Database(database, table=NAME)),
    "sqlite": local(lambda folder, database: dps.Database(f"sqlite:///{folder}/t.db", table=NAME)),
    "delta": local(lambda folder, database: folder / "delta"),
    "iceberg": local(lambda folder, database: folder / "warehouse" / "home" / "t"),
    "spark": spark("classic"),
    "spark connect": spark("connect"),
    "dask": dask,
}


def run(kind: str, folder: Path, database: str, rows: int) -> None:
    """One pass in this process: print its seconds and a digest of the sums."""
    facts = schema(rows)
    recipe = dps.Recipe.general(facts, budget=dps.Budget(1.0))
    source, engine = KINDS[kind](folder, database)
    start = time.perf_counter()
    raw = dps.accumulate(source, facts, recipe, engine)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(b"".join(part.sums.tobytes() for part in raw.parts)).hexdigest()
    print("pass", seconds, digest, flush=True)
    os._exit(0)  # sessions and clusters take seconds to stop


def measured(kind: str, folder: Path, database: str, rows: int) -> tuple[float, str, float]:
    """Seconds, digest and peak MB of a pass in a process of its own."""
    words = [sys.executable, "-W", "ignore", "-m", "benchmarks.engines", "--pass", kind, str(folder), database]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*words, "--rows", str(rows)], stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        )
        tree, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            peak = max(peak, _memory(tree))
            time.sleep(0.05)
    assert process.stdout is not None
    results = [words.split() for words in process.stdout.read().splitlines() if words.startswith("pass ")]
    if not results:
        raise SystemExit(f"{kind} failed: {(folder / 'log').read_text()[-2000:]}")
    return float(results[0][1]), results[0][2], peak / 2**20


def _memory(tree: psutil.Process) -> int:
    total = 0
    try:
        for process in [tree, *tree.children(recursive=True)]:
            total += process.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


def compare(rows: int, kinds: list[str]) -> None:
    from postgres_server import running_server  # of the tests

    with tempfile.TemporaryDirectory() as name, running_server() as server:
        folder, database = Path(name), server.new_database()
        store(rows, folder, database, kinds)
        results = {kind: measured(kind, folder, database, rows) for kind in kinds}
    print(f"{rows:,} rows x 10 columns, general recipe")
    for kind, (seconds, digest, peak) in results.items():
        print(f"{kind:<16} {seconds:8.2f} s {peak:9.0f} MB  sums {digest[:16]}")
    same = len({digest for _, digest, _ in results.values()}) == 1
    print("sums: the same bytes everywhere" if same else "sums DIFFER")
    fastest = min(results, key=lambda kind: results[kind][0])
    print(f"fastest: {fastest}")
    if not same:
        raise SystemExit(1)


def postgresql_memory() -> None:
    from postgres_server import running_server

    peaks = []
    for rows in MEMORY_ROWS:
        with tempfile.TemporaryDirectory() as name, running_server() as server:
            database = server.new_database()
            store(rows, Path(name), database, ["postgresql"])
            peaks.append(measured("postgresql", Path(name), database, MEMORY_ROWS[1])[2])
    few, many = MEMORY_ROWS
    line(f"PostgreSQL: peak of {many:,} rows beyond that of {few:,}", peaks[1] - peaks[0], "MB", MORE, at_most=True)


def main() -> None:
    sys.path.append(str(TESTS))
    parser = argparse.ArgumentParser(description="One table through every source and engine.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--postgresql-memory", action="store_true", help="peaks of 1 and 4 million rows")
    parser.add_argument("--pass", nargs=3, dest="one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(options.one[0], Path(options.one[1]), options.one[2], options.rows)
    elif options.postgresql_memory:
        postgresql_memory()
    else:
        compare(options.rows, options.only)
        if options.only == list(KINDS):
            postgresql_memory()


if __name__ == "__main__":
    main()
