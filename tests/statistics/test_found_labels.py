"""Neighbours that differ in a unit with labels of its own: the true mechanism keeps (ε, δ), planted errors are caught.

One call draws many releases: labels are independent, so that each group of labels is a release of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp

import pytest
from scipy.stats import beta

import dpsketch as dps
from conftest import TestStream
from dpsketch.privacy.events import Release
from dpsketch.privacy.label_threshold import label_event, least_threshold
from dpsketch.schema.relation import Relation
from dpsketch.sketch.release import noisy_labels

DRAWS = 100_000
ALPHA = 1e-5
BUDGET = dps.Budget(1.0, 0.01)


def drawn(event: Release, counts: dict[str, int], stream: TestStream) -> list[frozenset[str]]:
    """The labels shown in each of many releases of these counts."""
    many = {f"{draw}|{label}": count for draw in range(DRAWS) for label, count in counts.items()}
    shown: list[set[str]] = [set() for _ in range(DRAWS)]
    for each in noisy_labels(event, many, stream):
        draw, _, label = each.partition("|")
        shown[int(draw)].add(label)
    return [frozenset(labels) for labels in shown]


def proven_delta(inside: int, outside: int, epsilon: float) -> float:
    """A lower bound on δ from how often an event happened for two neighbours (Clopper–Pearson)."""
    low = beta.ppf(ALPHA, inside, DRAWS - inside + 1) if inside else 0.0
    return float(low - exp(epsilon) * beta.ppf(1 - ALPHA, outside + 1, DRAWS - outside))


def times(results: Iterable[frozenset[str]], wanted: frozenset[str]) -> int:
    return sum(bool(labels & wanted) for labels in results)


def own_labels_shown(event: Release, most: int, stream: TestStream) -> float:
    """δ that is proven by a unit with `most` labels of its own, whose neighbour lacks it."""
    own = {f"own {number}": 1 for number in range(most)}
    return proven_delta(times(drawn(event, own, stream), frozenset(own)), 0, BUDGET.epsilon or 0)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("most", [1, 3])
def test_a_unit_with_labels_of_its_own_stays_hidden(relation: Relation, most: int, stream: TestStream) -> None:
    event = label_event(BUDGET, most, relation)
    found = own_labels_shown(event, most, stream)
    assert 0 < found < BUDGET.delta


def test_a_threshold_that_is_one_too_low_is_caught(stream: TestStream) -> None:
    event = label_event(BUDGET, 1, Relation.ADD_REMOVE)
    assert event.threshold is not None
    assert own_labels_shown(replace(event, threshold=event.threshold - 1), 1, stream) > BUDGET.delta


def test_a_threshold_for_one_label_of_a_unit_with_three_is_caught(stream: TestStream) -> None:
    event = label_event(BUDGET, 3, Relation.ADD_REMOVE)
    single = least_threshold(1, event.noises[0].scale, BUDGET.exact_delta)
    assert own_labels_shown(replace(event, threshold=single), 3, stream) > BUDGET.delta


def moved_proves(event: Release, stream: TestStream) -> float:
    """δ that is proven by a replaced row, which moves from the second label to the first."""
    assert event.threshold is not None
    low, high = event.threshold - 2, event.threshold + 2
    seen = [
        sum(labels == {"rare"} for labels in drawn(event, counts, stream))
        for counts in ({"rare": low + 1, "usual": high}, {"rare": low, "usual": high + 1})
    ]
    return proven_delta(*seen, BUDGET.epsilon or 0)


def test_noise_for_added_rows_is_caught_where_rows_are_replaced(stream: TestStream) -> None:
    small = replace(BUDGET, delta=1e-4)
    assert moved_proves(label_event(small, 1, Relation.REPLACE_ONE), stream) < small.delta
    assert moved_proves(label_event(small, 1, Relation.ADD_REMOVE), stream) > small.delta


def shown_with(event: Release, count: int) -> float:
    """P(count + Z > τ), and 0 for a label that no unit has."""
    assert event.threshold is not None
    ratio, above = exp(-1 / float(event.noises[0].scale)), event.threshold - count
    if count == 0:
        return 0.0
    return ratio ** (above + 1) / (1 + ratio) if above >= 0 else 1 - ratio**-above / (1 + ratio)


def exact_delta(event: Release, one: dict[str, int], two: dict[str, int]) -> float:
    """The least δ at ε for two tables, from the probabilities of all sets of shown labels."""
    labels, total = sorted({*one, *two}), 0.0
    for shown in product((False, True), repeat=len(labels)):
        chances = [1.0, 1.0]
        for index, counts in enumerate((one, two)):
            for label, is_shown in zip(labels, shown, strict=True):
                chance = shown_with(event, counts.get(label, 0))
                chances[index] *= chance if is_shown else 1 - chance
        total += max(0.0, chances[0] - exp(event.budget.epsilon or 0) * chances[1])
    return total


@pytest.mark.parametrize("budget", [dps.Budget(0.3, 1e-3), dps.Budget(1.0, 0.01), dps.Budget(4.0, 1e-6)], ids=str)
@pytest.mark.parametrize("relation", list(Relation))
def test_every_pair_of_neighbours_keeps_the_budget(budget: dps.Budget, relation: Relation) -> None:
    """All results for units of up to two labels, each shared with n others or its own, in both directions."""
    event = label_event(budget, 2, relation)
    assert event.threshold is not None
    others = [0, 1, event.threshold - 1, event.threshold, event.threshold + 1, event.threshold + 20]
    worst = 0.0
    for n, m in product(others, others):
        rest = {"a": n, "b": m, "c": n, "d": m}
        units = [(), ("a",), ("a", "b")] if relation is Relation.ADD_REMOVE else [("a", "b"), ("c", "d"), ("b", "c")]
        tables = [{label: rest[label] + (label in unit) for label in rest} for unit in units]
        pairs = [(tables[0], each) for each in tables[1:]]
        worst = max([worst, *(max(exact_delta(event, *pair), exact_delta(event, *pair[::-1])) for pair in pairs)])
    assert 0 < worst <= budget.delta


def test_a_label_of_its_own_attains_the_bound() -> None:
    event = label_event(BUDGET, 1, Relation.ADD_REMOVE)
    assert event.threshold is not None
    attained = exact_delta(event, {"own": 1}, {})
    assert attained == pytest.approx(shown_with(event, 1))
    assert attained <= BUDGET.delta < exact_delta(replace(event, threshold=event.threshold - 1), {"own": 1}, {})
    assert event.noises[0].scale == Fraction(1)
