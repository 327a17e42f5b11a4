"""The regression on the sums of any map: weights, reductions and errors."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pandas
import pytest
import scipy.sparse

import dpsketch as dps
from conftest import SEED
from dpsketch.encoding.records import Records
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.reduction import Reduction
from dpsketch.learn.estimators.sum_blocks import blocks
from dpsketch.learn.estimators.sum_regression import MomentEstimator
from dpsketch.learn.estimators.weights import WeightedPoints, positive_weights
from dpsketch.maps.base import FeatureMap

ROWS = 20_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 1},
            "y": {"kind": "number", "lower": -5, "upper": 5},
            "z": {"kind": "category", "values": ["a", "b"]},
        },
    }
)


def table() -> pandas.DataFrame:
    rng = np.random.default_rng(SEED)
    x = rng.beta(2, 5, ROWS)
    z = rng.choice(["a", "b"], ROWS, p=[0.3, 0.7])
    return pandas.DataFrame({"x": x, "y": np.clip(rng.normal(4 * x - 2, 0.7), -5, 5), "z": z})


FRAME = table()


@cache
def raw(example: FeatureMap) -> dps.RawSketch:
    return dps.accumulate(FRAME, SCHEMA, dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(example, 0.9)]))


def view_of(example: FeatureMap, epsilon: float) -> dps.View:
    private = () if epsilon == math.inf else (dps.Ledger("sqlite://"), "a")
    return dps.View(dps.release(raw(example), dps.Budget(epsilon), *private))


# Of errors over standard errors, as a root mean square: twice what 40 releases had.
LARGEST = {
    dps.Fourier(size=100): 0.75,
    dps.OneBitFourier(size=100): 0.45,
    dps.Race(rows=40, width=200, hash=dps.Euclidean(bandwidth=0.3)): 0.5,
    dps.Grid(rows=5, width=1024, levels=(2,)): 0.7,
    dps.Marginals(): 1.75,
    dps.Grouped(dps.Fourier(size=50, columns=["x", "y"]), "z"): 0.7,
}
MAPS = list(LARGEST)


@pytest.mark.parametrize("example", MAPS, ids=repr)
def test_errors_cover_the_truth(example: FeatureMap) -> None:
    """At ε = 1, over single columns. Standard errors a third as large would be noticed, in 98 of 100 runs with fresh
    noise; the right ones fail in less than one of 10^6: χ² with the degrees that fit the spread of 40 releases, from
    3 a release (marginals) on. A regression's also hold what its points cannot tell, hence are far larger than errors.
    """
    squares = []
    for _ in range(2 if isinstance(example, dps.Race) else 6):
        view = view_of(example, 1.0)
        for at in (0.1, 0.2, 0.3, 0.4, 0.6):
            answer = view.fraction(f"x > {at}")
            squares.append(((answer.value - (FRAME.x > at).mean()) / answer.stderr) ** 2)
        for name in ("x", "y"):
            answer = view.mean(name)
            squares.append(((answer.value - FRAME[name].mean()) / answer.stderr) ** 2)
    found = math.sqrt(np.mean(squares))
    assert LARGEST[example] / 5 < found < LARGEST[example]


def test_better_than_the_paper_from_fourier_sums_alone() -> None:
    view = view_of(dps.Fourier(size=100), 1.0)
    ours, paper = view.mean("y"), dps.View(view.released, method="ridge-paper").mean("y")
    assert abs(ours.value - FRAME.y.mean()) < min(0.2, abs(paper.value - FRAME.y.mean()))


def test_weights_are_a_distribution_that_matches_the_moments() -> None:
    points = np.random.default_rng(0).random(4000)
    features = np.stack([points, points**2], axis=1)
    weights = positive_weights(features, np.array([0.7, 0.55]), 1e-6)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights @ features, [0.7, 0.55], atol=0.01)
    assert (weights == positive_weights(features, np.array([0.7, 0.55]), 1e-6)).all()


def test_weighted_points_of_a_release() -> None:
    [estimator] = view_of(dps.Fourier(size=100), 10.0)._sources.of_columns(["x"])
    assert isinstance(estimator, MomentEstimator)
    found = estimator.weighted(0)
    assert found.mean(found.frame.values("x")) == pytest.approx(FRAME.x.mean(), abs=0.03)
    assert found.effective > 50
    drawn = found.sample(5000, seed=1)
    assert np.nanmean(found.frame.values("y")[drawn]) == pytest.approx(FRAME.y.mean(), abs=0.5)
    assert WeightedPoints(found.frame, found.weights).effective == found.effective


def test_a_reduction_keeps_inner_products_and_noise() -> None:
    features = scipy.sparse.csr_array(np.random.default_rng(0).integers(0, 2, (30, 200)).astype(float))
    reduction = Reduction(features[:20])
    assert reduction.size == 20
    short = reduction.of(features)
    np.testing.assert_allclose(short[:20] @ short.T, (features[:20] @ features.T).toarray(), atol=1e-9)
    slopes = np.random.default_rng(1).normal(size=(3, 20))
    gradient = reduction.gradient(slopes, 200)
    np.testing.assert_allclose(gradient @ gradient.T, slopes @ slopes.T, atol=1e-9)
    sums = np.arange(200)
    np.testing.assert_allclose(gradient @ sums, slopes @ reduction.sums(sums, None))
    np.testing.assert_allclose(reduction.sums(sums, None), reduction.sums(sums, np.arange(200)))
    np.testing.assert_allclose(gradient.sum(axis=1), slopes @ reduction.ones(), atol=1e-9)


@pytest.mark.parametrize("example", [*MAPS, dps.Grouped(dps.Marginals(bins=4), "z"), dps.Histogram(ways=2)], ids=repr)
def test_features_of_a_block_are_those_of_the_map(example: FeatureMap) -> None:
    part = view_of(example, math.inf).released.parts[1]
    codes = np.random.default_rng(0).integers(-32768, 32768, (3, 50)).astype(np.int16)
    whole = part.map.features(Records(codes))
    covered = []
    for block in blocks(SCHEMA, part):
        found = block.features(Records(codes))
        np.testing.assert_allclose(found.toarray() if block.sparse else found, whole[:, block.indices])
        covered += block.indices.tolist()
    assert sorted(covered) == list(range(part.map.size))


def test_estimates_with_coordinates_of_their_own_combine() -> None:
    one, two = Estimate(np.array([2.0]), np.array([[1.0]])), Estimate(np.array([4.0]), np.array([[0.0, 1.0]]))
    assert (one + two).influence.tolist() == [[1.0, 1.0]]
    assert (one - two).influence.tolist() == [[1.0, -1.0]]
    assert (one * two).influence.tolist() == [[4.0, 2.0]]
    assert (one / two).influence[0] == pytest.approx([0.25 / 0.75, -0.125 / 0.75])  # two errors are half of `two`


def test_moments_of_any_order() -> None:
    view = view_of(dps.Marginals(), math.inf)
    for order in (1, 2, 3, 4):
        assert view.moment("x", order).value == pytest.approx((FRAME.x**order).mean(), abs=1e-3)
        central = ((FRAME.x - FRAME.x.mean()) ** order).mean()
        assert view.moment("x", order, central=True).value == pytest.approx(central, abs=1e-3)
    exact = (FRAME.x[FRAME.z == "a"] ** 2).mean()
    answer = view_of(dps.Grouped(dps.Marginals(), "z"), math.inf).moment("x", 2, where="z = 'a'")
    assert answer.value == pytest.approx(exact, abs=3e-3)
    for order in (0, 21, 1.5, True):
        with pytest.raises(QueryError, match="order of a moment"):
            view.moment("x", order)  # type: ignore[arg-type]


def test_a_sum_does_not_take_the_place_of_squares() -> None:
    random = np.random.default_rng(SEED)
    table = pandas.DataFrame({"x": random.beta(4, 9, 20_000), "y": random.beta(4, 9, 20_000)})
    columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in ("x", "y")}
    schema = dps.Schema.from_dict({"privacy": {"rows": 20_000}, "columns": columns})
    parts = [dps.Part(dps.Count(), 0.1), dps.Part(dps.SecondMoments(radius=1.5), 0.5), dps.Part(dps.Totals(), 0.4)]
    raw = dps.accumulate(table, schema, dps.Recipe(parts))
    view = dps.View(dps.release(raw, dps.Budget(5.0), dps.Ledger("sqlite://"), "a"))
    assert "second_moments" in view.var("x").how
