"""Plans of tasks, from public numbers alone, and their command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dpsketch as dps
from command_line import called
from dpsketch.errors import RecipeError
from dpsketch.planning.task_forecast import acceptable_rows, simulated_columns


@pytest.mark.parametrize(("rows", "paper"), [(10**4, 0.14), (10**6, 0.0014)])
def test_clusters_need_about_what_the_paper_says(rows: int, paper: float) -> None:
    """n >= √2000·kd/ε with the constants of its noise left out: disc noise has √2, and the count takes some."""
    plan = dps.plan_task(simulated_columns(8), "kmeans", k=4, rows=rows, budget=dps.Budget(1.0))
    assert plan.epsilon_needed is not None
    assert 1.4 * paper < plan.epsilon_needed < 1.8 * paper


def test_a_plan_says_whether_and_with_what_a_task_succeeds() -> None:
    schema = simulated_columns(8)
    good, bad = (dps.plan_task(schema, "gmm", k=4, rows=10**5, budget=dps.Budget(epsilon)) for epsilon in (1.0, 0.01))
    assert good.acceptable
    assert not bad.acceptable
    assert (good.size, bad.size) == (320, 64)
    assert bad.mechanism == "rounded disc"
    assert bad.feature_rates is None
    assert good.feature_rates is not None
    assert good.feature_rates[0] < 1
    assert good.row_rates is not None
    assert good.epsilon_needed == pytest.approx(bad.epsilon_needed, rel=0.1)
    assert "can succeed" in good.lines()[2]
    assert "will most likely fail" in bad.lines()[2]
    assert f"it needs epsilon {bad.epsilon_needed:g} with this many rows, or {bad.rows_needed:,} rows" in bad.lines()[3]
    assert bad.rows_needed is not None
    again = dps.plan_task(schema, "gmm", k=4, rows=bad.rows_needed, budget=dps.Budget(0.0101))
    assert again.acceptable


@pytest.mark.parametrize("budget", [dps.Budget(1.0), dps.Budget(0.01), dps.Budget(0.1, 1e-6), dps.Budget(rho=0.01)])
def test_the_recipe_uses_the_share_that_the_plan_finds_best(budget: dps.Budget) -> None:
    plan = dps.plan_task(simulated_columns(8), "kmeans", k=4, rows=10**5, budget=budget)
    used = plan.recipe.parts[0].share
    assert plan.count_share == pytest.approx(used, abs=1e-4)
    assert f"count ({100 * used:.3g} %)" in plan.lines()[1]
    assert f"best share of the count, for sums divided by it: {100 * used:.3g} %" in plan.lines()


def test_clusters_of_few_columns_are_planned_by_their_table() -> None:
    schema = simulated_columns(2)
    good, bad = (
        dps.plan_task(schema, "kmeans", k=10, rows=10**5, budget=dps.Budget(epsilon)) for epsilon in (0.1, 0.01)
    )
    assert [part.map.name for part in good.recipe.parts] == ["count", "histogram", "histogram"]
    assert good.acceptable
    assert not bad.acceptable
    assert good.mechanism == "discrete Laplace"
    assert good.epsilon_needed == bad.epsilon_needed
    assert bad.epsilon_needed is not None
    assert 0.025 < bad.epsilon_needed < 0.04  # measured: squares are 3 to 17 % larger there, 11 to 39 % at half of it
    assert bad.rows_needed is not None
    assert dps.plan_task(schema, "kmeans", k=10, rows=bad.rows_needed, budget=dps.Budget(0.01)).acceptable
    assert dps.plan_task(schema, "kmeans", k=10, rows=10**5, budget=dps.Budget(bad.epsilon_needed)).acceptable
    assert not dps.plan_task(
        schema, "kmeans", k=10, rows=10**5, budget=dps.Budget(bad.epsilon_needed * 0.95)
    ).acceptable
    assert good.count_share == 0
    assert not any("best share" in line for line in good.lines())
    assert not dps.plan_task(
        schema, "kmeans", k=10, rows=900, budget=dps.Budget(50.0)
    ).acceptable  # too few for ten clusters


def test_the_region_falls_with_epsilon() -> None:
    schema = simulated_columns(4)
    plan = dps.plan_task(schema, "kmeans", k=3, rows=10**4, budget=dps.Budget(0.1, 1e-6))
    rows = [each or 0 for each in acceptable_rows(plan, [0.01, 0.1, 1.0])]
    assert rows[0] > 5 * rows[1] > 25 * rows[2] > 0


def test_components_are_planned_by_the_map_of_their_recipe() -> None:
    pure, gauss = (
        dps.plan_task(simulated_columns(20), "pca", k=5, rows=10**6, budget=dps.Budget(0.1, delta))
        for delta in (0.0, 1e-6)
    )
    assert pure.acceptable
    assert gauss.acceptable
    assert (pure.mechanism, gauss.mechanism) == ("rounded ball", "rounded Gaussian")
    assert pure.size == 231
    assert pure.feature_rates == (1.0, 1.0)
    assert not dps.plan_task(simulated_columns(20), "pca", k=5, rows=10**3, budget=dps.Budget(0.1)).acceptable


def test_wrong_plans_are_refused() -> None:
    schema = simulated_columns(3)
    with pytest.raises(RecipeError, match=r"task must be one of general, clusters, pca, .*, got 'svm'"):
        dps.plan_task(schema, "svm", k=2, rows=100, budget=dps.Budget(1.0))
    with pytest.raises(RecipeError, match="needs a budget"):
        dps.plan_task(schema, "pca", k=2, rows=100)
    with pytest.raises(RecipeError, match="must be declared"):
        dps.plan_task(schema, "pca", k=2, budget=dps.Budget(1.0))


def test_the_command_prints_plans_and_draws_the_region(tmp_path: Path) -> None:
    words = ["plan", "--task", "kmeans", "--k", "4", "--columns", "8", "--rows", "10000", "--epsilon", "0.01,1"]
    done = called(tmp_path, *words, "--plot", "region.png", "--json")
    assert done.returncode == 0, done.stderr
    bad, good = json.loads(done.stdout)
    assert (bad["acceptable"], good["acceptable"]) == (False, True)
    assert bad["noise_to_signal"]["total"] > bad["limit"]
    assert (tmp_path / "region.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_refuses_a_task_without_its_numbers(tmp_path: Path) -> None:
    done = called(tmp_path, "plan", "--task", "pca", "--k", "2", "--rows", "100")
    assert done.returncode == 1
    assert "a task needs a schema or a number of columns" in done.stderr
