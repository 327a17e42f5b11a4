from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError, RecipeError, RecipeWarning

ROWS = 20_000
BUDGET = dps.Budget(1.0, 1e-6)
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "a": {"kind": "number", "lower": -10, "upper": 10},
            "b": {"kind": "number", "lower": 0, "upper": 40},
            "y": {"kind": "number", "lower": -50, "upper": 50},
            "price": {"kind": "number", "lower": 0.1, "upper": 1000, "transform": "log"},
            "kind": {"kind": "category", "values": ["x", "z"]},
        },
    }
)


def simulated(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    a, b = random.uniform(-10, 10, ROWS), random.uniform(0, 40, ROWS)
    y = 2 * a - 0.5 * b + 3 + random.normal(0, 2, ROWS)
    return pd.DataFrame({"a": a, "b": b, "y": y, "price": np.exp(0.2 * a + random.normal(2, 0.3, ROWS)), "kind": "x"})


def view(target: str, columns: list[str], budget: dps.Budget = BUDGET) -> dps.View:
    raw = dps.accumulate(simulated(1), SCHEMA, dps.Recipe.linear(SCHEMA, target=target, budget=budget, columns=columns))
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://") if budget.private else None, "simulated"))


def test_coefficients_are_in_the_user_s_units(seeded: None) -> None:
    model = dps.LinearRegression("y").fit(view("y", ["a", "b"]))
    assert model.how_ == "second moments"
    assert list(model.feature_names_in_) == ["a", "b"]
    assert model.coef_ == pytest.approx([2, -0.5], abs=0.05)
    assert float(model.intercept_) == pytest.approx(3, abs=1)
    test = simulated(2)
    assert model.score(test, test["y"]) > 0.97
    assert (model.coef_stderr_ > 0).all()


def test_without_noise_it_is_least_squares() -> None:
    """But for records that the ball shortens: none here, as columns rarely are all at their bounds."""
    model = dps.LinearRegression("y", penalty=0.0).fit(view("y", ["a", "b"], dps.Budget(float("inf"))))
    table = simulated(1)
    exact, *_ = np.linalg.lstsq(np.c_[table[["a", "b"]], np.ones(ROWS)], table["y"], rcond=None)
    assert model.coef_ == pytest.approx(exact[:2], rel=0.03)


def test_standard_errors_hold_what_another_release_changes() -> None:
    models = [dps.LinearRegression("y").fit(view("y", ["a", "b"])) for _ in range(12)]
    spread = np.std([model.coef_ for model in models], axis=0, ddof=1)
    said = np.mean([model.coef_stderr_ for model in models], axis=0)
    assert (said / spread > 0.4).all()
    assert (said / spread < 2.5).all()


def test_a_transformed_target_is_predicted_in_its_units(seeded: None) -> None:
    model = dps.LinearRegression("price").fit(view("price", ["a"]))
    assert model.coef_[0] == pytest.approx(0.2, abs=0.01), "of the logarithm"
    assert model.predict({"a": [0.0]})[0] == pytest.approx(np.exp(2), rel=0.1)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RecipeError, match="the target 'kind' is not a number"):
        dps.Recipe.linear(SCHEMA, target="kind", budget=BUDGET)
    with pytest.raises(RecipeError, match="columns other than the target"):
        dps.Recipe.linear(SCHEMA, target="y", budget=BUDGET, columns=["y"])
    found = view("y", ["a", "b"])
    with pytest.raises(QueryError, match="is the target and one of the columns"):
        dps.LinearRegression("y", ["a", "y"]).fit(found)
    with pytest.raises(QueryError, match="penalty must be a number"):
        dps.LinearRegression("y", penalty=-1.0).fit(found)


def test_standard_errors_hold_what_the_penalty_hides(seeded: None) -> None:
    """Six columns that are nearly the same, much noise: coefficients are drawn to each other and to zero. Without the
    penalty's part errors were 1.5 to 2.2 times too small.
    """
    columns, rows, budget = [f"x{place}" for place in range(6)], 20_000, dps.Budget(0.1)
    facts = {name: {"kind": "number", "lower": 0, "upper": 1} for name in (*columns, "y")}
    schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": facts})
    scores = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        x = np.clip(0.5 + 0.15 * (0.97 * random.normal(size=(rows, 1)) + 0.22 * random.normal(size=(rows, 6))), 0, 1)
        y = np.clip(0.3 + x @ random.normal(size=6) * 0.3 + 0.05 * random.normal(size=rows), 0, 1)
        exact, *_ = np.linalg.lstsq(np.c_[x, np.ones(rows)], y, rcond=None)
        raw = dps.accumulate(
            pd.DataFrame(np.c_[x, y], columns=[*columns, "y"]),
            schema,
            dps.Recipe.linear(schema, target="y", budget=budget),
        )
        model = dps.LinearRegression("y").fit(dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "simulated")))
        scores.append((model.coef_ - exact[:6]) / model.coef_stderr_)
    assert 0.35 < np.sqrt(np.mean(np.square(scores))) < 1.3


def test_columns_that_are_no_numbers_are_not_dropped_in_silence() -> None:
    columns = SCHEMA.to_dict()["columns"] | {"member": {"kind": "boolean"}}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    with pytest.warns(
        RecipeWarning,
        match=r"leaves out 'kind' \(category\), 'member' \(boolean\)\.\nHint: name booleans and dates among columns "
        r"\(--columns\); for labels take the general recipe",
    ):
        dps.Recipe.linear(schema, target="y", budget=BUDGET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dps.Recipe.linear(schema, target="y", budget=BUDGET, columns=["a", "member"])


def test_many_booleans_are_not_shortened(seeded: None) -> None:
    """A boolean is at one of its bounds in every row: a ball that is right for numbers would cut all records."""
    random = np.random.default_rng(4)
    names = [f"is{place}" for place in range(8)]
    flags = random.random((ROWS, 8)) < 0.5
    slopes = np.arange(8) - 3.5
    y = 30 + flags @ slopes + random.normal(0, 1, ROWS)
    facts: dict[str, dict[str, object]] = {name: {"kind": "boolean"} for name in names}
    facts["y"] = {"kind": "number", "lower": 0, "upper": 60}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": facts})
    recipe = dps.Recipe.linear(schema, target="y", budget=BUDGET, columns=names)
    raw = dps.accumulate(pd.DataFrame(dict(zip(names, flags.T, strict=True)) | {"y": y}), schema, recipe)
    released = dps.release(raw, BUDGET, dps.Ledger("sqlite://"), "simulated")
    model = dps.LinearRegression("y", penalty=0.0).fit(dps.View(released))
    assert model.coef_ == pytest.approx(slopes, abs=0.5)
