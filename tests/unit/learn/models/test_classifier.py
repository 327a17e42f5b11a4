from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import FitWarning, QueryError, RecipeError
from dpsketch.learn.models.class_tables import expected_counts, log_odds, shared_evidence, slope
from dpsketch.maps.hashed.ramps import ramps
from dpsketch.recipe.tasks.classify_task import classifier_sizes
from dpsketch.recipe.tasks.task import schema_counter_noise

ROWS = 20_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "x": {"kind": "number", "lower": -10, "upper": 10},
            "small": {"kind": "number", "lower": 0, "upper": 100},
            "kind": {"kind": "category", "values": ["a", "b", "c"]},
            "sick": {"kind": "category", "values": ["no", "yes"]},
        },
    }
)
BUDGET = dps.Budget(1.0, 1e-6)


def simulated(rows: int, seed: int) -> pa.Table:
    """`small` lies in the lowest tenth of its bounds and tells the classes apart there; a fifth are sick."""
    random = np.random.default_rng(seed)
    sick = random.random(rows) < 0.2
    return pa.table(
        {
            "x": random.normal(np.where(sick, 1.5, -1.5), 2),
            "small": random.gamma(4, np.where(sick, 1.5, 0.5)),
            "kind": np.where(random.random(rows) < 0.2, "c", np.where(sick, "a", "b")),
            "sick": np.where(sick, "yes", "no"),
        }
    )


def released(recipe: dps.Recipe, budget: dps.Budget = BUDGET) -> dps.View:
    raw = dps.accumulate(simulated(ROWS, 1), SCHEMA, recipe)
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://") if budget.private else None, "simulated"))


@pytest.fixture
def view(seeded: None) -> dps.View:
    return released(dps.Recipe.classify(SCHEMA, target="sick", budget=BUDGET))


@pytest.fixture
def model(view: dps.View) -> dps.DensityClassifier:
    return dps.DensityClassifier("sick").fit(view)


def auc(model: dps.DensityClassifier, table: pa.Table) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(np.asarray(table["sick"]) == "yes", model.decision_function(table.to_pandas())))


def test_held_out_rows_are_told_apart(model: dps.DensityClassifier) -> None:
    test = simulated(5000, 2)
    assert list(model.classes_) == ["no", "yes"], "'other' is all noise"
    assert model.class_count_[1] == pytest.approx(ROWS / 5, abs=500)
    assert auc(model, test) > 0.97
    assert model.score(test.to_pandas(), test["sick"].to_pylist()) > 0.92
    found = model.predict(test.to_pandas())
    assert set(found) == {"no", "yes"}
    assert (found == np.where(model.decision_function(test.to_pandas()) > 0, "yes", "no")).all()


def test_the_slope_of_weak_columns_is_about_right(seeded: None) -> None:
    """Twenty columns that each say a little: no other slope has a much better log loss on held-out rows.

    With a quarter of this budget, halves of the hashes tell the slope in 15 of 25 releases only.
    """
    budget = dps.Budget(4.0, 1e-6)
    columns = [f"x{place}" for place in range(20)]
    numbers = {name: {"kind": "number", "lower": -5, "upper": 5} for name in columns}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": numbers | {"sick": {"kind": "boolean"}}})
    random = np.random.default_rng(3)
    sick = random.random(2 * ROWS) < 0.3
    table = pd.DataFrame(random.normal(np.where(sick, 0.3, 0.0)[:, None], 1, (2 * ROWS, 20)), columns=columns)
    table["sick"] = sick
    raw = dps.accumulate(table[:ROWS], schema, dps.Recipe.classify(schema, target="sick", budget=budget))
    model = dps.DensityClassifier("sick").fit(dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "d")))
    assert model.slope_how_ == "halves of the hashes"
    assert list(model.classes_) == [False, True]
    truth, odds = sick[ROWS:], model.decision_function(table[ROWS:])
    prior = float(np.log(model.class_count_[1] / model.class_count_[0]))

    def loss(times: float) -> float:
        signed = np.where(truth, 1, -1) * (times * (odds - prior) + prior)
        return float(np.logaddexp(0, -signed).mean())

    assert loss(1.0) < 1.1 * min(loss(times) for times in 2.0 ** np.arange(-5, 6))
    assert loss(1.0) < loss(1 / model.slope_), "a plain sum is much too sure"


def test_standard_errors_hold_what_another_release_changes(seeded: None) -> None:
    """The spread of log-odds between releases with other hashes and other noise, against what one of them says."""
    test = simulated(200, 4).to_pandas()
    recipe = dps.Recipe.classify(SCHEMA, target="sick", budget=BUDGET)
    found = []
    for seed in range(6):
        race = recipe.parts[1].map.map  # type: ignore[attr-defined]
        parts = [recipe.parts[0], dps.Part(dps.Grouped(dps.Race(**vars(race) | {"seed": seed}), "sick"), 0.97)]
        found.append(dps.DensityClassifier("sick").fit(released(dps.Recipe(parts, ROWS))).log_odds(test))
    spread = np.std([answer.value for answer in found], axis=0, ddof=1)
    said = np.mean([answer.stderr for answer in found], axis=0)
    assert 0.6 < np.sqrt(np.mean(said**2) / np.mean(spread**2)) < 1.7


def test_a_rare_class_is_not_favoured_by_noise() -> None:
    """Counters of pure noise: log-odds of a class of 100 records say nothing, where adding a constant says much."""
    random = np.random.default_rng(5)
    totals, variance = np.array([10_000.0, 100.0]), 42.0**2
    counters = totals[:, None, None] / 64 + random.normal(0, 42, (2, 50, 64))
    odds = log_odds(counters, totals, variance)
    assert abs(odds.value[1].sum(axis=0)).mean() < 2
    added = np.log((np.maximum(counters, 0) + 43) / totals[:, None, None])
    assert (added[1] - added[0]).mean() > 1


def test_shared_evidence_tells_copies_from_independent_tables() -> None:
    """Two bits a table: of the same fact each, or of independent ones within a class, or between the two."""
    chance = np.array([0.8, 0.2])[:, None]
    never = np.zeros_like(chance)
    same = np.stack([chance, never, never, 1 - chance], axis=2)
    own = np.stack([chance**2, chance * (1 - chance), chance * (1 - chance), (1 - chance) ** 2], axis=2)
    totals = np.array([1e6, 1e6])
    copies, half, apart = (
        shared_evidence(np.repeat(part * same + (1 - part) * own, 10, axis=1) * 1e6, totals, 0.0)
        for part in (1.0, 0.15, 0.02)
    )
    assert copies is None, "all of the variance is shared"
    assert half is not None
    assert apart is not None
    assert 0.1 < half < 0.2
    assert apart < 0.03


def test_the_slope_of_independent_tables_is_one() -> None:
    """Log-odds of independent tables add up, if they are small enough for scores to be normal."""
    chance = np.array([0.55, 0.45])[:, None, None]
    counters = np.repeat(np.concatenate([chance, 1 - chance], axis=2), 5, axis=1) * 1e9
    odds = log_odds(counters, np.array([1e9, 1e9]), 0.0)
    assert slope(odds, np.array([1e9, 1e9]), 0.0) == pytest.approx(1.0, abs=0.02)
    assert slope(odds, np.array([1e9, 1e9]), 0.25) == pytest.approx(0.5, abs=0.02)


def test_likelihoods_and_equal_priors(view: dps.View) -> None:
    test = simulated(3000, 6)
    likelihood = dps.DensityClassifier("sick", method="likelihood").fit(view)
    assert auc(likelihood, test) > 0.9
    with pytest.warns(FitWarning, match="not calibrated"):
        assert likelihood.predict_proba(test.to_pandas()).sum(axis=1) == pytest.approx(1)
    equal = dps.DensityClassifier("sick", prior="ml").fit(view)
    weighted = dps.DensityClassifier("sick").fit(view)
    shift = equal.decision_function(test.to_pandas()) - weighted.decision_function(test.to_pandas())
    assert shift == pytest.approx(np.log(weighted.class_count_[0] / weighted.class_count_[1]))


def test_a_saved_model_scores_alike(model: dps.DensityClassifier) -> None:
    facts, arrays = model.to_saved()
    again = dps.DensityClassifier.from_saved(json.loads(json.dumps(facts)), arrays)
    test = simulated(50, 7).to_pandas()
    for one, two in ((model.log_odds(test), again.log_odds(test)),):
        assert (one.value == two.value).all()
        assert (one.stderr == two.stderr).all()
    assert list(again.classes_) == list(model.classes_)


def test_any_grouped_counters_will_do() -> None:
    race = dps.Race(("x", "small"), 60, 200, hash=dps.Euclidean(0.2, 2))
    view = released(dps.Recipe([dps.Part(dps.Grouped(race, "sick"), 1.0)]), dps.Budget(float("inf")))
    model = dps.DensityClassifier("sick").fit(view)
    assert model.slope_how_ == "a rule"
    assert not model.calibrated_
    assert auc(model, simulated(3000, 8)) > 0.9
    matrix = np.array([[3.0, 12.0], [-3.0, 1.0]])
    assert list(model.predict(matrix)) == ["yes", "no"]
    assert list(model.predict(pd.DataFrame(matrix, columns=["x", "small"]))) == ["yes", "no"]


def test_ramps_tell_places_near_a_bound_and_labels_apart() -> None:
    found = ramps(SCHEMA, ["small", "kind"], 2)
    assert found is not None
    codes = np.array([[-30000, -22000, 32767], [-32767, 10922, 32767]], np.int16)
    numbers = found(codes) / 32767
    assert numbers.shape == (5 + 4, 3)
    assert numbers[3, 1] - numbers[3, 0] > 0.3, "the steepest ramp at the lower bound"
    assert np.allclose(numbers[5:].T, [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], atol=1e-3)
    assert ramps(SCHEMA, ["x", "small"], 0) is None


def test_sizes_follow_public_numbers() -> None:
    assert classifier_sizes(SCHEMA, 20_000, BUDGET, 2, 0.97) == (100, 10)
    assert classifier_sizes(SCHEMA, 60_000, BUDGET, 10, 0.97) == (200, 8)
    assert classifier_sizes(SCHEMA, 20_000, dps.Budget(1.0), 2, 0.97) == (40, 9)
    assert classifier_sizes(SCHEMA, 20_000, dps.Budget(0.1), 2, 0.97)[0] == 20
    assert schema_counter_noise(SCHEMA, dps.Budget(1.0), 10, 0.5) == pytest.approx(np.sqrt(2) * 20)


def test_the_predicted_noise_is_the_release_s(view: dps.View) -> None:
    part = view.released.parts[1]
    tables = part.map.inner.rows  # type: ignore[attr-defined]
    assert np.sqrt(part.noise_variance) == pytest.approx(schema_counter_noise(SCHEMA, BUDGET, tables, 0.97), rel=0.03)


def test_what_cannot_be_is_refused(view: dps.View) -> None:
    with pytest.raises(RecipeError, match="column 'x' is a number, not a class"):
        dps.Recipe.classify(SCHEMA, target="x", budget=BUDGET)
    with pytest.raises(RecipeError, match="columns other than the target"):
        dps.Recipe.classify(SCHEMA, target="sick", budget=BUDGET, columns=["x", "sick"])
    without = released(dps.Recipe.classify(SCHEMA, target="sick", budget=BUDGET, columns=["x", "small"]))
    with pytest.raises(QueryError, match="no hashed counters for each class of 'kind', and no joint distribution"):
        dps.DensityClassifier("kind").fit(without)
    with pytest.raises(QueryError, match="there is no column 'sic'"):
        dps.DensityClassifier("sic").fit(view)
    with pytest.raises(QueryError, match="prior must be one of"):
        dps.DensityClassifier("sick", prior="none").fit(view)
    with pytest.raises(QueryError, match="method must be one of"):
        dps.DensityClassifier("sick", method="none").fit(view)
    with pytest.raises(QueryError, match="is not fitted"):
        dps.DensityClassifier("sick").predict([[1.0]])


def test_classes_below_the_noise_are_refused(seeded: None) -> None:
    raw = dps.accumulate(simulated(20, 1), SCHEMA, dps.Recipe.classify(SCHEMA, target="sick", budget=BUDGET))
    view = dps.View(dps.release(raw, dps.Budget(0.01), dps.Ledger("sqlite://"), "d"))
    with pytest.raises(QueryError, match="has no class with a significant count"):
        dps.DensityClassifier("sick").fit(view)


def test_a_class_that_noise_hides_is_kept_with_wide_errors(seeded: None) -> None:
    """60 of 12,000 records, whose count has a standard error of about 400: such releases were refused."""
    table = simulated(15_000, 1)
    sick = np.flatnonzero(np.asarray(table["sick"]) == "yes")
    table = table.take(np.sort(np.append(np.setdiff1d(np.arange(15_000), sick), sick[:60])))
    budget = dps.Budget(0.1)
    recipe = dps.Recipe.classify(SCHEMA, target="sick", budget=budget)
    view = dps.View(dps.release(dps.accumulate(table, SCHEMA, recipe), budget, dps.Ledger("sqlite://"), "few"))
    with pytest.warns(FitWarning, match="only one class of 'sick' has a significant count"):
        model = dps.DensityClassifier("sick").fit(view)
    assert list(model.classes_) == ["no", "yes"], "'other' is not listed by the schema"
    assert (model.class_count_ > 0).all()
    assert abs(model.class_count_[1] - 60) < 3 * model.class_count_stderr_[1] + 500
    few, many = np.asarray(model.log_odds(simulated(200, 2).to_pandas()).stderr).T[::-1]
    assert few.min() > model.class_count_stderr_[1] / model.class_count_[1] > 0.3
    assert np.median(few) > 3 * np.median(many)


def test_expected_counts_are_those_of_truncated_normal_distributions() -> None:
    counts, errors = np.array([-900.0, -100.0, 0.0, 250.0, 5000.0]), np.array([300.0, 100.0, 50.0, 100.0, 100.0])
    means, deviations = expected_counts(counts, errors)
    for count, error, mean, deviation in zip(counts, errors, means, deviations, strict=True):
        x = np.linspace(0, max(count, 0) + 12 * error, 200_001)
        weight = np.exp(-(((x - count) / error) ** 2) / 2 + (min(count, 0) / error) ** 2 / 2)
        weight /= weight.sum()
        assert mean == pytest.approx(float(weight @ x), rel=1e-3)
        assert deviation == pytest.approx(float(weight @ (x - weight @ x) ** 2) ** 0.5, rel=1e-3)
    exact = expected_counts(counts, np.zeros(5))
    assert (exact[0] == counts).all()
    assert not exact[1].any()
