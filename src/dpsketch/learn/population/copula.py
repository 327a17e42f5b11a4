"""Dependence inside the groups of cells that pair tables distinguish.

A mixture of products models the dependence between groups and treats values inside groups as independent: a
correlation of 0.95 becomes 0.8. A Gaussian copula fitted to the tables of groups adds the dependence inside them. The
tables of groups and the marginals stay as fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import MISSING, Boolean, Category

SWEEPS: Annotated[int, UNRECORDED] = 3
# Least eigenvalue of the latent correlations: with smaller ones, sweeps mix slowly.
LEAST_EIGENVALUE: Annotated[float, UNRECORDED] = 0.02
_ANGLES = np.linspace(-np.pi / 2, np.pi / 2, 121)[1:-1]  # their sines are the candidate correlations
_FARTHEST = 8.0
_LEAST = 1e-12


class Copula:
    """A standard normal variable behind each ordered column, cut into the column's groups; `correlations` between them.

    Source: the correlations are polychoric (Olsson 1979), by least squares, which suits noise that is equal in all
    cells; rows are drawn by Gibbs sampling of a truncated normal vector (Geweke 1991), from a start that draws each
    variable given those before it.
    """

    def __init__(self, cells: Sequence[Cells], mixture: Mixture) -> None:
        orders = {j: _group_order(own, mixture.groups[j]) for j, own in enumerate(cells) if _ordered(own)}
        self._orders = {j: order for j, order in orders.items() if order is not None and len(order) > 1}
        self.columns = tuple(self._orders)
        self._ranked = [j for j in self.columns if cells[j].ordered]
        self._groups = mixture.groups
        self._cells = cells
        self._edges = {j: _edges(mixture.marginal(j), mixture.groups[j], order) for j, order in self._orders.items()}
        self.correlations = self._fitted(mixture)

    def _fitted(self, mixture: Mixture) -> Floats:
        correlations = np.eye(len(self.columns))
        for (a, i), (b, j) in combinations(enumerate(self.columns), 2):
            table = mixture.grouped_pair(i, j)[np.ix_(self._orders[i], self._orders[j])]
            correlations[a, b] = correlations[b, a] = polychoric(table)
        return _positive(correlations)

    def couple(self, codes: Sequence[Codes], members: NDArray[np.int64], generator: np.random.Generator) -> list[Codes]:
        """Permute the values of each column inside its groups, so that their ranks have the copula's dependence.

        `codes` holds the codes of each column, `members` their cells, one row a column.
        """
        coupled = list(codes)
        if len(self.columns) < 2 or not self._ranked:
            return coupled
        latent = self._latent(members, generator)
        for index, j in enumerate(self.columns):
            if j not in self._ranked:
                continue
            own, groups = codes[j].copy(), self._groups[j][members[j]]
            present = own != MISSING
            for group in self._orders[j]:
                rows = np.flatnonzero(present & (groups == group))
                own[rows[np.argsort(latent[index, rows], kind="stable")]] = np.sort(own[rows])
            coupled[j] = own
        return coupled

    def _latent(self, members: NDArray[np.int64], generator: np.random.Generator) -> Floats:
        """Draw the latent normal vector of each row given the groups of its values, as one column a row."""
        shape = len(self.columns), members.shape[1]
        low, high = np.empty(shape), np.empty(shape)
        for index, j in enumerate(self.columns):
            groups = self._groups[j][members[j]]
            missing = members[j] == self._cells[j].missing
            low[index] = np.where(missing, -_FARTHEST, self._edges[j][0][groups])
            high[index] = np.where(missing, _FARTHEST, self._edges[j][1][groups])
        latent, lower = np.empty(shape), np.linalg.cholesky(self.correlations)
        steps = np.empty(shape)
        for index, width in enumerate(np.diag(lower)):  # each given those before it: a start close to the target
            mean = lower[index, :index] @ steps[:index]
            latent[index] = _truncated(mean, width, low[index], high[index], generator)
            steps[index] = (latent[index] - mean) / width
        precision = np.linalg.inv(self.correlations)
        for _ in range(SWEEPS):
            for index in range(len(self.columns)):
                width = precision[index, index]
                mean = latent[index] - precision[index] @ latent / width
                latent[index] = _truncated(mean, width**-0.5, low[index], high[index], generator)
        return latent


def polychoric(table: Floats) -> float:
    """The correlation of the bivariate normal distribution that fits a table of ordered groups best."""
    shares = table / table.sum()
    rows, columns = (_inner_edges(shares.sum(axis)) for axis in (1, 0))
    return float(np.sin(_ANGLES[np.argmin(((_rectangles(rows, columns) - shares) ** 2).sum((1, 2)))]))


def _rectangles(rows: Floats, columns: Floats) -> Floats:
    """Probabilities of the rectangles between edges, for each correlation: entry [correlation, row, column].

    Φ₂(h, k; sin θ) = Φ(h)Φ(k) + ∫₀^θ exp(−(h² + k² − 2hk sin t) / (2 cos² t)) dt / 2π, by the trapezoid rule.
    """
    h, k, angle = rows[None, :, None], columns[None, None, :], _ANGLES[:, None, None]
    density = np.exp(-(h**2 + k**2 - 2 * h * k * np.sin(angle)) / (2 * np.cos(angle) ** 2)) / (2 * np.pi)
    steps = (density[1:] + density[:-1]) / 2 * np.diff(_ANGLES)[:, None, None]
    below = np.concatenate([np.zeros_like(density[:1]), np.cumsum(steps, 0)])
    below += ndtr(h) * ndtr(k) - below[len(_ANGLES) // 2]
    full = np.zeros((len(_ANGLES), len(rows) + 2, len(columns) + 2))
    full[:, 1:-1, 1:-1] = below
    full[:, -1, 1:-1], full[:, 1:-1, -1], full[:, -1, -1] = ndtr(columns), ndtr(rows), 1.0
    return np.diff(np.diff(full, axis=1), axis=2)


def _truncated(mean: Floats, width: float, low: Floats, high: Floats, generator: np.random.Generator) -> Floats:
    """Normal draws between `low` and `high`."""
    first, last = ndtr((low - mean) / width), ndtr((high - mean) / width)
    chosen = np.clip(first + generator.random(mean.shape) * (last - first), _LEAST, 1 - _LEAST)
    return np.clip(mean + width * ndtri(chosen), low, high)


def _ordered(cells: Cells) -> bool:
    """Whether a column's cells are ordered; two labels count as ordered."""
    column = cells.column
    return cells.ordered or isinstance(column, Boolean) or (isinstance(column, Category) and len(column.values) == 2)


def _group_order(cells: Cells, groups: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The groups of the cells, without the missing one, from low to high; None if they are not intervals."""
    present = groups[: cells.missing]
    order = present[np.sort(np.unique(present, return_index=True)[1])]
    changes = 1 + np.count_nonzero(np.diff(present))
    return order if changes == len(order) else None


def _edges(shares: Floats, groups: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Thresholds of the normal variable behind a column: lower and upper end of each group."""
    total = np.bincount(groups, shares)
    inner = _inner_edges(total[order] / total[order].sum())
    low, high = np.full(len(total), -_FARTHEST), np.full(len(total), _FARTHEST)
    low[order[1:]], high[order[:-1]] = inner, inner
    return low, high


def _inner_edges(shares: Floats) -> Floats:
    return ndtri(np.clip(np.cumsum(shares)[:-1], _LEAST, 1 - _LEAST))


def _positive(correlations: Floats) -> Floats:
    """The correlations with eigenvalues of at least `LEAST_EIGENVALUE`."""
    values, vectors = np.linalg.eigh(correlations)
    raised = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(raised))
    return raised / np.outer(scale, scale)
