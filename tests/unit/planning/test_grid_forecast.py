"""Sizes of grids and their predicted errors, from public numbers alone."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.calibration import noise_variance
from dpsketch.errors import RecipeError
from dpsketch.planning.task_forecast import simulated_columns
from dpsketch.recipe.tasks.synthetic_task import counter_deviation, grid_error


def test_more_rows_mean_finer_cells_and_less_error() -> None:
    plans = [
        dps.plan_grid(simulated_columns(2), rows=rows, budget=dps.Budget(1.0)) for rows in (10**4, 10**5, 10**6, 10**7)
    ]
    finest = [plan.grid.levels[-1] for plan in plans]
    assert finest == sorted(finest)
    assert finest[-1] > finest[0]
    assert all(later.error.total < plan.error.total for plan, later in pairwise(plans))


def test_the_plan_is_the_best_of_its_neighbours() -> None:
    schema, budget = simulated_columns(3), dps.Budget(1.0)
    plan = dps.plan_grid(schema, rows=250_000, budget=budget)
    assert plan.grid.levels == (3, 4, 5, 6)
    assert plan.cell_width == 1 / 64
    assert plan.grid.rows == 1
    assert plan.finer is not None
    assert min(plan.finer.total, plan.more_rows.total, plan.heap.total) > plan.error.total
    coarser = dps.plan_grid(schema, rows=250_000, budget=budget, grid=dps.Grid(levels=(3, 4, 5), rows=1, width=1 << 20))
    assert coarser.error.total > plan.error.total


@pytest.mark.parametrize(
    "budget", [dps.Budget(0.5), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.1), dps.Budget(float("inf"))], ids=str
)
def test_the_noise_is_that_of_a_release(budget: dps.Budget) -> None:
    grid = dps.Grid(rows=3, width=1 << 10, levels=(3, 4, 5))
    schema = simulated_columns(2)
    recipe = dps.Recipe([dps.Part(grid, 1.0)], rows=1000)
    predicted = counter_deviation(schema, budget, grid, 1.0)
    if not budget.private:
        assert predicted == 0
        return
    bound = recipe.bind(schema)
    (noise,) = bound.calibrated(budget).noises
    assert predicted == pytest.approx(np.sqrt(noise_variance(noise, bound.maps[0]) / 3), rel=0.02)


@pytest.mark.parametrize(("columns", "rows"), [(1, 20_000), (2, 100_000)])
def test_predictions_are_near_for_the_reference(seeded: None, columns: int, rows: int) -> None:
    """Correlated normal columns of the reference's width; the distance of densities is found by points of the table."""
    schema, budget = simulated_columns(columns), dps.Budget(1.0)
    rng = np.random.default_rng(1)
    covariance = (np.eye(columns) + 3) / 4 / 64
    points = rng.multivariate_normal(np.full(columns, 0.5), covariance, rows + 50_000)
    points = points[(np.abs(points - 0.5) < 0.5).all(axis=1)]
    table = pa.table({f"x{place + 1}": points[:rows, place] for place in range(columns)})
    plan = dps.plan_grid(schema, rows=rows, budget=budget)
    recipe = dps.Recipe.synthetic(schema, rows=rows, budget=budget)
    assert recipe.parts[1].map == plan.grid
    view = dps.View(dps.release(dps.accumulate(table, schema, recipe), budget, dps.Ledger("sqlite://"), "reference"))
    fresh = points[rows:]
    distance = fresh - 0.5
    exponent = -0.5 * (distance @ np.linalg.inv(covariance) * distance).sum(axis=1)
    exact = np.exp(exponent) / np.sqrt(np.linalg.det(2 * np.pi * covariance))
    estimate = dps.GridDensity().fit(view).density(fresh).value
    found = np.mean(np.maximum(1 - estimate / exact, 0))  # ∫(f − f_S)₊ is half of ∫|f − f_S|
    assert plan.error.total / 3 < found < 3 * plan.error.total


def test_a_heap_that_is_too_small_or_too_large_is_off() -> None:
    schema = simulated_columns(2)
    grid = dps.Grid(("x1", "x2"), 1, 1 << 16, (6,))
    deviation = counter_deviation(schema, dps.Budget(1.0), grid)
    small, right, large = (grid_error(schema.columns, 10**5, deviation, grid, heavy).total for heavy in (30, 330, 4000))
    assert right < min(small, large)


def test_the_recipe_takes_pairs_where_a_grid_tells_less() -> None:
    budget = dps.Budget(1.0)
    names = [
        [part.map.name for part in dps.Recipe.synthetic(simulated_columns(d), rows=n, budget=budget).parts]
        for d, n in ((3, 250_000), (6, 250_000), (4, 1000), (1, 1000))
    ]
    pairs = ["count", "levels", "adaptive_marginals", "pairs", "totals"]
    assert names == [["count", "grid"], pairs, pairs, ["count", "grid"]]
    schema = simulated_columns(6)
    chosen = dps.Recipe.synthetic(schema, rows=250_000, budget=budget, columns=["x2", "x4"]).parts[1].map
    assert chosen.columns == ("x2", "x4")  # type: ignore[attr-defined]
    several = ["x1", "x2", "x3", "x4", "x5"]
    many = dps.Recipe.synthetic(schema, rows=250_000, budget=budget, columns=several)
    assert {part.map.columns for part in many.parts[1:]} == {tuple(several)}  # type: ignore[attr-defined]
    many.bind(schema)


def test_a_plan_can_be_read() -> None:
    plan = dps.plan_grid(simulated_columns(2), rows=10**6, budget=dps.Budget(1.0, 1e-6))
    facts = json.loads(json.dumps(plan.to_dict()))
    assert facts["error"] == pytest.approx(sum(facts["error_from"].values()))
    assert facts["delta"] == 1e-6
    assert "predicted distance" in plan.lines()[2]
    assert "tables of pairs" in dps.plan_grid(simulated_columns(6), rows=10**6, budget=dps.Budget(1.0)).lines()[-1]


def test_what_is_missing_is_said() -> None:
    with pytest.raises(RecipeError, match="needs a budget"):
        dps.plan_grid(simulated_columns(2), rows=1000)
    with pytest.raises(RecipeError, match=r"Recipe\.synthetic needs a budget"):
        dps.Recipe.synthetic(simulated_columns(2), rows=1000)
    ids = dps.Schema.from_dict({"columns": {"s": {"kind": "set", "universe": 9}}})
    with pytest.raises(RecipeError, match="not a set of ids"):
        dps.Recipe.synthetic(ids, rows=1000, budget=dps.Budget(1.0))
    with pytest.raises(RecipeError, match="not a set of ids"):
        dps.plan_grid(ids, rows=1000, budget=dps.Budget(1.0))
