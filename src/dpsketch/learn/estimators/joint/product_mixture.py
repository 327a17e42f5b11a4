"""Mixtures of products: a joint distribution that answers product-form questions exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats

SAMPLE_SEED = 20_250_101


@dataclass(frozen=True)
class Mixture:
    """P(cells) = Σ_k weight_k · Π_j share_jk[group of the cell] · within_j[cell].

    `shares[j]` has one row a component and one column a group of column j's cells, `groups[j]` is the group of each
    cell and `within[j]` the share of a cell in its group, the same for all components.
    """

    weights: Floats
    shares: tuple[Floats, ...]
    groups: tuple[NDArray[np.int64], ...]
    within: tuple[Floats, ...]

    @property
    def columns(self) -> int:
        return len(self.shares)

    def marginal(self, column: int) -> Floats:
        """Shares of a column's cells."""
        return (self.weights @ self.shares[column])[self.groups[column]] * self.within[column]

    def expectations(self, column: int, values: Floats) -> Floats:
        """E[values | component] for values given on a column's cells; of several functions one row each."""
        return values @ shares_in_groups(self.groups[column], self.within[column]) @ self.shares[column].T

    def grouped_pair(self, first: int, second: int) -> Floats:
        """The joint table of two different columns' groups of cells."""
        return (self.shares[first] * self.weights[:, None]).T @ self.shares[second]

    def pair(self, first: int, second: int) -> Floats:
        """The joint table of two different columns' cells."""
        cells = self.grouped_pair(first, second)[np.ix_(self.groups[first], self.groups[second])]
        return cells * np.outer(self.within[first], self.within[second])

    def sample(self, rows: int, seed: int = SAMPLE_SEED) -> NDArray[np.int64]:
        """Cells of `rows` records, one column a column: stratified by component, then by group, then by cell."""
        generator = np.random.default_rng(seed)
        sizes = np.bincount(_stratified(self.weights, rows, generator), minlength=len(self.weights))
        cells = np.empty((rows, self.columns), np.int64)
        for column, (shares, groups) in enumerate(zip(self.shares, self.groups, strict=True)):
            drawn = [
                generator.permutation(_stratified(shares[k], size, generator)) for k, size in enumerate(sizes) if size
            ]
            group = np.concatenate(drawn) if drawn else np.empty(0, np.int64)
            for each in range(shares.shape[1]):
                where, members = np.flatnonzero(group == each), np.flatnonzero(groups == each)
                if len(where):
                    inside = _stratified(self.within[column][members], len(where), generator)
                    cells[where, column] = members[generator.permutation(inside)]
        return generator.permutation(cells)


def shares_in_groups(groups: NDArray[np.int64], within: Floats) -> Floats:
    """The share of each cell (row) in each group (column), from the group of each cell and its share in that."""
    return np.where(groups[:, None] == np.arange(groups.max() + 1), within[:, None], 0.0)


def _stratified(shares: Floats, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draws in increasing order, each value as often as its share says, up to one."""
    upper = np.cumsum(shares)
    points = (np.arange(count) + generator.random()) / max(count, 1) * upper[-1]
    return np.minimum(np.searchsorted(upper, points, side="right"), len(shares) - 1)
