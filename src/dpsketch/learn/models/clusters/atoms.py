"""Weighted Gaussian atoms: their characteristic function and its derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.fourier_sums import Complex, FourierSums, Harmonics
from dpsketch.numerics.arrays import Floats

SHAPES = ("spherical", "diag", "full")


@dataclass(frozen=True)
class Atoms:
    """K Gaussian distributions with weights that add up to one.

    `logits` are log weights up to a constant. `spreads` has one row per atom: the log variance; or one per column; or
    those, and the entries below the diagonal of R, a unit lower triangular matrix, row by row: the covariance is T·Tᵀ
    with T = diag(e^(spread/2))·R. `log_scale` is the log of the factor that all sums share.
    """

    logits: Floats
    centres: Floats
    spreads: Floats
    log_scale: float = 0.0

    @property
    def count(self) -> int:
        return len(self.logits)

    @property
    def dimension(self) -> int:
        return self.centres.shape[1]

    @property
    def parameters(self) -> int:
        return 1 + self.logits.size + self.centres.size + self.spreads.size

    @property
    def shape(self) -> str:
        width, dimension = self.spreads.shape[1], self.dimension
        return "spherical" if width == 1 else "diag" if width == dimension else "full"

    @cached_property
    def weights(self) -> Floats:
        raised = np.exp(self.logits - self.logits.max())
        return np.asarray(raised / raised.sum())

    @property
    def variances(self) -> Floats:
        """Mean variance of each atom over the columns."""
        return np.trace(self.covariances, axis1=1, axis2=2) / self.dimension

    @property
    def covariances(self) -> Floats:
        roots = self.roots
        return roots @ roots.transpose(0, 2, 1)

    @property
    def roots(self) -> Floats:
        """Lower triangular T of each atom, with covariance T·Tᵀ."""
        dimension = self.dimension
        deviations = np.exp(0.5 * self.spreads[:, :dimension])
        roots = np.zeros((self.count, dimension, dimension))
        roots[:, np.arange(dimension), np.arange(dimension)] = 1.0
        if self.shape == "full":
            below = below_diagonal(dimension)
            roots[:, below[0], below[1]] = self.spreads[:, dimension:]
        return roots * deviations[:, :, None]

    def shaped(self, shape: str) -> Atoms:
        """The same atoms with more parameters: spherical to diag to full."""
        if shape == self.shape or self.dimension == 1:
            return self
        spreads = np.repeat(self.spreads, self.dimension, 1) if self.shape == "spherical" else self.spreads
        if shape == "full":
            rest = np.zeros((self.count, self.dimension * (self.dimension - 1) // 2))
            spreads = np.hstack([spreads, rest])
        return replace(self, spreads=spreads)

    def flat(self) -> Floats:
        return np.concatenate([[self.log_scale], self.logits, self.centres.ravel(), self.spreads.ravel()])

    def like(self, flat: Floats) -> Atoms:
        """Atoms of the same shape from the numbers of `flat`, logits centred."""
        first, second = 1 + self.count, 1 + self.count + self.centres.size
        logits = flat[1:first]
        return Atoms(
            logits - logits.sum() / self.count,
            flat[first:second].reshape(self.centres.shape),
            flat[second:].reshape(self.spreads.shape),
            float(flat[0]),
        )

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> Atoms:
        logits = self.logits[places]
        return Atoms(logits - logits.mean(), self.centres[places], self.spreads[places], self.log_scale)

    def without(self, place: int) -> Atoms:
        return self.take(np.flatnonzero(np.arange(self.count) != place))

    def joined(self, other: Atoms, share: float = 0.5) -> Atoms:
        """Both mixtures, with `share` of the weight for `other`."""
        weights = np.concatenate([self.weights * (1 - share), other.weights * share])
        logits = np.log(np.maximum(weights, 1e-6))
        other = other.shaped(self.shape)
        centres = np.vstack([self.centres, other.centres])
        return Atoms(logits - logits.mean(), centres, np.vstack([self.spreads, other.spreads]), self.log_scale)

    def drawn(self, count: int, generator: np.random.Generator) -> Floats:
        """Points of the mixture inside the bounds: numbers proportional to the weights, in antithetic pairs."""
        ends = np.rint(np.cumsum(self.weights) * (count // 2)).astype(np.int64)
        places = np.repeat(np.arange(self.count), np.diff(ends, prepend=0))
        normal = generator.normal(size=(len(places), self.dimension))
        if self.shape == "full":
            aside = np.einsum("nij,nj->ni", self.roots[places], normal)
        else:
            aside = np.exp(0.5 * self.spreads)[places] * normal
        return np.clip(np.vstack([self.centres[places] + aside, self.centres[places] - aside]), -0.5, 0.5)


@dataclass(frozen=True)
class Waves:
    """E_h = c_h·exp(i·h·ω·c − h²·ωᵀVω/2) of each atom and frequency, summed over harmonics with factors 1, h and h²."""

    plain: Complex
    first: Complex
    second: Complex


class Model:
    """Predictions of the sums from atoms, in units of their standard deviations."""

    def __init__(self, sums: FourierSums) -> None:
        self.sums = sums
        self._turned = np.ascontiguousarray(sums.frequencies.T)  # one row per column
        self._squares = self._turned**2
        self._lengths = self._squares.sum(0)
        self._whitening = 1 / sums.deviations
        self.observed: Complex = sums.values * self._whitening
        self._harmonics: Harmonics = tuple(
            (order, (factor * self._whitening).astype(np.complex128)) for order, factor in sums.harmonics
        )
        self._latest: tuple[Atoms, Waves] | None = None  # the solver asks twice in a step

    def waves(self, atoms: Atoms) -> Waves:
        if self._latest is None or self._latest[0] is not atoms:
            self._latest = atoms, self._waves(atoms.centres @ self._turned, self.quadratic(atoms))
        return self._latest[1]

    def _waves(self, phases: NDArray[Any], quadratic: NDArray[Any]) -> Waves:
        if len(self._harmonics) == 1:
            single = np.empty(phases.shape, np.result_type(phases, np.complex64))
            amplitude = np.exp(-0.5 * quadratic) * self._whitening.astype(phases.dtype)
            np.multiply(amplitude, np.cos(phases), out=single.real)
            np.multiply(amplitude, np.sin(phases), out=single.imag)
            return Waves(single, single, single)
        plain, first, second = (np.zeros(phases.shape, np.complex128) for _ in range(3))
        turn = np.exp(1j * phases)
        wave, square = turn, turn * turn
        for order, factor in self._harmonics:  # 1, −3, 5, …: powers of one rotation, conjugate where negative
            each = (wave if order > 0 else wave.conj()) * np.exp(-0.5 * order**2 * quadratic) * factor
            plain += each
            first += order * each
            second += order**2 * each
            wave = wave * square
        return Waves(plain, first, second)

    def spherical_waves(self, centres: Floats, log_variances: Floats) -> Waves:
        """Waves of spherical atoms in single precision, which is faster, for a search."""
        phases = (centres @ self._turned).astype(np.float32)
        return self._waves(phases, (np.exp(log_variances)[:, None] * self._lengths).astype(np.float32))

    def point_waves(self, centres: Floats) -> Waves:
        return self._waves(centres @ self._turned, np.zeros((len(centres), self.sums.size)))

    def gradients(self, along: Complex, waves: Waves, log_variances: Floats) -> tuple[Floats, Floats]:
        """Gradients of Re Σ along·wave of each spherical atom, with respect to centres and log variances."""
        centres = -((along * waves.first).imag @ self.sums.frequencies)
        spreads = -0.5 * np.exp(log_variances) * ((along * waves.second).real @ self._lengths)
        return centres, spreads

    def quadratic(self, atoms: Atoms) -> Floats:
        """ωᵀVω of each atom and frequency."""
        if atoms.shape == "spherical":
            return np.exp(atoms.spreads) * self._lengths
        if atoms.shape == "diag":
            return np.exp(atoms.spreads) @ self._squares
        return (self._projected(atoms) ** 2).sum(1)

    def _projected(self, atoms: Atoms) -> Floats:
        """Tᵀω: atom, column, frequency."""
        return atoms.roots.transpose(0, 2, 1) @ self._turned

    def _quadratic_slopes(self, atoms: Atoms) -> Floats:
        """Derivatives of ωᵀVω with respect to `spreads`: atom, parameter, frequency."""
        if atoms.shape == "spherical":
            return (np.exp(atoms.spreads) * self._lengths)[:, None, :]
        if atoms.shape == "diag":
            return np.exp(atoms.spreads)[:, :, None] * self._squares
        projected, roots = self._projected(atoms), atoms.roots
        diagonal = (roots @ projected) * self._turned
        rows, columns = below_diagonal(atoms.dimension)
        deviations = np.exp(0.5 * atoms.spreads[:, rows])
        below = 2 * deviations[:, :, None] * self._turned[rows] * projected[:, columns]
        return np.concatenate([diagonal, below], axis=1)

    def predicted(self, atoms: Atoms) -> Complex:
        return np.exp(atoms.log_scale) * (atoms.weights @ self.waves(atoms).plain)

    def residuals(self, atoms: Atoms) -> Complex:
        return self.observed - self.predicted(atoms)

    def chi_squared(self, atoms: Atoms) -> float:
        return _square(self.residuals(atoms))

    def chi_squared_without(self, atoms: Atoms) -> Floats:
        """χ² with each of the atoms left out and the weights of the others raised in proportion."""
        waves, weights, factor = self.waves(atoms).plain, atoms.weights, np.exp(atoms.log_scale)
        others = (weights @ waves - weights[:, None] * waves) / np.maximum(1 - weights, 1e-9)[:, None]
        left = self.observed - factor * others
        return np.asarray((left.real**2 + left.imag**2).sum(1))

    def linearised(self, atoms: Atoms) -> tuple[Complex, Floats]:
        """Residuals, and the derivatives of the predictions.

        Derivatives have one row per number of `atoms.flat()`, with real and imaginary parts next to each other.
        """
        waves, weights, factor = self.waves(atoms), atoms.weights, np.exp(atoms.log_scale)
        shares = factor * weights
        count, dimension, size = atoms.count, atoms.dimension, self.sums.size
        rows = np.empty((atoms.parameters, size), np.complex128)
        weighted = waves.plain * shares[:, None]
        predicted = weighted.sum(0)
        first, second = 1 + count, 1 + count + count * dimension
        rows[0] = predicted
        rows[1:first] = weighted - weights[:, None] * predicted
        turned = waves.first * (1j * shares[:, None])
        np.multiply(turned[:, None, :], self._turned, out=rows[first:second].reshape(count, dimension, size))
        damped = waves.second * (-0.5 * shares[:, None])
        slopes = self._quadratic_slopes(atoms)
        np.multiply(damped[:, None, :], slopes, out=rows[second:].reshape(slopes.shape))
        return self.observed - predicted, rows.view(np.float64)


@lru_cache(64)
def below_diagonal(dimension: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.tril_indices(dimension, -1)


def _square(residuals: Complex) -> float:
    return float(np.vdot(residuals, residuals).real)
