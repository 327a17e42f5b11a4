"""Whether a task can succeed, predicted before any budget is spent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_whole
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import LOG, Axis, Picture, Series
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.ratio import RatioPrediction
from dpsketch.recipe.tasks.task import Prediction
from dpsketch.recipe.tasks.task_registry import entry_named
from dpsketch.schema.columns import Number
from dpsketch.schema.schema import Schema


def plan_task(
    schema: Schema,
    task: str,
    *,
    k: int | None = None,
    rows: int | None = None,
    budget: Budget | None = None,
    columns: Sequence[str] | None = None,
) -> Prediction:
    """Predict by formulas from public numbers what a release for a task looks like and whether the task can succeed.

    `task` is "clusters" or "pca" with k clusters or components, "density" or "synthetic". Nothing is read or spent.
    """
    chosen = entry_named(task, "task").load()
    options = {}
    if k is not None:
        check_whole("plan_task", "k", k, 1, 10_000)
        options = chosen.options(str(k))
    if budget is None:
        raise RecipeError("plan_task needs a budget", "pass budget=Budget(epsilon=1.0)")
    predicted = chosen.predict(schema, rows=rows, budget=budget, columns=columns, **options)
    if predicted is None:
        raise RecipeError(f"no formula predicts the task {chosen.name}", "plan queries instead: dpsketch plan --query")
    return predicted


def plot_region(plan: RatioPrediction, path: str | Path) -> None:
    """Plot rows against ε to an SVG or PNG file: the region where the task can succeed, and the plan."""
    region_drawing(plan).save(path)


def region_drawing(plan: RatioPrediction) -> Drawing:
    epsilons = np.geomspace(1e-3, 10, 25)
    found = acceptable_rows(plan, epsilons.tolist())
    known = [float(rows) for rows in found if rows is not None]
    bottom, top = max(min([*known, plan.rows]) / 10, 1), max([*known, plan.rows]) * 10
    needed = np.array([top if rows is None else float(rows) for rows in found])
    ends = np.full(len(needed), top), np.full(len(needed), bottom)
    regions = [
        Series("area", epsilons, needed, needed, ends[0], "can succeed"),
        Series("area", epsilons, needed, ends[1], needed, "most likely fails"),
    ]
    if plan.budget.epsilon is not None:
        point = np.array([plan.budget.epsilon]), np.array([float(plan.rows)])
        regions.append(Series.exact("points", *point, "this plan"))
    delta = f", delta {plan.budget.delta:g}" if plan.budget.delta else ""
    title = f"{plan.task}, k = {plan.k}, {plan.columns} columns{delta}"
    return Drawing((Picture(title, Axis("epsilon", LOG), Axis("rows", LOG), tuple(regions)),))


def acceptable_rows(plan: RatioPrediction, epsilons: Sequence[float]) -> list[int | None]:
    """The least rows with which the smallest sketch for the plan's task succeeds, at each ε with the plan's δ."""
    return [plan.rows_at(Budget(epsilon, plan.budget.delta)) for epsilon in epsilons]


def simulated_columns(count: int) -> Schema:
    """A schema with `count` number columns, for plans before there is a schema."""
    check_whole("plan_task", "columns", count, 1, 4096)
    return Schema(tuple(Number(f"x{i + 1}") for i in range(count)))
