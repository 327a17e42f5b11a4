"""Calibration of Gaussian noise to (ε, δ): the analytic formula, rounded up and checked in high precision."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsketch.errors import BudgetError
from dpsketch.numerics.precision import precise

_PRECISION = 200
_MARGIN = 2.0**-100  # relative, far above the rounding error of a few operations with 200 bits


def gaussian_deviation(epsilon: Fraction, delta: Fraction, l2_squared: Fraction | int) -> float:
    """The smallest σ, rounded up, for which N(0, σ²) noise on sums of squared L2 sensitivity `l2_squared` is (ε, δ)-DP.

    Guarantee: δ(σ) = Φ(r/2 − ε/r) − e^ε·Φ(−r/2 − ε/r) <= δ for r = Δ/σ, checked for exactly the σ that is returned.
    Source: Balle and Wang 2018, Theorem 8; docs/proofs/calibrate.md.
    """
    if not 0 < delta < 1:
        raise BudgetError(f"delta must be above 0 and below 1 for Gaussian noise, got {float(delta):g}", "try 1e-6")
    ratio = _largest_ratio(epsilon, delta)
    with precise(_PRECISION) as exact:
        square = Fraction(l2_squared)
        sensitivity = exact.sqrt(exact.mpf(square.numerator) / square.denominator)
        deviation = math.nextafter(float(sensitivity / ratio), math.inf)
        spent = _delta(exact, epsilon, sensitivity / deviation) * (1 + exact.mpf(_MARGIN))
        if spent > exact.mpf(delta.numerator) / delta.denominator:
            raise AssertionError("the calibrated noise does not meet delta")
    return deviation


def rho_deviation(rho: Fraction, l2_squared: Fraction | int) -> float:
    """The smallest σ, rounded up, for which N(0, σ²) noise on sums of squared L2 sensitivity `l2_squared` is ρ-zCDP.

    Guarantee: l2_squared / (2σ²) <= ρ, exactly. Source: Bun and Steinke 2016, Proposition 1.6;
    docs/proofs/calibrate.md.
    """
    square = Fraction(l2_squared) / (2 * rho)
    deviation = math.sqrt(square)
    while Fraction(deviation) ** 2 < square:
        deviation = math.nextafter(deviation, math.inf)
    return deviation


@lru_cache(maxsize=256)
def _largest_ratio(epsilon: Fraction, delta: Fraction) -> Any:
    """The largest Δ/σ, rounded down to 50 bits; δ increases with it."""
    with precise(_PRECISION) as exact:
        target = exact.mpf(delta.numerator) / delta.denominator
        low, high = exact.mpf(0), exact.mpf(1)
        while _delta(exact, epsilon, high) <= target:
            low, high = high, 2 * high
        while low == 0 or high - low > low * exact.ldexp(1, -55):
            middle = (low + high) / 2
            low, high = (middle, high) if _delta(exact, epsilon, middle) <= target else (low, middle)
        return low


def gaussian_delta(epsilon: Fraction, ratio_squared: Fraction) -> Fraction:
    """δ of Gaussian noise at this ε, rounded up; `ratio_squared` is (Δ/σ)²."""
    with precise(_PRECISION) as exact:
        ratio = exact.sqrt(exact.mpf(ratio_squared.numerator) / ratio_squared.denominator)
        spent = _delta(exact, epsilon, ratio) * (1 + exact.mpf(_MARGIN))
        return Fraction(int(exact.ceil(exact.ldexp(spent, 400))), 1 << 400)


def _delta(exact: Any, epsilon: Fraction, ratio: Any) -> Any:
    bound = exact.mpf(epsilon.numerator) / epsilon.denominator
    return exact.ncdf(ratio / 2 - bound / ratio) - exact.exp(bound) * exact.ncdf(-ratio / 2 - bound / ratio)
