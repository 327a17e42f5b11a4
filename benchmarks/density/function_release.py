"""Releases of a kernel sum as a function: numbers to noise, how far one record moves them, and estimates from them.

Written from the papers for one kernel, the collision probability of a p-stable hash, which decreases with the distance
and is 1 at 0. Records may lie anywhere; queries lie in a public box. Everything is calibrated for adding or removing a
record. Noise is drawn from the run's seed, for studies only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np

import dpsketch as dps
from benchmarks.density.kernel_sums import exact_sums
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.analytic_gaussian import gaussian_deviation

FINE = 4096  # points of the integrals of Fourier coefficients, and of the search for the largest contribution
PLACES = 333  # of PFDA's grid; not those of the queries
MOST_TERMS = 320  # of a Fourier series
STEEPEST = 0.8  # |k'| of the kernel of width 1 is at most √(2/π)
_MIDDLES = (np.arange(FINE) + 0.5) / FINE


@dataclass(frozen=True, eq=False)
class Problem:
    """Records within declared bounds, queries in a box, and the width of the kernel."""

    points: Floats
    queries: Floats
    low: Floats  # of the box of queries
    high: Floats
    bounds: tuple[Floats, Floats]  # of records
    width: float

    @property
    def columns(self) -> int:
        return int(self.points.shape[1])

    def sums(self, at: Floats) -> Floats:
        return exact_sums(self.points, at, self.width)


@dataclass(frozen=True, eq=False)
class Release:
    """Numbers that depend on the records, the most that one record moves them, and estimates at the queries."""

    setting: str
    numbers: Floats
    l1: float | None  # None: by Gaussian noise alone
    l2: float
    estimate: Callable[[Floats], Floats]

    def noised(self, epsilon: float, delta: float, generator: np.random.Generator) -> Floats | None:
        """Estimates after noise of this budget; None where there is no such noise."""
        if delta:
            deviation = self.l2 * gaussian_deviation(Fraction(repr(epsilon)), Fraction(repr(delta)), 1)
            return self.estimate(self.numbers + generator.normal(scale=deviation, size=self.numbers.shape))
        if self.l1 is None:
            return None
        return self.estimate(self.numbers + generator.laplace(scale=self.l1 / epsilon, size=self.numbers.shape))


@cache
def _table() -> tuple[Floats, Floats]:
    roots = np.linspace(0.0, 10.0, 1 << 16)
    return roots, np.asarray(dps.Euclidean(bandwidth=1.0).kernel(roots**4))


def kernel(distances: Floats) -> Floats:
    """The kernel of width 1, with errors below 1e-6."""
    roots, values = _table()
    return np.interp(np.sqrt(np.sqrt(distances)), roots, values)


def kernel_matrix(first: Floats, second: Floats, width: float) -> Floats:
    squares = (first**2).sum(axis=1)[:, None] - 2 * first @ second.T + (second**2).sum(axis=1)
    return kernel(np.sqrt(np.maximum(squares, 0.0)) / width)


def bernstein(problem: Problem, cells: int, order: int) -> Release:
    """The Bernstein mechanism (Aldà and Rubinstein, 2017): noisy sums on a lattice, and a Bernstein polynomial.

    The operator B is iterated, I − (I − B)^order, on the noisy sums. A record moves the sums by at most
    `lattice_reach`, which is far below the number of lattice points that the paper uses.
    """
    axes = [np.linspace(low, high, cells + 1) for low, high in zip(problem.low, problem.high, strict=True)]
    lattice = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
    shape = (cells + 1,) * problem.columns
    smoother = _basis(np.arange(cells + 1) / cells, cells)
    places = (problem.queries - problem.low) / (problem.high - problem.low)
    bases = [_basis(np.clip(places[:, column], 0, 1), cells) for column in range(problem.columns)]

    def estimate(noisy: Floats) -> Floats:
        coefficients = left = noisy.reshape(shape)
        for _ in range(order - 1):
            left = left - _along_axes(left, smoother)
            coefficients = coefficients + left
        return _contracted(coefficients, bases)

    l1, l2 = lattice_reach(problem, cells)
    return Release(f"M={cells}, order {order}", problem.sums(lattice), l1, l2, estimate)


def lattice_reach(problem: Problem, cells: int) -> tuple[float, float]:
    """Bounds of Σ k and (Σ k²)^½ over the lattice for one record, wherever it is.

    The record, or its projection on the box, which is no farther from any point of the lattice, lies in the box of half
    a step around one of them; the others are at least as far from it as from that box. Sums over a window of offsets
    are largest for the point in the middle, as k decreases.
    """
    steps = (problem.high - problem.low) / cells
    offsets = np.maximum(np.abs(np.arange(cells + 1) - cells // 2) - 0.5, 0.0)
    squares = np.zeros(1)
    for step in steps:
        squares = (squares[:, None] + (offsets * step) ** 2).ravel()
    values = kernel(np.sqrt(squares) / problem.width)
    return float(values.sum()), float(np.sqrt((values**2).sum()))


def fourier_series(problem: Problem, terms: int) -> Release:
    """Spectral approximation in one column (Hall et al., 2013): cosine coefficients of the kernel sum over the box."""
    low, high = float(problem.low[0]), float(problem.high[0])
    numbers = problem.sums(low + (high - low) * _MIDDLES[:, None]) @ _cosines(_MIDDLES, terms) / FINE
    ends = [(float(bound[0]) - low) / (high - low) for bound in problem.bounds]
    l1, l2 = series_reach(problem.width / (high - low), *ends)
    return Release(
        f"M={terms}",
        numbers,
        float(l1[terms - 1]),
        float(l2[terms - 1]),
        lambda noisy: _cosines((problem.queries[:, 0] - low) / (high - low), terms) @ noisy,
    )


@cache
def series_reach(width: float, first: float, last: float) -> tuple[Floats, Floats]:
    """Bounds of the norms of a record's first 1, 2, … coefficients: over a grid, with the change in half of a step.

    Between two places h apart, a coefficient changes by at most √2·h·(2 + 2·0.8/(width·FINE)): the kernel's total
    variation is 2.
    """
    grid = np.linspace(first, last, 2 * FINE + 1)
    waves = _cosines(_MIDDLES, MOST_TERMS)
    l1, l2 = np.zeros(MOST_TERMS), np.zeros(MOST_TERMS)
    for start in range(0, len(grid), 1024):
        near = kernel(np.abs(grid[start : start + 1024, None] - _MIDDLES) / width) @ waves / FINE
        l1 = np.maximum(l1, np.abs(near).cumsum(axis=1).max(axis=0))
        l2 = np.maximum(l2, np.sqrt((near**2).cumsum(axis=1).max(axis=0)))
    change = np.sqrt(2) * (grid[1] - grid[0]) / 2 * (2 + 2 * STEEPEST / (width * FINE))
    terms = np.arange(1, MOST_TERMS + 1)
    return l1 + terms * change, l2 + np.sqrt(terms) * change


def _cosines(places: Floats, terms: int) -> Floats:
    waves = np.cos(np.pi * places[:, None] * np.arange(terms))
    waves[:, 1:] *= np.sqrt(2)
    return np.asarray(waves)


def trigonometric(problem: Problem, degree: int) -> Release:
    """Trigonometric polynomials (Wang et al., 2013): noisy sums of Π cos(νᵢ·arccos xᵢ), ‖ν‖ ≤ degree.

    Records are scaled to [−1, 1]. Every product lies in ±1 and all are 1 where x = 1. The kernel at a query is a sum of
    such products, whose coefficients are integrals over a grid of arccosines.
    """
    columns, nodes = problem.columns, 2 * degree + 2
    orders = np.array([each for each in product(range(degree + 1), repeat=columns) if np.dot(each, each) <= degree**2])
    size = problem.high - problem.low

    def folded(points: Floats) -> Floats:
        return np.arccos(np.clip(2 * (points - problem.low) / size - 1, -1, 1))

    rows, counts = np.unique(problem.points, axis=0, return_counts=True)
    numbers = np.zeros(len(orders))
    for start in range(0, len(rows), 4096):
        numbers += counts[start : start + 4096] @ _products(folded(rows[start : start + 4096]), orders)
    angles = (np.arange(nodes) + 0.5) * np.pi / nodes
    axes = np.stack([each.ravel() for each in np.meshgrid(*[angles] * columns, indexing="ij")], axis=1)
    grid = problem.low + (np.cos(axes) + 1) / 2 * size
    waves = np.cos(np.arange(degree + 1)[:, None] * angles) * np.where(np.arange(degree + 1) > 0, 2, 1)[:, None] / nodes
    coefficients = np.empty((len(problem.queries), len(orders)))
    for start in range(0, len(problem.queries), 100):
        block = kernel_matrix(problem.queries[start : start + 100], grid, problem.width)
        transformed = _along_axes(block.reshape(-1, *(nodes,) * columns), waves, first=1)
        coefficients[start : start + 100] = transformed[(slice(None), *orders.T)]
    reach = float(len(orders))
    return Release(f"degree {degree}", numbers, reach, np.sqrt(reach), lambda noisy: coefficients @ noisy)


def _products(angles: Floats, orders: np.ndarray) -> Floats:
    waves = np.cos(angles[:, :, None] * np.arange(orders.max() + 1))
    values = np.ones((len(angles), len(orders)))
    for column in range(angles.shape[1]):
        values *= waves[:, column, orders[:, column]]
    return values


def mean_embedding(problem: Problem, centres: Floats, kept: float = 1e-6) -> Release:
    """Kernel mean embedding (Balog et al., 2018): the sum of records in the span of public points.

    Its coordinates are those of an orthonormal basis. A record has norm 1 in the kernel's space, and at most that in
    the span: L2 1, L1 √(size of the basis).
    """
    values, vectors = np.linalg.eigh(kernel_matrix(centres, centres, problem.width))
    used = values > kept * values[-1]
    basis = vectors[:, used] / np.sqrt(values[used])
    at_queries = kernel_matrix(problem.queries, centres, problem.width) @ basis
    numbers = basis.T @ problem.sums(centres)
    return Release(
        f"M={len(centres)}", numbers, float(np.sqrt(used.sum())), 1.0, lambda noisy: np.asarray(at_queries @ noisy)
    )


def functional_noise(problem: Problem, smoothing: float, reach: float) -> Release:
    """PFDA (Mirshani et al., 2019) in one column: a smoothed kernel sum with a Gaussian process as noise.

    The process has the covariance exp(−distance/reach) on a grid of the box; the sum there is smoothed by
    λ/(λ + smoothing) on its eigenvectors, so that its norm in the process's space is finite.
    """
    low, high = float(problem.low[0]), float(problem.high[0])
    places = np.linspace(low, high, PLACES)
    covariance = np.exp(-np.abs(places[:, None] - places) / (reach * (high - low))) / PLACES
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    onto = (np.sqrt(values) / (values + smoothing))[:, None] * vectors.T
    grid = np.linspace(float(problem.bounds[0][0]), float(problem.bounds[1][0]), 4 * FINE + 1)
    largest = max(
        float(np.linalg.norm(onto @ kernel(np.abs(places[:, None] - part) / problem.width), axis=0).max())
        for part in np.array_split(grid, 16)
    )
    change = STEEPEST * (grid[1] - grid[0]) / 2 / problem.width * np.sqrt(PLACES) * np.linalg.norm(onto, 2)
    return Release(
        f"φ={smoothing:g}, range {reach:g}",
        onto @ problem.sums(places[:, None]),
        None,
        largest + float(change),
        lambda noisy: np.interp(problem.queries[:, 0], places, vectors @ (np.sqrt(values) * noisy)),
    )


def histogram(problem: Problem, bins: int) -> Release:
    """The kernel sum of the middles of the bins of one column, weighted by noisy counts."""
    low, high = float(problem.bounds[0][0]), float(problem.bounds[1][0])
    counts, edges = np.histogram(problem.points[:, 0], bins, (low, high))
    weights = kernel_matrix(problem.queries, 0.5 * (edges[1:] + edges[:-1])[:, None], problem.width)
    return Release(f"{bins} bins", counts.astype(np.float64), 1.0, 1.0, lambda noisy: np.asarray(weights @ noisy))


def _basis(places: Floats, cells: int) -> Floats:
    """Bernstein polynomials: rows are places, columns the lattice."""
    from scipy.stats import binom

    return np.asarray(binom.pmf(np.arange(cells + 1), cells, places[:, None]))


def _along_axes(values: Floats, matrix: Floats, first: int = 0) -> Floats:
    for axis in range(first, values.ndim):
        values = np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)
    return values


def _contracted(coefficients: Floats, bases: list[Floats]) -> Floats:
    """Σ over the lattice of coefficients and the product of the bases, for every query."""
    found = []
    for query in range(len(bases[0])):
        left = coefficients
        for basis in bases:
            left = np.tensordot(basis[query], left, axes=(0, 0))
        found.append(float(left))
    return np.array(found)
