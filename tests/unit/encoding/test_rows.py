"""Computed columns: a record's code follows from its own cells, however a table stores them."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.encoding.frames import read_codes
from dpsketch.encoding.rows import encode
from dpsketch.errors import DpsketchError, QueryError
from dpsketch.schema.calendar import PARTS

PARTS_SCHEMA = {
    "privacy": {"rows": 100},
    "columns": {
        "d": {"kind": "datetime", "lower": "1900-01-01", "upper": "2100-01-01"},
        **{f"d_{part}": {"from": "d", "part": part} for part in (*PARTS, "date")},
    },
}
NUMBERS = {
    "privacy": {"rows": 10},
    "columns": {
        "age": {"kind": "integer", "lower": 0, "upper": 120},
        "group": {"from": "age", "edges": [18, 19, 65]},
        "bmi": {"kind": "number", "lower": 0, "upper": 10, "ratio": ["weight", "height"]},
        "gain": {"kind": "number", "lower": -5, "upper": 5, "difference": ["weight", "height"]},
    },
}
WEIGHT = ["8", "1", None, "x", "6", "1e308", "-3", "nan"]
HEIGHT = ["2", "0", "3", "3", "", "1e-308", "1.5", "2"]
AGES = [17, 18, 19, 64, 65, 200, None, -4]


def values(schema: dps.Schema, table: pa.Table, name: str) -> list[float]:
    codes = encode(schema, table.combine_chunks().to_batches()[0]).codes[schema.index(name)]
    return schema.column(name).values_of(codes).tolist()


def numbers() -> pa.Table:
    return pa.table({"weight": WEIGHT, "height": HEIGHT, "age": pa.array(AGES)})


def test_parts_of_dates_are_those_of_duckdb() -> None:
    rng = np.random.default_rng(7)
    moments = rng.integers(-2 * 10**15, 4 * 10**15, 500).astype("M8[us]")
    schema, table = dps.Schema.from_dict(PARTS_SCHEMA), pa.table({"d": moments})
    for part in PARTS:
        wanted = duckdb.sql(f"select date_part('{part}', d) from \"table\"").fetchall()
        assert values(schema, table, f"d_{part}") == [float(value) for (value,) in wanted], part
    level = 200 * 365.25 * 86_400e6 / 65_534
    days = moments.astype("M8[D]").astype("M8[us]").astype(np.float64)
    assert np.abs(np.array(values(schema, table, "d_date")) - days).max() <= level


def test_sunday_is_zero_and_monday_of_iso_is_one() -> None:
    schema = dps.Schema.from_dict(PARTS_SCHEMA)
    table = pa.table({"d": ["2024-03-03T23:59:59", "2024-03-04", "soon", "9999-12-31"]})
    assert values(schema, table, "d_dayofweek")[:2] == [0, 1]
    assert values(schema, table, "d_isodow")[:2] == [7, 1]
    assert np.isnan(values(schema, table, "d_hour")[2])
    assert values(schema, table, "d_year")[3] == 2100, "clamped to the bounds"


def test_ratios_and_differences() -> None:
    schema = dps.Schema.from_dict(NUMBERS)
    nan = np.nan
    assert values(schema, numbers(), "bmi") == pytest.approx([4, nan, nan, nan, nan, 10, 0, nan], abs=1e-3, nan_ok=True)
    assert values(schema, numbers(), "gain") == pytest.approx(
        [5, 1, nan, nan, nan, 5, -4.5, nan], abs=1e-3, nan_ok=True
    )


def test_edges_begin_their_range() -> None:
    schema = dps.Schema.from_dict(NUMBERS)
    group = schema.column("group")
    assert group.labels == ("under 18", "18", "19-64", "65+", "other")
    labels = [None if np.isnan(level) else group.labels[int(level)] for level in values(schema, numbers(), "group")]
    assert labels == ["under 18", "18", "19-64", "19-64", "65+", "65+", None, "under 18"]


def test_declared_numbers_replace_missing_cells_of_sources_too() -> None:
    facts = {"columns": NUMBERS["columns"] | {"age": {"kind": "integer", "lower": 0, "upper": 120, "missing": 70}}}
    schema = dps.Schema.from_dict(facts)
    assert values(schema, numbers(), "group")[6] == 3


def test_layouts_and_batches_do_not_matter() -> None:
    schema = dps.Schema.from_dict(NUMBERS)
    recipe = dps.Recipe([dps.Part(dps.Marginals(bins=8), 1.0)])
    plain = numbers()
    expected = dps.accumulate(plain, schema, recipe).parts[0].sums.tobytes()
    encoded = pa.table({name: plain[name].combine_chunks().dictionary_encode() for name in plain.column_names})
    chunks = pa.concat_tables([plain.slice(0, 3), plain.slice(3, 0), plain.slice(3)])
    wide = plain.append_column("bmi", pa.array([99.0] * len(plain)))  # a stored column of that name is not read
    for source in (encoded, chunks, wide, plain.take([7, 6, 5, 4, 3, 2, 1, 0]), plain.to_batches(max_chunksize=1)):
        for engine in (dps.Local(threads=1), dps.Local(threads=3, batch_rows=2)):
            assert dps.accumulate(source, schema, recipe, engine).parts[0].sums.tobytes() == expected


def test_one_cell_changes_one_record() -> None:
    schema, before = dps.Schema.from_dict(NUMBERS), numbers()
    for cell in ("0", "-1e400", "∞", "1e-320", None):
        after = before.set_column(0, "weight", pa.array([*WEIGHT[:3], cell, *WEIGHT[4:]]))
        codes = [encode(schema, each.combine_chunks().to_batches()[0]).codes for each in (before, after)]
        assert (np.delete(codes[0], 3, axis=1) == np.delete(codes[1], 3, axis=1)).all()


def test_sources_that_hold_no_numbers_are_refused_without_their_content() -> None:
    schema = dps.Schema.from_dict(NUMBERS)
    table = numbers().set_column(0, "weight", pa.array([["secret"]] * 8))
    with pytest.raises(DpsketchError, match="column 'weight' is needed for a computed column") as refused:
        dps.accumulate(table, schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]))
    assert "secret" not in str(refused.value)
    with pytest.raises(DpsketchError, match="has no column 'height'"):
        dps.accumulate(numbers().drop_columns("height"), schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]))


def test_rows_of_users_may_hold_a_column_or_what_it_is_computed_from() -> None:
    schema = dps.Schema.from_dict(NUMBERS)
    computed = read_codes(schema, ["bmi", "age"], {"weight": [8.0], "height": [2.0], "age": [30]})
    given = read_codes(schema, ["bmi", "age"], {"bmi": [4.0], "age": [30]})
    assert [codes.tolist() for codes in computed.values()] == [codes.tolist() for codes in given.values()]
    assert read_codes(schema, ["bmi"], np.array([[4.0]]))["bmi"].tolist() == given["bmi"].tolist()
    with pytest.raises(QueryError, match="the rows lack column 'height'"):
        read_codes(schema, ["bmi"], {"weight": [8.0]})
    with pytest.raises(QueryError, match="column 'weight' is a single value"):
        read_codes(schema, ["bmi"], {"weight": 8.0, "height": [2.0]})
