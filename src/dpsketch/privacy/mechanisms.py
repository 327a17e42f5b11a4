"""Noise mechanisms, one row per mechanism: properties used by calibration, variances, audits and privacy statements.

There is no randomness here, so that readers of a release may use it. `noise.samplers`, behind the wall, draws the
noise; a test keeps the two tables consistent. Variances and reaches are in the integer units of the sums.

Rounding adds 1/12 to the variance of continuous noise. This usual approximation is accurate to 2 % where the standard
deviation is above 1, and too large where almost all noise rounds to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isqrt, sinh

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats

ROUNDING = 1 / 12


class Mechanism(StrEnum):
    """Kinds of noise: independent Laplace or Gaussian numbers, one vector from a randomly scaled body, or sums of
    shares that the holders of a consortium draw.
    """

    LAPLACE = "discrete Laplace"
    GAUSSIAN = "rounded Gaussian"
    DISC = "rounded disc"
    CUBE = "rounded cube"
    BALL = "rounded ball"
    POLYA = "discrete Laplace in shares"
    DISCRETE_GAUSSIAN = "discrete Gaussian in shares"


class Norm(StrEnum):
    """Norms in which a mechanism's sensitivity is measured."""

    L1 = "L1"
    L2_SQUARED = "squared L2"
    BODY = "the body's norm"


@dataclass(frozen=True)
class Facts:
    """A row of the table."""

    norm: Norm
    pure: bool  # whether it gives pure ε, with density ∝ exp(−length/scale); else Gaussian, with a standard deviation
    # variance of each of `size` sums, from size and scale: one number, or one per sum
    variances: Callable[[int, float], float | Floats]
    reach: Callable[[int], int]  # scales that the noise of one of `size` sums exceeds with a probability below 10^-40
    # the norm in the density's exponent, of every row of a given number of groups
    length: Callable[[Floats, int], Floats]
    shape: str | None = (
        None  # the body (`maps.base.Shape`) that it needs; None if it suits all sums and draws each independently
    )
    least: int = 1  # smallest number of sums of a draw
    shared: bool = False  # whether holders draw it in shares; variances are those of the shares that the cost counts

    @property
    def scale_name(self) -> str:
        return "noise scale" if self.pure else "standard deviation"

    def log_density(self, vectors: Floats, groups: int, scale: float) -> Floats:
        """Log density of noise, one vector per row, up to a constant and to rounding.

        A vector has equal groups of sums, each with a separate draw.
        """
        length = self.length(vectors, groups) / scale
        return -length if self.pure else -(length**2) / 2


def sum_variances(mechanism: Mechanism, size: int, scale: float) -> float | Floats:
    """Variance of each of `size` sums under this mechanism: one number, or for the ball one per sum."""
    return MECHANISMS[mechanism].variances(size, scale)


def triangle_dimension(size: int) -> int:
    """The dimension d of a matrix whose upper triangle has d(d+1)/2 entries."""
    return (isqrt(8 * size + 1) - 1) // 2


def laplace_variance(scale: float) -> float:
    """2a/(1−a)² with a = exp(−1/scale), exactly; 0 where that underflows a double."""
    half = 0.5 / scale
    return 0.5 / sinh(half) ** 2 if half < 300 else 0.0


def gaussian_variance(deviation: float) -> float:
    return deviation**2 + ROUNDING


def disc_variance(pairs: int, scale: float) -> float:
    """Variance under disc noise: E r² = (2m+1)(2m+2)·scale², and a coordinate of the unit disc has variance 1/4."""
    return (2 * pairs + 1) * (2 * pairs + 2) / 4 * scale**2 + ROUNDING


def cube_variance(size: int, scale: float) -> float:
    """Variance under cube noise: E r² = (n+1)(n+2)·scale², and a uniform number in [−1, 1] has variance 1/3."""
    return (size + 1) * (size + 2) / 3 * scale**2 + ROUNDING


def ball_variances(dimension: int, scale: float) -> NDArray[np.float64]:
    """Variances of the upper triangle, row by row: E W = scale²·(degrees of the χ²) on the diagonal, half of it
    elsewhere.
    """
    degrees = 2 * (dimension * (dimension + 1) // 4 + 1)
    diagonal = np.equal(*np.triu_indices(dimension))
    return np.where(diagonal, 1.0, 0.5) * degrees * scale**2 + ROUNDING


def _body_reach(size: int) -> int:
    """Reach in scales: the body's random scale is a sum of `size` + 1 exponentials (Chernoff)."""
    count = size + 2
    return count + 20 * (isqrt(count) + 1) + 100


def _l1(vectors: Floats, _: int) -> Floats:
    return np.asarray(np.abs(vectors).sum(axis=1))


def _l2(vectors: Floats, _: int) -> Floats:
    return np.asarray(np.sqrt((vectors**2).sum(axis=1)))


def _discs(vectors: Floats, groups: int) -> Floats:
    parts = vectors.reshape(len(vectors), groups, -1)
    return np.asarray(np.hypot(parts[:, :, 0::2], parts[:, :, 1::2]).max(axis=2).sum(axis=1))


def _cubes(vectors: Floats, groups: int) -> Floats:
    return np.asarray(np.abs(vectors.reshape(len(vectors), groups, -1)).max(axis=2).sum(axis=1))


def _balls(vectors: Floats, groups: int) -> Floats:
    """Frobenius norms of symmetric matrices, given by their upper triangles."""
    parts = vectors.reshape(len(vectors), groups, -1)
    first, second = np.triu_indices(triangle_dimension(parts.shape[2]))
    return np.asarray(np.sqrt((parts**2 * np.where(first == second, 1, 2)).sum(axis=2)).sum(axis=1))


MECHANISMS: Mapping[Mechanism, Facts] = {
    Mechanism.LAPLACE: Facts(
        norm=Norm.L1, pure=True, variances=lambda _, scale: laplace_variance(scale), reach=lambda _: 100, length=_l1
    ),
    Mechanism.GAUSSIAN: Facts(
        norm=Norm.L2_SQUARED,
        pure=False,
        variances=lambda _, deviation: gaussian_variance(deviation),
        reach=lambda _: 14,
        length=_l2,
    ),
    Mechanism.DISC: Facts(
        norm=Norm.BODY,
        pure=True,
        variances=lambda size, scale: disc_variance(size // 2, scale),
        reach=_body_reach,
        length=_discs,
        shape="disc",
        least=2,
    ),
    Mechanism.CUBE: Facts(
        norm=Norm.BODY, pure=True, variances=cube_variance, reach=_body_reach, length=_cubes, shape="cube"
    ),
    Mechanism.BALL: Facts(
        norm=Norm.BODY,
        pure=True,
        variances=lambda size, scale: ball_variances(triangle_dimension(size), scale),
        reach=_body_reach,
        length=_balls,
        shape="ball",
    ),
    Mechanism.POLYA: Facts(
        norm=Norm.L1,
        pure=True,
        variances=lambda _, scale: laplace_variance(scale),
        reach=lambda _: 100,
        length=_l1,
        shared=True,
    ),
    Mechanism.DISCRETE_GAUSSIAN: Facts(
        norm=Norm.L2_SQUARED,
        pure=False,
        variances=lambda _, deviation: deviation**2,
        reach=lambda _: 14,
        length=_l2,
        shared=True,
    ),
}
LAPLACE_LIKE = (Mechanism.LAPLACE, Mechanism.POLYA)  # more shares than the cost counts make lighter tails
BY_SHAPE: Mapping[str, Mechanism] = {
    facts.shape: mechanism for mechanism, facts in MECHANISMS.items() if facts.shape is not None
}
