from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

import dpsketch as dps
from dpsketch.errors import BudgetError
from dpsketch.privacy.events import Mechanism, Noise, Release
from dpsketch.privacy.label_threshold import label_event, least_threshold
from dpsketch.schema.relation import Relation


def exceeded(most: int, threshold: int, scale: Fraction) -> mpmath.mpf:
    """c·P(c + Z > τ), as a sum over the law of Z."""
    ratio = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
    least = threshold - most + 1
    tail = mpmath.nsum(lambda z: ratio ** (abs(least) + z), [0, mpmath.inf]) * (1 - ratio) / (1 + ratio)
    return most * (tail if least > 0 else 1 - tail * ratio)


@pytest.mark.parametrize("most", [1, 3, 40])
@pytest.mark.parametrize("scale", [Fraction(1, 50), Fraction(1), Fraction(10), Fraction(1000, 3)], ids=str)
@pytest.mark.parametrize("delta", ["0.01", "0.00001", "1e-30"])
def test_it_is_the_least_that_keeps_delta(most: int, scale: Fraction, delta: str) -> None:
    threshold = least_threshold(most, scale, Fraction(delta))
    with mpmath.workdps(60):
        assert exceeded(most, threshold, scale) <= mpmath.mpf(delta) < exceeded(most, threshold - 1, scale)


def test_a_threshold_close_to_an_integer_is_decided_by_more_precision() -> None:
    """δ within 10^-90 of a value at which the threshold changes: the first 256 bits leave it open."""
    with mpmath.workdps(200):
        edge = mpmath.exp(-20) / (1 + mpmath.exp(-1))
        unit = 10**110
        below, above = Fraction(int(edge * unit) - 10, unit), Fraction(int(edge * unit) + 10, unit)
    assert (least_threshold(1, Fraction(1), above), least_threshold(1, Fraction(1), below)) == (20, 21)


@pytest.mark.parametrize(("relation", "times"), [(Relation.ADD_REMOVE, 1), (Relation.REPLACE_ONE, 2)])
def test_noise_follows_from_unit_and_relation(relation: Relation, times: int) -> None:
    event = label_event(dps.Budget(0.1, 1e-6), 3, relation)
    assert event.noises == (Noise(Mechanism.LAPLACE, 3 * times, Fraction(30 * times)),)
    assert event.threshold == least_threshold(3, Fraction(30 * times), Fraction(1, 10**6))
    assert Release.from_dict(event.to_dict()) == event


@pytest.mark.parametrize("threshold", [0, -1, True, 2.5, "27"])
def test_a_wrong_threshold_is_not_read(threshold: object) -> None:
    facts = label_event(dps.Budget(1.0, 1e-6), 1, Relation.ADD_REMOVE).to_dict()
    with pytest.raises(ValueError, match="threshold"):
        Release.from_dict(facts | {"threshold": threshold})


def test_a_delta_that_the_formula_does_not_cover_is_refused() -> None:
    with pytest.raises(ValueError, match="delta"):
        least_threshold(1, Fraction(1), Fraction(1, 2))


@pytest.mark.parametrize("budget", [dps.Budget(rho=0.1), dps.Budget(float("inf"))], ids=str)
def test_other_budgets_are_refused(budget: dps.Budget) -> None:
    with pytest.raises(BudgetError, match=r"not with rho or without privacy\nHint: pass --epsilon 0.1 --delta 1e-6"):
        label_event(budget, 1, Relation.ADD_REMOVE)


def test_pure_epsilon_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"cannot be found with pure epsilon.*\nHint: pass --delta 1e-6"):
        label_event(dps.Budget(1.0), 1, Relation.ADD_REMOVE)
