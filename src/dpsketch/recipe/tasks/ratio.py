"""Predictions for clusters and components: a noise-to-signal ratio compared with its limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from dpsketch.maps.subsampled import MOST_BLOCKS, Subsampled
from dpsketch.maps.tables.count import Count
from dpsketch.numerics.tuned import Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.count_share import sums_share
from dpsketch.recipe.noise_to_signal import NoiseToSignal, SumsNoise
from dpsketch.recipe.recipe import Recipe, RowSampling, declared_rows
from dpsketch.recipe.tasks.task import Prediction

# NSR_max = GOOD·m/(k·d); also the share of variance that components may lose.
GOOD: Annotated[float, Tuned("simulated clusters", by="the compressive paper, sec. 6.4")] = 1e-3
_HALVINGS = 12
# the noise of a recipe's sums, the largest sufficient ratio and the fewest sufficient rows
Sums = tuple[SumsNoise, float, int]


@dataclass(frozen=True, kw_only=True)
class RatioPrediction(Prediction):
    """Prediction for one task from its noise-to-signal ratio.

    `size` is the number of frequencies, directions, or cells of a table. The task succeeds up to a ratio of `limit` and
    with at least `least_rows` rows, whatever the budget. `epsilon_needed` and `rows_needed` are the smallest values at
    which the smallest sketch of this task succeeds, all else as planned; None if none does. `count_share` is the best
    share of the count, 1 − γ*; 0 where nothing is divided by a noisy count.

    `feature_rates` and `row_rates` are the smallest fractions of the features of each record, and of the rows, at which
    the ratio stays below its limit, and at which it grows by at most a tenth; None if it is above the limit anyway.
    """

    k: int
    columns: int
    least: SumsNoise
    least_limit: float
    least_least_rows: int
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

    def rows_at(self, budget: Budget) -> int | None:
        """The fewest rows with which the smallest sketch of this task succeeds under another budget."""
        return _rows_needed((self.least, self.least_limit, self.least_least_rows), budget)

    @property
    def acceptable(self) -> bool:
        return self.ratio.total <= self.limit and self.rows >= self.least_rows

    def to_dict(self) -> dict[str, Any]:
        ratio = {name: getattr(self.ratio, name) for name in ("draw", "sampling", "masks", "noise", "count", "total")}
        return (
            super().to_dict()
            | {"k": self.k, "columns": self.columns, "size": self.size, "mechanism": self.mechanism}
            | {"noise_to_signal": ratio, "limit": self.limit, "acceptable": self.acceptable}
            | {"epsilon_needed": self.epsilon_needed, "rows_needed": self.rows_needed}
            | {"count_share": self.count_share, "feature_rates": self.feature_rates, "row_rates": self.row_rates}
        )

    def lines(self) -> list[str]:
        """The prediction as lines of text."""
        success = "can succeed" if self.acceptable else "will most likely fail"
        lines = [
            f"{self.task}, k = {self.k}, {self.columns} columns, about {self.rows:,} rows, {self.budget}",
            f"sketch: {self.sketch}; m = {self.size}; noise: {self.mechanism}",
            f"predicted noise-to-signal ratio {self.ratio.total:.2g}, acceptable up to {self.limit:.2g}: {success}",
        ]
        if not self.acceptable:
            wanted = []
            if self.epsilon_needed is not None:
                wanted.append(f"epsilon {self.epsilon_needed:g} with this many rows")
            if self.rows_needed is not None:
                wanted.append(f"{self.rows_needed:,} rows with this budget")
            lines.append("it needs " + (", or ".join(wanted) if wanted else "fewer columns or a smaller k"))
        elif self.rows_needed is not None and self.epsilon_needed is not None:
            lines.append(
                f"succeeds from epsilon {self.epsilon_needed:g} with this many rows, "
                f"or from {self.rows_needed:,} rows with this budget"
            )
        if self.count_share:
            lines.append(f"best share of the count, for sums divided by it: {100 * self.count_share:.3g} %")
        for what, rates in (("features of each record", self.feature_rates), ("the rows", self.row_rates)):
            if rates is not None and rates[0] < 1:
                free = "any fewer than all" if rates[1] == 1 else f"fewer than {_share(rates[1])}"
                lines.append(
                    f"{_share(rates[0])} of {what} would suffice; {free} would raise the noise by more than a tenth"
                )
        return lines


def ratio_prediction(task: str, k: int, budget: Budget, recipe: Recipe, planned: Sums, least: Sums) -> RatioPrediction:
    """Predict whether a task succeeds. `least` is the smallest sketch with which it can.

    Ratios are those of the strongest signal, as in the rules that they are compared with. Source: compressive sec. 6.1,
    6.4 and (25)-(29), with C₀ = 1 and the actual noise of a release.
    """
    noise, limit, least_rows = planned
    rows = declared_rows(noise.schema, recipe.rows)
    ratio = noise.at(budget, rows)
    few = rows < least[2]
    able = ratio.total <= limit and not few
    without_epsilon = few or budget.rho is not None
    return RatioPrediction(
        task=task,
        k=k,
        columns=len(noise.map.columns),
        rows=rows,
        budget=budget,
        recipe=recipe,
        least=least[0],
        least_limit=least[1],
        least_least_rows=least[2],
        size=sums_size(noise),
        mechanism=noise.mechanism(budget).value,
        ratio=ratio,
        limit=limit,
        least_rows=least_rows,
        epsilon_needed=None if without_epsilon else least[0].epsilon_needed(budget.delta, rows, least[1]),
        rows_needed=_rows_needed(least, budget),
        count_share=1 - best_sums_share(noise, budget, rows),
        feature_rates=_rates(_feature_samples(noise), budget, rows, limit, ratio.total) if able else None,
        row_rates=_rates(_row_samples(noise), budget, rows, limit, ratio.total) if able else None,
    )


def best_sums_share(sums: SumsNoise, budget: Budget, rows: int) -> float:
    """γ* for this recipe's sums and count, from their actual noise; 1 without a noisy count."""
    part = sums.recipe.parts[sums.part_index].share
    counts = [each.share for each in sums.recipe.parts if isinstance(each.map, Count)]
    ratio = sums.at(budget, rows)
    if not counts or not ratio.count:
        return 1.0
    every, squares = (
        part + counts[0],
        all(noise is not None and noise.epsilon is None for noise in sums.noises(budget)),
    )
    power = 1 if squares else 2
    rest = ratio.total - ratio.count + 1
    count, noise = (ratio.count / rest) * (counts[0] / every) ** power, ratio.noise * (part / every) ** power
    return sums_share(count, rest - ratio.noise, noise, squares)


def _rows_needed(sums: Sums, budget: Budget) -> int | None:
    noise, limit, least_rows = sums
    rows = noise.rows_needed(budget, limit)
    return None if rows is None else max(rows, least_rows)


def sums_size(sums: SumsNoise) -> int:
    """Number of frequencies or directions where the map has them, else of sums."""
    description = sums.recipe.parts[sums.part_index].map
    size = getattr(description, "size", None)
    return size if isinstance(size, int) else sums.map.size


def _feature_samples(sums: SumsNoise) -> Callable[[float], SumsNoise | None]:
    part = sums.recipe.parts[sums.part_index]

    def sampled(rate: float) -> SumsNoise | None:
        size = getattr(part.map, "size", 0)
        if not 1 / rate <= size <= MOST_BLOCKS:
            return None
        masked = Subsampled(part.map, round(size * rate), "uniform")
        parts = list(sums.recipe.parts)
        parts[sums.part_index] = replace(part, map=masked)
        recipe = sums.recipe
        return SumsNoise(sums.schema, Recipe(parts, recipe.rows, recipe.sampling, recipe.only))

    return sampled


def _row_samples(sums: SumsNoise) -> Callable[[float], SumsNoise | None]:
    def sampled(rate: float) -> SumsNoise | None:
        recipe = sums.recipe
        return SumsNoise(sums.schema, Recipe(recipe.parts, recipe.rows, RowSampling(rate), recipe.only))

    return sampled


def _rates(
    sampled: Callable[[float], SumsNoise | None], budget: Budget, rows: int, limit: float, ratio: float
) -> tuple[float, float]:
    """The smallest of 1, ½, ¼, … that keeps the ratio below its limit, and that lets it grow by at most a tenth."""
    able = free = 1.0
    for halving in range(1, _HALVINGS + 1):
        noise = sampled(0.5**halving)
        total = np.inf if noise is None else noise.at(budget, rows).total
        if total > limit:
            break
        able = 0.5**halving
        if total <= 1.1 * ratio:
            free = able
    return able, free


def _share(rate: float) -> str:
    return "all" if rate == 1 else f"1/{round(1 / rate)}"
