from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dpsketch.denoise.pair_choice import choose_pairs, spread


def degrees(columns: int, chosen: list[tuple[int, int]]) -> np.ndarray:
    return np.bincount(np.array(chosen).ravel(), minlength=columns)


def choose(spreads: list[float], most: int, hints: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    pairs = list(combinations(range(len(spreads)), 2))
    places = choose_pairs(spreads, pairs, most, hints)
    assert places == sorted(set(places))
    return [pairs[place] for place in places]


@pytest.mark.parametrize("most", [1, 5, 9, 10, 20, 44, 45, 1000])
def test_columns_that_are_alike_take_turns(most: int) -> None:
    chosen = choose([1.0] * 10, most)
    assert len(chosen) == min(most, 45)
    assert np.ptp(degrees(10, chosen)) <= 2


@pytest.mark.parametrize("columns", [2, 3, 6, 17])
def test_as_many_pairs_as_a_tree_has_connect_all_columns(columns: int) -> None:
    spreads = np.random.default_rng(columns).uniform(0.01, 3, columns).tolist()
    chosen = choose(spreads, columns - 1)
    reached = {0}
    for _ in range(columns):
        reached |= {column for pair in chosen if set(pair) & reached for column in pair}
    assert len(reached) == columns


def test_near_constant_columns_wait() -> None:
    found = degrees(8, choose([2.0, 0.02] * 4, 12))
    assert found[::2].min() > found[1::2].max()
    assert found.min() >= 1


def test_columns_without_any_spread_are_chosen_last_but_may_be() -> None:
    assert choose([0.0, 0.0, 0.0], 2) == [(0, 1), (0, 2)]


def test_hints_come_first() -> None:
    assert choose([1.0, 1.0, 0.001, 1.0], 3, (2,)) == [(0, 2), (1, 2), (2, 3)]
    assert len([pair for pair in choose([1.0] * 6, 9, (1, 4)) if set(pair) & {1, 4}]) == 9


def test_spread_is_entropy() -> None:
    assert spread(np.array([0.25, 0.25, 0.5, 0.0])) == pytest.approx(1.5 * np.log(2))
    assert spread(np.array([1.0])) == 0


def test_a_column_of_one_group_waits_also_if_its_share_is_rounded_up() -> None:
    """The entropy of 1 + 2^-52 is below zero, and its root no number, which would come first."""
    constant = spread(np.array([1 + 2.0**-52]))
    assert constant == 0
    assert choose([constant, 1.0, 1.0, 1.0], 4) == [(0, 1), (1, 2), (1, 3), (2, 3)]


def one_by_one(spreads: np.ndarray, pairs: list[tuple[int, int]], most: int, hints: tuple[int, ...]) -> list[int]:
    """The rule as it is written: every pair is looked at for every choice."""
    one, two = np.array(pairs).T
    worth = np.sqrt(spreads[one] * spreads[two])
    hinted = np.isin(pairs, hints).any(axis=1)
    uses, component, left = np.ones(len(spreads)), np.arange(len(spreads)), np.ones(len(pairs), bool)
    for _ in range(min(most, len(pairs))):
        open_ = left & hinted if (left & hinted).any() else left
        joining = open_ & (component[one] != component[two])
        open_ = joining if joining.any() else open_
        place = int(np.argmax(np.where(open_, worth / (uses[one] * uses[two]), -1.0)))
        left[place] = False
        uses[[one[place], two[place]]] += 1
        component[component == component[two[place]]] = component[one[place]]
    return np.flatnonzero(~left).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_that_of_the_rule(seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = int(random.integers(2, 30))
    spreads = random.choice([0.0, 0.3, 0.7, 1.0, 1.1], columns)
    every = list(combinations(range(columns), 2))
    pairs = [pair for pair in every if random.random() < 0.8] or every
    hints = tuple(random.integers(0, columns, random.integers(0, 3)).tolist())
    for most in (1, columns - 1, columns, 3 * columns, len(pairs)):
        assert choose_pairs(spreads.tolist(), pairs, most, hints) == one_by_one(spreads, pairs, most, hints)
