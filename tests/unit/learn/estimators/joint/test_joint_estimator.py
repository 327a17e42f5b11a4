"""Answers of several columns from marginals and pair tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED, seeded_noise
from dpsketch.learn.estimators.joint.unseen import both_unsure
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.learn.sql.selection import Selection
from dpsketch.maps.tables.cells import GRID
from dpsketch.maps.tables.marginals import BoundMarginals

ROWS = 20_000
FACTS = {
    "privacy": {"rows": ROWS},
    "columns": {
        "x": {"kind": "number", "lower": 0, "upper": 1},
        "y": {"kind": "number", "lower": 0, "upper": 1},
        "z": {"kind": "category", "values": ["a", "b"]},
        "ok": {"kind": "boolean"},
    },
}
RECIPE = dps.Recipe(
    [
        dps.Part(dps.Count(), 0.03),
        dps.Part(dps.Marginals(bins=32), 0.42),
        dps.Part(dps.Pairs(bins=32, pool=True), 0.55),
    ]
)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(SEED)
    hidden = random.random(ROWS)
    x, y = (np.clip(hidden + random.normal(0, 0.1, ROWS), 0, 1) for _ in range(2))
    ok = pa.array(random.random(ROWS) < hidden, mask=random.random(ROWS) < 0.05)
    return pa.table({"x": x, "y": y, "z": np.where(hidden > 0.7, "a", "b"), "ok": ok})


@pytest.fixture(scope="module")
def view(table: pa.Table) -> dps.View:
    raw = dps.accumulate(table, dps.Schema.from_dict(FACTS), RECIPE)
    with seeded_noise():
        return dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))


@pytest.mark.parametrize("where", ["x < 0.001 and y > 0.999 and z = 'a' and not ok", "x > y + 0.999 and z = 'b'"])
def test_no_share_is_known_better_than_the_budget_allows(view: dps.View, where: str) -> None:
    """With all of ε = 1 spent on this one count its noise would have the standard deviation √2."""
    answer = view.fraction(where)
    assert answer.value < 1e-4
    assert 1.3 / ROWS < answer.stderr < 60 / ROWS


def test_products_of_conditions_hold_the_truth(view: dps.View, table: pa.Table) -> None:
    x, y, z = (table[name].to_numpy() for name in "xyz")
    truths = {
        "x <= 0.5 and y <= 0.5": ((x <= 0.5) & (y <= 0.5)).mean(),
        "x > 0.8 and z = 'a'": ((x > 0.8) & (z == "a")).mean(),
        "x between 0.2 and 0.6 and y > 0.3 and z = 'b'": ((x >= 0.2) & (x <= 0.6) & (y > 0.3) & (z == "b")).mean(),
        "x < y": (x < y).mean(),
        "x > 0.9 or y > 0.9 or z = 'a'": ((x > 0.9) | (y > 0.9) | (z == "a")).mean(),
    }
    for where, truth in truths.items():
        answer = view.fraction(where)
        assert 0 < answer.stderr < 0.03, where
        assert abs(answer.value - truth) < 5 * answer.stderr, where
        assert answer.how.startswith("mixture of products")


def test_answers_by_draws_agree_with_exact_ones(view: dps.View) -> None:
    """The same question in a form that is not recognised as a product."""
    exact = view.fraction("x <= 0.4 and z = 'b'")
    drawn = view.fraction("not (x > 0.4 or z <> 'b')")
    assert drawn.value == pytest.approx(exact.value, abs=0.004)
    assert exact.stderr < drawn.stderr < 2 * exact.stderr


def test_covariances_and_conditional_means(view: dps.View, table: pa.Table) -> None:
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    found = view.cov(["x", "y"])
    exact = np.cov(x, y, bias=True)
    assert (np.abs(found.value - exact) < 5 * found.stderr).all()
    assert (found.stderr < 0.01).all()
    answer = view.mean("y", "x > 0.8")
    assert abs(answer.value - y[x > 0.8].mean()) < 5 * answer.stderr
    quantile = view.quantile("y", 0.5, "x > 0.8")
    assert abs(quantile.value - np.median(y[x > 0.8])) < 5 * quantile.stderr


def test_missing_cells_are_values(view: dps.View, table: pa.Table) -> None:
    missing = table["ok"].is_null().to_numpy()
    answer = view.fraction("ok is null and x < 0.5")
    assert abs(answer.value - (missing & (table["x"].to_numpy() < 0.5)).mean()) < 5 * answer.stderr


def test_the_choice_is_explained(view: dps.View) -> None:
    answer = view.mean("x")
    assert len(answer.considered) == 2
    assert answer.considered[0][1] <= answer.considered[1][1]
    assert answer.considered[0][1] == pytest.approx(answer.stderr, rel=1e-3)
    assert "the least of 2" in answer.explain()
    assert "smooth marginal of x" in answer.explain()
    assert "marginal of x" in answer.explain()
    assert "only estimate" in view.fraction("x < 0.5 and y < 0.5").explain()


def test_what_the_fit_drops_has_an_error(view: dps.View) -> None:
    """A column without missing values, as far as the noise tells, may have some: 0 ± 0 would be a claim."""
    for where in ("x is null", "y is null", "x is null and z = 'a'"):
        assert view.count(where).stderr > 1, where
    estimator = view._sources.products
    assert estimator is not None
    missing = Selection(
        estimator, view.rows(), condition_factors(view.schema, parse_condition("x is null", view.schema))
    ).count()
    assert missing.value[0] < 1
    [marginal] = [part for part in view.released.parts if isinstance(part.map, BoundMarginals)]
    assert missing.stderr[0] == pytest.approx(marginal.noise_variance**0.5 / GRID, rel=0.2)
    assert view.mean("x").stderr < 0.01


def test_a_pair_without_a_table_is_known_less(seeded: None) -> None:
    generator = np.random.default_rng(5)
    hidden = generator.normal(size=20_000)
    columns = {name: np.clip(hidden + generator.normal(size=20_000), -4, 4) for name in "abc"}
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 20_000}, "columns": {n: {"kind": "number", "lower": -4, "upper": 4} for n in columns}}
    )
    pairs = dps.Pairs(("a", "b", "c"), 64, pairs=(("a", "b"), ("a", "c")), pool=True)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.03), dps.Part(dps.Marginals(bins=64), 0.42), dps.Part(pairs, 0.55)])
    raw = dps.accumulate(pa.table(columns), schema, recipe)
    view = dps.View(dps.release(raw, dps.Budget(epsilon=5.0), dps.Ledger("sqlite://"), "table"))
    known, unknown = (view.fraction(f"{one} > 0 and {two} > 0") for one, two in ("ab", "bc"))
    true = np.mean((columns["b"] > 0) & (columns["c"] > 0))
    assert unknown.stderr > 5 * known.stderr
    assert abs(unknown.value - true) < 2 * unknown.stderr
    assert view.fraction("abs(b - c) < 1").stderr > 5 * view.fraction("abs(a - b) < 1").stderr


def test_answers_about_pairs_follow_the_pair_tables(view: dps.View) -> None:
    """Also where the mixture does not: what it leaves is added, times the mean of what else is asked."""
    estimator = view._sources.products
    assert estimator is not None
    factors = condition_factors(view.schema, parse_condition("x > 0.5 and y <= 0.5 and z = 'a'", view.schema))
    before = estimator.expect(factors).value[0]
    i, j = estimator.columns.index("x"), estimator.columns.index("y")
    first, second = estimator._single.of(factors[0]), estimator._single.of(factors[1])
    moved = 1e-3 * np.ones_like(estimator.fitted.products.pairs[i, j])
    estimator.fitted.products.pairs[i, j][:] += moved
    after = estimator.expect(factors).value[0]
    estimator.fitted.products.pairs[i, j][:] -= moved
    share = view.fraction("z = 'a'").value
    expected = first.values[0, 0] @ moved @ second.values[0, 0] * share
    assert after - before == pytest.approx(expected, rel=0.1)


@pytest.fixture(scope="module")
def far() -> dps.View:
    """A column of small numbers with a bound of a billion."""
    random = np.random.default_rng(SEED)
    flags = random.random(ROWS) < 0.05
    table = pa.table({"bytes": np.exp(random.normal(5, 1, ROWS)), "flag": flags})
    facts = {"bytes": {"kind": "number", "lower": 0, "upper": 1e9, "transform": "asinh"}, "flag": {"kind": "boolean"}}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": facts})
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=dps.Budget(1.0)))
    with seeded_noise():
        return dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))


@pytest.mark.parametrize("where", [None, "flag"])
def test_noise_far_out_is_in_the_error_not_in_the_answer(far: dps.View, where: str | None) -> None:
    """Records that are not seen could each add a billion."""
    total, spread = far.sum("bytes", where=where), far.std("bytes", where=where)
    assert abs(total.value) < 1e8
    assert 1e9 < total.stderr < 1e11
    assert spread.value < 1e5
    assert spread.stderr > 1e6


def test_answers_about_several_columns_have_the_tails_of_laplace_noise(view: dps.View) -> None:
    """Whatever is computed from the fit."""
    asked = ("count(x)", "avg(x)", "median(x)", "quantile(x, 0.9)", "stddev(x)", "corr(x, y)", "round(sqrt(avg(x)), 3)")
    for what in asked:
        [[answer]] = view.sql(f"select {what} as v from sketch where z = 'a'").rows
        assert answer.laplace, what
    assert not view.sql("select avg(x) as v from sketch").rows[0][0].laplace


def test_two_factors_may_be_off_at_once() -> None:
    """Var(XY) of independent X and Y is σ²τ² more than σ²E[Y]² + τ²E[X]²: all there is where both means are 0."""
    unsure = [np.array([[0.3, 0.4]]), np.array([[0.2, 0.0]])]
    assert both_unsure([np.zeros(1), np.zeros(1)], unsure)[0] == pytest.approx(0.25 * 0.04)
    assert both_unsure([np.array([0.7]), np.array([0.1])], unsure)[0] == pytest.approx(0.25 * 0.04)
    assert both_unsure([np.array([0.7])], unsure[:1])[0] == pytest.approx(0)


@pytest.fixture(scope="module")
def routes() -> tuple[pa.Table, dps.View]:
    """Distances that follow from both ends of a route, and from neither end alone."""
    random, towns, rows = np.random.default_rng(1), 12, 60_000
    place, often = random.uniform(0, 2500, towns), random.gamma(1.5, size=(towns, towns))
    np.fill_diagonal(often, 0)
    start, end = np.divmod(random.choice(towns**2, rows, p=often.ravel() / often.sum()), towns)
    names = [f"t{index}" for index in range(towns)]
    table = pa.table(
        {
            "start": np.array(names)[start],
            "stop": np.array(names)[end],
            "distance": np.abs(place[start] - place[end]),
            "kind": random.choice(["a", "b"], rows),
        }
    )
    labels = {"kind": "category", "values": names}
    columns = {"start": labels, "stop": labels, "distance": {"kind": "number", "lower": 0, "upper": 3000}}
    columns["kind"] = {"kind": "category", "values": ["a", "b"]}
    schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})
    budget = dps.Budget(2.0)
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, rows=rows, budget=budget))
    with seeded_noise():
        return table, dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "routes"))


def test_means_of_a_function_of_two_labels_have_an_error_that_says_so(routes: tuple[pa.Table, dps.View]) -> None:
    table, view = routes
    truths = table.group_by(["start", "stop"]).aggregate([("distance", "mean"), ("distance", "count")]).to_pylist()
    off = []
    for truth in truths:
        if truth["distance_count"] > 120:
            answer = view.mean("distance", f"start = '{truth['start']}' and stop = '{truth['stop']}'")
            if answer.known:
                off.append((answer.raw - truth["distance_mean"]) / answer.stderr)
    assert len(off) > 50
    assert np.sqrt(np.mean(np.square(off))) < 1.15
