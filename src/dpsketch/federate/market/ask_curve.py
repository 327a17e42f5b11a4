"""Who is asked for a point: the probability for each rank of a bid, such that ranks one apart look alike."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import exp

from dpsketch.errors import BudgetError

_PLACES = 50  # bits of a probability


def ask_curve(owners: int, epsilon: float, never: float) -> tuple[Fraction, ...]:
    """Probabilities p₁ = 1 − never ≥ p₂ ≥ … that owners of rank 1, 2, … are asked, as small as ε-privacy allows:
    p_{i+1} = max(e^−ε·p_i, 1 − e^ε·(1 − p_i)).

    Guarantee: p_i/p_{i+1} and (1 − p_{i+1})/(1 − p_i) are at most e^ε, both ways.
    """
    if not 0 < never < 0.5:
        raise BudgetError("the best bid must be asked for with a probability from 1/2 to below 1")
    shrink = Fraction(exp(-epsilon * (1 - 1e-9))).limit_denominator(1 << 40)
    shrink = max(shrink, Fraction(exp(-epsilon)) * (1 + Fraction(1, 1 << 48)))
    curve = [1 - _rounded(Fraction(never))]
    for _ in range(owners - 1):
        last = curve[-1]
        curve.append(max(_raised(shrink * last), 1 - (1 - last) / shrink))
        if curve[-1].denominator.bit_length() > 4 * _PLACES:
            curve[-1] = _raised(curve[-1])
    return tuple(min(each, last) for each, last in zip(curve, [curve[0], *curve], strict=False))


def published_curve(owners: int, epsilon: float) -> tuple[Fraction, ...]:
    """The paper's e^(−ε(i−1)), for studies: rank 1 is always asked, so "not asked" tells that the rank is not 1.

    No ε holds for a step from rank 1 to rank 2, only δ = 1 − e^−ε. Source: summary, algorithm 3, line 13.
    """
    return tuple(_rounded(Fraction(exp(-epsilon * rank))) for rank in range(owners))


def worst_ratio(curve: tuple[Fraction, ...]) -> float:
    """The largest ratio of the probabilities of "asked" or of "not asked" at ranks one apart; infinite where one of
    them is impossible at one rank only.
    """
    worst = 1.0
    for one, two in pairwise(curve):
        for a, b in ((one, two), (1 - one, 1 - two)):
            if a == b:
                continue
            if min(a, b) == 0:
                return float("inf")
            worst = max(worst, float(max(a, b) / min(a, b)))
    return worst


def _rounded(probability: Fraction) -> Fraction:
    return Fraction(round(probability * (1 << _PLACES)), 1 << _PLACES)


def _raised(probability: Fraction) -> Fraction:
    return Fraction(-int(-probability * (1 << _PLACES) // 1), 1 << _PLACES)
