"""Plans simulate the columns of their questions alone, and predict the standard errors that releases state."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.calibration import noise_variance
from dpsketch.engines.engine import accumulate
from dpsketch.learn.estimators.joint.joint_fit import NoisySums, Products
from dpsketch.planning import simulated_release
from dpsketch.planning.compared import compared_levels
from dpsketch.planning.simulated_release import affordable_simulations, columns_to_simulate, planned_release
from dpsketch.planning.simulation import simulated_table
from dpsketch.planning.usual_queries import usual_queries
from dpsketch.sketch.release import planned

NUMBERS = dps.Schema.from_dict(
    {
        "privacy": {"rows": 1_000_000},
        "columns": {f"x{i}": {"kind": "number", "lower": 0, "upper": 100} for i in range(10)},
    }
)
CLINIC = dps.Schema.from_dict(
    {
        "privacy": {"rows": 20_000},
        "columns": {
            "age": {"kind": "integer", "lower": 0, "upper": 60},
            "smoker": {"kind": "boolean"},
            "ward": {"kind": "category", "values": ["surgery", "cardiology", "general"]},
            "score": {"kind": "integer", "lower": 0, "upper": 30},
            "region": {"kind": "category", "values": ["north", "south", "east", "west"]},
        },
    }
)
QUESTIONS = [
    "select count(*) from sketch",
    "select avg(age) from sketch",
    "select count(*) from sketch where age > 30",
    "select stddev(age) from sketch",
    "select count(*) from sketch where ward = 'surgery'",
    "select count(*) from sketch where smoker and ward = 'surgery'",
    "select avg(age) from sketch where smoker",
    "select corr(age, score) from sketch",
]


def stated_by_releases(schema: dps.Schema, budget: dps.Budget, tables: int) -> list[float]:
    """Standard errors that views of releases of whole tables state: medians. The tables are those of a plan with seed 0
    about the first columns, with the last column beside them.
    """
    found, compared = [], compared_levels(schema, QUESTIONS)
    for number in range(tables):
        rng, place = np.random.default_rng([0, number]), (number + 0.5) / tables
        table = simulated_table(schema, 20_000, rng, compared, place)
        raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=budget))
        view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), f"table {number}"))
        found.append([view.sql(question).rows[0][0].stderr for question in QUESTIONS])
    return np.median(np.array(found, float), axis=0).tolist()


@pytest.mark.parametrize("epsilon", [0.2, 5.0])
def test_predicted_standard_errors_are_those_that_a_release_states(seeded: None, epsilon: float) -> None:
    """Within a factor of 2, most within 1.2, on the same tables; a plan for three times the budget is far from it."""
    budget = dps.Budget(epsilon)
    stated = stated_by_releases(CLINIC, budget, 3)
    found, more = (dps.plan(CLINIC, QUESTIONS, [dps.Budget(times * epsilon)], simulations=3) for times in (1, 3))
    factors, others = (np.array([each.error for each in plan.predictions]) / stated for plan in (found, more))
    assert np.all((factors > 1 / 2) & (factors < 2)), factors
    assert 1 / 1.2 < np.median(factors) < 1.2, factors
    assert np.median(others) < 1 / 1.5, others


def test_few_fits_of_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One fit and its refits for each simulated table and budget, whatever the number of questions and of columns."""
    fitted: list[int] = []
    fit = NoisySums.fit

    def counted(self: NoisySums, start: Products | None = None) -> Products:
        fitted.append(len(self.summaries))
        return fit(self, start)

    monkeypatch.setattr(NoisySums, "fit", counted)
    monkeypatch.setattr(simulated_release, "REFITS", 2)
    questions = ["select corr(x0, x1) from sketch", "select count(*) from sketch where x0 > 40 and x1 > 40"]
    assert dps.plan(NUMBERS, [*questions, "select avg(x0) from sketch"], [dps.Budget(10.0)], simulations=1)
    assert fitted == [2] * 3
    fitted.clear()
    dps.plan(NUMBERS, ["select avg(x0) from sketch"], [dps.Budget(0.1)], simulations=1)
    assert fitted == []


def test_columns_with_many_cells_are_simulated_less_often() -> None:
    budgets = [dps.Budget(epsilon) for epsilon in (0.1, 1, 10)]
    names = ("x0", "x1", "x9")
    recipes = [
        planned_release(NUMBERS, dps.Recipe.general(NUMBERS, budget=budget), budget, names).recipe for budget in budgets
    ]
    assert affordable_simulations(NUMBERS, recipes) == 1
    assert affordable_simulations(NUMBERS, recipes[:1]) == 2
    few = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    assert affordable_simulations(NUMBERS, [few]) == simulated_release.MOST_SIMULATIONS


def test_some_columns_have_the_noise_that_they_have_beside_all_others() -> None:
    for budget in (dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.1)):
        recipe = dps.Recipe.general(NUMBERS, budget=budget)
        whole, some = planned(NUMBERS, recipe, budget), planned_release(NUMBERS, recipe, budget, ("x2", "x5", "x7"))
        assert whole is not None
        for noise, own, part in zip(whole.noises, some.event.noises, recipe.parts, strict=True):
            bound = part.map.bind(NUMBERS)
            assert noise_variance(own, bound) == pytest.approx(noise_variance(noise, bound), rel=0.01)


def test_simulated_noise_has_the_variance_that_it_states() -> None:
    for budget in (dps.Budget(0.5), dps.Budget(0.5, 1e-6)):
        recipe = dps.Recipe.general(NUMBERS, rows=1000, budget=budget)
        release = planned_release(NUMBERS, recipe, budget, ("x2", "x5"))
        facts = dps.Schema(tuple(NUMBERS.column(name) for name in ("x2", "x5")), rows=1000)
        table = simulated_table(facts, 1000, np.random.default_rng(0))
        raw = accumulate(table, facts, release.recipe)
        released = release.of(raw, np.random.default_rng(1))
        exact, differences = raw.parts[2], []  # cells of marginals: hundreds of sums together
        for seed in range(12):
            noisy = release.of(raw, np.random.default_rng(seed)).parts[2]
            differences += (noisy.sums - exact.map.coarsen(exact.sums, noisy.map)).tolist()
        assert np.var(differences) == pytest.approx(noisy.noise_variance, rel=0.35)
        again = release.of(raw, np.random.default_rng(1))
        assert all(np.array_equal(*both) for both in zip(released.sums, again.sums, strict=True))


@pytest.mark.parametrize(
    ("names", "kept"),
    [(("x0", "x1", "x2", "x3"), (("x0", "x1", "x2"),)), (("x0", "x1"), None), (("x0", "x3", "x4"), None)],
)
def test_tables_of_listed_triples_are_simulated_where_their_columns_are(
    names: tuple[str, ...], kept: tuple[tuple[str, str, str], ...] | None
) -> None:
    """With the noise of all listed tables."""
    budget = dps.Budget(0.5)
    recipe = dps.Recipe.general(NUMBERS, budget=budget, important=[["x0", "x1", "x2"], ["x7", "x8", "x9"]])
    release = planned_release(NUMBERS, recipe, budget, names)
    places = [place for place, part in enumerate(recipe.parts) if isinstance(part.map, dps.Triples)]
    found = [part.map for part in release.recipe.parts if isinstance(part.map, dps.Triples)]
    assert [each.triples for each in found] == ([] if kept is None else [kept])
    assert len(release.event.noises) == len(release.recipe.parts)
    if kept is not None:
        whole = planned(NUMBERS, recipe, budget)
        assert whole is not None
        assert noise_variance(release.event.noises[places[0]], found[0].bind(NUMBERS)) == pytest.approx(
            noise_variance(whole.noises[places[0]], recipe.parts[places[0]].map.bind(NUMBERS))
        )


def test_which_columns_are_simulated() -> None:
    recipe = dps.Recipe.general(CLINIC, budget=dps.Budget(1.0))
    assert columns_to_simulate(CLINIC, [recipe], {"score", "age"}) == ("age", "score")
    assert columns_to_simulate(CLINIC, [recipe], {"ward"}) == ("age", "ward")  # sums need a number
    assert columns_to_simulate(CLINIC, [recipe], set()) == ("age", "smoker")
    every = {column.name for column in CLINIC.columns}
    assert columns_to_simulate(CLINIC, [recipe], every) is None
    sampled = dps.Recipe(recipe.parts, recipe.rows, dps.RowSampling(rate=0.5))
    named = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    for other in (sampled, named):
        assert columns_to_simulate(CLINIC, [other], {"age"}) is None


def test_a_plan_follows_from_its_seed() -> None:
    one, same, other = (dps.plan(CLINIC, usual_queries(CLINIC), [dps.Budget(1.0)], seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
