"""What a release reveals about several people together: (ε, δ) of groups, from the noises."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, floor, log, log10, sqrt

from dpsketch.privacy.analytic_gaussian import gaussian_delta
from dpsketch.privacy.events import Release

SMALL_DELTA = Fraction(1, 10**6)  # at which budgets of ρ are stated as (ε, δ)
_DIGITS = 6  # significant digits of an ε found by bisection, rounded up


def group_loss(release: Release, people: int) -> tuple[Fraction, Fraction]:
    """An (ε, δ) that holds for tables that differ by this many people (units), from the noises of a release.

    δ is the budget's, or `SMALL_DELTA` for budgets of ρ. Pure noises cost `people` times their ε. Gaussian noises act
    as one with `people` times its ratio Δ/σ, whose ε at δ grows faster than that; in shares, all are within a factor of
    such noise that does not grow. Where the budget counts on a sample
    of the rows and δ > 0, both grow by the general rule for groups.

    Guarantee: docs/proofs/accounting.md, "Groups of people".
    """
    budget = release.budget
    if budget.rho is None and not budget.delta:
        return people * budget.exact_epsilon, Fraction(0)
    if release.threshold is not None:  # δ is not in its noise
        return _general(budget.exact_epsilon, budget.exact_delta, people)
    pure = sum((noise.epsilon for noise in release.noises if noise.epsilon is not None), Fraction(0))
    square, near = release.ratio_squared, release.closeness
    if budget.rho is None:
        if release.rate is None and square == 0:  # the noises turned out pure
            return people * pure, Fraction(0)
        if people == 1:
            return budget.exact_epsilon, budget.exact_delta
        if release.rate is not None:
            return _general(budget.exact_epsilon, budget.exact_delta, people)
    delta = SMALL_DELTA if budget.rho is not None else budget.exact_delta
    composed = people * pure + _gaussian_epsilon(people**2 * square, delta * (1 - 2 * near)) + _up_or_0(2 * near)
    if budget.rho is None:
        return composed, delta
    return min(composed, _from_rho(people**2 * budget.exact_rho, delta)), delta


def _general(epsilon: Fraction, delta: Fraction, people: int) -> tuple[Fraction, Fraction]:
    """(k·ε, δ·(1 + e^ε + … + e^((k−1)ε))), rounded up (Vadhan 2017, Lemma 2.2)."""
    terms = sum(exp(min(float(epsilon) * each, 700.0)) for each in range(people))
    return people * epsilon, min(Fraction(1), delta * Fraction(terms * (1 + 2.0**-40)))


def _from_rho(rho: Fraction, delta: Fraction) -> Fraction:
    """ρ + 2·√(ρ·ln(1/δ)), rounded up (Bun and Steinke 2016, Proposition 1.3)."""
    return _up(float(rho) + 2 * sqrt(float(rho) * log(1 / float(delta))))


@lru_cache(maxsize=256)
def _gaussian_epsilon(ratio_squared: Fraction, delta: Fraction) -> Fraction:
    """The least ε at which Gaussian noise with this (Δ/σ)² has this δ, rounded up; checked in high precision."""
    if ratio_squared == 0:
        return Fraction(0)
    low, high = Fraction(0), _from_rho(ratio_squared / 2, delta)
    if gaussian_delta(low, ratio_squared) <= delta:
        return low
    while high - low > high / 10**_DIGITS:
        middle = _up((float(low) + float(high)) / 2, _DIGITS + 3)
        low, high = (low, middle) if gaussian_delta(middle, ratio_squared) <= delta else (middle, high)
    return high


def _up_or_0(number: Fraction) -> Fraction:
    return _up(float(number) * (1 + 2.0**-40)) if number else number


def _up(number: float, digits: int = _DIGITS) -> Fraction:
    """A number rounded up to a few significant digits, far above its rounding error."""
    if number <= 0:
        return Fraction(0)
    places = digits - 1 - floor(log10(number))
    step = Fraction(10) ** places
    return Fraction(ceil(Fraction(number) * step * (1 + Fraction(1, 2**40)))) / step
