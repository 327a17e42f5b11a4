"""Coefficients beyond the fitted mixture, and their errors where columns nearly determine each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.learn.models.corrected_coefficients import SHIFT, _settled_by_penalty, _step, _usual

ROWS = 20_000
COLUMNS = {
    **{name: {"kind": "number", "lower": -5, "upper": 5} for name in ("x", "near_x", "apart", "y")},
    "member": {"kind": "boolean"},
    "label": {"kind": "category", "values": ["a", "b", "never"]},
}


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    x, apart = rng.normal(size=(2, ROWS))
    near = x + 0.15 * rng.normal(size=ROWS)
    found = {"x": x, "near_x": near, "apart": apart, "y": 2 * x - 1.5 * near + apart + 0.5 * rng.normal(size=ROWS)}
    found = {name: values.clip(-5, 5) for name, values in found.items()}
    score = 2 * (x - near) + found["apart"]
    return found | {
        "member": rng.random(ROWS) < 1 / (1 + np.exp(-score)),
        "label": rng.choice(["a", "b"], ROWS),
    }


@pytest.fixture(scope="module")
def view(rows: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dps.View:
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": COLUMNS})
    budget = dps.Budget(10.0)
    raw = dps.accumulate(pa.table(rows), schema, dps.Recipe.general(schema, rows=ROWS, budget=budget))
    ledger = dps.Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db")
    return dps.View(dps.release(raw, budget, ledger=ledger, dataset="collinear"))


def test_columns_that_nearly_determine_each_other_have_wide_errors(view: dps.View, rows: dict[str, np.ndarray]) -> None:
    columns = ["x", "near_x", "apart"]
    model = dps.LinearRegression("y", columns).fit(view)
    features = np.stack([rows[name] for name in columns], 1)
    exact = np.linalg.lstsq(features - features.mean(0), rows["y"] - rows["y"].mean(), rcond=None)[0]
    assert np.abs(model.coef_ - exact).max() > 0.5, "smoothing hides the difference of two columns"
    assert (np.abs(model.coef_ - exact) < 3 * model.coef_stderr_).all()
    assert model.coef_stderr_[2] < 0.2 * model.coef_stderr_[0]


def test_log_odds_of_such_columns_as_well(view: dps.View) -> None:
    model = dps.LogisticRegression("member", ["x", "near_x", "apart"]).fit(view)
    assert (np.abs(model.coef_[0] - [2, -2, 1]) < 4 * model.coef_stderr_[0]).all()
    assert model.coef_stderr_[0, 2] < 0.3


def test_intervals_and_what_is_not_known(view: dps.View) -> None:
    model = dps.LinearRegression("y", ["apart", "label"]).fit(view)
    answer = model.coefficients
    assert answer.labels == ("apart", "label=a", "label=b", "label=never", "label=other")
    drawn = view.population.points(0).frame.levels("label")
    assert answer.known.tolist() == [True, *(level in drawn for level in range(4))]
    low, high = answer.interval(0.95)
    assert low[0] < 1 < high[0]
    assert high[0] - low[0] == pytest.approx(2 * 2.118 * answer.stderr[0], rel=1e-3)
    model.coef_stderr_[4] = np.nan
    assert not model.coefficients.known[4]
    assert "one value" in model.coefficients.reason


def test_without_refits_no_coefficient_is_known(view: dps.View) -> None:
    answer = dps.LinearRegression("y", ["apart"]).fit(view, uncertainty=False).coefficients
    assert not answer.known.any()
    assert "without standard errors" in answer.reason


def test_coefficients_follow_the_pair_tables(tmp_path: Path) -> None:
    """The mixture that is fitted to all pair tables smooths opposite effects of correlated columns away."""
    rng = np.random.default_rng(8)
    a, other, c = rng.normal(size=(3, ROWS))
    b = 0.85 * a + np.sqrt(1 - 0.85**2) * other
    score = 3 * a - 3 * b + c
    found = {"a": a.clip(-5, 5), "b": b.clip(-5, 5), "c": c.clip(-5, 5)}
    found["y"] = (score + rng.normal(size=ROWS)).clip(-9, 9)
    found["member"] = rng.random(ROWS) < 1 / (1 + np.exp(-score))
    columns = {name: {"kind": "number", "lower": -5, "upper": 5} for name in "abc"}
    columns |= {"y": {"kind": "number", "lower": -9, "upper": 9}, "member": {"kind": "boolean"}}
    schema, budget = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns}), dps.Budget(10.0)
    raw = dps.accumulate(pa.table(found), schema, dps.Recipe.general(schema, rows=ROWS, budget=budget))
    view = dps.View(dps.release(raw, budget, ledger=dps.Ledger(tmp_path / "ledger.db"), dataset="opposite"))
    for model in (dps.LinearRegression("y", list("abc")), dps.LogisticRegression("member", list("abc"))):
        smoothed = np.ravel(model.fit(view, uncertainty=False).coef_)
        assert np.abs(smoothed - [3, -3, 1]).max() > 0.8
        model.fit(view)
        assert np.abs(np.ravel(model.coef_) - [3, -3, 1]).max() < 0.5
        assert (np.abs(np.ravel(model.coef_) - [3, -3, 1]) < 4 * np.ravel(model.coef_stderr_)).all()
        assert np.isfinite(model.intercept_stderr_).all()


def test_labels_with_almost_no_records_keep_the_coefficient_of_the_fit() -> None:
    """Noise of one row of cells is all that their equation holds."""
    value, curvature, start = np.array([0.3, 0.3]), np.eye(2), np.array([0.5, 0.01])
    usual, numbers = _usual(start, np.array([0.0, 0.01]), 4.0), np.array([True, False])
    noise = np.array([0.01, 0.01]) ** 2
    change, _ = _step(value, curvature, noise, start, usual, numbers)
    hidden, covariance = _step(value, curvature, noise + np.array([0.0, 0.5**2]), start, usual, numbers)
    assert hidden[1] < 0.1 * change[1]
    assert hidden[0] == pytest.approx(change[0], rel=0.01)
    assert covariance[1, 1] > 0.9 * usual[1] ** 2


def test_errors_of_opposite_effects_include_smoothing() -> None:
    noise = np.full(2, 0.02**2)
    numbers, start = np.full(2, True), np.array([1.0, -1.0])
    usual = _usual(start, np.zeros(2), 0.5)
    apart, near = (np.array([[1.0, shared], [shared, 1.0]]) for shared in (0.0, 0.95))
    errors = [np.sqrt(np.diag(_step(np.zeros(2), each, noise, start, usual, numbers)[1])) for each in (apart, near)]
    assert (errors[1] > 5 * errors[0]).all()
    same = np.sqrt(np.diag(_step(np.zeros(2), near, noise, np.ones(2), usual, numbers)[1]))
    assert (same < errors[1]).all(), "effects of one sign stay"
    moved, covariance = _step(np.array([0.4, 0.0]), apart, noise, start, usual, numbers)
    assert covariance[0, 0] > (SHIFT * moved[0]) ** 2


def test_labels_of_one_column_cannot_all_move_together() -> None:
    """Every record has one of the labels: moving all their coefficients acts as the intercept does."""
    deviation = np.array([0.4, 0.3, 0.2, 2.0])
    columns = np.array(["ward", "ward", "ward", ""])
    along = np.where(columns == "ward", deviation, 0.0) / np.linalg.norm(deviation[:3])
    penalty = 1e-4
    curvature = np.eye(4) - (1 - penalty) * np.outer(along, along)
    settled = _settled_by_penalty(curvature, penalty, deviation, columns)
    assert settled == pytest.approx(along[None])
    unlisted = curvature + 0.01 * np.outer(along, along)  # some records have none of them
    assert _settled_by_penalty(unlisted, penalty, deviation, columns).shape == (0, 4)


def test_coefficients_of_labels_of_which_every_record_has_one(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    ward, names = generator.integers(0, 6, 20_000), [f"w{each}" for each in range(6)]
    cost = 20.0 + 5 * ward + generator.normal(0, 4, len(ward))
    columns = {
        "ward": {"kind": "category", "values": names},
        "cost": {"kind": "number", "lower": 0, "upper": 100},
    }
    schema = dps.Schema.from_dict({"privacy": {"rows": 20_000}, "columns": columns})
    budget = dps.Budget(epsilon=10.0)
    table = {"ward": np.array(names)[ward], "cost": cost}
    raw = dps.accumulate(pa.table(table), schema, dps.Recipe.general(schema, rows=20_000, budget=budget))
    released = dps.release(raw, budget, ledger=dps.Ledger(tmp_path / "ledger.db"), dataset="wards")
    model = dps.LinearRegression("cost").fit(dps.View(released))
    truths = np.array([cost[ward == each].mean() for each in range(6)])
    truths -= cost.mean()
    assert np.abs(model.coef_[:6] - truths).max() < 0.5
    assert (np.abs(model.coef_[:6] - truths) < 4 * model.coef_stderr_[:6]).all()
    assert model.coef_stderr_[:6].max() < 0.5  # a deviation of the target is 9
