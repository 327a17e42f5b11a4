"""Numbers that are asked about, in columns whose values are few: whole numbers declared as real ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.learn.expressions import condition_factors, parse_condition

ROWS = 100_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "age": {"kind": "number", "lower": 0, "upper": 97},
            "pay": {"kind": "number", "lower": 0, "upper": 97},
            "ok": {"kind": "boolean"},
        },
    }
)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(SEED)
    age, pay = random.normal(40, 12, (2, ROWS)).clip(1, 96)
    return pa.table({"age": np.rint(age), "pay": pay, "ok": random.random(ROWS) < age / 97})


@pytest.fixture(scope="module")
def view(table: pa.Table) -> dps.View:
    budget = dps.Budget(5.0)
    raw = dps.accumulate(table, SCHEMA, dps.Recipe.general(SCHEMA, ROWS, budget))
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
    assert view.cdf("age", 40).value == pytest.approx(view.fraction("age <= 40").value, abs=0.003)
    assert view.cdf("age", [38, 40]).value[1] == pytest.approx(view.cdf("age", 40).value, abs=0.003)


def test_numbers_between_the_values_are_no_values(view, table):
    truth = np.mean(table["age"].to_numpy() <= 40)
    assert view.fraction("age <= 40.5").value == pytest.approx(truth, abs=0.006)
    assert view.fraction("age < 40.5").value == pytest.approx(truth, abs=0.006)


def test_where_values_are_spread_out_a_bound_has_none(view, table):
    pay = table["pay"].to_numpy()
    for value in (31, 38.2, 40):
        below, above = view.fraction(f"pay <= {value}"), view.fraction(f"pay > {value}")
        assert below.value == pytest.approx(np.mean(pay <= value), abs=0.003)
        assert below.value + above.value == pytest.approx(1, abs=0.003)
        assert view.fraction(f"pay < {value}").value == pytest.approx(below.value, abs=1e-3)


def test_dates_and_bounds_outside_are_asked_as_before(view):
    assert view.fraction("age <= 200").value == pytest.approx(1, abs=1e-3)
    assert view.fraction("age < -5").value == pytest.approx(0, abs=1e-3)


def test_what_is_asked_is_read_from_conditions():
    def asked(text):
        return [factor.asked for factor in condition_factors(SCHEMA, parse_condition(text))]

    assert asked("age <= 30 and 20.5 < age and ok") == [(30.0,), (20.5,), ()]
    assert asked("age between -1 and 2") == [(-1.0, 2.0)]
    assert asked("not (age > 3 or age < 1)") == [(3.0, 1.0)] or asked("not (age > 3 or age < 1)") == [(1.0, 3.0)]
    assert asked("age + 1 < 5") == [()]
    assert asked("age < pay") == [()]
