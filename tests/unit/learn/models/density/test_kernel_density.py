"""Densities from tables and from hashed counters against sums over the records themselves."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError
from dpsketch.learn.estimators import radial_kernels as radial
from dpsketch.learn.models.density.convolved import Convolved
from dpsketch.learn.models.density.full_table import Axis, FullTable
from dpsketch.numerics.arrays import Floats

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 20_000},
        "columns": {
            "a": {"kind": "number", "lower": 0, "upper": 10},
            "b": {"kind": "number", "lower": -5, "upper": 5},
            "c": {"kind": "integer", "lower": 0, "upper": 20},
            "log": {"kind": "number", "lower": 1, "upper": 100, "transform": "log"},
        },
    }
)
ROWS = 20_000
KERNEL = dps.Euclidean(0.1)
CHOSEN = [dps.Levels(bins=64), dps.AdaptiveMarginals(bins=64)]


def records() -> Floats:
    rng = np.random.default_rng(1)
    a = np.clip(np.concatenate([rng.normal(3, 1, ROWS // 2), rng.normal(7, 0.7, ROWS // 2)]), 0, 10)
    a[:600] = 10.0  # a heap on the bound
    b = np.clip(a - 5 + rng.normal(0, 1, ROWS), -5, 5)
    c = np.clip(np.rint(rng.normal(8, 3, ROWS)), 0, 20)
    return np.stack([a, b, c, np.exp(rng.uniform(0, 4, ROWS))], axis=1)


RECORDS = records()
TABLE = pa.table(dict(zip(("a", "b", "c", "log"), RECORDS.T, strict=True)))
SCALED = (RECORDS[:, :3] - [0, -5, 0]) / [10, 10, 20]
POINTS = RECORDS[::400, :3]


def exact(columns: list[int], family: dps.Euclidean = KERNEL) -> Floats:
    """Mean kernel values of the records at POINTS."""
    scaled, points = SCALED[:, columns], SCALED[::400][:, columns]
    return np.array([family.kernel(np.linalg.norm(scaled - point, axis=1)).mean() for point in points])


def view(*maps: dps.FeatureMap, epsilon: float = 1.0, delta: float = 0.0) -> dps.View:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.02), *(dps.Part(each, 0.98 / len(maps)) for each in maps)])
    raw = dps.accumulate(TABLE, SCHEMA, recipe)
    return dps.View(dps.release(raw, dps.Budget(epsilon, delta), dps.Ledger("sqlite://"), "d"))


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(
    ("maps", "columns"),
    [
        ([dps.Histogram(columns=["a"], bins=100)], ["a"]),
        ([dps.Histogram(columns=["c"], bins=100)], ["c"]),
        ([dps.Marginals(bins=64)], ["b"]),
        (CHOSEN, ["a"]),
        (CHOSEN, ["c"]),
        ([dps.Histogram(2, ["a", "b"], 40)], ["b", "a"]),
        ([dps.Histogram(3, ["a", "b", "c"], 24)], ["a", "b", "c"]),
    ],
)
def test_tables_give_the_densities_of_the_records(maps: list[dps.FeatureMap], columns: list[str]) -> None:
    places = ["abc".index(name) for name in columns]
    model = dps.KernelDensity(KERNEL, columns=columns).fit(view(*maps))
    answer, truth = model.density(POINTS[:, places]), exact(places)
    assert np.mean(np.abs(answer.value - truth) / truth) < 0.02
    far = np.sqrt(np.mean(((answer.value - truth) / answer.stderr) ** 2))
    assert far < 2.5
    assert list(model.feature_names_in_) == columns
    assert np.allclose(model.score_samples(POINTS[:, places]), np.log(answer.value))
    with pytest.raises(QueryError, match="no theorem bounds"):
        answer.bound(0.05)


def test_the_standard_error_of_a_table_is_that_of_its_noise() -> None:
    """Against sums with noise drawn anew; a standard error that is a quarter off would fail."""
    axes = (Axis(30, True), Axis(15, False))
    rng, variance = np.random.default_rng(3), 4.0
    kernel = radial.Radial("euclidean", 1, (8.0, 5.0))
    summed = rng.integers(1, 5, (32, 15)).astype(float)
    counts = [rng.normal(0, np.sqrt(variance * summed)) for _ in range(200)]
    drawn = [FullTable(("a", "c"), axes, each, variance, "", summed) for each in counts]
    found = [Convolved(table, kernel) for table in drawn]
    ratio = np.std([each.value for each in found], axis=0) / found[0].noise
    assert 0.95 < np.median(ratio) < 1.05
    assert ratio.min() > 0.75
    assert ratio.max() < 1.25


@pytest.mark.usefixtures("seeded")
def test_the_gaussian_kernel_gives_a_density_in_the_units_of_the_columns() -> None:
    model = dps.KernelDensity("gaussian", {"a": 0.5}, ["a"]).fit(view(dps.Histogram(columns=["a"], bins=200)))
    at = np.array([3.0, 5.0, 7.0])
    truth = np.exp(-0.5 * ((RECORDS[:, :1] - at) / 0.5) ** 2).mean(axis=0) / (0.5 * np.sqrt(2 * np.pi))
    answer = model.density(at[:, None])
    assert np.allclose(answer.value, truth, rtol=0.02)


@pytest.mark.usefixtures("seeded")
def test_hashed_counters_answer_with_their_own_kernel_alone() -> None:
    asking = view(dps.Race(["a", "b"], 600, 500, hash=KERNEL), delta=1e-6)
    model = dps.KernelDensity().fit(asking)
    answer, truth = model.density(POINTS[:, :2]), exact([0, 1])
    assert model.kernel_ == KERNEL
    assert np.mean(np.abs(answer.value - truth) / truth) < 0.08
    assert np.sqrt(np.mean(((answer.value - truth) / answer.stderr) ** 2)) < 2
    other = dps.KernelDensity(columns=["b", "a"]).fit(asking)
    assert np.allclose(other.density(POINTS[:, [1, 0]]).value, answer.value)
    for refused in (dps.Euclidean(0.2), dps.SignedProjection(4)):
        with pytest.raises(QueryError, match=r"does not hold .*\n.*hashed counters with Euclidean\(bandwidth=0.1"):
            dps.KernelDensity(refused).fit(asking)


@pytest.mark.usefixtures("seeded")
def test_each_bandwidth_of_a_release_is_answered_by_its_own_counters() -> None:
    """Two parts of the same columns, of which the second was not seen; columns in any order."""
    narrow, wide = dps.Euclidean(0.5, scaled=False), dps.Euclidean(2.0, scaled=False)
    asking = view(dps.Race(["a", "c"], 200, 500, hash=narrow), dps.Race(["a", "c"], 200, 500, 1, hash=wide), delta=1e-6)
    points = POINTS[:20, [0, 2]]
    for part, family in ((1, narrow), (2, wide)):
        for names in (["a", "c"], ["c", "a"]):
            model = dps.KernelDensity(family, columns=names).fit(asking)
            answer = model.density(points if names[0] == "a" else points[:, ::-1])
            sums = np.maximum(asking.kernel_sum(points, part=part).value, 0.0)
            assert model.kernel_ == family
            assert np.allclose(answer.value, sums / asking.count().value)
    assert dps.KernelDensity().fit(asking).kernel_ == narrow
    by_bandwidth = dps.KernelDensity(bandwidth={"a": 2.0, "c": 2.0}).fit(asking)
    assert by_bandwidth.kernel_ == wide
    both = r"Euclidean\(bandwidth=0.5, .* on a, c; hashed counters with Euclidean\(bandwidth=2.0"
    with pytest.raises(QueryError, match=rf"does not hold Euclidean\(bandwidth=3.*\n.*{both}"):
        dps.KernelDensity(dps.Euclidean(3, scaled=False)).fit(asking)


@pytest.mark.usefixtures("seeded")
def test_of_equal_kernels_the_more_accurate_counters_answer() -> None:
    races = [dps.Race(["a", "b"], rows, 500, hash=KERNEL) for rows in (10, 200, 10)]
    model = dps.KernelDensity().fit(view(*races, delta=1e-6))
    assert model.how_ == "200 rows of hashed counters"


@pytest.mark.usefixtures("seeded")
def test_the_median_of_means() -> None:
    asking = view(dps.Race(["a", "b"], 600, 500, hash=KERNEL), dps.Histogram(2, ["a", "b"], 40), delta=1e-6)
    model = dps.KernelDensity(columns=["a", "b"], method="median").fit(asking)
    answer, sums = model.density(POINTS[:, :2]), asking.kernel_sum(POINTS[:, :2], "median")
    assert np.allclose(answer.value, sums.value / asking.count().value)
    assert model.how_ == "median of means of 600 rows of hashed counters"
    facts, arrays = model.to_saved()
    again = dps.KernelDensity.from_saved(json.loads(json.dumps(facts)), arrays)
    assert np.array_equal(again.density(POINTS[:, :2]).value, answer.value)
    with pytest.raises(QueryError, match="a median of means is of hashed counters"):
        dps.KernelDensity(method="median").fit(view(dps.Histogram(2, ["a", "b"], 40)))
    with pytest.raises(QueryError, match="method must be one of mean, median"):
        dps.KernelDensity(method="mode").fit(asking)


def test_a_table_has_the_kernel_that_it_was_released_for() -> None:
    for bandwidth in (0.01, 0.2):
        budget = dps.Budget(1.0)
        recipe = dps.Recipe.density(SCHEMA, budget=budget, columns=["a"], bandwidth=bandwidth)
        released = dps.release(dps.accumulate(TABLE, SCHEMA, recipe), budget, dps.Ledger("sqlite://"), "d")
        default, asked = (dps.KernelDensity(bandwidth=each).fit(dps.View(released)) for each in (None, bandwidth))
        assert np.array_equal(default.density(POINTS[:, :1]).value, asked.density(POINTS[:, :1]).value)


@pytest.mark.usefixtures("seeded")
def test_the_better_of_both_is_taken() -> None:
    asking = view(dps.Race(["a"], 50, 500, hash=KERNEL), dps.Histogram(columns=["a"], bins=100))
    model = dps.KernelDensity(columns=["a"]).fit(asking)
    assert model.how_.startswith("histogram")
    assert [how.split(",")[0] for how, _ in model.considered_] == ["histogram", "50 rows of hashed counters"]
    assert "hashed" in model.density(POINTS[:, :1]).explain()


def test_what_a_release_cannot_tell_is_refused() -> None:
    asking = view(dps.Histogram(2, ["a", "b"], 10))
    with pytest.raises(QueryError, match=r"cells of column 'a' are 5 bandwidths wide"):
        dps.KernelDensity(dps.Euclidean(0.02)).fit(asking)
    with pytest.raises(QueryError, match="holds no density of c"):
        dps.KernelDensity(columns=["c"]).fit(asking)
    with pytest.raises(QueryError, match="needs a bandwidth"):
        dps.KernelDensity("gaussian").fit(asking)
    with pytest.raises(QueryError, match="kernel must be one of euclidean, gaussian"):
        dps.KernelDensity("tophat", 0.1).fit(asking)
    with pytest.raises(QueryError, match="the bandwidth is part of the kernel"):
        dps.KernelDensity(KERNEL, 0.1).fit(asking)
    with pytest.raises(QueryError, match="bandwidth lacks column 'b'"):
        dps.KernelDensity("gaussian", {"a": 1.0}).fit(asking)
    with pytest.raises(QueryError, match="X must have 2 columns: a, b"):
        dps.KernelDensity(KERNEL).fit(asking).density([[1.0]])
    with pytest.raises(QueryError, match="not fitted"):
        dps.KernelDensity().density([[1.0]])
    with pytest.raises(QueryError, match="on a log scale"):
        radial.named(SCHEMA, ["log"], "gaussian", {"log": 2.0})


def test_missing_cells_have_no_density() -> None:
    model = dps.KernelDensity(KERNEL).fit(view(dps.Histogram(2, ["a", "b"], 20)))
    answer = model.density({"a": [3.0, None], "b": [-2.0, 1.0]})
    assert np.isfinite(answer.value[0])
    assert np.isnan(answer.value[1])


@pytest.mark.parametrize("map_", [dps.Histogram(2, ["a", "b"], 20), dps.Race(["a", "b"], 20, 100, hash=KERNEL)])
def test_a_saved_model_scores_alike(map_: dps.FeatureMap) -> None:
    model = dps.KernelDensity(KERNEL).fit(view(map_))
    facts, arrays = model.to_saved()
    again = dps.KernelDensity.from_saved(json.loads(json.dumps(facts)), arrays)
    one, two = model.density(POINTS[:, :2]), again.density(POINTS[:, :2])
    assert np.array_equal(one.value, two.value)
    assert np.array_equal(one.stderr, two.stderr)
    assert np.array_equal(model.score_samples(POINTS[:, :2]), again.score_samples(POINTS[:, :2]))


@pytest.mark.usefixtures("seeded")
def test_the_bound_holds_and_is_not_vacuous() -> None:
    """Over many places: the errors stay below it, and it stays below the density at most of them."""
    asking = view(dps.Race(["a"], 1500, 500, hash=dps.Euclidean(0.3)), delta=1e-6)
    truth = exact([0], dps.Euclidean(0.3))
    for method in ("mean", "median"):
        sums = asking.kernel_sum(POINTS[:, :1], method=method)
        for delta in (0.05, 1e-6):
            assert (np.abs(sums.value - ROWS * truth) < sums.bound(delta)).all()
        assert np.median(sums.bound(0.05) / sums.value) < 0.5
        assert (sums.bound(1e-6) > sums.bound(0.05)).all()
    answer = dps.KernelDensity().fit(asking).density(POINTS[:, :1])
    bound = answer.bound(0.05)
    assert (np.abs(answer.value - truth) < bound).all()
    assert (bound > 3 * answer.stderr).all()
    with pytest.raises(QueryError, match="delta must be a number between 0 and 1"):
        answer.bound(1.0)


def test_the_bound_grows_with_what_a_row_cannot_tell() -> None:
    """Chebyshev for the mean of R rows: C = 1/(R·delta), without noise and with N·g for the variance."""
    recipe = dps.Recipe([dps.Part(dps.Race(["a", "b"], 100, 500, hash=KERNEL), 1.0)])
    asking = dps.View(dps.release(dps.accumulate(TABLE, SCHEMA, recipe), dps.Budget(float("inf"))))
    answer = asking.kernel_sum([[3.0, -2.0]])
    factor, counted = 1 / (100 * 0.05), answer.value[0] * 499 / 500 + ROWS / 500
    expected = factor * ROWS / 2 + np.sqrt((factor * ROWS / 2) ** 2 + factor * ROWS * counted)
    assert answer.bound(0.05)[0] == pytest.approx(expected * 500 / 499, rel=1e-9)
