"""Noisy contingency tables of few columns in a release, and the estimator of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Annotated

import numpy as np

from dpsketch.learn.answer import Estimate
from dpsketch.learn.asked_points import asked_points
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor, product_at, repeated_of
from dpsketch.learn.points import NORMAL_95, Frame, cell_points
from dpsketch.maps.tables.cells import Cells
from dpsketch.maps.tables.histogram import BoundHistogram
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.nonnegative import project_to_simplex
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart

# Concentration of the distribution of a cell's records around the even one.
EVENNESS: Annotated[
    float, Tuned("no table: the share of a cell's records below its middle is uniform", by=BY_HAND, decision=61)
] = 2.0

MOST_VALUES = 1 << 24  # of functions at the numbers of a question
JUMP = 3  # a larger part of a function's range than 1/JUMP, between points beside each other, is a jump


@dataclass(frozen=True)
class SmallTable:
    """Noisy counts of all cells of some columns, in a part of a release: `part.sums` from `first` on, in units of
    1/`grid` record. The last cell of each column holds missing values.
    """

    part: ReleasedPart
    columns: tuple[str, ...]
    cells: tuple[Cells, ...]
    first: int
    grid: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(cells.count for cells in self.cells)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def counts(self) -> Floats:
        """The noisy counts, with one axis a column."""
        sums = self.part.sums[self.first : self.first + self.size]
        return np.asarray(sums / self.grid, np.float64).reshape(self.shape)

    @property
    def variance(self) -> float:
        """Noise variance of each count."""
        return self.part.noise_variance / self.grid**2

    @property
    def numeric(self) -> bool:
        """Whether every column is ordered, so that cells have neighbours."""
        return all(cells.column.numeric for cells in self.cells)


def small_tables(part: ReleasedPart) -> list[SmallTable]:
    """The tables of a part in order: those of a histogram, or one for each column of marginals."""
    feature_map = part.map
    if isinstance(feature_map, BoundHistogram):
        return [
            SmallTable(part, names, tuple(feature_map.column_cells[name] for name in names), int(first))
            for names, first in zip(feature_map.tables, feature_map.offsets[:-1], strict=True)
        ]
    if isinstance(feature_map, OneWayMap):
        return [
            SmallTable(part, (name,), (cells,), feature_map.table(index).start, feature_map.grid)
            for index, (name, cells) in enumerate(zip(feature_map.columns, feature_map.cells, strict=True))
        ]
    return []


class Shares:
    """Shares of a table's cells: noisy counts over noisy rows, shifted by one amount so that they sum to one.

    They are linear in the noise and may be negative, so sums of them are unbiased with exact standard errors.
    Truncation at zero would move mass into empty cells and bias answers about tails by more than their standard error.
    `positive` are the shares projected onto the simplex: a distribution to draw points from.
    """

    def __init__(self, noise: ReleaseNoise, part: ReleasedPart, first: int, cells: int) -> None:
        self._noise, self._part, self._first = noise, part, first
        self._rows = noise.rows()
        self._raw = part.sums[first : first + cells] / self._rows.value
        self.shares = self._raw + (1.0 - self._raw.sum()) / cells

    @cached_property
    def positive(self) -> Floats:
        return project_to_simplex(self._raw)

    def one_cell(self) -> Floats:
        """Influence of the noise of a single cell on its share."""
        return self._noise.place(self._part, np.ones(1) / self._rows.value, self._first)

    def influence(self, slopes: Floats) -> Floats:
        """Influence of the noise on Σ slopes·shares, for each row of `slopes`: the shift subtracts the mean slope."""
        centred = slopes - slopes.mean(axis=1, keepdims=True)
        from_sums = self._noise.place(self._part, centred / self._rows.value, self._first)
        from_rows = -(centred @ self._raw)[:, None] * self._rows.influence / self._rows.value
        return from_sums + from_rows


class TableEstimator:
    """E[f(X)] = Σ_cells share · mean of f inside the cell, for functions of the table's columns.

    Where records are inside cells of several levels is not known: their distribution in a cell is a Dirichlet process
    around the even one, so the mean of f over them has the variance (variance of f in the cell)/(1 + EVENNESS). All
    records of a cell may have one value, and questions often name it: where f jumps inside the cell, half its range is
    therefore half of an interval of the mean. Between `uneven` edges, a falling density moves
    records to the same side in all cells, so these errors add up; those of even bins add in quadrature. Functions that
    are constant in every cell have the errors of the noise alone.
    """

    def __init__(self, schema: Schema, noise: ReleaseNoise, table: SmallTable) -> None:
        self._schema, self.table, self.columns = schema, table, table.columns
        self.marginal = Shares(noise, table.part, table.first, table.size)
        names = " × ".join(self.columns)
        self._own = noise.reserve(("where records lie inside cells", 1))
        self.how = f"{'marginal' if len(self.columns) == 1 else 'table'} of {names}"

    @property
    def _uneven(self) -> bool:
        return any(cells.uneven for cells in self.table.cells)

    @cached_property
    def _points(self) -> tuple[Frame, int]:
        return cell_points(self._schema, self.table.cells)

    def cells_of(self, column: str) -> None:
        return None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        every = [self._inside(factors) for factors in products]
        means, hidden = (np.concatenate(each) for each in zip(*every, strict=True))
        shares, influence = self.marginal.shares, self.marginal.influence(means)
        if not hidden.any():
            return Estimate(means @ shares, influence)
        between = np.zeros((len(means), self._own - influence.shape[1]))
        held = np.maximum(shares, 0.0)
        together = self._uneven or any(repeated_of(factors) for factors in products)
        errors = hidden @ held if together else np.sqrt(hidden**2 @ held**2)
        return Estimate(means @ shares, np.hstack([influence, between, errors[:, None]]))

    def _inside(self, factors: Sequence[Factor]) -> tuple[Floats, Floats]:
        """Means of functions over the cells, and the standard errors of these from where records are: entries
        [function, cell]. A function that jumps or repeats inside a cell, such as a condition or an hour of the day, may
        have any of its values there.
        """
        frame, points = self._points
        values = product_at(factors, frame).reshape(-1, self.table.size, points)
        means = values.mean(axis=2)
        if points == 1 and not any(cells.binned for cells in self.table.cells):
            return means, np.zeros_like(means)
        variances = np.stack([each.var(axis=1) for each in values])  # one by one: memory
        steps = np.stack([np.abs(np.diff(each, axis=1)).max(axis=1, initial=0.0) for each in values])
        least, most = values.min(axis=2), values.max(axis=2)
        spread = most - least
        asked = asked_points(self._schema, self.table.cells, factors, MOST_VALUES // values[:, :, 0].size)
        there = product_at(factors, asked.frame).reshape(len(values), self.table.size, -1)
        least, most = np.minimum(least, there.min(axis=2)), np.maximum(most, there.max(axis=2))
        anywhere = (np.maximum(steps, most - least - spread) > spread / JUMP) | repeated_of(factors)
        if not asked.complete:
            least[:, asked.cells], most[:, asked.cells] = least.min(), most.max()
            anywhere |= asked.cells
        whole = np.where(anywhere, (most - least) / 2 / NORMAL_95, 0.0)
        return means, np.maximum(np.sqrt(variances / (1 + EVENNESS)), whole)
