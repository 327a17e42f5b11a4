"""`init --check SAMPLE`: formats that are not read, and a statement that rewrites them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import called
from dpsketch.encoding.arrow import source_moments, source_numbers
from dpsketch.encoding.cell_formats import (
    CURRENCY,
    DECIMAL_COMMA,
    PARENTHESES,
    PERCENT,
    SUFFIX,
    THOUSANDS,
    date_formats,
    find_formats,
    number_formats,
)

SAMPLE = """name,pay,fee,day,when,id,share,loss,group
a,"$55,000",12.5,31.12.2025,01/13/2025 2:30 PM,1,12%,(5.50),10-19
b,55k,"1.234,50",30.11.2025,03/04/2025 11:00 AM,2,13.5 %,4,5k+
c,"55,000","3,5",2025-01-01,05/06/2025 12:15 AM,3,,"(1,000)",x
d,1e5,7,,,4,9%,2,y
"""
NUMBERS = {
    "pay": [55_000, 55_000, 55_000, 1e5],
    "fee": [12.5, 1234.5, 3.5, 7],
    "share": [12, 13.5, np.nan, 9],
    "loss": [-5.5, 4, -1000, 2],
}
DATES = {
    "day": [datetime(2025, 12, 31), datetime(2025, 11, 30), datetime(2025, 1, 1), None],
    "when": [datetime(2025, 1, 13, 14, 30), datetime(2025, 3, 4, 11), datetime(2025, 5, 6, 0, 15), None],
}


@pytest.mark.parametrize(
    ("cell", "formats"),
    [
        ("$55,000", (CURRENCY, THOUSANDS)),
        ("55,000", (THOUSANDS,)),
        ("55k", (SUFFIX,)),
        ("1.5M", (SUFFIX,)),
        ("€ 1.234,50", (CURRENCY, DECIMAL_COMMA, THOUSANDS)),
        ("1 234 567", (THOUSANDS,)),
        ("12'500.5", (THOUSANDS,)),
        ("1.234.567", (DECIMAL_COMMA, THOUSANDS)),
        ("3,5", (DECIMAL_COMMA,)),
        ("55 USD", (CURRENCY,)),
        ("-12.5 %", (PERCENT,)),
        ("(5.50)", (PARENTHESES,)),
        *((cell, ()) for cell in ("55000", "-1.5e3", "", "5k+", "10-19", "abc", "(5", "5)", "1,23,4", "2025-01-01")),
    ],
)
def test_formats_of_numbers(cell: str, formats: tuple[str, ...]) -> None:
    assert number_formats(cell) == formats
    if formats:
        assert np.isnan(source_numbers("x", pa.array([cell]), None)).all(), "the encoder does not read it"


def test_formats_of_dates() -> None:
    assert date_formats("01/02/2025") == ["%d/%m/%Y", "%m/%d/%Y"]
    assert date_formats("13/02/2025") == ["%d/%m/%Y"]
    assert date_formats("5 Jan 2025 14:30") == ["%d %b %Y %H:%M"]
    assert date_formats("2025-01-01") == []


def test_columns_of_labels_and_of_numbers_are_left_alone() -> None:
    assert find_formats("x", [pa.array(["5k+", "10-19", "55k", "x"])]) is None, "most of them are labels"
    assert find_formats("x", [pa.array([1.5, None])]) is None
    assert find_formats("x", [pa.array(["1", "2.5", None, ""])]) is None
    found = find_formats("x", [pa.array(["55k", "1"]).dictionary_encode(), pa.array([b"\xff", b"2k"])])
    assert found is not None
    assert (found.cells, found.of, found.example) == (2, 4, "55k")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sample.csv").write_text(SAMPLE)
    (tmp_path / "t.csv").write_text(SAMPLE)
    return tmp_path


def test_the_statement_rewrites_what_was_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("init", "t.csv", "--header", "--check", "sample.csv", "--json")
    done = called(folder, *words)
    facts = json.loads(done.stdout)
    assert {each["column"] for each in facts["check"]} == {*NUMBERS, *DATES}
    assert [each["cells"] for each in facts["check"] if each["column"] == "pay"] == [3]
    monkeypatch.chdir(folder)
    duckdb.sql(facts["rewrite"])
    table = pq.read_table(folder / "t-rewritten.parquet")
    for name, numbers in NUMBERS.items():
        np.testing.assert_allclose(source_numbers(name, table[name], None), numbers)
    for name, dates in DATES.items():
        expected = [np.nan if each is None else np.datetime64(each, "us").astype(float) for each in dates]
        np.testing.assert_array_equal(source_moments(name, table[name]), expected)
    assert table["group"].to_pylist() == ["10-19", "5k+", "x", "y"]
    again = called(folder, "init", "t-rewritten.parquet", "--check", "t-rewritten.parquet")
    assert "SourceError: --check looks at values, and names the table itself" in again.stderr
    pq.write_table(table, folder / "new.parquet")
    again = called(folder, "init", "new.parquet", "--check", "t-rewritten.parquet")
    assert "t-rewritten.parquet: all formats in its 9 columns are read" in again.stderr


def test_the_template_does_not_depend_on_the_sample(folder: Path) -> None:
    plain = called(folder, "init", "t.csv", "--header")
    checked = called(folder, "init", "t.csv", "--header", "--check", "sample.csv")
    assert checked.stdout == plain.stdout
    assert "sample.csv: 6 columns of 9 with cells that would count as missing." in checked.stderr
    assert "copy (select * replace (coalesce(" in checked.stderr


def test_days_and_months_that_cannot_be_told_apart_are_asked_about(folder: Path) -> None:
    (folder / "sample.csv").write_text("d\n01/02/2025\n03/04/2025\n")
    done = called(folder, "init", "t.csv", "--header", "--check", "sample.csv")
    assert "d: all dates also fit %m/%d/%Y. Put the right one into the statement below." in done.stderr
