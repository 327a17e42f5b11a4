"""Spark and Dask give the same bytes as this machine's threads, whatever happens to their tasks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import dpsketch as dps
from conftest import MIXED, mixed_table
from dpsketch.engines import spark
from dpsketch.engines.engine import Pass

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(("kind", "passed"), [("classic", 11), ("connect", 8), ("killed", 1)])
def test_spark(kind: str, passed: int, tmp_path: Path) -> None:
    """Data frames, files, units, samples, an empty table, tasks that fail twice, an executor that is killed."""
    assert shutil.which("java"), "Spark needs Java 17 or later: apt-get install default-jre-headless"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(TESTS / "spark_passes.py"), kind, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == str(passed)


def bytes_of(raw: dps.RawSketch) -> list[bytes]:
    return [part.sums.tobytes() for part in raw.parts]


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """Two processes."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_dask(workers: Any, recipe: dps.Recipe, tmp_path: Path) -> None:
    """Data frames, files and units; lists stay lists where Dask is told so, and are refused as text."""
    table, schema = mixed_table(1000), dps.Schema.from_dict(MIXED)
    expected = bytes_of(dps.accumulate(table, schema, recipe))
    frame = dask.dataframe.from_pandas(table.to_pandas(), npartitions=9)
    assert bytes_of(dps.accumulate(frame, schema, recipe)) == expected
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=130)
    assert bytes_of(dps.accumulate(tmp_path / "t.parquet", schema, recipe, dps.Dask(workers))) == expected
    ids = pa.array(np.random.default_rng(0).integers(0, 200, 1000))
    units = {"privacy": {"rows": 1000, "unit": "person", "max_rows_per_unit": 2, "unit_kind": "integer"}}
    people, visits = dps.Schema.from_dict(MIXED | units), table.append_column("person", ids)
    whole = bytes_of(dps.accumulate(visits, people, recipe))
    frame = dask.dataframe.from_pandas(visits.to_pandas(), npartitions=3)
    assert bytes_of(dps.accumulate(frame, people, recipe, dps.Dask(shares=5))) == whole
    sampled = dps.Recipe(recipe.parts, sampling=dps.RowSampling(count=300))
    assert dps.accumulate(frame, schema, sampled).parts[0].sums[0] == 300


def test_lists_in_dask(workers: Any) -> None:
    table = pa.table({"tags": [[1, 2], [2], [], [3, 1]] * 20})
    columns = {"tags": {"kind": "set", "universe": 5}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 100}, "columns": columns})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Race(("tags",), 5, 20, hash=dps.MinHash()), 0.9)])
    expected = bytes_of(dps.accumulate(table, schema, recipe))
    frame = table.to_pandas()
    with dask.config.set({"dataframe.convert-string": False}):
        kept = dask.dataframe.from_pandas(frame, npartitions=3)
        assert bytes_of(dps.accumulate(kept, schema, recipe)) == expected
    with dask.config.set({"dataframe.convert-string": True}):
        turned = dask.dataframe.from_pandas(frame, npartitions=3)
        with pytest.raises(dps.DpsketchError, match="Dask has turned the lists of column 'tags' into text"):
            dps.accumulate(turned, schema, recipe)


class Collected:
    """Rows as a data frame of Spark hands them to the driver."""

    def __init__(self, rows: list[tuple[int, bytes, bytes]]) -> None:
        self.rows = rows

    def toLocalIterator(self) -> Iterator[tuple[int, bytes, bytes]]:
        return iter(self.rows)


@pytest.mark.parametrize("mixed", ["two samples", "one sample twice"])
def test_sums_of_two_samples_are_never_mixed(mixed: str) -> None:
    """A task that ran again drew other masks: a record in pieces of both would count more than its sensitivity."""
    schema = dps.Schema.from_dict(MIXED)
    one_pass = Pass(schema, dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(bins=8), 0.5)]))
    pieces = spark._pieces(one_pass)
    data = [np.ones(each.stop - each.start, np.int64).tobytes() for each in pieces]
    attempts = [bytes(16), bytes(15) + b"1"] if mixed == "two samples" else [bytes(32), bytes(32)]
    agreed = Collected([(number, bytes(16), each) for number, each in enumerate(data)])
    total = spark._collected(one_pass, agreed, pieces)  # type: ignore[arg-type]
    assert all((sums == 1).all() for sums in total.sums)
    rows = [(number, attempts[number], each) for number, each in enumerate(data)]
    with pytest.raises(dps.DpsketchError, match="the sums mix two samples"):
        spark._collected(one_pass, Collected(rows), pieces)  # type: ignore[arg-type]
