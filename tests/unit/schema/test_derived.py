"""Sections of columns that are computed from others: what they mean, and the exact words for what is wrong."""

from __future__ import annotations

import tomllib
from typing import Any

import pyarrow as pa
import pytest

from dpsketch.errors import SchemaError
from dpsketch.schema.columns import Category, Datetime, Integer, Number
from dpsketch.schema.schema import Csv, Schema
from dpsketch.schema.template import schema_template

STORED: dict[str, Any] = {
    "pickup": {"kind": "datetime", "lower": "2020-03-01", "upper": "2022-06-01"},
    "age": {"kind": "integer", "lower": 0, "upper": 120},
    "weight": {"kind": "number", "lower": 0, "upper": 300},
    "sex": {"kind": "category", "values": ["f", "m"]},
}


def schema_with(**sections: Any) -> Schema:
    return Schema.from_dict({"columns": {**STORED, **sections}})


def test_parts_have_the_bounds_of_the_calendar() -> None:
    parts = {
        "year": (2020, 2022),
        "month": (1, 12),
        "day": (1, 31),
        "hour": (0, 23),
        "minute": (0, 59),
        "dayofweek": (0, 6),
    }
    schema = schema_with(**{part: {"from": "pickup", "part": part} for part in (*parts, "date")})
    for part, (lower, upper) in parts.items():
        column = schema.column(part)
        assert isinstance(column, Integer)
        assert (column.lower, column.upper) == (lower, upper)
    date, pickup = schema.column("date"), schema.column("pickup")
    assert isinstance(date, Datetime)
    assert isinstance(pickup, Datetime)
    assert date.bounds == pickup.bounds


def test_sources_need_not_be_declared() -> None:
    schema = schema_with(
        bmi={"kind": "number", "lower": 5, "upper": 80, "ratio": ["weight", "area"]},
        hour={"from": "end", "part": "hour"},
        year={"from": "end", "part": "year", "lower": 2020, "upper": 2020 + 1},
        gain={"kind": "number", "lower": 5, "upper": 80, "transform": "log", "difference": ["age", "area"]},
    )
    assert schema.stored == (*STORED, "area", "end")
    assert isinstance(schema.column("bmi"), Number)
    assert schema.part_of("end", "hour") == schema.column("hour")
    assert schema.part_of("pickup", "hour") is None
    assert schema.as_stored().stored == tuple(column.name for column in schema.columns)


def test_ranges_have_labels_in_order() -> None:
    schema = schema_with(
        group={"from": "age", "edges": [18, 40, 41]},
        heavy={"from": "weight", "edges": [60, 80.5]},
        named={"from": "weight", "edges": [80], "values": ["light", "heavy"]},
    )
    group, heavy, named = (schema.column(name) for name in ("group", "heavy", "named"))
    assert isinstance(group, Category)
    assert group.values == ("under 18", "18-39", "40", "41+")
    assert group.in_order
    assert isinstance(heavy, Category)
    assert heavy.values == ("under 60", "60 to under 80.5", "80.5+")
    assert isinstance(named, Category)
    assert named.values == ("light", "heavy")


def test_computed_columns_survive_a_file() -> None:
    schema = schema_with(
        hour={"from": "pickup", "part": "hour"},
        date={"from": "pickup", "part": "date"},
        group={"from": "age", "edges": [18, 40]},
        bmi={"kind": "number", "lower": 5, "upper": 80, "ratio": ["weight", "area"]},
    )
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema != schema.as_stored()


# ruff: noqa: E501
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"from": "pickup"}, "columns.x must be computed in one way",
     'write from = "pickup" and part = "hour"; from = "age" and edges = [18, 65]; ratio = ["weight", "height"]; or difference = ["end", "start"]'),
    ({"from": "pickup", "part": "hour", "edges": [1]}, "columns.x must be computed in one way",
     'write from = "pickup" and part = "hour"; from = "age" and edges = [18, 65]; ratio = ["weight", "height"]; or difference = ["end", "start"]'),
    ({"from": "pickup", "ratio": ["a", "b"]}, "columns.x must be computed in one way",
     'write from = "pickup" and part = "hour"; from = "age" and edges = [18, 65]; ratio = ["weight", "height"]; or difference = ["end", "start"]'),
    ({"from": 3, "part": "hour"}, "columns.x.from must be the name of a column, got 3 instead", ""),
    ({"from": "pickup", "part": "century"},
     "columns.x.part must be one of year, quarter, month, week, day, dayofyear, dayofweek, isodow, hour, minute, second, date, got 'century' instead", ""),
    ({"from": "age", "part": "hour"}, "columns.x.from: column 'age' is declared as integer, which has no hour", "name a datetime column"),
    ({"from": "pickup", "part": "hour", "kind": "number"}, "columns.x.kind is integer, got 'number' instead", "leave it out"),
    ({"from": "pickup", "part": "hour", "missing": 3}, "columns.x.missing is not a known key", "the keys here are kind, from, part, lower, upper"),
    ({"from": "end", "part": "year"}, "columns.x.lower is still blank", "fill it in from public knowledge, not from the data: bounds taken from data leak it"),
    ({"from": "end", "part": "date"}, "columns.x.lower is still blank", "fill it in from public knowledge, not from the data: bounds taken from data leak it"),
    ({"from": "sex", "edges": [1]}, "columns.x.from: column 'sex' is declared as category, not as a number", "name number columns"),
    ({"from": "age", "edges": [3, 2]}, "columns.x.edges must be a rising list of up to 1000 numbers, got [3, 2] instead", ""),
    ({"from": "age", "edges": []}, "columns.x.edges must be a rising list of up to 1000 numbers, got [] instead", ""),
    ({"from": "age", "edges": [3], "values": ["a"]}, "columns.x.values must name the 2 ranges that 1 edges make", ""),
    ({"ratio": ["age"], "lower": 0, "upper": 1}, "columns.x.ratio must name two columns, got ['age'] instead", 'ratio = ["a", "b"]'),
    ({"ratio": ["age", "sex"], "lower": 0, "upper": 1}, "columns.x.ratio: column 'sex' is declared as category, not as a number", "name number columns"),
    ({"difference": ["age", "weight"]}, "columns.x.lower is still blank", "fill it in from public knowledge, not from the data: bounds taken from data leak it"),
    ({"from": "hour", "part": "hour"}, "columns.x: 'hour' is itself computed", "compute it from columns of the table"),
    ({"from": "a\x07", "part": "hour"}, "columns.x: 'a\\u0007' has a character that cannot be seen", "write it without"),
    ({"from": "person", "edges": [5]}, "columns.x: 'person' is the privacy unit, from which nothing is computed", "ids of people are never sketched"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "fact", "hint"), WRONG)
def test_wrong_sections_are_refused(facts: dict[str, Any], fact: str, hint: str) -> None:
    sections = {**STORED, "hour": {"from": "pickup", "part": "hour"}, "x": facts}
    with pytest.raises(SchemaError) as refused:
        Schema.from_dict({"privacy": {"unit": "person", "max_rows_per_unit": 1}, "columns": sections})
    assert (refused.value.fact, refused.value.hint or "") == (fact, hint)


def test_the_template_offers_parts_of_dates() -> None:
    """Without the comment signs, its last lines are a section."""
    text = schema_template([("a b", pa.timestamp("us"))], Csv())
    section = tomllib.loads(text[text.index("# [columns.") :].replace("# ", ""))
    assert section == {"columns": {"a b_hour": {"from": "a b", "part": "hour"}}}
    assert "part" not in schema_template([("n", pa.int64())], Csv())
