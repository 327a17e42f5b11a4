"""A release tells shares of intervals: a single value of a real column is refused, with what to ask instead."""

from __future__ import annotations

import pytest

import dpsketch as dps
from dpsketch.errors import QueryError
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.learn.sql.quantities import quantity_of

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 1000},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 100},
            "y": {"kind": "number", "lower": 0, "upper": 1},
            "pay": {"kind": "integer", "lower": 0, "upper": 50_000},
            "age": {"kind": "integer", "lower": 0, "upper": 120},
            "day": {"kind": "datetime", "lower": "2020-01-01", "upper": "2025-01-01"},
            "c": {"kind": "category", "values": ["a", "b"]},
        },
    }
)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("x = 50", "x between 49.5 and 50.5"),
        ("c = 'a' and 50 = x", "x between 49.5 and 50.5"),
        ("x <> 50 or c = 'a'", "x between 49.5 and 50.5"),
        ("x in (0, 7.5)", "x between 7 and 8"),
        ("pay = 20000", "pay between 19750 and 20250"),
        ("day = '2024-02-03'", "day >= '2024-01-31' and day < '2024-02-01'"),
        ("x = y", "round"),
        ("x + 1 = 51", "round"),
    ],
)
def test_single_values_of_real_columns_are_refused(condition: str, hint: str) -> None:
    with pytest.raises(QueryError, match="too many values to tell the share of a single one") as refused:
        condition_factors(SCHEMA, parse_condition(condition, SCHEMA))
    assert hint in str(refused.value)


@pytest.mark.parametrize("text", ["case when x = 50 then 1 else 0 end", "case x when 50 then 1 else 0 end"])
def test_also_inside_an_expression(text: str) -> None:
    with pytest.raises(QueryError, match="too many values"):
        quantity_of(SCHEMA, parse_condition(text, SCHEMA))


@pytest.mark.parametrize(
    "condition",
    [
        *("x = 0", "x = 100", "x = 500", "x <> 0", "x = null", "x is null", "x <= 50", "round(x) = 50"),
        *("age = 40", "age in (40, 41)", "age = age", "c = 'a'"),
    ],
)
def test_bounds_and_columns_of_few_values_may_be_asked_for(condition: str) -> None:
    assert condition_factors(SCHEMA, parse_condition(condition, SCHEMA))
