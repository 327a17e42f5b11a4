"""What `init` and `release` say about CSV files, whose first line may be a record and whose quotes may be open."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import called
from dpsketch.errors import SchemaError
from dpsketch.schema.template import schema_text

SCHEMA = """
[about]
name = "t"
[privacy]
rows = 10
{csv}
[columns.age]
kind = "integer"
lower = 0
upper = 120
"""
RELEASE = (
    "release",
    "t.csv",
    "--schema",
    "s.toml",
    "--epsilon",
    "1",
    "--ledger",
    "l.db",
    "--create-ledger",
    "-o",
    "t.sketch",
)


def write(folder: Path, table: bytes, csv: str = "") -> None:
    (folder / "t.csv").write_bytes(table)
    (folder / "s.toml").write_text(SCHEMA.format(csv=csv))


def rows(folder: Path) -> int:
    schema = dps.Schema.load(folder / "s.toml")
    return int(dps.accumulate(folder / "t.csv", schema, dps.Recipe([dps.Part(dps.Count(), 1.0)])).parts[0].sums[0])


def test_init_prints_the_first_line_only_if_told_that_it_is_a_header(tmp_path: Path) -> None:
    write(tmp_path, b"ALICE,33,7\nBOB,44,8\n")
    refused = called(tmp_path, "init", "t.csv")
    assert refused.returncode == 1
    assert "pass --header if it does" in refused.stderr
    template = called(tmp_path, "init", "t.csv", "--no-header")
    facts = tomllib.loads(template.stdout)
    assert facts["csv"] == {"columns": ["column_1", "column_2", "column_3"]}
    assert list(facts["columns"]) == facts["csv"]["columns"]
    assert "ALICE" not in refused.stdout + refused.stderr + template.stdout + template.stderr
    assert list(tomllib.loads(called(tmp_path, "init", "t.csv", "--header").stdout)["columns"]) == ["ALICE", "33", "7"]


def test_init_of_partitions_without_headers_lists_the_columns_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t" / "sex=f").mkdir(parents=True)
    (tmp_path / "t" / "sex=f" / "a.csv").write_text("1,2\n")
    facts = tomllib.loads(called(tmp_path, "init", "t", "--no-header").stdout)
    assert facts["csv"]["columns"] == ["column_1", "column_2"]
    assert list(facts["columns"]) == ["column_1", "column_2", "sex"]


@pytest.mark.parametrize("command", [RELEASE, ("graph", "t.csv", "--nodes", "9", "--dataset", "g", *RELEASE[4:])])
def test_errors_never_print_the_first_line(command: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, b"ALICE,33,agee\nBOB,44,8\n")
    said = called(tmp_path, *command)
    assert said.returncode == 1
    assert "t.csv has no column '" in said.stderr
    assert "[csv] columns" in said.stderr
    assert not any(cell in said.stdout + said.stderr for cell in ("ALICE", "33", "agee"))


def test_equal_names_are_told_by_their_positions(tmp_path: Path) -> None:
    write(tmp_path, b"age,ALICE,x,ALICE\n")
    said = called(tmp_path, "init", "t.csv", "--header")
    assert said.stderr.startswith("SourceError: t.csv: columns 2 and 4 have the same name\n")
    assert "ALICE" not in said.stderr
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["b", "b"]), tmp_path / "t.parquet")
    assert "columns 1 and 2 have the same name" in called(tmp_path, "init", "t.parquet").stderr


def test_a_file_without_a_header_is_read_by_declared_names(tmp_path: Path) -> None:
    write(tmp_path, b"33,a\n44,b\n", '[csv]\ncolumns = ["age", "name"]')
    assert rows(tmp_path) == 2
    said = called(tmp_path, *RELEASE)
    assert said.returncode == 0, said.stderr


def test_a_line_is_a_row_unless_declared_and_the_statement_says_so(tmp_path: Path) -> None:
    table = b'name,age\n"a' + b"\n" * 8 + b'b",33\nc,44\n'
    write(tmp_path, table)
    assert rows(tmp_path) == 3  # two halves of a record and a whole one; empty lines are none
    said = called(tmp_path, *RELEASE)
    assert "CSV: every line was read as one row" in said.stderr
    assert "every quote in the CSV files is closed" not in called(tmp_path, "show", "t.sketch").stdout
    write(tmp_path, table, "[csv]\nmultiline = true")
    assert rows(tmp_path) == 2
    said = called(tmp_path, *RELEASE, "--force", "--dataset", "other")
    assert "every line" not in said.stderr
    assert "Provided that      every quote in the CSV files is closed" in called(tmp_path, "show", "t.sketch").stdout


def test_the_layout_stays_with_the_schema(tmp_path: Path) -> None:
    write(tmp_path, b"", '[csv]\nmultiline = true\ncolumns = ["age", "na me"]')
    schema = dps.Schema.load(tmp_path / "s.toml")
    assert dps.Schema.from_dict(schema.to_dict()) == schema
    (tmp_path / "again.toml").write_text(schema_text(schema, "again"))
    assert dps.Schema.load(tmp_path / "again.toml") == schema


@pytest.mark.parametrize(
    ("csv", "message"),
    [
        ("csv = 1", "csv must be a section"),
        ("[csv]\nquote = 1", "csv.quote is not a known key"),
        ("[csv]\nmultiline = 1", "csv.multiline must be true or false, got 1 instead"),
        ("[csv]\ncolumns = []", "csv.columns must be a list of names"),
        ("[csv]\ncolumns = [[]]", "csv.columns must be a list of names"),
        ('[csv]\ncolumns = ["a", "a"]', "csv.columns must list up to 10000 different names"),
    ],
)
def test_wrong_layouts_are_refused(csv: str, message: str) -> None:
    text = SCHEMA.format(csv=csv) if csv.startswith("[") else csv + SCHEMA.format(csv="")
    with pytest.raises(SchemaError, match=message):
        dps.Schema.from_dict(tomllib.loads(text))
