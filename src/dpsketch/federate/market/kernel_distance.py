"""Maximum mean discrepancy of two sets of points, exactly or by features, and the objective of a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsketch.numerics.arrays import Floats

_BLOCK = 1 << 10


class Kernel(Protocol):
    """Something that averages a kernel over pairs of points: `GaussianKernel` exactly, `FeatureHash` by features."""

    def mean(self, a: Floats, b: Floats) -> float: ...


@dataclass(frozen=True)
class GaussianKernel:
    """k(x, y) = exp(−‖x − y‖²/(2·width²)), exactly."""

    width: float

    @property
    def gamma(self) -> float:
        """The same kernel's parameter where it is written exp(−γ‖x − y‖²)."""
        return 0.5 / self.width**2

    def matrix(self, a: Floats, b: Floats) -> Floats:
        squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
        return np.asarray(np.exp(-self.gamma * np.maximum(squares, 0)))

    def mean(self, a: Floats, b: Floats) -> float:
        """Mean over all pairs, in blocks."""
        total = sum(float(self.matrix(a[start : start + _BLOCK], b).sum()) for start in range(0, len(a), _BLOCK))
        return total / (len(a) * len(b))


def mmd2(a: Floats, b: Floats, kernel: Kernel) -> float:
    """Sample form of the squared discrepancy: mean k(a, a') − 2·mean k(a, b) + mean k(b, b'), over all pairs.

    Source: summary, section 2 (Gretton et al. 2008).
    """
    return kernel.mean(a, a) - 2 * kernel.mean(a, b) + kernel.mean(b, b)


def objective(target: Floats, chosen: Floats, kernel: Kernel) -> float:
    """J(S) = Σ k(v, v')/m² − MMD²(D_v, S), which the greedy choice maximises. Source: summary, equation 3."""
    return 2 * kernel.mean(target, chosen) - kernel.mean(chosen, chosen)


def gain_kept(uniform: float, ours: float, greedy: float) -> float:
    """The share of greedy's gain over uniform sampling that is kept, from three squared discrepancies."""
    return (uniform - ours) / (uniform - greedy)


def percent_above(ours: float, greedy: float) -> float:
    """The paper's own measure: by how many percent MMD² is above that of greedy."""
    return 100 * (ours - greedy) / greedy


def median_width(points: Floats, seed: int = 0, most: int = 1000) -> float:
    """Median distance of pairs of a *public* reference, a common width; never of a private table."""
    rng = np.random.default_rng(seed)
    some = points[rng.permutation(len(points))[:most]]
    half = len(some) // 2
    a, b = some[:half], some[half : 2 * half]
    return float(np.median(np.sqrt(((a - b) ** 2).sum(1))))
