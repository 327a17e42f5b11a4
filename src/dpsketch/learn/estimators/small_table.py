"""Answers from one noisy table: expectations of functions of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame, cell_points
from dpsketch.maps.tables.histogram import Binning, BoundHistogram
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.nonnegative import project_to_simplex
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart


class Shares:
    """Shares of a table's cells: noisy counts over noisy rows, shifted by one amount so that they sum to one.

    They stay linear in the noise, may be negative, and so give unbiased sums with exact standard errors. Cutting
    negative shares off would push mass into empty cells: answers about tails would be off by more than their error.
    `positive` does cut them off, by projection onto the simplex: a distribution to draw points from.
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
        """Influence of a single cell's noise on its share."""
        return self._noise.place(self._part, np.ones(1) / self._rows.value, self._first)

    def influence(self, slopes: Floats) -> Floats:
        """Influence on Σ slopes·shares, for each row of `slopes`: the shift subtracts the mean slope."""
        centred = slopes - slopes.mean(axis=1, keepdims=True)
        from_sums = self._noise.place(self._part, centred / self._rows.value, self._first)
        from_rows = -(centred @ self._raw)[:, None] * self._rows.influence / self._rows.value
        return from_sums + from_rows


class TableEstimator:
    """E[f(X)] = Σ_cells share · mean of f inside the cell, for functions of the table's columns."""

    def __init__(
        self, schema: Schema, noise: ReleaseNoise, part: ReleasedPart, histogram: BoundHistogram, table: int
    ) -> None:
        self.columns = histogram.tables[table]
        self.binnings: list[Binning] = [histogram.binnings[name] for name in self.columns]
        self.cells = int(np.prod(histogram.shape(table)))
        self._schema = schema
        self.marginal = Shares(noise, part, int(histogram.offsets[table]), self.cells)
        names = " × ".join(self.columns)
        self.how = f"{'marginal' if len(self.columns) == 1 else 'table'} of {names}"

    @cached_property
    def _points(self) -> tuple[Frame, int]:
        return cell_points(self._schema, self.binnings)

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        frame, inside = self._points
        values = np.concatenate([product_at(factors, frame) for factors in products])
        means = values.reshape(len(values), self.cells, inside).mean(axis=2)
        return Estimate(means @ self.marginal.shares, self.marginal.influence(means))
