"""Answers stay inside what is possible, and say where a release tells no more than the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import seeded_noise
from dpsketch.learn.answer import Estimate
from dpsketch.learn.choice import least_error
from dpsketch.learn.estimators.marginal import MarginalEstimator
from dpsketch.learn.factors import Factor

COLUMNS = {
    "age": {"kind": "number", "lower": 0, "upper": 110},
    "pressure": {"kind": "number", "lower": 60, "upper": 220},
    "fare": {"kind": "number", "lower": 0, "upper": 500},
}


def _released(raw: dps.RawSketch, budget: dps.Budget) -> dps.ReleasedSketch:
    with TemporaryDirectory() as folder:
        return dps.release(raw, budget, ledger=dps.Ledger(Path(folder) / "ledger.db"), dataset="simulated")


def _view(rows: int, epsilon: float, seed: int, privacy: dict[str, object] | None = None) -> dps.View:
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.normal(40, 12, rows),
        "pressure": rng.normal(120, 15, rows),
        "fare": rng.exponential(13, rows),
        "unit": np.arange(rows) // 4,
    }
    schema = dps.Schema.from_dict({"privacy": {"rows": rows} | (privacy or {}), "columns": COLUMNS})
    budget = dps.Budget(epsilon)
    recipe = dps.Recipe.general(schema, rows=rows, budget=budget)
    with seeded_noise(seed):
        return dps.View(_released(dps.accumulate(pa.table(columns), schema, recipe), budget))


@cache
def _plain_view() -> dps.View:
    return _view(20_000, 1.0, 0)


def _true_or_not_known(answer: dps.Answer, truth: float, low: float, high: float) -> bool:
    if not answer.known:
        assert answer.interval(0.68) == (low, high)
        assert str(answer).startswith(f"not known ({low:g} to {high:g})")
        assert answer.reason
        assert np.isnan(answer.value)
        return False
    assert low <= answer.value <= high
    assert abs(answer.value - truth) < 5 * answer.stderr
    return True


@pytest.mark.parametrize("seed", range(6))
def test_no_prior_mean_with_a_small_error(seed: int) -> None:
    """500 rows at ε = 0.1 used to give the middle of the bounds, 55.000 ± 0.045."""
    view = _view(500, 0.1, seed)
    for column, truth, low, high in (("age", 40, 0, 110), ("pressure", 120, 60, 220), ("fare", 13, 0, 500)):
        _true_or_not_known(view.mean(column), truth, low, high)
        _true_or_not_known(view.sql(f"select median({column}) from sketch").rows[0][0], truth, low, high)


@pytest.mark.parametrize("seed", range(4))
def test_units_with_many_rows_swamp_a_small_table(seed: int) -> None:
    """A unit column used to give avg(fare) 249.1 ± 1.1, truth 13."""
    view = _view(1000, 1.0, seed, {"unit": "unit", "max_rows_per_unit": 100})
    answer = view.mean("fare")
    assert not _true_or_not_known(answer, 13, 0, 500)
    assert "noise hides all records" in answer.reason
    assert "e+" not in answer.reason
    assert view.count().known


def test_averages_lie_inside_the_bounds_and_raw_estimates_add_up() -> None:
    view = _plain_view()
    table = view.sql("select avg(age) as a from sketch where pressure > 165")
    [row] = table.to_dicts()
    assert row["a"] is None or 0 <= row["a"] <= 110
    histogram = view.histogram("fare", 20)
    assert (histogram.value >= 0).all()
    assert histogram.raw.sum() == pytest.approx(view.count().value, abs=300)
    low, _ = histogram.interval()
    assert (low >= 0).all()


def test_tables_show_raw_estimates_on_request() -> None:
    view = _plain_view()
    table = view.sql("select count(*) as n from sketch where fare > 300 and fare < 310")
    [clipped], [raw] = table.to_dicts(), table.to_dicts(raw=True)
    answer = table.rows[0][0]
    assert clipped["n"] == max(raw["n"], 0) == answer.value
    assert raw["n"] == answer.raw


def test_groups_of_no_records_have_no_average() -> None:
    table = _plain_view().sql("select avg(age) as a, count(*) as n from sketch where fare > 400")
    [row] = table.to_dicts()
    assert row["a"] is None
    assert (row["a_low"], row["a_high"]) == (0, 110)
    assert "number of records" in row["a_reason"]
    assert "n_reason" not in row
    assert table.notes == (f"a not known: {row['a_reason']}",)
    assert repr(table).splitlines()[-1] == table.notes[0]


def test_what_is_not_known_is_null_in_having_and_order() -> None:
    text = "select floor(fare / 100) as f, avg(age) as a from sketch group by floor(fare / 100)"
    view = _plain_view()
    known = [row[1].known for row in view.sql(f"{text} order by a desc").rows]
    assert known[0]
    assert known == sorted(known, reverse=True)
    assert all(row[1].known for row in view.sql(f"{text} having a > 0").rows)


@pytest.mark.parametrize("condition", ["age > 50", "not age <= 50", "age between 51 and 60", "60 <= age"])
def test_beyond_a_bound_nothing_is_known_but_the_number_at_it(condition: str) -> None:
    """Records above the bound were clamped to it: counting those beyond used to give 0 ± 0."""
    view = _clamped()
    at_bound = view.count("age >= 50")
    assert at_bound.known
    for answer in (view.count(condition), view.sql(f"select count(*) from sketch where {condition}").rows[0][0]):
        assert not answer.known
        low, high = answer.interval()
        assert low == 0
        assert high == pytest.approx(at_bound.value + 2 * at_bound.stderr, rel=0.01)
        assert "column 'age'" in answer.reason
        assert "clamped to 50" in answer.reason
    share = view.fraction(condition)
    assert share.interval()[1] == pytest.approx(at_bound.value / 20_000, rel=0.1)


def test_beyond_a_bound_in_aggregates() -> None:
    [row] = (
        _clamped()
        .sql(
            "select count(*) filter (where age > 50) as few, avg(age > 50) as share, "
            "avg(fare) filter (where age > 50) as f, "
            "sum(case when age > 50 then age else 0 end) as total, count(*) as n from sketch"
        )
        .rows
    )
    few, share, fare, total, every = row
    assert not any(each.known for each in (few, share, fare, total))
    assert every.known
    assert share.possible == pytest.approx((0, few.possible[1] / every.value), rel=0.05)
    assert fare.possible == (0, 500)
    assert total.possible == (-np.inf, np.inf)
    assert str(total) == "not known"


@cache
def _clamped() -> dps.View:
    rng = np.random.default_rng(5)
    table = pa.table({"age": rng.normal(40, 12, 20_000), "fare": rng.exponential(13, 20_000)})
    columns = {"age": {"kind": "number", "lower": 0, "upper": 50}, "fare": COLUMNS["fare"]}
    schema = dps.Schema.from_dict({"privacy": {"rows": 20_000}, "columns": columns})
    recipe = dps.Recipe.general(schema, rows=20_000, budget=dps.Budget(1.0))
    with seeded_noise(7):
        return dps.View(_released(dps.accumulate(table, schema, recipe), dps.Budget(1.0)))


def test_correlations_say_where_they_are_not_known() -> None:
    answer = _view(500, 0.1, 0).corr(["age", "fare"])
    assert not answer.known.any()
    assert answer.reason
    assert "not known (-1 to 1)" in answer._repr_html_()
    assert _plain_view().corr(["age", "pressure"]).known.all()


def test_an_answer_of_one_laplace_number_has_its_quantiles() -> None:
    """Intervals of a plain count are by the quantiles of its Laplace noise, and hold the truth that often."""
    schema = dps.Schema.from_dict({"privacy": {"rows": 100}, "columns": {"x": {"kind": "boolean"}}})
    raw = dps.accumulate(pa.table({"x": [True] * 100}), schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]))
    inside = {0.68: 0, 0.95: 0}
    releases = 2000
    rng = np.random.default_rng(3)
    released = _released(raw, dps.Budget(0.05))
    for noise in np.rint(rng.laplace(0, 20, releases)).astype(np.int64):
        again = replace(released, sums=(np.array([100 + noise]),))
        count = dps.View(again).sql("select count(*) from sketch").rows[0][0]
        assert count.laplace
        for level in inside:
            low, high = count.interval(level)
            inside[level] += low <= 100 <= high
    for level, hits in inside.items():
        deviation = np.sqrt(level * (1 - level) / releases)
        assert abs(hits / releases - level) < 3 * deviation + 0.01  # whole numbers: a step of the noise


def test_a_single_cell_has_the_shape_of_its_noise() -> None:
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 1000}, "columns": {"c": {"kind": "category", "values": list("abcdefgh")}}}
    )
    table = pa.table({"c": list("abcdefgh") * 125})
    recipe = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    view = dps.View(_released(dps.accumulate(table, schema, recipe), dps.Budget(1.0)))
    assert view.count("c = 'a'").laplace
    assert not view.count("c = 'a' or c = 'b'").laplace


class _Smooth:
    columns, how = ("x",), "smooth"

    def __init__(self, stderr: float) -> None:
        self._stderr = stderr

    def expect(self, *_products: Sequence[Factor]) -> Estimate:
        return Estimate(np.array([55.0]), np.array([[self._stderr]]))


class _Unbiased(_Smooth, MarginalEstimator):
    how = "unbiased"


@pytest.mark.parametrize(
    ("smooth", "unbiased", "chosen"),
    [(0.045, 16.0, "unbiased"), (6.5, 12.5, "smooth"), (0.1, 2.0, "smooth"), (20.0, 16.0, "unbiased")],
)
def test_a_fit_that_noise_left_at_its_prior_is_not_chosen(smooth: float, unbiased: float, chosen: str) -> None:
    """Refits of a column that noise hides agree on the middle of the bounds, here 0 to 110."""
    found = least_error(
        [_Smooth(smooth), _Unbiased(unbiased)], lambda estimator: estimator.expect(), possible=(0.0, 110.0)
    )
    assert found.how == chosen
    assert found.considered[0][0] == chosen


def test_a_label_that_noise_hides_is_no_confident_zero() -> None:
    """2,000 rows, fifty labels, ε = 0.1: fits drop most labels, and said 0.0 ± 5.3 of one with 80 records."""
    labels = [f"label {number}" for number in range(50)]
    columns = {name: {"kind": "category", "values": labels} for name in ("origin", "destination")}
    schema = dps.Schema.from_dict({"privacy": {"rows": 2_000}, "columns": columns})
    table = pa.table({name: np.tile(labels, 40) for name in columns})
    budget = dps.Budget(0.1)
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, rows=2_000, budget=budget))
    with seeded_noise(4):
        view = dps.View(_released(raw, budget))
    for where in ("origin = '{}'", "origin = '{}' and destination = '{}'"):
        answers = [
            view.sql(f"select count(*) from sketch where {where.format(*2 * [each])}").rows[0][0] for each in labels
        ]
        off = np.array([abs(answer.value - 40) / answer.stderr for answer in answers])
        assert (off > 3).mean() <= 0.02


def test_counts_are_uncertain_where_noise_hides_the_number_of_rows() -> None:
    """A count far too small by chance made all others "0 ± 19" of 1,851: the errors of shares were counted once a row
    of a table that seemed to have none.
    """
    columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in ("x", "y")}
    schema = dps.Schema.from_dict({"privacy": {"rows": 2000}, "columns": columns})
    budget = dps.Budget(0.1)
    recipe = dps.Recipe.general(schema, budget=budget)
    values = np.linspace(0, 1, 2000)
    raw = dps.accumulate(pa.table({"x": values, "y": values[::-1]}), schema, recipe)
    count = next(part for part in raw.parts if part.map.only_counts)
    count.sums[:] = -9000
    view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))
    assert view.count().value == 0
    quarters = [view.count(f"x > {low} and x <= {low + 0.25}") for low in (0.0, 0.25, 0.5, 0.75)]
    assert min(float(each.stderr) for each in quarters) > 0.3 * view.count().stderr
    assert sum(abs(each.value - 500) < 3 * each.stderr for each in quarters) >= 3


def test_nothing_is_known_of_an_empty_table_but_that_it_is_empty() -> None:
    """A number of records that stands at one at least would be three standard errors above zero."""
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": COLUMNS})
    budget = dps.Budget(100.0)
    raw = dps.accumulate(
        pa.table({name: pa.array([], pa.float64()) for name in COLUMNS}),
        schema,
        dps.Recipe.general(schema, rows=10, budget=budget),
    )
    view = dps.View(_released(raw, budget))
    low, high = view.count().interval(0.99)
    assert low <= 0 <= high
    for answer in (view.mean("age"), view.quantile("fare", 0.5), view.fraction("age > 50"), view.std("pressure")):
        assert not answer.known
    [[count, mean]] = view.sql("select count(*), avg(age) from sketch").rows
    assert count.value == pytest.approx(0, abs=3 * count.stderr)
    assert not mean.known
