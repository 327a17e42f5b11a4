"""Numbers that are asked about, in columns whose values are few: whole numbers declared as real ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.learn.sql.expressions import condition_factors, parse_condition

ROWS = 100_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "age": {"kind": "number", "lower": 0, "upper": 97},
            "pay": {"kind": "number", "lower": 0, "upper": 97},
            "days": {"kind": "integer", "lower": 0, "upper": 365},
            "ok": {"kind": "boolean"},
        },
    }
)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(SEED)
    age, pay = random.normal(40, 12, (2, ROWS)).clip(1, 96)
    days = np.rint(random.normal(150, 40, ROWS).clip(0, 365)).astype(int)
    return pa.table({"age": np.rint(age), "pay": pay, "days": days, "ok": random.random(ROWS) < age / 97})


@pytest.fixture(scope="module")
def view(table: pa.Table) -> dps.View:
    budget = dps.Budget(5.0)
    raw = dps.accumulate(table, SCHEMA, dps.Recipe.general(SCHEMA, rows=ROWS, budget=budget))
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))


@pytest.mark.parametrize("also", ["", " and ok"])
@pytest.mark.parametrize("value", [31, 38, 40, 47])
def test_a_number_that_many_have_is_met_or_not_as_the_condition_says(view, table, value, also):
    """About 3 % of the records have it: half of them would be as wrong for one condition as for the other."""
    age, ok = table["age"].to_numpy(), table["ok"].to_numpy() if also else True
    holds = {"<=": age <= value, "<": age < value, ">=": age >= value, ">": age > value}
    for operator, truth in holds.items():
        answer = view.fraction(f"age {operator} {value}{also}")
        assert answer.value == pytest.approx(np.mean(truth & ok), abs=0.006), operator
    between = view.fraction(f"age between {value - 1} and {value}{also}").value
    assert between == pytest.approx(np.mean((age >= value - 1) & (age <= value) & ok), abs=0.01)


def test_distribution_functions_and_conditions_agree(view):
    assert view.cdf("age", 40).value == pytest.approx(view.fraction("age <= 40").value, abs=2e-3)
    for near in (39.9, 40.1):  # mostly in the cell of 40
        both = view.cdf("age", [near, 40]).value
        assert both[1] == pytest.approx(view.cdf("age", 40).value, rel=1e-9)


def test_no_points_of_a_distribution_function_have_no_answers(view):
    assert view.cdf("age", []).value.shape == (0,)


def test_distribution_functions_end_at_one(view):
    for value in range(20, 60, 5):
        assert view.cdf("age", value, where=f"age < {value + 0.3}").value <= 1 + 1e-9


def test_between_the_values_of_two_cells_is_none(view, table):
    """40.5 lies in a cell without records: closed and open bounds are the same there."""
    truth = np.mean(table["age"].to_numpy() <= 40)
    assert view.fraction("age <= 40.5").value == pytest.approx(truth, abs=0.006)
    assert view.fraction("age < 40.5").value == pytest.approx(truth, abs=0.006)


@pytest.mark.parametrize("also", ["", " and ok"])
def test_integers_have_a_level_for_each_value_and_are_asked_as_they_are(view, table, also):
    days, ok = table["days"].to_numpy(), table["ok"].to_numpy() if also else True
    off = []
    for value in range(100, 200, 7):
        answer = view.fraction(f"days <= {value}{also}")
        off.append((answer.value - np.mean((days <= value) & ok)) / answer.stderr)
        assert view.fraction(f"days <= {value + 0.5}{also}").value == pytest.approx(answer.value, rel=1e-9)
    assert np.sqrt(np.mean(np.square(off))) < 2


def test_cases_groups_and_conditions_agree(view):
    count = view.count("age <= 40").value
    [[share]] = [
        list(row.values())[:1]
        for row in view.sql("select avg(case when age <= 40 then 1 else 0 end) from sketch").to_dicts()
    ]
    assert share == pytest.approx(view.fraction("age <= 40").value, abs=1e-3)
    rows = view.sql("select age <= 40 as young, count(*) as n from sketch group by young").to_dicts()
    assert {str(row["young"]).lower(): row["n"] for row in rows}["true"] == pytest.approx(count, rel=1e-3)


def test_bounds_outside_of_the_declared_ones_are_not_put_into_functions(view, table):
    """exp(age) of an age of ten thousand has no value, and nobody has that age."""
    age = table["age"].to_numpy()
    [row] = view.sql("select avg(exp(age / 10)) as x from sketch where age < 10000").to_dicts()
    assert row["x"] == pytest.approx(np.exp(age / 10).mean(), rel=0.05)
    assert view.fraction("age <= 200").value == pytest.approx(1, abs=1e-3)
    assert view.fraction("age < -5").interval() == pytest.approx((0, 0), abs=1e-3)


def test_where_values_are_spread_out_a_bound_has_none(view, table):
    pay = table["pay"].to_numpy()
    for value in (31, 38.2, 40):
        below, above = view.fraction(f"pay <= {value}"), view.fraction(f"pay > {value}")
        assert below.value == pytest.approx(np.mean(pay <= value), abs=0.003)
        assert below.value + above.value == pytest.approx(1, abs=0.003)
        assert view.fraction(f"pay < {value}").value == pytest.approx(below.value, abs=1e-3)


def test_what_is_asked_is_read_from_conditions():
    def asked(text):
        return [factor.asked for factor in condition_factors(SCHEMA, parse_condition(text, SCHEMA))]

    assert asked("age <= 30 and 20.5 < age and ok") == [(30.0,), (20.5,), ()]
    assert asked("age between -1 and 2") == [(-1.0, 2.0)]
    assert asked("not (age > 3 or age < 1)") == [(3.0, 1.0)] or asked("not (age > 3 or age < 1)") == [(1.0, 3.0)]
    assert asked("age + 1 < 5") == [()]
    assert asked("age < pay") == [()]
