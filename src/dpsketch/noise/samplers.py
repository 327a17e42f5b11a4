"""Samplers of the noise mechanisms, one row per mechanism, and of the shares that holders add. Only `sketch.release`
and audits may call them.

`privacy.mechanisms` holds what is known about the noise without drawing it; a test keeps the two tables consistent.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsketch.noise.bodies import ball_noise, cube_noise, disc_noise
from dpsketch.noise.discrete_gaussian import discrete_gaussian
from dpsketch.noise.gaussian import rounded_gaussian
from dpsketch.noise.keystream import Stream
from dpsketch.noise.laplace import discrete_laplace
from dpsketch.noise.polya import polya_difference
from dpsketch.privacy.mechanisms import Mechanism, triangle_dimension

Sampler = Callable[[int, Fraction, Stream], NDArray[np.int64]]  # from the number of sums and the scale
ShareSampler = Callable[[int, Fraction, int, Stream], NDArray[np.int64]]  # the same, and the number of shares

SHARES: dict[Mechanism, ShareSampler] = {
    Mechanism.POLYA: polya_difference,
    Mechanism.DISCRETE_GAUSSIAN: lambda size, deviation, shares, stream: discrete_gaussian(
        size, deviation**2 / shares, stream
    ),
}

SAMPLERS: dict[Mechanism, Sampler] = {
    Mechanism.LAPLACE: discrete_laplace,
    Mechanism.GAUSSIAN: lambda size, deviation, stream: rounded_gaussian(size, float(deviation), stream),
    Mechanism.DISC: lambda size, scale, stream: disc_noise(size // 2, scale, stream),
    Mechanism.CUBE: cube_noise,
    Mechanism.BALL: lambda size, scale, stream: ball_noise(triangle_dimension(size), scale, stream),
    Mechanism.POLYA: lambda size, scale, stream: polya_difference(size, scale, 1, stream),
    Mechanism.DISCRETE_GAUSSIAN: lambda size, deviation, stream: discrete_gaussian(size, deviation**2, stream),
}
