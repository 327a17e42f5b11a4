"""A release tells shares of intervals, and of values that many records have: others are refused, with a hint."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
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
        ("day = '2024-02-03 10:00'", "day >= '2024-01-31' and day < '2024-02-01'"),
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


@pytest.fixture(scope="module")
def view() -> dps.View:
    """A third of the records has the value 50.5."""
    rng = np.random.default_rng(4)
    values = np.where(np.arange(30_000) % 3 == 0, 50.5, rng.uniform(0, 100, 30_000))
    facts = {"x": {"kind": "number", "lower": 0, "upper": 100}, "c": {"kind": "category", "values": ["a", "b"]}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 30_000}, "columns": facts})
    table = pa.table({"x": values, "c": np.where(np.arange(30_000) % 2, "a", "b")})
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=dps.Budget(1.0)))
    return dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("x = 50.5", 10_000),
        ("50.5 = x and c = 'a'", 5_000),
        ("x in (50.5, 50.5)", 10_000),
        ("x <> 50.5", 20_000),
        ("not (x = 50.5)", 20_000),
        ("x in (0, 50.5)", 10_000),
    ],
)
def test_values_that_many_records_have_may_be_asked_for(view: dps.View, condition: str, truth: int) -> None:
    for answer in (view.count(condition), view.sql(f"select count(*) from sketch where {condition}").rows[0][0]):
        assert answer.value == pytest.approx(truth, abs=5 * answer.stderr)
        assert answer.stderr < 300


def test_values_beyond_a_bound_are_unknown_among_the_records_at_it(view: dps.View) -> None:
    """How many were clamped to the bound, and from what, nobody knows."""
    answer = view.count("x <> 500")
    assert not answer.known
    assert "clamped to 100" in answer.reason
    low, high = answer.interval()
    assert low <= 30_000 <= high
    assert high - low < 1000


@pytest.mark.parametrize("condition", ["x = 51.5", "x in (50.5, 51.5)", "x <> 51.5 and c = 'a'"])
def test_values_that_few_records_have_are_refused(view: dps.View, condition: str) -> None:
    for ask in (view.count, lambda text: view.sql(f"select count(*) from sketch where {text}")):
        with pytest.raises(QueryError, match="that few records have"):
            ask(condition)


def test_a_value_half_way_between_levels_is_where_its_records_are() -> None:
    """The level of 120 between 60 and 140 is 49,150.5, rounded to an even one."""
    values = np.where(np.arange(20_000) % 4 == 0, 120.0, np.random.default_rng(5).uniform(60, 140, 20_000))
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 20_000}, "columns": {"x": {"kind": "number", "lower": 60, "upper": 140}}}
    )
    raw = dps.accumulate(pa.table({"x": values}), schema, dps.Recipe.general(schema, budget=dps.Budget(1.0)))
    view = dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))
    for condition, truth in {
        "x >= 120": (values >= 120).sum(),
        "x > 120": (values > 120).sum(),
        "x <= 120": (values <= 120).sum(),
        "x < 120": (values < 120).sum(),
        "x = 120": (values == 120).sum(),
    }.items():
        answer = view.count(condition)
        assert answer.value == pytest.approx(truth, abs=5 * answer.stderr)
        assert answer.stderr < 300
