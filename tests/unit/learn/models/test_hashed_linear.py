"""Linear models from hashed counters: planted models are found without noise, and refusals say what to release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.encoding.records import Records
from dpsketch.errors import QueryError, RecipeError
from dpsketch.learn.models.surrogate import Collisions, minimum
from dpsketch.maps.hashed.hashes import InnerProduct
from dpsketch.maps.hashed.ramps import with_one

ROWS = 4000
NUMBER = {"kind": "number", "lower": -10, "upper": 10}
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "a": NUMBER,
            "b": {"kind": "number", "lower": 0, "upper": 1},
            "y": {"kind": "number", "lower": 0, "upper": 100},
            "sick": {"kind": "category", "values": ["no", "yes"]},
            "four": {"kind": "category", "values": [1, 2, 3, 4]},
        },
    }
)
BUDGET = dps.Budget(100.0, 1e-6)


def planted(rows: int = ROWS, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    a, b = random.uniform(-10, 10, rows), random.uniform(0, 1, rows)
    y = 50 + 3 * a - 20 * (b - 0.5) + random.normal(0, 2, rows)
    sick = np.where(a / 10 + 2 * (b - 0.5) + random.normal(0, 0.1, rows) > 0, "yes", "no")
    return {"a": a, "b": b, "y": y, "sick": sick, "four": random.integers(1, 5, rows)}


def released(target: str, budget: dps.Budget = BUDGET) -> dps.View:
    recipe = dps.Recipe.hashed_linear(SCHEMA, target=target, budget=budget, columns=["a", "b"])
    raw = dps.accumulate(pa.table(planted()), SCHEMA, recipe)
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "planted"))


def test_queries_meet_the_counters_that_the_map_says() -> None:
    """The packing of signs into places, against the map's own queries, whose one is fixed at one."""
    race = dps.Race(("a", "b"), 30, 16, hash=InnerProduct(4), embedding=with_one(2)).bind(SCHEMA)
    codes = np.full((5, 6), -32768, np.int16)
    codes[:2] = np.random.default_rng(0).integers(-32767, 32768, (2, 6))
    sums = np.random.default_rng(1).integers(0, 1000, 30 * 16)
    totals, _ = race.totals(Records(codes), sums, 1)
    queries = np.column_stack([codes[:2].T / 32767, np.ones(6)])
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    found = Collisions(race).sums(sums.reshape(30, 16).astype(float), queries)
    np.testing.assert_allclose(found, totals[0] / 30, atol=40)  # codes are rounded: a sign may differ
    assert np.mean(found == totals[0] / 30) >= 0.5


def test_collisions_follow_the_kernel() -> None:
    race = dps.Race(("a", "b"), 4000, 16, hash=InnerProduct(4), embedding=with_one(2)).bind(SCHEMA)
    codes = np.zeros((5, 1), np.int16)
    sums = np.zeros(race.size, np.int64)
    race.accumulate(Records(codes), sums)  # the record is (0, 0, 1)
    counters = sums.reshape(4000, 16).astype(float)
    products = np.array([-0.9, -0.3, 0.0, 0.5, 1.0])
    queries = np.column_stack([np.zeros(5), np.zeros(5), products])
    found = Collisions(race).sums(counters, queries)
    np.testing.assert_allclose(found, InnerProduct(4).kernel(products), atol=0.03)


@pytest.mark.parametrize("place", [(0.5, -0.25, 0.1), (0.0, 0.0, 0.0), (-0.3, 1.1, 0.2)])
def test_the_minimum_of_a_long_valley(place: tuple[float, ...]) -> None:
    """Also near the longest place that is allowed."""

    def valley(places: np.ndarray) -> np.ndarray:
        return np.asarray(((places - place) ** 2 * [1.0, 0.2, 1.0]).sum(axis=1))

    np.testing.assert_allclose(minimum(valley, 3, 1.5), place, atol=0.15)


@pytest.fixture(scope="module")
def regression() -> dps.HashedLinear:
    return dps.HashedLinear("y").fit(released("y"))


@pytest.fixture(scope="module")
def classifier() -> dps.HashedLinear:
    return dps.HashedLinear("sick", loss="hinge").fit(released("sick"))


def test_a_planted_regression(regression: dps.HashedLinear) -> None:
    table = planted(seed=2)
    assert regression.score(table, table["y"]) > 0.8
    assert regression.coef_[0] == pytest.approx(3, abs=1)
    assert regression.coef_[1] == pytest.approx(-20, abs=12)
    assert regression.intercept_ == pytest.approx(60, abs=8)
    assert np.isnan(regression.coef_stderr_).all()
    assert list(regression.feature_names_in_) == ["a", "b"]
    assert regression.statement_["epsilon"] == "100"


def test_planted_classes(classifier: dps.HashedLinear) -> None:
    table = planted(seed=2)
    assert list(classifier.classes_) == ["no", "yes"]
    assert classifier.score(table, table["sick"]) > 0.9
    assert classifier.score(table, np.where(table["sick"] == "yes", "no", "yes")) < 0.1


def test_saved_models_are_the_same(regression: dps.HashedLinear, classifier: dps.HashedLinear, tmp_path: Path) -> None:
    rows = {"a": [1.0, None, 99.0], "b": [0.1, 0.9, None]}
    for name, model in (("r", regression), ("c", classifier)):
        dps.save_model(model, tmp_path / name)
        again = dps.load_model(tmp_path / name)
        assert vars(again).keys() == vars(model).keys()
        assert list(again.predict(rows)) == list(model.predict(rows))
        assert again.statement_["epsilon"] == model.statement_["epsilon"]


def test_lies_in_saved_models(regression: dps.HashedLinear) -> None:
    facts, arrays = regression.to_saved()
    for lie in ({"columns": ["a"]}, {"columns": ["a", "a"]}, {"columns": ["a", "four"]}, {"columns": ["a", "y"]}):
        with pytest.raises(ValueError, match=r"columns|coef"):
            dps.HashedLinear.from_saved(facts | lie, arrays)
    for lie in ({"loss": "absolute"}, {"target": "four"}, {"loss": "hinge"}):
        with pytest.raises(QueryError):
            dps.HashedLinear.from_saved(facts | lie, arrays)


def test_refusals(regression: dps.HashedLinear) -> None:
    view = released("y")
    with pytest.raises(QueryError, match=r"no hashed counters of inner products(.|\n)*Recipe.hashed_linear.*'a'"):
        dps.HashedLinear("a").fit(view)
    with pytest.raises(QueryError, match=r"no hashed counters(.|\n)*Grouped\(Race"):
        dps.HashedLinear("sick", loss="hinge").fit(view)
    with pytest.raises(QueryError, match="does not have two classes"):
        dps.HashedLinear("four", loss="hinge").fit(view)
    with pytest.raises(QueryError, match="loss must be one of"):
        dps.HashedLinear("y", loss="absolute").fit(view)
    with pytest.raises(QueryError, match="not fitted"):
        dps.HashedLinear("y").predict(planted())
    with pytest.raises(QueryError, match="different lengths"):
        regression.score(planted(), [1.0])
    with pytest.raises(RecipeError, match="neither a number nor one of two classes"):
        dps.Recipe.hashed_linear(SCHEMA, target="four", budget=BUDGET)
    with pytest.raises(RecipeError, match="columns other than the target"):
        dps.Recipe.hashed_linear(SCHEMA, target="y", budget=BUDGET, columns=["y"])


def test_fewer_rows_of_counters_under_pure_budgets() -> None:
    (pure,) = dps.Recipe.hashed_linear(SCHEMA, target="y", budget=dps.Budget(1.0)).parts
    (gaussian,) = dps.Recipe.hashed_linear(SCHEMA, target="y", budget=dps.Budget(1.0, 1e-6)).parts
    assert (pure.map.rows, gaussian.map.rows) == (100, 1000)  # type: ignore[attr-defined]
