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
            "x": {"kind": "number", "lower": 0, "upper": 1, "missing": 0},
            "y": {"kind": "number", "lower": -5, "upper": 5, "missing": 0},
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


# Of errors over standard errors, as a root mean square: twice what releases had.
LARGEST = {
    dps.Fourier(size=100): 1.2,
    dps.OneBitFourier(size=100): 1.8,
    dps.Race(rows=40, width=200, hash=dps.Euclidean(bandwidth=0.3)): 1.4,
    dps.Grid(rows=5, width=1024, levels=(2,)): 1.1,
    dps.Marginals(): 1.75,
    dps.Grouped(dps.Fourier(size=50, columns=["x", "y"]), "z"): 2.0,
}
MAPS = list(LARGEST)
ODD = 0.0123456789  # makes no number round


@pytest.mark.parametrize("example", MAPS, ids=repr)
def test_errors_cover_the_truth(example: FeatureMap) -> None:
    """At ε = 1, over single columns. Standard errors a third as large would be noticed, in 98 of 100 runs with fresh
    noise; the right ones fail in less than one of 10^6: χ² with the degrees that fit the spread of 40 releases, from
    3 a release (marginals) on. The numbers have too many digits to be shared by many records.
    """
    squares = []
    for _ in range(2 if isinstance(example, dps.Race) else 6):
        view = view_of(example, 1.0)
        for at in (0.1, 0.2, 0.3, 0.4, 0.6):
            answer = view.fraction(f"x > {at + ODD}")
            squares.append(((answer.value - (FRAME.x > at + ODD).mean()) / answer.stderr) ** 2)
        for name in ("x", "y"):
            answer = view.mean(name)
            squares.append(((answer.value - FRAME[name].mean()) / answer.stderr) ** 2)
    found = math.sqrt(np.mean(squares))
    assert LARGEST[example] / 5 < found < LARGEST[example]


def released_numbers(frame: pandas.DataFrame, example: FeatureMap, **facts: float) -> dps.ReleasedSketch:
    """A release without noise of columns between 0 and 1."""
    columns = {name: {"kind": "number", "lower": 0, "upper": 1, **facts} for name in frame}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    raw = dps.accumulate(frame, schema, dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(example, 0.9)]))
    return dps.release(raw, dps.Budget(math.inf))


@pytest.mark.parametrize("example", [dps.Fourier(size=100), dps.OneBitFourier(size=100)], ids=repr)
def test_errors_of_a_uniform_table_are_not_wide(example: FeatureMap) -> None:
    """Without noise, so the same in every run: errors are those of the rows by chance, hardly above the paper's."""
    uniform = pandas.DataFrame(np.random.default_rng(SEED).random((ROWS, 5)), columns=list("abcde"))
    released = released_numbers(uniform, example, missing=0.0)
    ours, paper = dps.View(released), dps.View(released, method="ridge-paper")
    relative, errors, of_paper = [], [], []
    for one, two in [*zip("abcde", "bcdea", strict=True), *zip("abcde", "cdeab", strict=True)]:
        for condition, holds in (
            (f"{one} <= 0.3", uniform[one] <= 0.3),
            (f"{one} <= 0.6 and {two} >= 0.5", (uniform[one] <= 0.6) & (uniform[two] >= 0.5)),
        ):
            answer = ours.fraction(condition)
            errors.append(answer.raw - holds.mean())
            relative.append(errors[-1] / answer.stderr)
            of_paper.append(paper.fraction(condition).raw - holds.mean())
    assert 0.3 < math.sqrt(np.mean(np.square(relative))) < 1.4
    assert np.mean(np.square(errors)) < 1.1**2 * np.mean(np.square(of_paper))


@pytest.mark.parametrize("example", [dps.Fourier(size=100), dps.Race(rows=40, width=80)], ids=repr)
def test_errors_cover_missing_cells_unless_the_schema_excludes_them(example: FeatureMap) -> None:
    """A quarter of a column is missing. Sums hardly tell such cells from numbers at one place of the column."""
    rng = np.random.default_rng(SEED)
    frame = pandas.DataFrame(rng.beta(6, 3, (ROWS, 5)), columns=list("abcde"))
    exact = dps.View(released_numbers(frame, example, missing=0.0)).mean("a")
    frame.loc[rng.random(ROWS) < 0.25, "a"] = np.nan
    answer = dps.View(released_numbers(frame, example)).mean("a")
    assert abs(answer.raw - frame.a.mean()) < 2 * answer.stderr
    assert answer.stderr > 3 * exact.stderr
    assert "missing cells" in answer.causes[0][0]


@cache
def with_heavy_value() -> pandas.DataFrame:
    """A third of the records have 40 hours, and 15 % none."""
    rng = np.random.default_rng(SEED)
    hours = np.clip(np.rint(rng.normal(40, 13, ROWS)), 1, 60)
    hours[rng.random(ROWS) < 0.4] = 40
    hours[rng.random(ROWS) < 0.15] = np.nan
    age = rng.integers(17, 91, ROWS)
    job, sex = rng.choice(["a", "b", "c"], ROWS, p=[0.1, 0.7, 0.2]), rng.choice(["f", "m"], ROWS, p=[0.35, 0.65])
    return pandas.DataFrame({"age": age, "hours": hours, "job": job, "sex": sex})


@cache
def view_with_heavy_value(example: FeatureMap, columns: tuple[str, ...] = ("age", "hours", "job", "sex")) -> dps.View:
    kinds = {
        "age": {"kind": "integer", "lower": 17, "upper": 90},
        "hours": {"kind": "integer", "lower": 1, "upper": 60},
        "job": {"kind": "category", "values": ["a", "b", "c"]},
        "sex": {"kind": "category", "values": ["f", "m"]},
    }
    declared = {name: kinds[name] for name in columns}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": declared})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(example, 0.9)])
    raw = dps.accumulate(with_heavy_value()[list(columns)], schema, recipe)
    return dps.View(dps.release(raw, dps.Budget(math.inf)))


HEAVY = [dps.Fourier(size=200), dps.OneBitFourier(size=200)]


@pytest.mark.parametrize("example", HEAVY, ids=repr)
def test_errors_cover_missing_cells_and_heavy_values(example: FeatureMap) -> None:
    view, frame = view_with_heavy_value(example), with_heavy_value()
    hours, present = frame.hours, frame.hours.notna()
    answers = [
        (view.mean("hours"), hours.mean()),
        (view.std("hours"), hours.std()),
        (view.fraction("hours is not null"), present.mean()),
        (view.fraction("hours < 40"), (hours < 40).mean()),
        (view.fraction("hours <= 40"), (hours <= 40).mean()),
        (view.fraction("hours = 40"), (hours == 40).mean()),
        (view.fraction("hours in (40, 50)"), hours.isin([40, 50]).mean()),
        (view.fraction("hours <> 40"), (present & (hours != 40)).mean()),
        (view.fraction("hours = 40 and sex = 'f'"), ((hours == 40) & (frame.sex == "f")).mean()),
        *((view.mean("hours", where=f"sex = '{sex}'"), hours[frame.sex == sex].mean()) for sex in ("f", "m")),
        *((view.fraction(f"job = '{job}'"), (frame.job == job).mean()) for job in ("a", "b", "c")),
    ]
    for answer, exact in answers:
        assert not answer.known or abs(answer.raw - exact) < 4 * answer.stderr, (answer, exact)
    assert answers[0][0].known
    assert answers[2][0].known


@pytest.mark.parametrize("example", HEAVY, ids=repr)
def test_numbers_are_as_uncertain_as_missing_cells(example: FeatureMap) -> None:
    view = view_with_heavy_value(example)
    missing = view.fraction("hours is null")
    assert missing.stderr > 0.05
    assert view.fraction("hours is not null").stderr >= 0.999 * missing.stderr
    (present, absent) = (
        view.sql(f"select count(*) as c from sketch where hours is {what}").to_dicts()[0]["c_stderr"]
        for what in ("not null", "null")
    )
    assert present >= 0.999 * absent
    among = [view.fraction(f"hours is {what} and sex = 'f'").stderr for what in ("null", "not null")]
    assert among[1] >= 0.9 * among[0]


def test_missing_cells_may_all_be_in_one_group() -> None:
    frame = with_heavy_value()
    frame = frame.assign(hours=frame.hours.fillna(40).where((frame.job != "a") | (frame.index % 4 == 0)))
    schema = view_with_heavy_value(HEAVY[0]).schema
    raw = dps.accumulate(frame, schema, dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(HEAVY[0], 0.9)]))
    view = dps.View(dps.release(raw, dps.Budget(math.inf)))
    answer = view.fraction("hours is null and job = 'a'")
    assert abs(answer.raw - (frame.hours.isna() & (frame.job == "a")).mean()) < 4 * answer.stderr


def test_more_sums_than_a_column_has_values() -> None:
    view = view_with_heavy_value(dps.Fourier(size=100), ("hours",))
    answer = view.mean("hours")
    assert abs(answer.raw - with_heavy_value().hours.mean()) < 4 * answer.stderr


def test_sums_do_not_tell_single_values() -> None:
    view = view_of(dps.Fourier(size=100), math.inf)
    assert not view.fraction("x = 0 and y > 0").known
    assert view.fraction("x <= 0.1").known


def test_round_numbers_may_be_shared() -> None:
    view = view_of(dps.Fourier(size=100), math.inf)
    assert view.fraction("x <= 0.25").stderr > 1.5 * view.fraction(f"x <= {0.25 + 1e-9}").stderr


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
