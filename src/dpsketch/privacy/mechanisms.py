"""Variances of the noise of a sum, in the integer units of the sums. No randomness: whoever reads a release may ask.

Rounding adds 1/12 to continuous noise: the usual approximation, within 2 % where the standard deviation is above 1, too
large where almost all noise rounds to 0.
"""

from __future__ import annotations

from math import isqrt, sinh

import numpy as np
from numpy.typing import NDArray

from dpsketch.privacy.events import Mechanism

ROUNDING = 1 / 12


def sum_variances(mechanism: Mechanism, size: int, scale: float) -> float | NDArray[np.float64]:
    """Of each of `size` sums under this mechanism: one number, or for the ball one a sum."""
    if mechanism is Mechanism.LAPLACE:
        return laplace_variance(scale)
    if mechanism is Mechanism.GAUSSIAN:
        return gaussian_variance(scale)
    if mechanism is Mechanism.DISC:
        return disc_variance(size // 2, scale)
    if mechanism is Mechanism.CUBE:
        return cube_variance(size, scale)
    return ball_variances(triangle_dimension(size), scale)


def triangle_dimension(size: int) -> int:
    """d, from the d(d+1)/2 entries of an upper triangle."""
    return (isqrt(8 * size + 1) - 1) // 2


def laplace_variance(scale: float) -> float:
    """2a/(1−a)² with a = exp(−1/scale), exactly; 0 where that is below any double."""
    half = 0.5 / scale
    return 0.5 / sinh(half) ** 2 if half < 300 else 0.0


def gaussian_variance(deviation: float) -> float:
    return deviation**2 + ROUNDING


def disc_variance(pairs: int, scale: float) -> float:
    """E r² = (2m+1)(2m+2)·scale² and a coordinate of the unit disc has variance 1/4."""
    return (2 * pairs + 1) * (2 * pairs + 2) / 4 * scale**2 + ROUNDING


def cube_variance(size: int, scale: float) -> float:
    """E r² = (n+1)(n+2)·scale² and a number in [−1, 1] has variance 1/3."""
    return (size + 1) * (size + 2) / 3 * scale**2 + ROUNDING


def ball_variances(dimension: int, scale: float) -> NDArray[np.float64]:
    """Of the upper triangle, row by row: E W = scale²·(degrees of the χ²) on the diagonal, half of it off it."""
    degrees = 2 * (dimension * (dimension + 1) // 4 + 1)
    diagonal = np.equal(*np.triu_indices(dimension))
    return np.where(diagonal, 1.0, 0.5) * degrees * scale**2 + ROUNDING
