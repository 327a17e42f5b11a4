"""What the paper's theorems say of a market with these numbers, as lines for a report."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, pi, sqrt

import numpy as np

from dpsketch.federate.market.kernel_distance import GaussianKernel
from dpsketch.numerics.arrays import Floats


@dataclass(frozen=True)
class Submodularity:
    """Theorem 1's condition on the kernel matrix of N points: no entry off the diagonal above `allowed`."""

    points: int
    allowed: float
    share: float  # of pairs of distinct points above it

    @property
    def holds(self) -> bool:
        return self.share == 0

    def __str__(self) -> str:
        if self.holds:
            return f"J is submodular: greedy keeps at least 1 − 1/e of the best J ({self.points} points)"
        return (
            f"the guarantee of 1 − 1/e is void: the kernel exceeds {self.allowed:.2g} at {self.share:.0%} of the pairs"
        )


def submodularity(points: Floats, kernel: GaussianKernel, total: int | None = None, seed: int = 0) -> Submodularity:
    """Whether the kernel of these points, a part of `total`, meets the condition of Theorem 1.

    J(S) = ⟨A(S), K⟩ with ⟨A(S), 1⟩ = 1 and ⟨A(S), I⟩ = −1/s for s points outside the validation set. Theorem 8 (Kim et
    al. 2016) then asks k_ij ≤ k*·β(s) with β(s) = (2/(s(s+1)(s+2))) / (2 + 1/s + 1/(s+2)) = 1/((s+1)(s² + 3s + 1)), for
    every s up to N. Source: summary, theorem 1 and appendix E, whose formulas are worked out here.
    """
    total = total or len(points)
    allowed = 1 / ((total + 1) * (total**2 + 3 * total + 1))
    some = points[np.random.default_rng(seed).permutation(len(points))[:500]]
    matrix = kernel.matrix(some, some)
    above = matrix[~np.eye(len(some), dtype=bool)] > allowed
    return Submodularity(total, allowed, float(above.mean()) if above.size else 0.0)


def loss_bound(size: int, error: float) -> float:
    """Lemma 3: the additive loss of a greedy choice of `size` points whose score terms have expected error at most
    `error`, 7·ξ·ln p. It is trivial above 1, the largest value of J.
    """
    return 7 * error * log(max(size, 2))


def broadcast_error(deviation: float) -> float:
    """Expected error of ⟨g, φ(x)⟩ for a mean g whose coordinates have normal noise of this deviation: as φ has norm 1,
    the error is normal with the same deviation, whatever the number of coordinates.
    """
    return deviation * sqrt(2 / pi)


def hashing_error(features: int, rows: int, confidence: float = 0.95) -> float:
    """Largest error of the features' kernel over all pairs of `rows` points (Rahimi and Recht 2008, by Hoeffding)."""
    return sqrt(8 * log(rows * (rows - 1) / (1 - confidence)) / features)


def hidden_sum_bound(rows: int, features: int, epsilon: float, steps: int, grid: float) -> float:
    """Theorem 3: the expected largest error of a coordinate of h₂/q in the paper's form, for q = `rows` vectors of
    `features` coordinates, privacy ε a step and T = `steps`, with quantisation of step η = `grid`.

    The terms of theorem 4 are kept apart, as T need not be d²: 2·√(d·ln|S|/T) for the multiplicative weights, 11·ln d
    over qε for selection and measurement, the failure 2d·exp(−q/4) and η for the quantisation, each scaled by √(2/d).
    """
    levels = 2 / grid + 1
    weights = 2 * sqrt(features * log(levels) / steps)
    measured = 11 * log(features) / (rows * epsilon)
    return (weights + measured) * sqrt(2 / features) + 2 * features * exp(-rows / 4) + grid * sqrt(2 / features)
