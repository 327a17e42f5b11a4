"""Attacks on joint releases: the coordinator and t holders against a record of an honest holder, at ε = 1.

The attacker sees the totals and the vectors of t holders, and subtracts these. Planted errors are caught.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import dpsketch as dps
from dpsketch.auditing import lower_bound
from dpsketch.maps.base import Sums
from dpsketch.noise.samplers import SHARES
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.mechanisms import MECHANISMS
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.sketch.joint_release import joint_terms
from dpsketch.sketch.release import NoisyShare
from in_process_exchange import Room

FIVE = Consortium.of(5)
STAYING, COLLUDERS = ["a", "b", "c", "d"], ["d"]  # the least number, of whom one shares what it knows
COLUMNS = {"n": {"kind": "integer", "lower": 0, "upper": 10}}
COUNTS = dps.Recipe([dps.Part(dps.Count(), 0.4), dps.Part(dps.Histogram(bins=2), 0.6)])
TOTAL = dps.Recipe([dps.Part(dps.Totals(), 1.0)])  # of a sensitivity for which no Gaussian share is widened
BUDGETS = [dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.5)]
DRAWS = {"pure": 40_000, "gaussian": 400_000}


def schema(relation: str = "add-remove") -> dps.Schema:
    return dps.Schema.from_dict({"privacy": {"rows": 100, "relation": relation}, "columns": COLUMNS})


def world(facts: dps.Schema, recipe: dps.Recipe, numbers: Sequence[int]) -> list[Sums]:
    """The sums of the honest holder `a`: one record or none."""
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    return [part.sums for part in dps.accumulate(rows, facts, recipe).parts]


def recipe(budget: dps.Budget) -> dps.Recipe:
    return COUNTS if budget.pure else TOTAL


def claimed(budget: dps.Budget, relation: str = "add-remove") -> Release:
    bound = recipe(budget).bind(schema(relation))
    return joint_terms(bound, budget, FIVE, "gaussian" if budget.delta else "auto").event


class Silent(NoisyShare):
    """A holder that adds no noise."""

    def __init__(self, noise: Noise, sums: Sums) -> None:
        super().__init__(replace(noise, sensitivity=0), sums)


def seen(event: Release, exact: Sequence[Sums], draws: int, silent: Sequence[str] = ()) -> list[NDArray[np.float64]]:
    """What the attacker is left with in many sessions, each a stretch of long vectors: totals minus the colluders'."""
    room, views = Room(STAYING), []
    vectors: dict[str, list[Sums]] = {name: [] for name in STAYING}
    for name in STAYING:
        shares = []
        for noise, sums in zip(event.noises, exact, strict=True):
            own = np.tile(sums if name == "a" else np.zeros_like(sums), draws)
            share = (Silent if name in silent else NoisyShare)(noise, own)
            vectors[name].append(np.concatenate(list(share.chunks())))
            shares.append(_Kept(vectors[name][-1]))
        room.add(name, 0, shares, b"")
    totals = room.totals(0)
    assert totals.holders == FIVE.least
    for index, total in enumerate(totals.sums):
        known = sum(vectors[name][index] for name in COLLUDERS)
        views.append((total - known).astype(np.float64).reshape(draws, -1))
    return views


class _Kept(NoisyShare):
    """A vector that the attacker remembers."""

    def __init__(self, vector: Sums) -> None:
        super().__init__(Noise(next(iter(SHARES)), 0, Fraction(0)), vector)


def scores(
    event: Release, views: Sequence[NDArray[np.float64]], worlds: Sequence[Sequence[Sums]]
) -> NDArray[np.float64]:
    total = np.zeros(len(views[0]))
    for index, noise in enumerate(event.noises):
        if noise.sensitivity:
            density = [
                MECHANISMS[noise.mechanism].log_density(views[index] - each[index], 1, float(noise.scale))
                for each in worlds
            ]
            total += density[1] - density[0]
    return total


def proven(
    budget: dps.Budget, planted: Release | None = None, silent: Sequence[str] = (), relation: str = "add-remove"
) -> float:
    """The bound on ε, or ρ, that the attack proves for releases that claim `budget`."""
    facts, event = schema(relation), claimed(budget, relation)
    worlds = [world(facts, recipe(budget), [] if relation == "add-remove" else [2]), world(facts, recipe(budget), [10])]
    draws = DRAWS["pure" if budget.pure else "gaussian"]
    outside, inside = (scores(event, seen(planted or event, each, draws, silent), worlds) for each in worlds)
    return lower_bound(event, outside, inside)


def narrower(budget: dps.Budget, factor: Fraction) -> Release:
    event = claimed(budget)
    return replace(event, noises=tuple(replace(noise, scale=noise.scale * factor) for noise in event.noises))


def limit(budget: dps.Budget) -> float:
    most = budget.rho if budget.rho is not None else budget.epsilon
    assert most is not None
    return most


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_no_attack_beats_the_budget_and_it_is_nearly_spent(budget: dps.Budget) -> None:
    found = proven(budget)
    assert 0.6 * limit(budget) < found <= limit(budget)


def test_a_replaced_record_is_as_safe() -> None:
    assert 0.3 < proven(BUDGETS[0], relation="replace-one") <= 1


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_one_holder_without_noise_beyond_t_is_caught(budget: dps.Budget) -> None:
    """A colluder's missing noise is covered; that of one honest holder more is not."""
    assert proven(budget, silent=["d"]) <= limit(budget)
    assert proven(budget, silent=["b", "d"]) > limit(budget)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_shares_of_too_small_a_scale_are_caught(budget: dps.Budget) -> None:
    assert proven(budget, narrower(budget, Fraction(3, 4))) > limit(budget)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_shares_for_all_survivors_instead_of_the_honest_ones_are_caught(budget: dps.Budget) -> None:
    """The tempting error: each of the four that stay adds a quarter, and a colluder subtracts its own."""
    event = claimed(budget)
    quarters = [replace(noise, shares=replace(noise.shares, honest=4)) for noise in event.noises if noise.shares]
    assert proven(budget, replace(event, noises=tuple(quarters))) > limit(budget)


def test_the_same_noise_twice_is_caught() -> None:
    """Were a share read again with a record more, the difference of both vectors would be the record."""
    event = claimed(BUDGETS[0])
    share = NoisyShare(event.noises[1], np.zeros(50, np.int64))
    (first,) = share.chunks()
    with pytest.raises(RuntimeError, match="second time"):
        share.chunks()
    (again,) = NoisyShare(event.noises[1], np.zeros(50, np.int64)).chunks()
    assert (first != again).any()
