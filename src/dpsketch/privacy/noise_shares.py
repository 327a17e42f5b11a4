"""Noise in shares: the public numbers of a consortium, and how close a sum of discrete Gaussians is to one Gaussian.

In a secure sum every holder adds a share of the noise. The privacy cost follows from the shares of `honest` holders
alone, since the others may drop out or subtract theirs; the variance that readers see follows from all shares in the
sum. There is no randomness here. Source: docs/proofs/shares.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsketch.errors import BudgetError
from dpsketch.numerics.precision import precise

MOST_HOLDERS = 1000
LEAST_SURVIVORS = 3
LEAST_DEVIATION = 4  # of a discrete Gaussian share
ROUNDING_VARIANCE = 2  # of the randomised rounding from which the discrete Gaussian differs by a factor near 1
_PRECISION = 300
_STEPS = 1 << 400
_MARGIN = 2.0**-200  # relative, far above the rounding of a few operations with 300 bits


@dataclass(frozen=True)
class Consortium:
    """K holders of a secure sum, of whom `least` must stay until its end and up to `colluders` may pool what they see.

    `threshold` holders together can recover the masks of one that dropped out. 2·threshold > holders + colluders keeps
    a coordinator that shows different lists of survivors to different holders from unmasking both.
    """

    holders: int
    least: int
    colluders: int = 1
    threshold: int = 0  # 0 stands for `least`

    def __post_init__(self) -> None:
        if self.threshold == 0:
            object.__setattr__(self, "threshold", self.least)
        for name in ("holders", "least", "colluders", "threshold"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_HOLDERS:
                raise BudgetError(f"{name} must be a whole number up to {MOST_HOLDERS}, got {value!r} instead")
        if self.holders < LEAST_SURVIVORS:
            raise BudgetError(
                f"a secure sum has at least {LEAST_SURVIVORS} holders, got {self.holders} instead",
                "let each release on its own, and merge the releases",
            )
        if not LEAST_SURVIVORS <= self.least <= self.holders:
            raise BudgetError(
                f"the least number of survivors must be from {LEAST_SURVIVORS} to the {self.holders} holders, got "
                f"{self.least} instead",
                "a sum of fewer shows a holder the sums of the others",
            )
        if not self.colluders < self.threshold <= self.least or 2 * self.threshold <= self.holders + self.colluders:
            fewest = (self.holders + self.colluders) // 2 + 1
            raise BudgetError(
                f"a threshold of {self.threshold} does not protect {self.holders} holders of whom {self.colluders} may "
                f"collude and {self.least} may be left",
                f"it must be at least {fewest} and at most the least number of survivors",
            )

    @classmethod
    def of(cls, holders: int, colluders: int = 1, least: int | None = None) -> Consortium:
        """The consortium with the smallest threshold that protects it, and as many survivors unless given."""
        threshold = max((holders + colluders) // 2 + 1, LEAST_SURVIVORS)
        return cls(holders, threshold if least is None else least, colluders, threshold)

    @property
    def honest(self) -> int:
        """H: the number of shares in any sum whose noise no colluder knows, at least."""
        return self.least - self.colluders

    def to_dict(self) -> dict[str, int]:
        return {
            "holders": self.holders,
            "least": self.least,
            "colluders": self.colluders,
            "threshold": self.threshold,
        }


@dataclass(frozen=True)
class Shares:
    """The shares in the noise of a part of `size` sums: the cost follows from `honest` of the `added` ones."""

    honest: int
    added: int
    size: int

    @property
    def times(self) -> Fraction:
        """The variance of all shares over that of the honest ones."""
        return Fraction(self.added, self.honest)

    def to_dict(self) -> dict[str, int]:
        return {"honest": self.honest, "added": self.added, "size": self.size}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Shares:
        honest, added, size = (facts[name] for name in ("honest", "added", "size"))
        if not all(type(number) is int for number in (honest, added, size)):
            raise ValueError("shares")
        if not 1 <= honest <= added <= MOST_HOLDERS or not 0 <= size < 2**53:
            raise ValueError("shares")
        return cls(honest, added, size)


@lru_cache(maxsize=256)
def closeness(deviation_squared: Fraction, honest: int) -> Fraction:
    """τ: sums of `honest` discrete Gaussians, of this variance parameter together, against one continuous Gaussian.

    Guarantee: the probability of every integer is within a factor e^(±τ) of that under randomised rounding of a
    continuous Gaussian of variance `deviation_squared` − ROUNDING_VARIANCE. Rounded up.
    Source: Kairouz, Liu and Steinke 2021; docs/proofs/shares.md.
    """
    with precise(_PRECISION) as exact:
        total = _log_inverse(exact, _ripple(exact, Fraction(ROUNDING_VARIANCE)))
        total += _log_inverse(exact, _ripple(exact, deviation_squared))
        total += _summation(exact, deviation_squared, honest)
        return Fraction(int(exact.ceil(total * (1 + exact.mpf(_MARGIN)) * _STEPS)), _STEPS)


@lru_cache(maxsize=256)
def summation_closeness(deviation_squared: Fraction, honest: int) -> Fraction:
    """The same against one discrete Gaussian of that variance parameter."""
    with precise(_PRECISION) as exact:
        total = _summation(exact, deviation_squared, honest)
        return Fraction(int(exact.ceil(total * (1 + exact.mpf(_MARGIN)) * _STEPS)), _STEPS)


def _summation(exact: Any, deviation_squared: Fraction, honest: int) -> Any:
    """Σ ln((1+η)/(1−η)) over the convolutions of n shares with one more, of which c² = n/(n+1) of a share's."""
    share, total = deviation_squared / honest, exact.mpf(0)
    for summed in range(1, honest):
        ripple = _ripple(exact, share * summed / (summed + 1))
        total += exact.log1p(ripple) + _log_inverse(exact, ripple)
    return total


def _ripple(exact: Any, variance: Fraction) -> Any:
    """η = 2·Σ_{k ≥ 1} e^(−2π²·variance·k²), at most 2x/(1 − x³) with x its first exponential: k² − 1 ≥ 3(k − 1)."""
    first = exact.exp(-2 * exact.pi**2 * variance.numerator / variance.denominator)
    return 2 * first / (1 - first**3)


def _log_inverse(exact: Any, ripple: Any) -> Any:
    """−ln(1 − η)."""
    return -exact.log1p(-ripple)
