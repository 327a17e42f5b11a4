"""A matrix of second moments from squares of random projections: y_j = ω_jᵀ·S·ω_j and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

MOST_UNKNOWNS = 3000  # of least squares: a triangle of 76 columns
_LEAST_CONDITION = 1e-6
_ROUNDS, _STEPS = 8, 150
# Probability that residuals are larger than the error variance that is taken from them allows.
_RESIDUALS: Annotated[float, Tuned("simulated matrices", by=BY_HAND, decision=53)] = 0.99


@dataclass(frozen=True)
class LowRank:
    """LLᵀ + s·I, whether the descent converged, its mean squared residual per degree of freedom, and these degrees.

    They are zero or fewer where the fit has as many parameters as there are squares.
    """

    root: Floats
    rest: float
    converged: bool
    residual: float
    free: int

    @property
    def matrix(self) -> Floats:
        return self.root @ self.root.T + self.rest * np.eye(len(self.root))

    def error_variance(self, variance: float) -> float:
        """The variance of a square about the fit, given that of the noise.

        What is not of low rank adds to the square of every random direction like noise of its own, of which residuals
        tell the size: here the largest variance that they allow with probability 0.99, but not less than the noise's.
        """
        from scipy.special import chdtri

        if self.free <= 0:
            return float("nan")
        return max(variance, self.residual * self.free / float(chdtri(self.free, _RESIDUALS)))


class LeastSquares:
    """S by plain least squares. `known` is False where the squares do not determine it.

    That is the case if there are fewer squares than unknowns, or if all entries of directions have the same size
    ("hadamard", one stage), which determines only the sum of the diagonal. Source: compressive sec. 2.1; the matrix is
    projected to the cone of second moments afterwards.
    """

    def __init__(self, directions: Floats) -> None:
        size, dimension = directions.shape
        self._triangle = np.triu_indices(dimension)
        self._dimension = dimension
        self.known = size >= len(self._triangle[0]) and len(self._triangle[0]) <= MOST_UNKNOWNS
        if not self.known:
            return
        first, second = self._triangle
        # Coordinates of S in an orthonormal basis of symmetric matrices: off-diagonal entries count √2 times.
        self._lengths = np.where(first == second, 1.0, np.sqrt(2.0))
        self._design = directions[:, first] * directions[:, second] * self._lengths
        values, vectors = np.linalg.eigh(self._design.T @ self._design)
        self.known = bool(values[0] > _LEAST_CONDITION * values[-1])
        if self.known:
            self._inverse = (vectors / values) @ vectors.T

    def matrix(self, squares: Floats) -> Floats:
        entries = self._inverse @ (self._design.T @ squares) / self._lengths
        found = np.zeros((self._dimension, self._dimension))
        found[self._triangle] = entries
        return found + np.triu(found, 1).T


def low_rank(directions: Floats, squares: Floats, variance: float, rank: int) -> LowRank:
    """The matrix LLᵀ + s·I, L of `rank` columns, s >= 0, that fits the squares best (Burer–Monteiro).

    Descent (L-BFGS) starts at the spectral estimate. Columns of L are scaled by one over their length, so that the
    curvature of all of them is about the same. Source: compressive sec. 2.1, with a multiple of the
    identity for the part that is not of low rank.
    """
    from scipy.optimize import minimize

    size, dimension = directions.shape
    lengths = (directions**2).sum(axis=1)
    trace = max(float(squares.sum() / lengths.sum()) * dimension, 1e-12)
    unit = max(variance, (1e-9 * trace / dimension) ** 2) * size
    root, rest = _spectral(directions, squares, lengths, trace, rank)
    for _ in range(_ROUNDS):
        scale = 1 / np.sqrt(np.maximum((root**2).sum(axis=0), 1e-8 * trace))

        def loss(point: Floats, scale: Floats = scale) -> tuple[float, Floats]:
            projected = directions @ (point[:-1].reshape(dimension, rank) * scale)
            residual = (projected**2).sum(axis=1) + point[-1] * lengths - squares
            slope = 2 * directions.T @ (residual[:, None] * projected) * scale
            return float(residual @ residual) / (2 * unit), np.append(slope.ravel(), residual @ lengths) / unit

        found = minimize(
            loss,
            np.append((root / scale).ravel(), rest),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] * (dimension * rank) + [(0, None)],
            options={"maxiter": _STEPS, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-7},
        )
        vectors, values, _ = np.linalg.svd(found.x[:-1].reshape(dimension, rank) * scale, full_matrices=False)
        root, rest = vectors * values, float(found.x[-1])
        if found.success:
            break
    free = size - dimension * rank + rank * (rank - 1) // 2 - 1
    residual = 2 * float(found.fun) * unit / max(free, 1)
    return LowRank(root, rest, bool(found.success), residual, free)


def sees_diagonal(directions: Floats) -> bool:
    """Whether squares know more of the diagonal than its sum: not if the entries of each direction have one size."""
    squares = directions**2
    return squares.shape[1] == 1 or bool(np.ptp(squares, axis=1).max() > _LEAST_CONDITION * squares.max())


def _spectral(directions: Floats, squares: Floats, lengths: Floats, trace: float, rank: int) -> tuple[Floats, float]:
    """Σ y_j·ω_jω_jᵀ minus the contribution of the trace: unbiased for isotropic directions of length 1."""
    size, dimension = directions.shape
    centred = squares - trace / dimension * lengths
    rough = (directions.T * centred) @ directions * (dimension**2 / (2 * size)) + trace / dimension * np.eye(dimension)
    values, vectors = np.linalg.eigh(rough)
    top = values[::-1][:rank]
    rest = max((trace - float(np.maximum(top, 0).sum())) / max(dimension - rank, 1), 1e-3 * trace / dimension)
    return vectors[:, ::-1][:, :rank] * np.sqrt(np.maximum(top - rest, 1e-3 * trace)), rest
