"""Search for the additional atom that would explain most of the residuals."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from dpsketch.learn.estimators.fourier_sums import Complex
from dpsketch.learn.models.clusters.atoms import Atoms, Model, Waves
from dpsketch.learn.models.clusters.solver import EDGE, LEAST_VARIANCE, MOST_VARIANCE
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

CANDIDATES: Annotated[int, UNRECORDED] = 24
DRAWN: Annotated[int, UNRECORDED] = 192
STEPS: Annotated[int, UNRECORDED] = 24
LEAST_SHARE: Annotated[float, UNRECORDED] = 0.02
MOST_SHARE: Annotated[float, UNRECORDED] = 0.6
_RANGE = np.log(LEAST_VARIANCE), np.log(MOST_VARIANCE)


class _Gain:
    """Fraction of the residuals r that a step from the mixture μ towards an atom a explains: ⟨r, a − μ⟩ / ‖a − μ‖."""

    def __init__(self, model: Model, atoms: Atoms) -> None:
        self.model = model
        factor = np.exp(atoms.log_scale)
        self._mixture: Complex = atoms.weights @ model.waves(atoms).plain
        self._left: Complex = (model.observed - factor * self._mixture).conj()
        self._own = float((self._left @ self._mixture).real)
        self._square = float(np.vdot(self._mixture, self._mixture).real)
        self._left, self._mixture = self._left.astype(np.complex64), self._mixture.astype(np.complex64)

    def of(self, waves: Waves) -> tuple[Floats, Floats]:
        """⟨r, a − μ⟩ and ‖a − μ‖² of each candidate."""
        wave = waves.plain
        inner = (wave @ self._left).real - self._own
        parts = wave.view(wave.real.dtype)
        square = np.einsum("ij,ij->i", parts, parts) + self._square - 2 * (wave @ self._mixture.conj()).real
        return inner, np.maximum(square, 1e-6 * self._square)

    def slopes(self, waves: Waves, log_variances: Floats) -> tuple[Floats, Floats]:
        inner, square = self.of(waves)
        root = np.sqrt(square)
        along = self._left * (1 / root)[:, None]
        along -= (inner / (square * root))[:, None] * (waves.plain - self._mixture).conj()
        return self.model.gradients(along, waves, log_variances)


def best_atoms(
    model: Model, atoms: Atoms, around: tuple[Floats, float], generator: np.random.Generator, keep: int = 1
) -> list[tuple[Atoms, float]]:
    """The `keep` best single atoms, with the share of the weight that each should get.

    Candidates start near atoms of the mixture and all over `around`, the mean and variance of all records. The best are
    optimised together.
    """
    gain = _Gain(model, atoms)
    centres, log_variances = _drawn(atoms, around, generator)
    inner, square = gain.of(model.spherical_waves(centres, log_variances))
    best = np.argsort(-inner / np.sqrt(square))[:CANDIDATES]
    centres, log_variances = centres[best], log_variances[best]
    mean, scale, spread_mean = np.zeros_like(centres), np.zeros(len(centres)), np.zeros(len(centres))
    for step in range(STEPS):
        slopes, spread_slopes = gain.slopes(model.spherical_waves(centres, log_variances), log_variances)
        mean = 0.8 * mean + 0.2 * slopes
        scale = 0.95 * scale + 0.05 * (slopes**2).mean(1)
        spread_mean = 0.8 * spread_mean + 0.2 * spread_slopes
        pace = 0.05 + 0.5 * (1 - (step + 1) / (STEPS + 1))
        reach = 0.6 * pace * np.exp(0.5 * log_variances) / (np.sqrt(scale) + 1e-300)
        centres = np.clip(centres + reach[:, None] * mean, -EDGE, EDGE)
        log_variances = np.clip(log_variances + 0.3 * pace * np.sign(spread_mean), *_RANGE)
    inner, square = gain.of(model.spherical_waves(centres, log_variances))
    order = np.argsort(-inner / np.sqrt(square))[:keep]
    factor = np.exp(atoms.log_scale)
    return [
        (
            Atoms(np.zeros(1), centres[[place]], log_variances[[place], None], atoms.log_scale),
            float(np.clip(inner[place] / (factor * square[place]), LEAST_SHARE, MOST_SHARE)),
        )
        for place in order
    ]


def _drawn(atoms: Atoms, around: tuple[Floats, float], generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Candidates: half near atoms, half over all records."""
    variances, half = atoms.variances, DRAWN // 2
    near = generator.choice(atoms.count, half, p=atoms.weights)
    normal = generator.normal(size=(DRAWN, atoms.dimension))
    centres = np.vstack(
        [
            atoms.centres[near] + 1.5 * np.sqrt(variances[near])[:, None] * normal[:half],
            around[0] + 1.2 * np.sqrt(around[1]) * normal[half:],
        ]
    )
    typical = np.log(np.clip(variances.mean(), 1e-4, 0.05))
    log_variances = np.clip(typical + generator.uniform(-1.5, 1.5, DRAWN), *_RANGE)
    return np.clip(centres, -EDGE, EDGE), log_variances
