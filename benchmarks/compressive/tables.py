"""Simulated mixtures: samples of known Gaussian components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsketch.numerics.arrays import Floats

ROWS = 1_000_000
BOUND = 8.0  # bounds ± this of isotropic, diagonal and unbalanced mixtures
LEAST_WEIGHT = 0.02


@dataclass(frozen=True)
class Mixture:
    """Components with one standard deviation per column, inside declared bounds."""

    weights: Floats
    centres: Floats
    deviations: Floats
    low: float
    high: float

    def drawn(self, rows: int, generator: np.random.Generator) -> Floats:
        which = generator.choice(len(self.weights), rows, p=self.weights)
        return self.centres[which] + self.deviations[which] * generator.normal(size=(rows, self.centres.shape[1]))

    def score(self, points: Floats) -> float:
        """Mean log likelihood."""
        logs = np.empty((len(points), len(self.weights)))
        for index, (centre, deviation) in enumerate(zip(self.centres, self.deviations, strict=True)):
            standard = (points - centre) / deviation
            logs[:, index] = -0.5 * (standard**2).sum(1) - np.log(deviation).sum() + np.log(self.weights[index])
        return float(np.logaddexp.reduce(logs, axis=1).mean() - 0.5 * points.shape[1] * np.log(2 * np.pi))


def simulated_mixture(kind: str, clusters: int, dimension: int, generator: np.random.Generator) -> Mixture:
    """Simulate a mixture. `kind` is isotropic, diagonal, unbalanced, or a width such as 0.03."""
    shape, weights = (clusters, dimension), np.full(clusters, 1 / clusters)
    if kind[0].isdigit():
        centres = generator.uniform(0.2, 0.8, shape)
        return Mixture(weights, centres, np.full(shape, float(kind)), 0.0, 1.0)
    centres = generator.normal(size=shape) * np.sqrt(1.5 * clusters ** (1 / dimension))
    deviations = np.ones(shape)
    if kind == "diagonal":
        deviations = np.exp(generator.uniform(np.log(0.5), np.log(1.5), shape))
    if kind == "unbalanced":
        weights = np.maximum(generator.dirichlet(np.ones(clusters)), LEAST_WEIGHT)
        weights /= weights.sum()
    return Mixture(weights, centres, deviations, -BOUND, BOUND)
