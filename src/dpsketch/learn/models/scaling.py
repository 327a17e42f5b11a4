"""Features on a common scale, without missing values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsketch.numerics.arrays import Floats


@dataclass(frozen=True)
class Scaling:
    """Means and standard deviations of features. Missing values become the mean; a constant feature becomes zero."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, features: Floats, weights: Floats) -> Scaling:
        present = ~np.isnan(features)
        known = np.where(present, features, 0.0)
        total = np.maximum(weights @ present, 1e-300)
        mean = weights @ known / total
        deviation = np.sqrt(weights @ (np.where(present, features - mean, 0.0) ** 2) / total)
        return cls(mean, np.where(deviation > 1e-9 * np.maximum(np.abs(mean), 1e-300), deviation, np.inf))

    def filled(self, features: Floats) -> Floats:
        return np.where(np.isnan(features), self.mean, features)

    def scaled(self, features: Floats) -> Floats:
        return np.asarray((self.filled(features) - self.mean) / self.deviation)

    def in_units(self, coefficients: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Coefficients (last axis: features) and intercept of unscaled features from those of scaled ones."""
        slopes = coefficients / self.deviation
        return slopes, intercept - slopes @ self.mean
