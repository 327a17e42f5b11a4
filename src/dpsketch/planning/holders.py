"""The error of one trusted curator, of secure sums and of local noise, side by side, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from dpsketch.calibration import noise_variances
from dpsketch.learn.view import View
from dpsketch.planning.forecast import Forecast, Prediction, plan
from dpsketch.planning.simulated_release import ALONE, Sharing
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch.release import planned


@dataclass(frozen=True)
class PartNoise:
    """Standard deviations of the noise of a part's sums, in the integer units of the sums."""

    budget: Budget
    part: str
    curator: float
    secure: float
    local: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "budget": str(self.budget),
            "part": self.part,
            "curator": self.curator,
            "secure": self.secure,
            "local": self.local,
        }


@dataclass(frozen=True)
class HoldersForecast:
    """Forecasts of the same answers from the same simulated tables, released in three ways.

    `curator`: one trusted party holds all rows. `secure`: all holders are in a secure sum. `local`: every holder
    releases its rows on its own, and the releases are merged.
    """

    consortium: Consortium
    noises: tuple[PartNoise, ...]
    curator: Forecast
    secure: Forecast
    local: Forecast

    def rows(self) -> list[tuple[Prediction, Prediction, Prediction]]:
        """The predictions of each answer at each budget: curator, secure sums, local noise."""
        every = (self.curator.predictions, self.secure.predictions, self.local.predictions)
        return list(zip(*every, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with None for numbers that are not finite."""
        return {
            "consortium": self.consortium.to_dict() | {"honest": self.consortium.honest},
            "noise": [each.to_dict() for each in self.noises],
            "curator": self.curator.to_dicts(),
            "secure": self.secure.to_dicts(),
            "local": self.local.to_dicts(),
        }


def plan_holders(
    schema: Schema,
    queries: Sequence[str],
    budgets: Sequence[Budget],
    consortium: Consortium,
    rows: int | None = None,
    recipe: Recipe | None = None,
    simulations: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    like: View | None = None,
) -> HoldersForecast:
    """Predict the errors of select statements, as `plan` does, for the three ways to release what K holders have.

    `rows` is the declared number of all holders' rows together. A secure sum is predicted with all holders in it; with
    fewer its noise is smaller, and so is its table. Sites with local noise have equal parts of the rows, and later ones
    take the cells, groups and pairs of the first.
    """
    ways = (ALONE, Sharing(consortium), Sharing(sites=consortium.holders))

    def share(way: int) -> Callable[[float], None] | None:
        return None if progress is None else lambda done: progress((way + done) / len(ways))

    curator, secure, local = (
        plan(schema, queries, budgets, rows, recipe, simulations, seed, share(way), like, sharing=sharing)
        for way, sharing in enumerate(ways)
    )
    noises = [
        each for budget in dict.fromkeys(budgets) for each in part_noises(schema, recipe, budget, consortium, rows)
    ]
    return HoldersForecast(consortium, tuple(noises), curator, secure, local)


def part_noises(
    schema: Schema, recipe: Recipe | None, budget: Budget, consortium: Consortium, rows: int | None = None
) -> list[PartNoise]:
    """The noise of each part in the three ways; of second moments, whose sums differ, the root of the mean variance."""
    rows = declared_rows(schema, rows)
    chosen = recipe or Recipe.general(schema, rows=rows, budget=budget)
    chosen = Recipe(chosen.parts, rows, chosen.sampling, chosen.only)
    alone, joint = (planned(schema, chosen, budget, consortium=group) for group in (None, consortium))
    assert alone is not None
    assert joint is not None
    found = []
    for index, own in enumerate(chosen.bind(replace(schema, rows=rows)).noised):
        one, sums = (sqrt(float(np.mean(noise_variances(event.noises[index], own)))) for event in (alone, joint))
        found.append(PartNoise(budget, own.description.name, one, sums, one * sqrt(consortium.holders)))
    return found
