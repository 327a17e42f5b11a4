"""Noisy contingency tables of few columns in a release, and the estimator of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Annotated

import numpy as np

from dpsketch.learn.answer import Estimate
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

    Where records are inside wide cells between `uneven` edges is not known: their distribution in a cell is a Dirichlet
    process around the even one, so the mean of f over them has the variance (variance of f in the cell)/(1 + EVENNESS).
    A falling density moves them to the same side in all cells, so these errors add up. Functions that are constant in
    every cell have the errors of the noise alone.
    """

    def __init__(self, schema: Schema, noise: ReleaseNoise, table: SmallTable) -> None:
        self._schema, self.table, self.columns = schema, table, table.columns
        self.marginal = Shares(noise, table.part, table.first, table.size)
        names = " × ".join(self.columns)
        self._own = noise.reserve(("where records lie inside cells", 1))
        self.how = f"{'marginal' if len(self.columns) == 1 else 'table'} of {names}"

    @cached_property
    def _points(self) -> tuple[Frame, int]:
        return cell_points(self._schema, self.table.cells)

    def cells_of(self, column: str) -> None:
        return None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        frame, inside = self._points
        values = np.concatenate([product_at(factors, frame) for factors in products])
        inside_cells = values.reshape(len(values), self.table.size, inside)
        means, shares = inside_cells.mean(axis=2), self.marginal.shares
        influence = self.marginal.influence(means)
        hidden = self._hidden(inside_cells, any(repeated_of(factors) for factors in products))
        if hidden is None:
            return Estimate(means @ shares, influence)
        between = np.zeros((len(values), self._own - influence.shape[1]))
        errors = hidden @ np.maximum(shares, 0.0)
        return Estimate(means @ shares, np.hstack([influence, between, errors[:, None]]))

    def _hidden(self, inside_cells: Floats, repeated: bool) -> Floats | None:
        """The standard error of each cell's mean from where its records are: None where cells are even. A function that
        repeats inside a cell, such as an hour of the day, may have any of its values there.
        """
        uneven = any(cells.uneven for cells in self.table.cells)
        errors = []
        if uneven:
            errors.append(np.sqrt(inside_cells.var(axis=2) / (1 + EVENNESS)))
        if repeated:
            errors.append(np.ptp(inside_cells, axis=2) / 2 / NORMAL_95)
        return np.maximum.reduce(errors) if errors else None
