"""Exact discrete Gaussian noise: shares of Gaussian noise. Only `sketch.release` and audits may draw it.

Sums of discrete Gaussians are close to a discrete Gaussian, by a proven factor; sums of rounded ones have no such
theorem.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, partial
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import BudgetError
from dpsketch.noise.gaussian import MOST_DEVIATION
from dpsketch.noise.keystream import Stream
from dpsketch.noise.laplace import discrete_laplace
from dpsketch.noise.lazy_choices import accepted
from dpsketch.numerics.precision import precise

STEPS, FARTHEST = 256, 40  # cells of a unit, and units, of the table of e^(−x)
_CHUNK = 1 << 15
_TRIES = 1.4  # proposals a number, a little more than are needed
_SPARE = 64


def discrete_gaussian(size: int, variance: Fraction, stream: Stream) -> NDArray[np.int64]:
    """Draw `size` independent integers z with P(z) ∝ exp(−z²/(2·variance)), exactly, for any uniform word stream.

    Source: Canonne, Kamath and Steinke 2020, Algorithm 3; docs/proofs/shares.md.

    Discrete Laplace numbers of scale t are accepted with the probability exp(−(|z| − variance/t)²/(2·variance)). A word
    whose bits do not yet decide gets more bits.
    """
    if not 0 < variance <= Fraction(MOST_DEVIATION) ** 2:
        raise BudgetError(
            f"the noise's standard deviation must be above 0 and at most {MOST_DEVIATION:g}",
            "raise epsilon or delta, or use fewer features",
        )
    from dpsketch.noise.discrete_gaussian_kernel import fill_accepted

    scale = isqrt(variance.numerator // variance.denominator) + 1
    centre, factor = float(variance / scale), float(1 / (2 * variance))
    noise = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        proposals = min(int(_TRIES * (size - filled)) + _SPARE, _CHUNK)
        drawn = discrete_laplace(proposals, Fraction(scale), stream)
        words = stream.words(2 * proposals).view(np.uint64)
        proposal = 0
        while True:
            proposal, filled = fill_accepted(drawn, words, proposal, centre, factor, exponentials(), noise, filled)
            if filled == size or proposal == proposals:
                break
            value = int(drawn[proposal])
            if accepted(int(words[proposal]), partial(_share, value=value, variance=variance, scale=scale), stream):
                noise[filled] = value
                filled += 1
            proposal += 1
        drawn.fill(0)  # whoever knows them can subtract the noise
        words.fill(0)
    return noise


def _share(exact: Any, value: int, variance: Fraction, scale: int) -> Any:
    """The probability with which a proposal is accepted."""
    exponent = (abs(value) - variance / scale) ** 2 / (2 * variance)
    return exact.exp(-exact.mpf(exponent.numerator) / exponent.denominator)


@lru_cache(maxsize=1)
def exponentials() -> NDArray[np.float64]:
    """e^(−n/STEPS), correctly rounded."""
    with precise(128) as exact:
        return np.array([float(exact.exp(-exact.mpf(n) / STEPS)) for n in range(STEPS * FARTHEST + 1)])
