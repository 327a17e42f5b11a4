"""h₂: a noisy sum of feature vectors by multiplicative weights, with a warm start from one round to the next.

The paper's algorithm 2, calibrated: coordinates are chosen by e^(ε·ψ/2Δ) and measured with Laplace noise Δ/ε, where
Δ = 2 is the change of a coordinate's sum when one vector with entries in [−1, 1] is replaced.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import RecipeError
from dpsketch.federate.market.feature_hash import Features
from dpsketch.numerics.arrays import Floats
from dpsketch.sketch.auction_draws import AuctionDraws


class HiddenSum:
    """P, a product of distributions on the grid {−1, −1+η, …, 1} for each of d coordinates, which follows the sum of a
    growing set of vectors. `steps_per_unit` is 1/η.

    Quantisation is random with the right mean, by bits that follow from the vector itself: a vector counts the same
    whenever it is added, so that neighbouring sums differ by one vector's entries. P is not secret.
    Source: summary, algorithm 2, lemma 1 and theorem 3.
    """

    def __init__(self, features: int, steps_per_unit: int = 20) -> None:
        if steps_per_unit < 1:
            raise RecipeError("the grid needs at least one step a unit")
        self._unit = steps_per_unit
        self._grid = np.linspace(-1, 1, 2 * steps_per_unit + 1)
        self._logs = np.zeros((features, len(self._grid)))
        self._means = np.zeros(features)
        self._sums = np.zeros(features, np.int64)  # exact, in steps of the grid: secret
        self.count, self.features = 0, features

    @property
    def sensitivity(self) -> int:
        """Largest change of a sum, in steps of the grid, when a vector is replaced."""
        return 2 * self._unit

    def add(self, features: Features) -> None:
        """Add vectors of norm 1 with entries of at most √(2/d) in absolute value."""
        for vector in features:
            self._sums += self._quantised(vector)
        self.count += len(features)

    def _quantised(self, vector: Features) -> NDArray[np.int64]:
        """A vector in steps of the grid, rounded up or down such that the mean is right over all vectors."""
        scaled = np.clip(vector.astype(np.float64) * np.sqrt(self.features / 2), -1, 1) * self._unit
        digest = hashlib.sha256(vector.astype("<f4").tobytes()).digest()
        low = np.floor(scaled)
        up = np.random.default_rng(int.from_bytes(digest, "big")).random(scaled.shape) < scaled - low
        return (low + up).astype(np.int64)

    def start_at(self, features: Features) -> None:
        """Start P at the mean of public vectors, which costs nothing, and add them."""
        self.add(features)
        wanted = self._sums / (self._unit * self.count)
        low, high = np.full(self.features, -30.0), np.full(self.features, 30.0)
        for _ in range(40):
            tilt = (low + high) / 2
            means = _means(tilt[:, None] * self._grid, self._grid)
            low, high = np.where(means < wanted, tilt, low), np.where(means < wanted, high, tilt)
        self._logs = low[:, None] * self._grid
        self._means = _means(self._logs, self._grid)

    def broadcast(self, steps: int, epsilon: Fraction, draws: AuctionDraws, calibrated: bool = True) -> Floats:
        """The sum of the vectors added so far, after `steps` choices and measurements of ε each.

        Without `calibrated`, choices and noise are those of the paper as printed: e^ψ, and a scale of 1/ε for sums that
        change by 2. That is not private at ε, and only studies may ask for it.
        """
        if draws.sensitivity != self.sensitivity:
            raise ValueError("sensitivity")
        choosing = epsilon if calibrated else Fraction(4)  # e^(4·ψ/2Δ) = e^ψ
        measuring = epsilon if calibrated else 2 * epsilon
        total = np.zeros(self.features)
        for _ in range(steps):
            expected = np.rint(self.count * self._unit * self._means).astype(np.int64)
            index = draws.measured(np.abs(expected - self._sums).tolist(), choosing)
            noisy = draws.noisy(int(self._sums[index]), measuring) / self._unit
            self._logs[index] += self._grid * (noisy - self.count * self._means[index]) / (2 * self.count)
            self._means[index] = _means(self._logs[index : index + 1], self._grid)[0]
            total += self.count * self._means
        mean = total / steps if steps else self.count * self._means
        return np.asarray(mean * np.sqrt(2 / self.features))


def _means(logs: Floats, grid: Floats) -> Floats:
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights @ grid / weights.sum(axis=1))
