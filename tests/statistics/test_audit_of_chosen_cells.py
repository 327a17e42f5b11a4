"""Attacks on levels and on the cells that a release chooses from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.audits import APPROXIMATE, CHOSEN_CELLS, CONCENTRATED, LEVELS, MAPS, PURE, alone, schema

import dpsketch as dps
from conftest import TestStream
from dpsketch.auditing import audit, lower_bound
from dpsketch.maps.base import BoundMap
from dpsketch.maps.tables.adaptive_marginals import BoundCellCounts
from dpsketch.privacy.events import Release
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.sketch import release as release_module
from dpsketch.sketch.adaptive import noisy_in_stages

DRAWS = 12_000


def test_a_quarter_of_the_noise_of_levels_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the cells that are chosen from them have what they need."""
    honest = BoundRecipe.calibrated

    def quartered(bound: BoundRecipe, *asked: Any) -> Release:
        event = honest(bound, *asked)
        noises = [
            replace(noise, scale=noise.scale / 4) if own.description.name == "levels" else noise
            for noise, own in zip(event.noises, bound.maps, strict=True)
        ]
        return replace(event, noises=tuple(noises))

    facts = schema(LEVELS, relation="replace-one")
    assert not audit(CHOSEN_CELLS, facts, PURE, DRAWS).violated
    assert not audit(alone(MAPS["levels"]), facts, PURE, DRAWS).violated
    monkeypatch.setattr(BoundRecipe, "calibrated", quartered)
    assert audit(CHOSEN_CELLS, facts, PURE, DRAWS).violated
    assert audit(alone(MAPS["levels"]), facts, PURE, DRAWS).violated


class _ManyLevels:
    """Releases in stages of two tables that differ in one record, whose value is at the threshold of a cell of its own;
    the attacker sees the file alone: which levels have a cell, and the count of the record's.
    """

    def __init__(self, budget: dps.Budget) -> None:
        columns = {"n": {"kind": "integer", "lower": 0, "upper": 199}}
        recipe = dps.Recipe([dps.Part(dps.Levels(bins=2), 0.5), dps.Part(dps.AdaptiveMarginals(bins=2), 0.5)])
        self.bound = recipe.bind(schema(columns))
        self.event = self.bound.calibrated(budget)
        self.level = 77

    def scores(self, count: int, draws: int, peeking: bool, stream: Any) -> Any:
        """Whether the level of the record has a cell of its own, in releases of a table with `count` such records."""
        exact = [np.zeros(own.size, np.int64) for own in self.bound.maps]
        for sums in exact:
            sums[self.level] = count
        found = np.empty(draws)
        for draw in range(draws):

            def add_noise(index: int, own: BoundMap, sums: Any) -> Any:
                if peeking and index == 0:
                    return sums
                return release_module._noisy(self.event.noises[index], own, sums, stream)

            _, cells = noisy_in_stages(self.bound, exact, self.event, add_noise, {})
            assert isinstance(cells.map, BoundCellCounts)
            cut = cells.map.description.cuts[0]
            assert cut is not None
            found[draw] = self.level in cut[1]
        return found

    def threshold(self) -> int:
        """The smallest number of records with which the exact counts would give the level a cell of its own."""
        return next(count for count in range(1, 10_000) if self.scores(count, 1, True, TestStream())[0])


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE, CONCENTRATED], ids=str)
@pytest.mark.parametrize("peeking", [False, True], ids=["noisy levels", "exact levels"])
def test_cells_chosen_from_exact_levels_are_caught(budget: dps.Budget, peeking: bool) -> None:
    attack, stream = _ManyLevels(budget), TestStream()
    count = attack.threshold()
    outside, inside = (attack.scores(number, 1500, peeking, stream) for number in (count - 1, count))
    limit = budget.rho if budget.rho is not None else budget.epsilon
    assert limit is not None
    assert (lower_bound(attack.event, outside, inside) > limit) is peeking
