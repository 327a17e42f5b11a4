"""Distributions of frequencies whose Fourier features have a known kernel, drawn exactly from the public seed.

Directions are isotropic, so a distribution of radii determines the kernel k(x − y), the mean of cos ωᵀ(x − y) over the
frequencies (Bochner). docs/formats/draw.md specifies every bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from dpsketch.errors import RecipeError
from dpsketch.maps.draw import PublicStream, logarithms
from dpsketch.numerics.arrays import Floats

GAUSSIAN, LAPLACIAN, ADAPTED = "gaussian", "laplacian", "adapted"
KERNELS = (GAUSSIAN, LAPLACIAN, ADAPTED)
LEAST_WIDTH, MOST_WIDTH = 0.002, 100.0
LONGEST = 2.0**30  # a quarter turn per code step: longer frequencies are cut to this length
_UNIT = 10430.69667007098  # 2^32 / (2π · 65534): units of 2^-32 turn per code step in a radian per width of the bounds


@dataclass(frozen=True)
class Law:
    """A kernel and its width, in widths of the declared bounds. With r the Euclidean distance of two records:

    "gaussian": exp(−r²/(2·width²)); frequencies are normal, N(0, 1/width²) in each column.
    "laplacian": exp(−r/width); frequencies have the multivariate Cauchy distribution.
    "adapted": radii R/width, where R has a density proportional to √(R² + R⁴/4)·exp(−R²/2): fewer short frequencies,
    at which all clusters of deviation `width` look alike. Its kernel has no closed form, and negative values.

    Source: Rahimi & Recht (NIPS 2007) for the first two; Keriven et al., Information and Inference 7 (2017) 447,
    for the last; compressive §2.1.
    """

    kernel: str
    width: float

    def lengths(self, count: int, dimension: int, seed: int) -> Floats:
        """Draw lengths of frequencies in units of 2^-32 turn per code step, independent of each other."""
        if self.kernel == ADAPTED:
            radii = np.sqrt(2.0 * _adapted_halves(count, seed))
        else:
            radii = _normal_lengths(count, dimension, seed)
            if self.kernel == LAPLACIAN:
                radii = radii / np.abs(PublicStream("fourier cauchy", seed).normals(count))
        return np.minimum(radii * (_UNIT / self.width), LONGEST)


def check_law(owner: str, kernel: Any, width: Any) -> Law | None:
    """The law of these parameters; None if there are none."""
    if kernel is None:
        if width is not None:
            raise RecipeError(f"{owner}: width {width!r} is that of a kernel", "pass kernel='gaussian' too, or radii")
        return None
    if kernel not in KERNELS:
        raise RecipeError(f"{owner}: kernel must be one of {', '.join(KERNELS)}, got {kernel!r} instead")
    number = float(width) if isinstance(width, Real) and not isinstance(width, bool) else inf
    if not LEAST_WIDTH <= number <= MOST_WIDTH:
        raise RecipeError(
            f"{owner}: width of a kernel must be a number from {LEAST_WIDTH} to {MOST_WIDTH:g}, got {width!r} instead",
            "give it in widths of the declared bounds, such as 0.1",
        )
    return Law(kernel, number)


def _normal_lengths(count: int, dimension: int, seed: int) -> Floats:
    """Lengths of standard normal vectors: √(2·G), G with the gamma distribution of shape dimension/2.

    Candidate i is made of normal and uniform number i; the first `count` accepted ones count. Source: Marsaglia &
    Tsang, ACM TOMS 26 (2000) 363, which needs a shape of at least 1.
    """
    normals = PublicStream("fourier radii normals", seed)
    if dimension == 1:
        return np.abs(normals.normals(count))
    uniforms = PublicStream("fourier radii uniforms", seed)
    shape = dimension / 2 - 1 / 3
    slope = 1.0 / np.sqrt(9.0 * shape)
    accepted, missing = [np.empty(0)], count
    while missing > 0:
        wanted = 2 * -(-(missing + missing // 8 + 8) // 2)  # even: normal numbers come in pairs
        x, u = normals.normals(wanted), uniforms.uniforms(wanted)
        root = 1.0 + slope * x
        x, u, root = (each[root > 0.0] for each in (x, u, root))
        cube = root * root * root
        kept = cube[logarithms(u) < 0.5 * (x * x) + shape - shape * cube + shape * logarithms(cube)]
        accepted.append(kept[:missing])
        missing -= len(accepted[-1])
    return np.sqrt(2.0 * (shape * np.concatenate(accepted)))


def _adapted_halves(count: int, seed: int) -> Floats:
    """Halves of squared radii, t = R²/2, with a density proportional to √(1 + t/2)·exp(−t).

    As √(1 + t/2) <= 1 + t/4, a candidate with density (1 + t/4)·exp(−t)·4/5 is accepted with the ratio of the two: a
    mixture of exponential numbers and sums of two. Candidate i is made of uniform numbers 4i to 4i + 3.
    """
    stream = PublicStream("fourier adapted radii", seed)
    accepted, missing = [np.empty(0)], count
    while missing > 0:
        u = stream.uniforms(4 * (missing + missing // 8 + 8)).reshape(-1, 4)
        t = -logarithms(u[:, 0]) - np.where(u[:, 1] < 0.2, logarithms(u[:, 2]), 0.0)
        kept = t[u[:, 3] * (1.0 + 0.25 * t) < np.sqrt(1.0 + 0.5 * t)]
        accepted.append(kept[:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)
