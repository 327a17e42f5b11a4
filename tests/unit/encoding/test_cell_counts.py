"""Counts of how cells are read, against cells written by hand, and the same for any layout."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.encoding.cell_counts import CellCounts, count_cells

SCHEMA = dps.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "integer", "lower": 0, "upper": 120},
            "pay": {"kind": "number", "lower": 1, "upper": 100, "transform": "log", "missing": 5},
            "sex": {"kind": "category", "values": ["f", "m"]},
            "flag": {"kind": "boolean"},
            "day": {"kind": "datetime", "lower": "2020-01-01", "upper": "2021-01-01"},
        }
    }
)


@pytest.mark.parametrize(
    ("name", "cells", "missing", "unreadable", "outside"),
    [
        ("age", pa.array(["7", "-1", "121", "", " ", None, "seven", "inf", "120"]), 3, 2, 2),
        ("age", pa.array([7, -1, 121, None]), 1, 0, 2),
        ("age", pa.array([7.0, float("nan"), float("inf"), None, 500.0]), 2, 1, 1),
        ("pay", pa.array(["0.5", "x", "", "100", "1"]), 1, 1, 1),
        ("sex", pa.array(["f", "m", "x", "", None, "other"]), 2, 0, 2),
        ("flag", pa.array(["yes", "no", "maybe", ""]), 1, 1, 0),
        ("day", pa.array(["2020-05-01", "2019-12-31", "2020-02-30", None]), 1, 1, 1),
    ],
)
def test_cells_are_counted(name: str, cells: pa.Array, missing: int, unreadable: int, outside: int) -> None:
    expected = CellCounts(name, missing, unreadable, outside)
    assert count_cells(SCHEMA.column(name), cells) == expected
    assert count_cells(SCHEMA.column(name), cells.dictionary_encode()) == expected
    halves = (count_cells(SCHEMA.column(name), part) for part in (cells.slice(0, 2), cells.slice(2)))
    assert sum(halves, CellCounts(name)) == expected
