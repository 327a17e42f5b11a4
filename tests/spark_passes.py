"""Passes on a real Spark session, run as a program: `python spark_passes.py classic|connect|killed FOLDER`.

A process holds one session of one kind, so each kind has a process of its own. Prints the number of passes whose sums
have the same bytes as those of this machine's threads; fails otherwise.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import dpsketch as dps
from conftest import MIXED, mixed_table
from dpsketch.engines.graph import EdgeList, graph_schema

ROWS = 600
RECIPE = dps.Recipe(
    [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.Histogram(bins=8), 0.3),
        dps.Part(dps.Fourier(size=10, seed=3), 0.6),
    ]
)
UNITS = {"privacy": {"rows": 1000, "unit": "person", "max_rows_per_unit": 2, "unit_kind": "integer"}}


def bytes_of(raw: dps.RawSketch) -> list[bytes]:
    return [part.sums.tobytes() for part in raw.parts]


def session(kind: str) -> SparkSession:
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    if kind == "connect":
        return builder.remote("local[2]").getOrCreate()
    # Executors of their own, so that one of them can be killed; or threads that try a task three times.
    return builder.master("local-cluster[2,1,1024]" if kind == "killed" else "local[2,3]").getOrCreate()


def visits() -> pa.Table:
    """Rows of 100 people, some of nobody; ids are written in two ways that mean the same person."""
    rng = np.random.default_rng(0)
    people = rng.integers(0, 100, ROWS).tolist()
    ids = [None if number < 5 else f"{number}.0" if rng.random() < 0.5 else str(number) for number in people]
    return mixed_table(ROWS).append_column("person", pa.array(ids))


def troubled(frame: DataFrame, trouble: Callable[[], None]) -> DataFrame:
    """The same rows, from tasks in trouble."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        trouble()

    return frame.mapInArrow(rows, frame.schema)


def fail_twice() -> None:
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() < 2:
        raise ValueError("in trouble")


def kill_once(mark: Path) -> Callable[[], None]:
    """Kill the executor of the first task that comes here: the parent of the parent of its Python worker."""

    def kill() -> None:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)

    return kill


def passes(kind: str, folder: Path) -> int:
    spark, table, schema = session(kind), mixed_table(ROWS), dps.Schema.from_dict(MIXED)
    spark_context = None if kind == "connect" else spark.sparkContext
    if spark_context is not None:
        spark_context.setLogLevel("OFF")
    expected = bytes_of(dps.accumulate(table, schema, RECIPE))
    frame = spark.createDataFrame(table)
    if kind == "killed":
        assert bytes_of(dps.accumulate(troubled(frame, kill_once(folder / "killed")), schema, RECIPE)) == expected
        assert (folder / "killed").exists()
        return 1
    assert bytes_of(dps.accumulate(frame, schema, RECIPE)) == expected
    pq.write_table(table, folder / "t.parquet", row_group_size=200)
    engine = dps.Spark(spark, shares=3)
    assert bytes_of(dps.accumulate(folder / "t.parquet", schema, RECIPE, engine)) == expected
    people = dps.Schema.from_dict(schema.to_dict() | UNITS)
    whole = bytes_of(dps.accumulate(visits(), people, RECIPE))
    assert bytes_of(dps.accumulate(spark.createDataFrame(visits()), people, RECIPE, engine)) == whole
    assert bytes_of(dps.accumulate(frame.limit(0), schema, RECIPE)) == bytes_of(
        dps.accumulate(table.slice(0, 0), schema, RECIPE)
    )
    rng = np.random.default_rng(1)
    edges = pa.table({"src": rng.integers(0, 60, 500), "dst": rng.integers(0, 50, 500)})  # some sources are no nodes
    lists = dps.Schema.from_dict(graph_schema(50, undirected=True))
    minhash = dps.Recipe([dps.Part(dps.Race(("neighbours",), 5, 100, hash=dps.MinHash()), 1.0)])
    graph = bytes_of(dps.accumulate(EdgeList(edges, 50, undirected=True), lists, minhash))
    pq.write_table(edges, folder / "edges.parquet", row_group_size=100)
    for each in (spark.createDataFrame(edges), folder / "edges.parquet"):
        assert bytes_of(dps.accumulate(EdgeList(each, 50, undirected=True), lists, minhash, engine)) == graph
    half = dps.Recipe(RECIPE.parts, sampling=dps.RowSampling(rate=0.5))
    assert 200 < dps.accumulate(frame, schema, half).parts[0].sums[0] < 400
    hundred = dps.Recipe(RECIPE.parts, sampling=dps.RowSampling(count=100))
    assert dps.accumulate(frame, schema, hundred).parts[0].sums[0] == 100
    if kind == "connect":
        return 8
    assert bytes_of(dps.accumulate(troubled(frame, fail_twice), schema, RECIPE)) == expected
    with pytest.raises(dps.DpsketchError, match="has no column 'age'"):
        dps.accumulate(frame.drop("age"), schema, RECIPE)
    with pytest.raises(dps.DpsketchError, match=r"^Spark failed \(") as failed:
        dps.accumulate(troubled(frame, _fail), schema, RECIPE)
    assert "in trouble" not in str(failed.value)
    return 11


def _fail() -> None:
    raise ValueError("in trouble")


if __name__ == "__main__":
    print(passes(sys.argv[1], Path(sys.argv[2])))
