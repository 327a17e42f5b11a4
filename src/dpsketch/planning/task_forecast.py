"""Whether clusters, mixtures or principal components can succeed, told before any budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, isqrt
from pathlib import Path
from typing import Any

import numpy as np

from dpsketch.errors import RecipeError
from dpsketch.files.pictures import picture
from dpsketch.maps.base import check_whole
from dpsketch.maps.fourier.fourier import Fourier
from dpsketch.maps.moments.quadratic import BoundQuadratic
from dpsketch.maps.subsampled import MOST_BLOCKS, Subsampled
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.histogram import BoundHistogram, Histogram
from dpsketch.planning.noise_to_signal import NoiseToSignal, SumsNoise
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.ready import cluster_tables
from dpsketch.recipe.recipe import Part, Recipe, RowSampling, declared_rows
from dpsketch.recipe.sizes import LEAST_FREQUENCIES, MOST_FREQUENCIES, count_share, sums_share
from dpsketch.schema.columns import Number
from dpsketch.schema.schema import Schema

GOOD = 1e-3  # of NSR_max = GOOD·m/(k·d), and the share of variance that components may lose
GOOD_OF_A_CLUSTER = 0.02  # the noise of a table's cells over the squared records of a cluster: measured
_HALVINGS = 12
Rule = Callable[[Schema, int, Sequence[str] | None, int, Budget], Recipe]


@dataclass(frozen=True)
class TaskPlan:
    """What a release for one task would be like. `size` is the number of frequencies, directions, or cells of a table,
    `limit` the noise-to-signal ratio up to which the task succeeds, `least_rows` what it takes with any budget.

    `epsilon_needed` and `rows_needed` are each the least with which the least sketch of this task would, all else as
    planned, and None if none does. `count_share` is γ*'s, the best one; 0 where nothing is divided by a noisy count.
    `feature_rates` and `row_rates` are the least shares of features of each record, and of rows, with which the ratio
    stays below its limit, and with which it grows by a tenth at most; None if it is above the limit anyway.
    """

    task: str
    k: int
    columns: int
    rows: int
    budget: Budget
    recipe: Recipe
    least: Recipe
    size: int
    mechanism: str
    ratio: NoiseToSignal
    limit: float
    least_rows: int
    epsilon_needed: float | None
    rows_needed: int | None
    count_share: float
    feature_rates: tuple[float, float] | None
    row_rates: tuple[float, float] | None

    @property
    def acceptable(self) -> bool:
        return self.ratio.total <= self.limit and self.rows >= self.least_rows

    def to_dict(self) -> dict[str, Any]:
        budget = {"rho": self.budget.rho} if self.budget.rho is not None else {"epsilon": self.budget.epsilon}
        parts = [part.map.name for part in self.recipe.parts]
        ratio = {name: getattr(self.ratio, name) for name in ("draw", "sampling", "masks", "noise", "count", "total")}
        return (
            {"task": self.task, "k": self.k, "columns": self.columns, "rows": self.rows}
            | budget
            | ({"delta": self.budget.delta} if self.budget.delta else {})
            | {"maps": parts, "size": self.size, "mechanism": self.mechanism, "noise_to_signal": ratio}
            | {"limit": self.limit, "acceptable": self.acceptable}
            | {"epsilon_needed": self.epsilon_needed, "rows_needed": self.rows_needed}
            | {"count_share": self.count_share, "feature_rates": self.feature_rates, "row_rates": self.row_rates}
        )

    def lines(self) -> list[str]:
        """For a reader."""
        names = " and ".join(f"{part.map.name} ({100 * part.share:.3g} %)" for part in self.recipe.parts)
        success = "can succeed" if self.acceptable else "will most likely fail"
        found = [
            f"{self.task}, k = {self.k}, {self.columns} columns, about {self.rows:,} rows, {self.budget}",
            f"sketch: {names}; m = {self.size}; noise: {self.mechanism}",
            f"predicted noise-to-signal ratio {self.ratio.total:.2g}, acceptable up to {self.limit:.2g}: {success}",
        ]
        if not self.acceptable:
            wanted = []
            if self.epsilon_needed is not None:
                wanted.append(f"epsilon {self.epsilon_needed:g} at these rows")
            if self.rows_needed is not None:
                wanted.append(f"{self.rows_needed:,} rows at this budget")
            found.append("it would need " + (", or ".join(wanted) if wanted else "fewer columns or a smaller k"))
        elif self.rows_needed is not None and self.epsilon_needed is not None:
            found.append(
                f"it would from epsilon {self.epsilon_needed:g} on at these rows, "
                f"or from {self.rows_needed:,} rows on at this budget"
            )
        if self.count_share:
            found.append(f"best share of the count, for sums divided by it: {100 * self.count_share:.3g} %")
        for what, rates in (("features of each record", self.feature_rates), ("the rows", self.row_rates)):
            if rates is not None and rates[0] < 1:
                free = "any fewer than all" if rates[1] == 1 else f"fewer than {_share(rates[1])}"
                found.append(f"{_share(rates[0])} of {what} would do; {free} cost more than a tenth more noise")
        return found


def plan_task(
    schema: Schema,
    task: str,
    k: int,
    rows: int | None = None,
    budget: Budget | None = None,
    columns: Sequence[str] | None = None,
) -> TaskPlan:
    """Map, size, mechanism and predicted noise-to-signal ratio of a release for "kmeans", "gmm" or "pca", with k
    clusters or components, and whether the task can succeed with it. Nothing is read and nothing is spent.

    Ratios are those of the strongest signal, as in the rules that they are compared with. Clusters and mixtures need
    m >= 2kd frequencies, a ratio of at most m/(1000·kd) and as many rows as one over that. The noise of a table of
    20·kd cells may be a fiftieth of the squared records of one of k clusters; that of finer cells may be more in
    proportion to their number, as the coarser table beside them holds it down. Components may lose about a thousandth
    of the variance of records that lie in k directions.
    Source: compressive sec. 6.1, 6.4 and (25)-(29), with C₀ = 1 and the noise that a release really has.
    """
    if task not in TASKS:
        raise RecipeError(f"task must be one of {', '.join(TASKS)}, got {task!r} instead")
    check_whole("plan_task", "k", k, 1, 10_000)
    if budget is None:
        raise RecipeError("plan_task needs a budget", "pass budget=Budget(epsilon=1.0)")
    rows = declared_rows(schema, rows)
    recipe, smallest = (rule(schema, k, columns, rows, budget) for rule in TASKS[task])
    found, least = _noise(schema, recipe), _noise(schema, smallest)
    limit, least_limit = _limit(found, task, k), _limit(least, task, k)
    ratio = found.at(budget, rows)
    few = rows < least_rows(task, least_limit)
    rows_at_least = least_rows(task, least_limit if isinstance(found.map, BoundHistogram) else limit)
    able = ratio.total <= limit and not few
    return TaskPlan(
        task,
        k,
        len(found.map.columns),
        rows,
        budget,
        recipe,
        smallest,
        _size(found),
        found.mechanism(budget).value,
        ratio,
        limit,
        rows_at_least,
        None if few or budget.rho is not None else least.epsilon_needed(budget.delta, rows, least_limit),
        _rows_needed(least, budget, task, least_limit),
        1 - best_sums_share(found, budget, rows),
        _rates(_feature_samples(found), budget, rows, limit, ratio.total) if able else None,
        _rates(_row_samples(found), budget, rows, limit, ratio.total) if able else None,
    )


def best_sums_share(found: SumsNoise, budget: Budget, rows: int) -> float:
    """γ* for this recipe's sums and count, by the noise that they really have; 1 without a noisy count."""
    part = found.recipe.parts[found.place].share
    counts = [each.share for each, bound in zip(found.recipe.parts, found.maps, strict=True) if bound.only_counts]
    ratio = found.at(budget, rows)
    if not counts or not ratio.count:
        return 1.0
    every, squares = (
        part + counts[0],
        all(noise is not None and noise.epsilon is None for noise in found.noises(budget)),
    )
    power = 1 if squares else 2
    rest = ratio.total - ratio.count + 1
    count, noise = (ratio.count / rest) * (counts[0] / every) ** power, ratio.noise * (part / every) ** power
    return sums_share(count, rest - ratio.noise, noise, squares)


def acceptable_rows(plan: TaskPlan, schema: Schema, epsilons: Sequence[float]) -> list[int | None]:
    """The least rows with which the least sketch of the plan's task would do, at each ε with the plan's δ."""
    found = _noise(schema, plan.least)
    limit = _limit(found, plan.task, plan.k)
    return [_rows_needed(found, Budget(epsilon, plan.budget.delta), plan.task, limit) for epsilon in epsilons]


def least_rows(task: str, limit: float) -> int:
    """How many records clusters take with any budget, for what chance makes of their own draw: compressive (25)."""
    return 1 if task == "pca" else ceil(1 / limit)


def _rows_needed(found: SumsNoise, budget: Budget, task: str, limit: float) -> int | None:
    rows = found.rows_needed(budget, limit)
    return None if rows is None else max(rows, least_rows(task, limit))


def plot_region(plan: TaskPlan, schema: Schema, path: str | Path) -> None:
    """Rows against ε: where the task can succeed, and where the plan is; a PNG file."""
    epsilons = np.geomspace(1e-3, 10, 25).tolist()
    needed = np.array([np.nan if rows is None else float(rows) for rows in acceptable_rows(plan, schema, epsilons)])
    with picture(path, 6.5, 4.5) as (_, axis):
        top = max(np.nanmax(needed), plan.rows) * 10
        axis.fill_between(epsilons, needed, top, color="#9fc99f", label="can succeed")
        axis.fill_between(epsilons, 1, needed, color="#e3b5b0", label="most likely fails")
        if plan.budget.epsilon is not None:
            axis.plot(plan.budget.epsilon, plan.rows, "k*", markersize=14, label="this plan")
        axis.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="rows", xlim=(1e-3, 10))
        axis.set_ylim(max(np.nanmin(needed) / 10, 1), top)
        delta = f", delta {plan.budget.delta:g}" if plan.budget.delta else ""
        axis.set_title(f"{plan.task}, k = {plan.k}, {plan.columns} columns{delta}", fontsize=10)
        axis.legend(loc="lower left")


def _clusters(schema: Schema, k: int, columns: Sequence[str] | None, rows: int, budget: Budget) -> Recipe:
    return Recipe.clusters(schema, rows, budget, k, columns)


def _fewest(schema: Schema, k: int, columns: Sequence[str] | None, rows: int, budget: Budget) -> Recipe:
    """`_clusters` with as few frequencies as clusters can be found from: what they need at the least."""
    sums = _clusters(schema, k, columns, rows, budget).parts[1].map
    if isinstance(sums, Histogram):
        table = _coarsest(sums, k)
        return Recipe(
            [Part(*each) for each in cluster_tables(table.columns or (), table.bins, isqrt(table.bins))], rows
        )
    assert isinstance(sums, Fourier)
    assert sums.columns is not None
    size = LEAST_FREQUENCIES * k * len(sums.columns)
    share = count_share(schema, rows, budget, size)
    return Recipe([Part(Count(), share), Part(replace(sums, size=size), round(1 - share, 4))], rows)


def _coarsest(table: Histogram, k: int) -> Histogram:
    """Of two cells for each of the most frequencies."""
    return replace(table, bins=ceil((2 * MOST_FREQUENCIES * k * table.ways) ** (1 / table.ways)))


def _components(schema: Schema, k: int, columns: Sequence[str] | None, rows: int, budget: Budget) -> Recipe:
    return Recipe.pca(schema, rows, budget, k, columns)


# The recipe of a task, and the one that needs least.
TASKS: dict[str, tuple[Rule, Rule]] = {
    "kmeans": (_clusters, _fewest),
    "gmm": (_clusters, _fewest),
    "pca": (_components, _components),
}


def made_up_columns(count: int) -> Schema:
    """A schema of so many numbers, for plans before there is one."""
    check_whole("plan_task", "columns", count, 1, 4096)
    return Schema(tuple(Number(f"x{place + 1}") for place in range(count)))


def _size(found: SumsNoise) -> int:
    """Frequencies or directions where the map has them, else sums."""
    description = found.recipe.parts[found.place].map
    size = getattr(description, "size", None)
    return size if isinstance(size, int) else found.map.size


def _noise(schema: Schema, recipe: Recipe) -> SumsNoise:
    """Without the count beside tables, which nothing is divided by."""
    if any(isinstance(part.map, Histogram) for part in recipe.parts):
        recipe = Recipe([part for part in recipe.parts if not isinstance(part.map, Count)], recipe.rows)
    return SumsNoise(schema, recipe)


def _limit(found: SumsNoise, task: str, k: int) -> float:
    dimension = len(found.map.columns)
    description = found.map.description
    if isinstance(description, Histogram):
        return GOOD_OF_A_CLUSTER / k**2 * found.map.size / _coarsest(description, k).length(found.schema)
    if task != "pca":
        return GOOD * _size(found) / (k * dimension)
    # Noise of variance s² in every direction of symmetric matrices turns k axes of variance 1/k each towards d−k others
    # and loses (d−k)·k²·s² of the variance.
    loss = GOOD / (max(dimension - k, 1) * k**2)
    if isinstance(found.map, BoundQuadratic):  # least squares on m squares of unit directions: s² = v·d²/2m
        return loss * 2 * found.map.size**2 / dimension**2 / found.energy
    return loss * found.map.size / found.energy


def _feature_samples(found: SumsNoise) -> Callable[[float], SumsNoise | None]:
    part = found.recipe.parts[found.place]

    def sampled(rate: float) -> SumsNoise | None:
        size = getattr(part.map, "size", 0)
        if not 1 / rate <= size <= MOST_BLOCKS:
            return None
        masked = Subsampled(part.map, round(size * rate), "uniform")
        parts = list(found.recipe.parts)
        parts[found.place] = replace(part, map=masked)
        recipe = found.recipe
        return SumsNoise(found.schema, Recipe(parts, recipe.rows, recipe.sampling, recipe.only))

    return sampled


def _row_samples(found: SumsNoise) -> Callable[[float], SumsNoise | None]:
    def sampled(rate: float) -> SumsNoise | None:
        recipe = found.recipe
        return SumsNoise(found.schema, Recipe(recipe.parts, recipe.rows, RowSampling(rate), recipe.only))

    return sampled


def _rates(
    sampled: Callable[[float], SumsNoise | None], budget: Budget, rows: int, limit: float, ratio: float
) -> tuple[float, float]:
    """The least of 1, ½, ¼, … that keep the ratio below its limit, and that let it grow by a tenth at most."""
    able = free = 1.0
    for halving in range(1, _HALVINGS + 1):
        found = sampled(0.5**halving)
        total = np.inf if found is None else found.at(budget, rows).total
        if total > limit:
            break
        able = 0.5**halving
        if total <= 1.1 * ratio:
            free = able
    return able, free


def _share(rate: float) -> str:
    return "all" if rate == 1 else f"1/{round(1 / rate)}"
