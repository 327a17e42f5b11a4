"""Answers about one column from marginals: exact without noise, and as far off as they say with it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.learn.estimators.marginal import MarginalEstimator
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.learn.sql.selection import Selection
from dpsketch.maps.tables.marginals import BoundMarginals

ROWS = 20_000
FACTS = {
    "privacy": {"rows": ROWS},
    "columns": {
        "wage": {"kind": "number", "lower": 0, "upper": 100},
        "age": {"kind": "integer", "lower": 0, "upper": 110},
        "weeks": {"kind": "integer", "lower": 0, "upper": 520},
        "town": {"kind": "category", "values": ["a", "b", "c"]},
    },
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(SEED)
    wage = rng.gamma(2.0, 12.0, ROWS)
    return pa.table(
        {
            "wage": pa.array(wage, mask=rng.random(ROWS) < 0.1),
            "age": rng.binomial(110, 0.3, ROWS),
            "weeks": rng.poisson(90, ROWS),
            "town": rng.choice(["a", "b", "c"], ROWS, p=[0.6, 0.3, 0.1]),
        }
    )


@pytest.fixture(scope="module")
def raw(table: pa.Table) -> dps.RawSketch:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Marginals(bins=64), 0.9)])
    return dps.accumulate(table, dps.Schema.from_dict(FACTS), recipe)


def released(raw: dps.RawSketch, epsilon: float) -> dps.View:
    budget = dps.Budget(epsilon)
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://") if budget.private else None, "a"))


def test_means_are_exact_without_noise_whatever_lies_inside_the_bins(raw: dps.RawSketch, table: pa.Table) -> None:
    view = released(raw, float("inf"))
    for name in ("wage", "age", "weeks"):
        known = np.clip(table[name].drop_null().to_numpy(), 0, 100 if name == "wage" else None)
        assert view.mean(name).value == pytest.approx(known.mean(), rel=1e-4)
        assert view.var(name).value == pytest.approx(known.var(), rel=0.02)
        assert view.quantile(name, 0.3).value == pytest.approx(np.quantile(known, 0.3), rel=0.02)
    assert view.fraction("wage is null").value == pytest.approx(table["wage"].null_count / ROWS, abs=1e-6)
    assert view.fraction("town = 'b'").value == pytest.approx(np.mean(table["town"].to_numpy() == "b"), abs=1e-6)


def selection(view: dps.View, name: str, where: str | None = None) -> Selection:
    """Of the noisy marginal, whether or not the view would choose it."""
    [(part, marginals)] = view.released.parts_with(BoundMarginals)
    place = marginals.columns.index(name)
    estimator = MarginalEstimator(view.schema, ReleaseNoise(view.released), part, marginals, place)
    condition = None if where is None else parse_condition(where, view.schema)
    return Selection(estimator, view.rows(), condition_factors(view.schema, condition))


def test_standard_errors_match_the_spread_of_many_releases(raw: dps.RawSketch) -> None:
    """100 releases: a spread is known to 7 %, and 35 % more or less, five times as much, is noticed."""
    column = dps.Schema.from_dict(FACTS).column
    questions = {
        "mean": lambda view: selection(view, "wage").mean(column("wage")),
        "weeks": lambda view: selection(view, "weeks").mean(column("weeks")),
        "share": lambda view: selection(view, "town", "town = 'c'").share(),
        "tail": lambda view: selection(view, "wage", "wage > 60").share(),
        "cdf": lambda view: selection(view, "age").cdf(column("age"), np.array([30.0]))[0],
    }
    views = [released(raw, 0.5) for _ in range(100)]
    for name, question in questions.items():
        answers = [question(view) for view in views]
        spread, stated = np.std([a.value for a in answers]), np.mean([a.stderr for a in answers])
        assert spread == pytest.approx(stated, rel=0.35), name


def test_the_sum_of_codes_makes_means_better_than_the_cells_do(raw: dps.RawSketch) -> None:
    view = released(raw, 0.5)
    counts = 1.0 * view.released.parts[1].noise_variance ** 0.5 / 2**16
    from_cells_alone = 100 * counts * np.sqrt(66 / 12) / (0.9 * ROWS)
    assert selection(view, "wage").mean(view.schema.column("wage")).stderr < 0.6 * from_cells_alone


def test_without_a_count_the_cells_tell_the_rows(table: pa.Table) -> None:
    schema = dps.Schema.from_dict(FACTS)
    raw = dps.accumulate(table, schema, dps.Recipe([dps.Part(dps.Marginals(bins=16), 1.0)]))
    view = released(raw, 1.0)
    assert abs(view.count().value - ROWS) < 6 * view.count().stderr
    assert view.mean("age").value == pytest.approx(33, abs=6 * view.mean("age").stderr)


APART = dps.Recipe(
    [dps.Part(dps.Count(), 0.1), dps.Part(dps.Marginals(bins=64, totals=False), 0.6), dps.Part(dps.Totals(), 0.3)]
)


@pytest.fixture(scope="module")
def apart(table: pa.Table) -> dps.RawSketch:
    return dps.accumulate(table, dps.Schema.from_dict(FACTS), APART)


def test_sums_by_themselves_are_as_exact(apart: dps.RawSketch, raw: dps.RawSketch) -> None:
    mine, other = released(apart, float("inf")), released(raw, float("inf"))
    for name in ("wage", "age", "weeks"):
        assert mine.mean(name).value == pytest.approx(other.mean(name).value, rel=1e-6)
        assert mine.quantile(name, 0.3).value == pytest.approx(other.quantile(name, 0.3).value, rel=1e-6)


def test_means_by_sums_of_their_own_are_as_far_off_as_they_say(apart: dps.RawSketch, table: pa.Table) -> None:
    """And not much farther than the noise of the sum itself: its part of a cube of three, beside that of the count."""
    views = [released(apart, 1.0) for _ in range(60)]
    for name in ("wage", "age", "weeks"):
        known = table[name].drop_null().to_numpy()
        truth = np.clip(known, 0, 100 if name == "wage" else None).mean()
        answers = [view.mean(name) for view in views]
        off = np.array([(answer.value - truth) / answer.stderr for answer in answers])
        assert 0.75 < np.sqrt(np.mean(off**2)) < 1.3
        width = FACTS["columns"][name]["upper"]  # type: ignore[index]
        alone = width / 2 * np.sqrt(4 * 5 / 3) / 0.3 / ROWS
        assert alone < np.mean([answer.stderr for answer in answers]) < 2 * alone


def test_of_several_sums_of_a_column_the_best_is_taken_with_its_own_error(table: pa.Table) -> None:
    """Whatever the order of the parts, and whether a sum stands beside counts or by itself."""
    schema, truth = dps.Schema.from_dict(FACTS), table["age"].to_numpy().mean()
    few, many = dps.Part(dps.Totals(["age"]), 0.02), dps.Part(dps.Totals(), 0.5)
    count, marginals = dps.Part(dps.Count(), 0.2), dps.Part(dps.Marginals(bins=64), 0.2)
    for parts in ([count, marginals, few, many], [many, few, marginals, count], [marginals, many, count]):
        raw = dps.accumulate(table, schema, dps.Recipe(parts))
        answers = [released(raw, 1.0).mean("age") for _ in range(40)]
        off = [(answer.value - truth) / answer.stderr for answer in answers]
        assert 0.7 < np.sqrt(np.mean(np.square(off))) < 1.35
        assert parts[ReleaseNoise(released(raw, 1.0).released).totals["age"].part] is many
