"""Secret masks that keep each feature of a record with the same probability: what they leave for Laplace noise to hide.

A record x with the mask h moves sums by ‖Φ_h(x)‖₁, so one release with Laplace noise of scale b is ε-DP for
ε = sup_x ln E_h exp(‖Φ_h(x)‖₁/b). With features of L1 norm at most c each and Λ together, and each kept with
probability α, that is at most (Λ/c)·ln(1 + α·(e^(c/b) − 1)). Source: compressive L. 15; docs/proofs/subsampled.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

from dpsketch.numerics.precision import precise

_BITS = 400
_DECIMALS = 10**30  # of ε, rounded up
_SCALE_DECIMALS = 10**12  # of a noise scale, rounded up
_ROUNDING = 2.0**-300  # relative, far above the rounding of a few operations with 400 bits
_SLACK = Fraction(1, 2**40)  # by which a scale is larger than the largest that keeps ε


@dataclass(frozen=True)
class Masks:
    """Independent masks of records: each feature is kept with probability `rate`, independently of the others.

    `largest` is the largest L1 norm of a single feature of a record.

    Guarantee: holds for one release of one raw sketch. Masks stay the same in a second one, and ε is convex in the sum
    of 1/b, so that two releases cost more than the sum of their ε: the ledger refuses the second.
    """

    largest: int
    rate: Fraction

    def epsilon(self, l1: int, scale: Fraction) -> Fraction:
        """An upper bound on ε of Laplace noise of this scale on sums of L1 sensitivity `l1` without masks."""
        return min(_epsilon(self, l1, scale), l1 / scale)

    def scale(self, l1: int, epsilon: Fraction) -> Fraction:
        """A Laplace scale that keeps ε, nearly the smallest."""
        found = min(_scale(self, l1, epsilon), l1 / epsilon)
        if self.epsilon(l1, found) > epsilon:
            raise AssertionError("a bug: noise for masks does not keep its epsilon")
        return found

    def covers(self, other: Masks | None) -> bool:
        """Whether a bound for these masks holds for the others: it grows with both numbers."""
        return other is not None and self.largest >= other.largest and self.rate >= other.rate


@lru_cache(maxsize=256)
def _epsilon(masks: Masks, l1: int, scale: Fraction) -> Fraction:
    with precise(_BITS) as exact:
        growth = _number(exact, masks.rate) * exact.expm1(_number(exact, masks.largest / scale))
        found = exact.log1p(growth) * l1 / masks.largest
        steps = int(exact.ceil(found * _DECIMALS * (1 + exact.mpf(_ROUNDING))))
    return Fraction(steps, _DECIMALS)


@lru_cache(maxsize=256)
def _scale(masks: Masks, l1: int, epsilon: Fraction) -> Fraction:
    with precise(_BITS) as exact:
        growth = exact.expm1(_number(exact, epsilon * masks.largest / l1)) / _number(exact, masks.rate)
        inverse = exact.log1p(growth) / masks.largest
        steps = int(exact.ceil(_SCALE_DECIMALS / inverse * (1 + exact.mpf(_ROUNDING))))
    return Fraction(ceil(steps * (1 + _SLACK)), _SCALE_DECIMALS)


def _number(exact: Any, fraction: Fraction | int) -> Any:
    fraction = Fraction(fraction)
    return exact.mpf(fraction.numerator) / fraction.denominator
