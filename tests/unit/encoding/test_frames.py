"""Whatever holds a user's rows is read alike, or refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.encoding.frames import column_names, named_columns, read_codes, read_sets
from dpsketch.errors import QueryError
from dpsketch.schema.columns import IdSet

SCHEMA = dps.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "integer", "lower": 0, "upper": 120},
            "sex": {"kind": "category", "values": ["f", "m"]},
            "since": {"kind": "datetime", "lower": "2020-01-01", "upper": "2025-01-01"},
            "ids": {"kind": "set", "universe": 10},
        }
    }
)
NAMES = ("sex", "age", "since")
ROWS = {
    "age": [30, None, 700],
    "sex": ["f", "m", None],
    "since": np.array(["2021-01-01", "2024-06-30", "NaT"], "datetime64[us]"),
    "more": [1, 2, 3],
}


@pytest.mark.parametrize(
    "X",
    [
        pa.table(ROWS),
        pa.RecordBatch.from_pydict(ROWS),
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        pd.DataFrame(ROWS)[[*NAMES]].to_numpy(),
        pd.DataFrame(ROWS)[[*NAMES]].to_numpy().tolist(),
        pa.concat_tables([pa.table(ROWS).slice(0, 1), pa.table(ROWS).slice(1)]),
    ],
    ids=["table", "batch", "pandas", "polars", "matrix", "rows", "chunks"],
)
def test_every_kind_of_table_has_the_same_codes(X: Any) -> None:
    expected = read_codes(SCHEMA, NAMES, ROWS)
    codes = read_codes(SCHEMA, NAMES, X)
    assert list(codes) == list(NAMES)
    for name in NAMES:
        assert codes[name].tolist() == expected[name].tolist(), name


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({"age": [1], "sex": ["f"]}, "the rows lack column 'since'\nHint: give sex, age, since"),
        (ROWS | {"age": [1]}, "different lengths"),
        (ROWS | {"age": 1}, "column 'age' is a single value"),
        (ROWS | {"sex": "f"}, "column 'sex' is a single value"),
        (np.zeros((2, 2)), "X must have 3 columns: sex, age, since"),
        (np.zeros(3), "X must have 3 columns"),
        ([[1, 2, 3], [1, 2]], "X must have 3 columns"),
        (None, "a NoneType is not a table with named columns"),
        (pd.Series([1]), "a Series is not a table with named columns"),
    ],
)
def test_refusals(X: Any, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        read_codes(SCHEMA, NAMES, X)


def test_one_column_of_a_matrix() -> None:
    with pytest.raises(QueryError, match="X must have 1 column: age"):
        named_columns(["age"], np.zeros((2, 2)))
    assert column_names(np.zeros((2, 2))) is None


def test_sets_of_ids() -> None:
    column = SCHEMA.column("ids")
    assert isinstance(column, IdSet)
    rows = [[1, 12], None, np.array([3])]
    for each in (rows, pa.array([[1, 12], None, [3]])):
        sets = read_sets(column, each)
        assert sets.offsets.tolist() == [0, 2, 2, 3]
        assert sets.ids.tolist() == [1, 10, 3]
    with pytest.raises(QueryError, match="column 'ids' does not hold lists of ids"):
        read_sets(column, [5])
