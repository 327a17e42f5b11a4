"""Baselines: the paper's moment-to-moment method with its three sketches, and ridge regression with points from
marginals.

Noise is floating-point noise with the scales in the paper: this measures estimators and releases nothing. Source: m2m
§2, §3.2 (λ = σ²/n), §3.5 (weights of points), §4 (sizes).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

import dpsketch as dps
from benchmarks.m2m.answers import Points
from benchmarks.m2m.marginals import marginals_only
from benchmarks.m2m.tables import Table
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.analytic_gaussian import gaussian_deviation

SHARE_SUMS = 0.98
FREQUENCIES = 100  # pairs of cos and sin: m = 200
KERNEL_WIDTH, RIDGE_KERNEL_WIDTH = 1.0, 0.5  # the paper's; the best with points from marginals
RACE_ROWS, RACE_BUCKETS, RACE_WIDTH = 80, 80, 0.1
HIST_BINS = 100
POINTS = 100_000
RIDGE_POINTS = 20_000
SMALLEST_PENALTY = 1e-9  # of sparse features, as in the paper's Table 1
CG_STEPS = 300


class Features(Protocol):
    """A feature map: a dense or sparse matrix, one row per record; sensitivities for adding or removing one record."""

    l1: float
    l2_squared: Fraction

    def of(self, unit: Floats) -> Any: ...


class Fourier:
    def __init__(self, columns: int, generator: np.random.Generator, width: float = KERNEL_WIDTH) -> None:
        self.frequencies = generator.normal(0, 1 / width, (columns, FREQUENCIES))
        self.l1, self.l2_squared = 2**0.5 * FREQUENCIES, Fraction(FREQUENCIES)

    def of(self, unit: Floats) -> Floats:
        phases = unit @ self.frequencies
        return np.hstack([np.cos(phases), np.sin(phases)])


class Race:
    """Euclidean hashes of one width, taken modulo the number of buckets."""

    def __init__(self, columns: int, generator: np.random.Generator) -> None:
        self.directions = generator.normal(size=(columns, RACE_ROWS))
        self.offsets = generator.uniform(0, RACE_WIDTH, RACE_ROWS)
        self.l1, self.l2_squared = float(RACE_ROWS), Fraction(RACE_ROWS)

    def of(self, unit: Floats) -> csr_array:
        buckets = np.floor((unit @ self.directions + self.offsets) / RACE_WIDTH).astype(np.int64) % RACE_BUCKETS
        return one_hot(buckets, RACE_BUCKETS)


class Hist:
    def __init__(self, columns: int, bins: int = HIST_BINS) -> None:
        self.bins = bins
        self.l1, self.l2_squared = float(columns), Fraction(columns)

    def of(self, unit: Floats) -> csr_array:
        return one_hot(np.minimum((unit * self.bins).astype(np.int64), self.bins - 1), self.bins)


def one_hot(cells: Any, size: int) -> csr_array:
    rows, tables = cells.shape
    indices = (cells + size * np.arange(tables)).astype(np.int32).ravel()
    return csr_array((np.ones(rows * tables), indices, np.arange(0, rows * tables + 1, tables)), (rows, tables * size))


@dataclass(frozen=True)
class NoisySums:
    """Noisy means of features, the noisy number of records, and the noise's variance in sums."""

    means: Floats
    rows: float
    variance: float


def noisy_sums(
    features: Features, unit: Floats, budget: dps.Budget, share: float, generator: np.random.Generator
) -> NoisySums:
    """Noisy sums with `share` of the budget; the rest is for the number of records (δ all on the sums)."""
    sums = _in_chunks(features, unit)
    if not budget.private:
        return NoisySums(sums / len(unit), len(unit), 0.0)
    assert budget.epsilon is not None
    epsilon = share * budget.epsilon
    rows = max(1.0, len(unit) + generator.laplace(0, 1 / ((1 - share) * budget.epsilon)))
    if budget.delta:
        deviation = gaussian_deviation(Fraction(repr(epsilon)), budget.exact_delta, features.l2_squared)
        return NoisySums((sums + generator.normal(0, deviation, len(sums))) / rows, rows, deviation**2)
    scale = features.l1 / epsilon
    return NoisySums((sums + generator.laplace(0, scale, len(sums))) / rows, rows, 2 * scale**2)


def _in_chunks(features: Features, unit: Floats) -> Floats:
    return np.sum([features.of(unit[at : at + 50_000]).sum(0) for at in range(0, len(unit), 50_000)], axis=0)


def to_unit(table: Table, rows: Floats) -> Floats:
    """[0, 1]^d: codes of categories over their number; missing is one more category where there are any."""
    unit = rows.copy()
    for j, levels in enumerate(category_levels(table)):
        if levels:
            code = np.where(np.isnan(rows[:, j]), levels - 1, np.minimum(rows[:, j], levels - 1))
            unit[:, j] = code / max(levels - 1, 1)
    return unit


def category_levels(table: Table) -> list[int]:
    """Number of levels of each column, missing included where there are any; 0 for numbers."""
    some = np.isnan(table.rows).sum(axis=0) > 0
    return [0 if column.ordered else column.levels + int(some[j]) for j, column in enumerate(table.columns)]


def uniform_points(table: Table, count: int, generator: np.random.Generator) -> Floats:
    """ψ of the paper: uniform over the declared domain."""
    columns = []
    for column, levels in zip(table.columns, category_levels(table), strict=True):
        if levels:
            columns.append(generator.integers(levels, size=count).astype(float))
        elif column.levels:
            columns.append(generator.integers(column.levels, size=count) / (column.levels - 1))
        else:
            columns.append(generator.random(count))
    return np.column_stack(columns)


def ridge_weights(matrix: Any, means: Floats, penalty: float) -> Floats:
    """w = P(PᵀP/N + λI)⁻¹ẑ/N: then Σ w·f(point) = ⟨a_f, ẑ⟩ for every f."""
    count, size = matrix.shape
    if isinstance(matrix, np.ndarray) and penalty == 0:
        return np.asarray(np.linalg.lstsq(matrix.T, means, rcond=None)[0], float)  # the same, better conditioned
    if isinstance(matrix, np.ndarray):
        solved = np.linalg.solve(matrix.T @ matrix / count + penalty * np.eye(size), means)
        return np.asarray(matrix @ solved) / count
    across = matrix.T.tocsr()
    penalty = max(penalty, SMALLEST_PENALTY)
    operator = LinearOperator((size, size), matvec=lambda v: across @ (matrix @ v) / count + penalty * v)
    solved = cg(operator, means, rtol=1e-8, maxiter=CG_STEPS)[0]
    return np.asarray(matrix @ solved) / count


def moment_to_moment(
    table: Table, features: Features, budget: dps.Budget, generator: np.random.Generator, by_theorem: bool = False
) -> Points:
    """The paper's method: uniform points, λ = σ²/n or, as in its Theorem 1, σ²/n²."""
    noisy = noisy_sums(features, to_unit(table, table.rows), budget, SHARE_SUMS, generator)
    start = time.process_time()
    points = uniform_points(table, POINTS, generator)
    penalty = noisy.variance / noisy.rows ** (2 if by_theorem else 1)
    weights = ridge_weights(features.of(to_unit(table, points)), noisy.means, penalty)
    return Points(table, points, weights, time.process_time() - start)


def ridge_on_marginals(table: Table, budget: dps.Budget, generator: np.random.Generator) -> Points:
    """Half the budget on marginals, from which points are drawn, half on Fourier sums; λ = σ²/n², free intercept."""
    assert budget.epsilon is not None
    half = dps.Budget(budget.epsilon / 2, budget.delta / 2)
    product = marginals_only(table, half)
    features = Fourier(len(table.columns), generator, RIDGE_KERNEL_WIDTH)
    noisy = noisy_sums(features, to_unit(table, table.rows), half, SHARE_SUMS, generator)
    start = time.process_time()
    points = product.draw(RIDGE_POINTS, generator)
    matrix = features.of(to_unit(table, points))
    centre = matrix.mean(0)
    penalty = max(noisy.variance / noisy.rows**2, SMALLEST_PENALTY)
    weights = 1 / len(points) + ridge_weights(matrix - centre, noisy.means - centre, penalty)
    return Points(table, points, weights, product.seconds + time.process_time() - start)
