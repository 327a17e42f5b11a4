"""Positive weights on points whose features match noisy moments: a proper distribution from any sketch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import UNRECORDED

STAGES, STEPS = 6, 40
LEAST_EFFECTIVE: Annotated[float, UNRECORDED] = 0.01  # share of the points


@dataclass(frozen=True)
class WeightedPoints:
    """A distribution on points: `weights` are at least zero and sum to one. Post-processing of a release."""

    frame: Frame
    weights: Floats

    @property
    def effective(self) -> float:
        """Effective number of points. If it is small, the points limit accuracy, not the noise."""
        return float(1.0 / np.square(self.weights).sum())

    def mean(self, values: Floats) -> float:
        """Weighted mean of values at the points, without NaN."""
        present = ~np.isnan(values)
        return float(self.weights[present] @ values[present] / self.weights[present].sum())

    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        """Indices of `count` points drawn by their weights; the seed is public."""
        return np.random.default_rng(seed).choice(len(self.weights), count, p=self.weights)


@one_thread()
def positive_weights(features: Floats, moments: Floats, variance: float) -> Floats:
    """Weights p ∝ exp(Φ·λ) on the rows of `features`, by the convex dual
    min_λ log mean_i exp(Φ_i·λ) − λ·moments + ½·variance·‖λ‖².

    They balance the divergence from equal weights against the misfit in units of the noise. A finite number of points
    limits how well moments can be matched, as a variance would. The fit starts from a large variance and lowers it to
    that of the noise, unless the effective share of points falls below LEAST_EFFECTIVE. Deterministic.
    Source: m2m §3.3, with positive weights instead of implicit ones.
    """
    distance = features - moments
    spread = max(float(features.var(axis=0).mean()), 1e-12)
    least = variance + spread / len(features)
    tilt, weights = np.zeros(features.shape[1]), np.full(len(features), 1.0 / len(features))
    for ridge in np.geomspace(max(spread, least), least, STAGES):
        tilt, tilted = _tilted(distance, tilt, float(ridge))
        if 1.0 / np.square(tilted).sum() < LEAST_EFFECTIVE * len(tilted):
            break
        weights = tilted
    return weights


def _tilted(distance: Floats, start: Floats, ridge: float) -> tuple[Floats, Floats]:
    """The tilt λ for a given variance, and its weights."""
    from scipy.optimize import minimize
    from scipy.special import logsumexp

    def dual(tilt: Floats) -> tuple[float, Floats]:
        exponents = distance @ tilt
        total = logsumexp(exponents)
        return float(total + 0.5 * ridge * tilt @ tilt), np.exp(exponents - total) @ distance + ridge * tilt

    minimum = minimize(dual, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    exponents = distance @ minimum.x
    weights = np.exp(exponents - exponents.max())
    return minimum.x, np.asarray(weights / weights.sum(), np.float64)
