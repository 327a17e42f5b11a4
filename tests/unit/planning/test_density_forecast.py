"""Recipes for densities, anomalies and graphs, and what is predicted of them."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.engines.graph import graph_schema, neighbour_sets
from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap
from dpsketch.planning.task_forecast import simulated_columns
from dpsketch.recipe.tasks.density_task import TYPICAL_DENSITY, default_bandwidth, race_rows, table_bins
from dpsketch.recipe.tasks.graph_task import graph_rows
from dpsketch.recipe.tasks.task import schema_counter_noise, with_count


def chosen(recipe: dps.Recipe) -> FeatureMap:
    assert recipe.parts[0].map == dps.Count()
    assert sum(part.exact_share for part in recipe.parts) == 1
    return recipe.parts[1].map


def test_few_columns_get_a_table_and_many_get_counters() -> None:
    budget = dps.Budget(1.0)
    table = chosen(dps.Recipe.density(simulated_columns(2), rows=100_000, budget=budget))
    assert isinstance(table, dps.Histogram)
    assert table.columns == ("x1", "x2")
    many = dps.Recipe.density(simulated_columns(6), rows=100_000, budget=budget, bandwidth=0.1)
    names = tuple(f"x{place}" for place in range(1, 7))
    assert chosen(many) == dps.Marginals(names, 64)  # simulated records are drawn from it
    assert many.parts[2].map == dps.Race(names, 600, 1000, hash=dps.Euclidean(0.1), labels="ordered")
    angular = chosen(
        dps.Recipe.density(simulated_columns(2), rows=100_000, budget=budget, hash=dps.SignedProjection(6))
    )
    assert isinstance(angular, dps.Race)


def test_cells_are_narrower_with_more_budget() -> None:
    schema = simulated_columns(3)
    bins, errors = zip(
        *(table_bins(schema, 250_000, dps.Budget(e), (50.0,) * 3, 0.02) for e in (0.1, 1.0, 10.0)), strict=True
    )
    assert bins[0] < bins[1] <= bins[2] <= 101
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 0.02), (10.0, 0.003)])
def test_repeated_values_have_the_predicted_error(epsilon: float, most: float) -> None:
    """Salaries are a few values each, not spread over their cells."""
    rng = np.random.default_rng(2)
    levels = np.round(rng.uniform(20_000, 150_000, 60), -1)
    pay = rng.choice(levels, 20_000, p=rng.dirichlet(np.full(60, 0.3)))
    column = {"kind": "number", "lower": 0, "upper": 600_000}
    schema = dps.Schema.from_dict({"privacy": {"rows": 20_000}, "columns": {"pay": column}})
    family, budget, points = dps.Euclidean(5000, scaled=False), dps.Budget(epsilon), np.linspace(0, 300_000, 400)
    truth = np.array([family.kernel(np.abs(pay - point)).mean() for point in points])
    prediction = dps.density_plan(schema, budget=budget, hash=family)
    raw = dps.accumulate(pa.table({"pay": pay}), schema, prediction.recipe)
    view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "d"))
    answer = dps.KernelDensity().fit(view).density(points[:, None])
    error = np.linalg.norm(answer.value - truth) / np.linalg.norm(truth)
    assert prediction.table_error is not None
    assert error < 1.2 * prediction.table_error < 1.2 * most


@pytest.mark.usefixtures("seeded")
def test_concentrated_records_have_the_predicted_error() -> None:
    """Most records lie in few cells: an error of 1.7 % was predicted, and was 28 %."""
    rng = np.random.default_rng(5)
    common = rng.gamma(0.5, 1.0, (20_000, 1))
    points = np.minimum(0.04 * common + 0.02 * rng.gamma(1.0, 1.0, (20_000, 3)), 1.0)
    names = ("a", "b", "c")
    columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in names}
    schema = dps.Schema.from_dict({"privacy": {"rows": 20_000}, "columns": columns})
    budget = dps.Budget(1.0)
    prediction = dps.density_plan(schema, budget=budget)
    assert prediction.better == "table"
    table = pa.table(dict(zip(names, points.T, strict=True)))
    view = dps.View(dps.release(dps.accumulate(table, schema, prediction.recipe), budget, dps.Ledger("sqlite://"), "d"))
    asked = points[:100]
    values = dps.KernelDensity().fit(view).density(asked).value
    kernel = dps.Euclidean(1.0).kernel
    width = default_bandwidth(3)
    truth = np.array([kernel(np.linalg.norm(points - one, axis=1) / width).mean() for one in asked])
    error = np.abs(values - truth).mean() / truth.mean()
    assert prediction.table_error is not None
    assert error < 1.5 * prediction.table_error < 0.03


def test_a_typical_density_follows_the_bandwidth() -> None:
    schema = simulated_columns(3)
    wide, narrow, tiny = (
        dps.density_plan(schema, rows=1000, budget=dps.Budget(1.0), bandwidth=b).density for b in (0.2, 0.05, 0.001)
    )
    assert 1 >= wide > narrow > tiny == TYPICAL_DENSITY
    assert narrow == pytest.approx(wide / 4, rel=0.1), "the kernel's tail falls like one over the distance"
    angular = dps.density_plan(schema, rows=1000, budget=dps.Budget(1.0), hash=dps.SignedProjection(6))
    assert angular.density == TYPICAL_DENSITY
    assert dps.density_plan(schema, rows=1000, budget=dps.Budget(1.0), density=0.3).density == 0.3


def test_rows_of_counters_follow_the_noise() -> None:
    schema = simulated_columns(8)
    assert race_rows(schema, 100_000, dps.Budget(0.1), 8) == 140
    assert race_rows(schema, 100_000, dps.Budget(0.1), 24) == 70
    assert race_rows(schema, 10**7, dps.Budget(1.0), 8) == 2000
    assert race_rows(schema, 100_000, dps.Budget(0.1, 1e-6), 8) == 4000
    assert race_rows(schema, 100_000, dps.Budget(0.1, 1e-6), 8, corrected=True) == 2000
    assert race_rows(schema, 100_000, dps.Budget(0.1), 8, corrected=True) == 60
    assert race_rows(schema, 100_000, dps.Budget(0.1), 16, corrected=True) == 30
    units = dps.Schema.from_dict(
        {
            "privacy": {"rows": 1000, "unit": "id", "max_rows_per_unit": 10},
            "columns": {"x": {"kind": "number", "lower": 0, "upper": 1}},
        }
    )
    assert schema_counter_noise(units, dps.Budget(1.0)) == pytest.approx(
        10 * schema_counter_noise(schema, dps.Budget(1.0))
    )
    assert race_rows(units, 100_000, dps.Budget(1.0), 1) == 140


@pytest.mark.usefixtures("seeded")
def test_the_predicted_error_of_a_table_is_about_what_it_is() -> None:
    """Within a factor of four, at places of the typical density, which is public knowledge here."""
    rng = np.random.default_rng(4)
    schema, budget, family = simulated_columns(2), dps.Budget(0.3), dps.Euclidean(0.05)
    records = rng.random((50_000, 2))
    points = records[:200] * 0.6 + 0.2
    truth = np.array([family.kernel(np.linalg.norm(records - point, axis=1)).mean() for point in points])
    plan = dps.density_plan(schema, rows=50_000, budget=budget, hash=family, density=float(truth.mean()))
    assert plan.better == "table"
    assert "better: table" in plan.lines()
    assert plan.to_dict()["table"]["map"] == "histogram"
    assert isinstance(plan.recipe.parts[1].map, dps.Histogram)
    recipe = dps.Recipe(dps.Recipe.density(schema, rows=50_000, budget=budget, hash=family).parts, 50_000)
    table = pa.table({"x1": records[:, 0], "x2": records[:, 1]})
    view = dps.View(dps.release(dps.accumulate(table, schema, recipe), budget, dps.Ledger("sqlite://"), "d"))
    error = np.sqrt(np.mean((dps.KernelDensity(family).fit(view).density(points).value / truth - 1) ** 2))
    assert plan.table_error is not None
    assert plan.table_error / 4 < error < plan.table_error * 4


def test_anomalies_of_some_columns_get_parts_of_these_alone() -> None:
    schema = simulated_columns(6)
    recipe = dps.Recipe.anomaly(schema, rows=50_000, budget=dps.Budget(1.0), columns=["x1", "x2", "x3", "x5"])
    assert sum(part.exact_share for part in recipe.parts) <= 1
    for bound in recipe.bind(schema).maps:
        assert set(bound.columns) <= {"x1", "x2", "x3", "x5"}
    assert isinstance(
        chosen(dps.Recipe.anomaly(schema, rows=50_000, budget=dps.Budget(1.0), columns=["x1"])), dps.Histogram
    )


@pytest.mark.usefixtures("seeded")
def test_a_graph_of_twins() -> None:
    """Nodes of a group have the same neighbours: the Jaccard density of one is the group's share."""
    nodes = 600
    schema = dps.Schema.from_dict(graph_schema(nodes, False))
    recipe = dps.Recipe.graph(schema, budget=dps.Budget(10.0))
    count, part = recipe.parts
    assert isinstance(count.map, dps.Count)
    assert isinstance(part.map, dps.Race)
    assert (part.map.width, part.map.hash) == (100_000, dps.MinHash())
    source = np.repeat(np.arange(nodes), 3)
    edges = pa.table({"src": source, "dst": (source % 2) * 300 + np.tile([1, 2, 3], nodes)})
    raw = dps.accumulate(neighbour_sets(edges, nodes), schema, recipe)
    view = dps.View(dps.release(raw, dps.Budget(10.0), dps.Ledger("sqlite://"), "d"))
    sums = view.kernel_sum([[1, 2, 3], [301, 302, 303], [1, 2, 303], [7]])
    exact = np.array([300, 300, 300 * 0.5 + 300 * 0.2, 0])
    assert (np.abs(sums.value - exact) < 5 * sums.stderr).all()


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_graph_counts_its_lists(delta: float) -> None:
    """Totals of the counters know the number of these lists by ±1,300 (δ) or ±4,500 and more (pure ε)."""
    nodes = 4000
    schema, budget = dps.Schema.from_dict(graph_schema(nodes, False)), dps.Budget(1.0, delta)
    lists = pa.table({"neighbours": [[each % 7, 20 + each % 5] for each in range(nodes)]})
    parts = [dps.Part(part.map, part.share) for part in dps.Recipe.graph(schema, budget=budget).parts]
    small = [
        replace(part, map=replace(part.map, rows=20)) if isinstance(part.map, dps.Race) else part for part in parts
    ]
    for _ in range(3):
        raw = dps.accumulate(lists, schema, dps.Recipe(small))
        view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "d"))
        assert view.count().stderr < 0.02 * nodes
        assert abs(view.count().value - nodes) < 4 * view.count().stderr
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            density = dps.KernelDensity().fit(view).density([[1, 21]])
        assert abs(float(density.value[0]) - 0.2 * 0.5) < 0.2


def test_a_count_is_added_where_totals_are_noisy() -> None:
    """Few wide rows count records badly, many narrow rows as well as a count would."""
    schema = simulated_columns(2)
    for delta in (0.0, 1e-6):
        budget = dps.Budget(1.0, delta)
        wide, narrow = (dps.Race(rows=100, width=width) for width in (100_000, 8))
        assert [part.name for part, _ in with_count(schema, budget, wide)] == ["count", "race"]
        assert [share for _, share in with_count(schema, budget, narrow)] == [1.0]


@pytest.mark.usefixtures("seeded")
def test_a_recipe_without_a_count_warns_if_its_densities_have_a_common_error() -> None:
    schema = simulated_columns(2)
    table = pa.table({"x1": np.linspace(0, 1, 2000), "x2": np.linspace(0, 1, 2000)})
    race = dps.Race(rows=50, width=1000, hash=dps.Euclidean(0.1))

    def fitted(*parts: dps.Part) -> list[str]:
        view = dps.View(
            dps.release(
                dps.accumulate(table, schema, dps.Recipe(parts, 2000)), dps.Budget(1.0), dps.Ledger("sqlite://"), "d"
            )
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            dps.KernelDensity().fit(view)
        return [str(each.message) for each in told]

    (alone,) = fitted(dps.Part(race, 1.0))
    assert "densities are divided by it" in alone
    assert fitted(dps.Part(dps.Count(), 0.03), dps.Part(race, 0.97)) == []


def test_graphs_get_few_rows_under_pure_privacy() -> None:
    schema = dps.Schema.from_dict(graph_schema(82_000, False))
    assert graph_rows(schema, 82_000, dps.Budget(1.0)) == 49
    assert graph_rows(schema, 82_000, dps.Budget(1.0, 1e-6)) == 2000


def test_wrong_recipes_are_refused() -> None:
    schema = simulated_columns(2)
    with pytest.raises(RecipeError, match="needs a budget"):
        dps.Recipe.density(schema, rows=100)
    with pytest.raises(RecipeError, match="the bandwidth is part of the hash"):
        dps.Recipe.density(schema, rows=100, budget=dps.Budget(1.0), bandwidth=0.1, hash=dps.Euclidean(0.1))
    with pytest.raises(RecipeError, match="needs one column of sets"):
        dps.Recipe.graph(schema, rows=100, budget=dps.Budget(1.0))
    with pytest.raises(RecipeError, match="needs a budget"):
        dps.density_plan(schema, rows=100)
    with pytest.raises(RecipeError, match="density must be above 0"):
        dps.density_plan(schema, rows=100, budget=dps.Budget(1.0), density=0.0)
