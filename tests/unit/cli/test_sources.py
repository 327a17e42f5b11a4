"""Commands on several files, databases, lake tables and growing tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_sqlite import dbapi as sqlite
from deltalake import write_deltalake

import dpsketch as dps
from command_line import called

SCHEMA = """
[privacy]
rows = 100
[columns.x]
kind = "integer"
lower = 0
upper = 99
"""
RECIPE = """
[[parts]]
map = "histogram"
share = 1.0
bins = 4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.toml").write_text(SCHEMA)
    (tmp_path / "r.toml").write_text(RECIPE)
    for number in range(3):
        pq.write_table(pa.table({"x": range(30 * number, 30 * number + 30)}), tmp_path / f"{number}.parquet")
    return tmp_path


def sums(path: Path) -> list[int]:
    found: list[int] = dps.RawSketch.load(path).parts[0].sums.tolist()
    return found


def accumulate(folder: Path, *words: str) -> None:
    done = called(folder, "accumulate", *words, "--schema", "t.toml", "--recipe", "r.toml", "-o", "a.raw", "--force")
    assert done.returncode == 0, done.stderr


def test_several_files_patterns_databases_and_lakes(folder: Path) -> None:
    accumulate(folder, "0.parquet", "1.parquet", "2.parquet")
    expected = sums(folder / "a.raw")
    assert sum(expected) == 90
    table = pa.table({"x": range(90)})
    with sqlite.connect(str(folder / "t.db")) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("t", table)
        connection.commit()
    write_deltalake(folder / "lake", table)
    for words in (["?.parquet"], ["sqlite:///t.db", "--table", "t"], ["lake"], [f"delta://{folder}/lake"]):
        accumulate(folder, *words)
        assert sums(folder / "a.raw") == expected, words
    accumulate(folder, "sqlite:///t.db", "--query", "select * from t where x < 10")
    assert sum(sums(folder / "a.raw")) == 10
    template = called(folder, "init", "sqlite:///t.db", "--table", "t")
    assert "[columns.x]" in template.stdout
    for words, fact in {
        ("sqlite:///t.db",): "sqlite:///t.db needs a table or a query",
        ("0.parquet", "0.parquet"): "0.parquet: a file is there twice",
        ("0.parquet", "1.parquet", "--table", "t"): "--table and --query read one database",
        ("0.parquet", "--engine", "ray"): "--engine must be one of local, spark, dask, got 'ray' instead",
        ("0.parquet", "--master", "local[2]"): "--master is for --engine spark or dask",
    }.items():
        refused = called(folder, "accumulate", *words, "--schema", "t.toml", "--recipe", "r.toml", "-o", "b.raw")
        assert refused.returncode == 1
        assert fact in refused.stderr
        assert not (folder / "b.raw").exists()


def test_a_growing_table(folder: Path) -> None:
    accumulate(folder, "0.parquet")
    added = called(folder, "accumulate", "1.parquet", "2.parquet", "--append", "a.raw")
    assert added.returncode == 0, added.stderr
    assert sum(sums(folder / "a.raw")) == 90
    again = called(folder, "accumulate", "1.parquet", "--append", "a.raw")
    assert "a file was counted before" in again.stderr
    assert sum(sums(folder / "a.raw")) == 90
    described = called(folder, "accumulate", "1.parquet", "--append", "a.raw", "--schema", "t.toml")
    assert "a raw sketch brings its own schema and recipe" in described.stderr
    assert "the raw sketch needs a file" in called(folder, "accumulate", "1.parquet", "--schema", "t.toml").stderr
