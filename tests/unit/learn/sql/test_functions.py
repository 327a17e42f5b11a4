"""A user's own function, averaged by every estimator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.errors import QueryError

FACTS = {
    "privacy": {"rows": 5000},
    "columns": {
        "age": {"kind": "integer", "lower": 0, "upper": 99},
        "height": {"kind": "number", "lower": 1.0, "upper": 2.5},
        "sex": {"kind": "category", "values": ["f", "m"]},
        "member": {"kind": "boolean"},
        "joined": {"kind": "datetime", "lower": "2020-01-01", "upper": "2025-01-01"},
    },
}
RECIPES = {
    "table": [dps.Part(dps.Histogram(), 0.4), dps.Part(dps.Histogram(ways=2, columns=["age", "sex"], bins=100), 0.5)],
    "moments": [dps.Part(dps.Histogram(bins=100), 0.4), dps.Part(dps.Fourier(size=300), 0.5)],
    "mixture": [dps.Part(dps.Marginals(), 0.4), dps.Part(dps.Pairs(columns=["age", "sex", "member"]), 0.5)],
}


def people() -> pandas.DataFrame:
    rng = np.random.default_rng(SEED)
    sex = rng.choice(["f", "m"], 5000)
    age = np.clip(rng.normal(np.where(sex == "f", 50, 35), 10), 0, 99).round()
    return pandas.DataFrame(
        {
            "age": np.where(rng.random(5000) < 0.1, np.nan, age),
            "height": rng.uniform(1.2, 2.2, 5000),
            "sex": sex,
            "member": age > 40,
            "joined": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.uniform(0, 1800, 5000), unit="D"),
        }
    )


def view_of(parts: list[dps.Part]) -> dps.View:
    raw = dps.accumulate(people(), dps.Schema.from_dict(FACTS), dps.Recipe([dps.Part(dps.Count(), 0.1), *parts]))
    return dps.View(dps.release(raw, dps.Budget(math.inf)))


@pytest.fixture(scope="module", params=RECIPES)
def view(request: pytest.FixtureRequest) -> dps.View:
    return view_of(RECIPES[request.param])


def _risk(rows: dict[str, Any]) -> Any:
    return np.nan_to_num(rows["age"]) / 100 * np.where(rows["sex"] == "f", 1.0, 0.2)


def test_the_mean_of_a_function(view: dps.View) -> None:
    frame = people()
    exact = pandas.Series(_risk({"age": frame.age.to_numpy(), "sex": frame.sex.to_numpy()}))
    answer = view.expect(_risk, ["age", "sex"])
    assert answer.value == pytest.approx(exact.mean(), abs=0.015)
    assert answer.how
    assert view.expect(_risk, ["age", "sex"], "sex = 'f'").value == pytest.approx(
        exact[frame.sex == "f"].mean(), abs=0.02
    )


def test_what_the_function_gets(view: dps.View) -> None:
    def check(kind: str, missing: Callable[[Any], Any], one: str) -> Callable[[dict[str, Any]], Any]:
        def function(rows: dict[str, Any]) -> Any:
            assert list(rows) == [one]
            assert rows[one].dtype == np.dtype(kind)
            found = missing(rows[one])
            rows[one][:] = rows[one][0]  # its own copy
            return found

        return function

    age = view.expect(check("float64", np.isnan, "age"), ["age"])
    assert age.value == pytest.approx(people().age.isna().mean(), abs=1e-3)
    assert view.mean("age").value == pytest.approx(people().age.mean(), abs=0.1)
    assert view.expect(check("float64", np.isnan, "member"), ["member"]).value == pytest.approx(0, abs=1e-3)
    labels = view.expect(check("object", lambda sex: sex == "f", "sex"), ["sex"])
    assert labels.value == pytest.approx((people().sex == "f").mean(), abs=1e-3)
    day = np.datetime64("2022-01-01")
    dates = view.expect(check("datetime64[us]", lambda joined: joined < day, "joined"), ["joined"])
    assert dates.value == pytest.approx((people().joined < "2022-01-01").mean(), abs=0.02)


@pytest.mark.parametrize(
    ("function", "columns", "message"),
    [
        (
            lambda rows: rows["sex"],
            ["age"],
            r"^the function raised KeyError: 'sex'\nHint: it gets a dictionary of NumPy",
        ),
        (
            lambda rows: 1.0,
            ["age"],
            r"^the function must return one number for each row, got an array of shape \(\) for",
        ),
        (lambda rows: rows["sex"], ["sex"], r"^the function must return numbers, got object\nHint: return floats"),
        (
            lambda rows: rows["age"],
            ["age"],
            r"^the function must return a finite number for every row\n.*np\.nan_to_num",
        ),
        (lambda rows: rows["joined"], ["joined"], r"^the function must return numbers, got datetime64"),
        ("age", ["age"], r"^the function must be callable, got 'age' instead"),
        (lambda rows: rows["age"], "age", r"^the columns must be a list of names"),
        (lambda rows: rows["age"], [], r"^the columns must be a list of names"),
        (lambda rows: rows["age"], ["agee"], r"^there is no column 'agee'\nHint: did you mean 'age'"),
        (lambda rows: np.zeros((2, 2)), ["age"], r"of shape \(2, 2\) for"),
        (lambda rows: [[1], [2, 3]], ["age"], r"^the function raised ValueError"),
    ],
)
def test_wrong_functions_are_refused(function: Any, columns: Any, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        view_of(RECIPES["table"]).expect(function, columns)
