"""Answers from the cells of a grid, with standard errors from refits to new noise and from neighbouring cells."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

import numpy as np

from dpsketch.learn.answer import Estimate, stacked
from dpsketch.learn.estimators.release_noise import FITTED, FLOOR, ReleaseNoise
from dpsketch.learn.factors import Factor, columns_of, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.population.grid_population import GridPopulation
from dpsketch.learn.population.grids.cell_points import (
    Places,
    PointsInCells,
    cell_numbers,
    codes_along,
    points_in_cells,
    unevenness,
)
from dpsketch.learn.population.grids.thresholds import ENDS, threshold_changes
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.cells import Cells, HistogramCells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING
from dpsketch.schema.schema import Schema

POINTS = 1 << 16
FEW_POINTS = 1 << 13  # of which each is moved to STEPS even places along every column of its cell, and to both ends
STEPS = 8
SIGNS = 32  # random signs with which many independent errors are added, once a coordinate
_BLOCK = 1 << 14
_ORIGIN = Tuned("skin, occupancy, cod_rna", by=BY_HAND, decision=49)
# Factors of what halves of cells along a column differ by; of the change that neighbouring cells show together, and
# apart; and of the change that records of a cell at a bound make if all of them sit on the bound.
UNEVEN: Annotated[float, _ORIGIN] = 1.5
TOGETHER: Annotated[float, _ORIGIN] = 0.5
APART: Annotated[float, _ORIGIN] = 1.5
AT_BOUND: Annotated[float, _ORIGIN] = 0.7


class GridEstimator:
    """Expectations of functions of a grid's columns: means over points inside the heavy cells.

    An estimate's influence is its change from the fit to each refit; if the coarsest cells kept their noisy counts; and
    by what is unknown of records inside cells: along each column (`_inside`), at numbers that it is compared with in a
    cell that stands out (`_at_thresholds`), and the change if neighbouring cells were
    alike, added over all of them and with random signs. All are linear in the function, so that errors of a share and
    of a part of it do not cancel in their ratio unless they are the same. It is at least the noise of one cell.
    """

    def __init__(self, schema: Schema, noise: ReleaseNoise, population: GridPopulation) -> None:
        self.columns, self._schema, self._population = population.columns, schema, population
        self._first = noise.reserve(
            (FITTED, population.refits),
            ("missing cells that noise hides", len(self.columns)),
            ("where records lie inside cells", 2 * len(self.columns) + 2 * SIGNS),
            ("changes from cell to cell", SIGNS + 1),
            (FITTED, 1),
            (FLOOR, 1),
        )
        self._points = Memo(self._placed)
        self.how = f"cells of a grid of {', '.join(self.columns)}"

    def cells_of(self, column: str) -> Cells | None:
        if column not in self.columns:
            return None
        return HistogramCells(
            self._schema.column(column), 1 << self._population.cells.columns[self.columns.index(column)].levels[-1]
        )

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        return stacked([self._expect(factors) for factors in products])

    def _expect(self, factors: Sequence[Factor]) -> Estimate:
        refits, points = self._population.refits, self._points(0)
        groups = int(points.groups.max()) + 1
        value, moved = np.zeros(1), np.zeros((1, groups))
        least, most = np.full(1, np.inf), np.full(1, -np.inf)
        for block in points.blocks(_BLOCK):
            values = self._values(factors, points.codes[:, block])
            value = value + values @ points.weights[block]
            least, most = np.minimum(least, values.min(1)), np.maximum(most, values.max(1))
            changed = (np.bincount(points.groups[block], row * points.moved[block], groups) for row in values)
            moved = moved + np.stack(list(changed))
        total = points.weights.sum()
        value, moved = value / total, moved / total
        refitted = (self._points(model) for model in range(1, refits + 1))
        changes = [self._sums(factors, refit.codes, refit.weights) / refit.weights.sum() - value for refit in refitted]
        codes, weights = self._coarsest
        shifts = self._sums(factors, codes, weights) - value * weights.sum()
        known = np.column_stack(
            [
                np.stack(changes, axis=1) / sqrt(refits),
                self._missing(factors, value),
                self._inside(factors),
                self._at_thresholds(factors, len(value)),
                APART * moved @ _signs(groups) / sqrt(SIGNS),
                TOGETHER * moved.sum(1),
                shifts,
            ]
        )
        floor = self._population.noise * (most - least)
        least_error = np.sqrt(np.maximum(floor**2 - (known**2).sum(1), 0.0))
        return Estimate(value, np.column_stack([np.zeros((len(value), self._first)), known, least_error]), True)

    def _placed(self, model: int) -> PointsInCells:
        fit = self._population.model(model)
        return points_in_cells(fit.cells, fit.leaves, POINTS, model)

    def _values(self, factors: Sequence[Factor], codes: Codes) -> Floats:
        return product_at(factors, Frame(self._schema, dict(zip(self.columns, codes, strict=True))))

    def _sums(self, factors: Sequence[Factor], codes: Codes, weights: Floats) -> Floats:
        """Weighted sums over points, block by block: their values need not fit in memory at once."""
        blocks = (slice(start, start + _BLOCK) for start in range(0, len(weights), _BLOCK))
        return np.asarray(sum(self._values(factors, codes[:, block]) @ weights[block] for block in blocks), np.float64)

    def _inside(self, factors: Sequence[Factor]) -> Floats:
        """Influence of how records lie along each column inside all cells that have the same part of it: the changes of
        a function along the column there, with random signs, times how far the halves of such parts differ elsewhere;
        and its change if all records of the parts at the column's bounds sat on these.
        """
        points, random, at_bounds = self._few, np.zeros((1, SIGNS)), []
        total = points.weights.sum()
        for name in self.columns:
            column = self.columns.index(name)
            if name not in columns_of(factors):
                at_bounds += [np.zeros(1), np.zeros(1)]
                continue
            parts, uneven = self._along[column]
            count = int(parts.max()) + 1
            sums = np.stack(
                [self._sums_by(factors, column, codes, parts, count) for codes in self._moved_along[column]]
            )
            apart = (sums - sums.mean(0)).transpose(1, 0, 2).reshape(sums.shape[1], -1)
            random = random + UNEVEN * uneven / total * apart @ _signs(apart.shape[1]) / sqrt(len(sums) * SIGNS)
            for bound in (LOWEST, HIGHEST):
                here = self._parts_at(column, bound)
                moved = self._sums_by(factors, column, np.full(len(parts), bound, np.int16), parts, count)
                at_bounds.append(AT_BOUND * (moved - sums.mean(0))[:, here].sum(1) / total)
        rows = max(len(random), *(len(each) for each in at_bounds))
        return np.column_stack(
            [np.broadcast_to(each, rows) for each in at_bounds] + [np.broadcast_to(random, (rows, SIGNS))]
        )

    def _missing(self, factors: Sequence[Factor], value: Floats) -> Floats:
        """The change if records of a column that is taken to have no missing values had one, for each column."""
        points, found = self._few, np.zeros((len(value), len(self.columns)))
        for column, deviation in enumerate(self._population.unseen_missing):
            if deviation and self.columns[column] in columns_of(factors):
                codes = points.codes.copy()
                codes[column] = MISSING
                moved = self._values(factors, codes) @ points.weights / points.weights.sum()
                found[:, column] = deviation * (moved - value)
        return found

    def _at_thresholds(self, factors: Sequence[Factor], rows: int) -> Floats:
        """Influence of the unknown side of a threshold on which a heavy cell's records lie, with random signs:
        `threshold_changes`.
        """
        points, found = self._points(0), np.zeros((rows, SIGNS))
        for place, change in threshold_changes(self._schema, self._population.cells, points, factors):
            signs = np.random.default_rng([17, *place]).choice([-1.0, 1.0], SIGNS)
            found = found + change[:, None] * signs / (points.weights.sum() * sqrt(SIGNS))
        return found

    def _sums_by(self, factors: Sequence[Factor], column: int, codes: Codes, parts: Places, count: int) -> Floats:
        """Sums of functions over the points in each part of a column, with other codes of this column."""
        every = self._few.codes.copy()
        every[column] = codes
        weighted = self._values(factors, every) * self._few.weights
        return np.stack([np.bincount(parts, row, count) for row in weighted])

    def _parts_at(self, column: int, bound: int) -> Places:
        """The parts of a column of several values that begin or end at a bound."""
        cells, points, (parts, _) = self._population.cells.columns[column], self._few, self._along[column]
        number = bound - MISSING  # of a cell at a bound at level 16
        found = np.zeros(len(parts), bool)
        for position, level in enumerate(cells.levels):
            rank = int(np.searchsorted(cells.numbers[position], number >> (16 - level)))
            if cells.values(position)[rank] > 1:
                found |= (points.positions == position) & (points.ranks[column] == rank)
        return np.unique(parts[found])

    @made_once
    def _few(self) -> PointsInCells:
        fit = self._population.model(0)
        return points_in_cells(fit.cells, fit.leaves, FEW_POINTS, 0)

    @made_once
    def _along(self) -> list[tuple[Places, float]]:
        """For each column which part of it each of the few points is in, and how uneven its cells are."""
        cells, few, every = self._population.cells, self._few, self._points(0)
        found = []
        for column in range(len(self.columns)):
            _, parts = np.unique(cell_numbers(cells, few, column), return_inverse=True)
            found.append((parts, unevenness(cells, every, column)))
        return found

    @made_once
    def _moved_along(self) -> list[list[Codes]]:
        """For each column the codes of the few points at STEPS even places along it in their cells, and at both ends:
        many records may share the value at an end, such as a round number.
        """
        generator, cells, points = np.random.default_rng(14), self._population.cells, self._few
        first = generator.random((len(self.columns), len(points.weights)))
        return [
            [codes_along(cells, points, column, (own + step) / STEPS) for step in range(STEPS)]
            + [codes_along(cells, points, column, np.full(len(own), end)) for end in ENDS]
            for column, own in enumerate(first)
        ]

    @made_once
    def _coarsest(self) -> tuple[Codes, Floats]:
        """Points in the coarsest cells, with the share of records by which the fit differs from the noisy counts."""
        population, cells, points = self._population, self._population.cells, self._points(0)
        ranks, counts = population.coarsest
        shape = [column.count(0) for column in cells.columns]
        numbers = cells.numbers_of(0, points.codes)
        own = np.ravel_multi_index(tuple(cells.ranks(0, numbers)), shape)
        masses = np.bincount(own, points.weights, int(np.prod(shape)))
        noisy = np.zeros(len(masses))
        noisy[np.ravel_multi_index(tuple(ranks), shape)] = counts
        change = np.where(masses > 0, (noisy - masses) / np.where(masses > 0, masses, 1.0), 0.0)
        empty = ranks[:, masses[np.ravel_multi_index(tuple(ranks), shape)] <= 0]
        rest = noisy[np.ravel_multi_index(tuple(empty), shape)]
        steps = np.random.default_rng(15).random(empty.shape)
        more = [column.codes(0, rank, step) for column, rank, step in zip(cells.columns, empty, steps, strict=True)]
        codes = np.hstack([points.codes, np.stack(more)])
        return codes, np.append(points.weights * change[own], rest) / points.weights.sum()


def _signs(count: int) -> Floats:
    """Public random signs, the same for every function."""
    return np.where(np.random.default_rng(16).integers(0, 2, (count, SIGNS)) == 1, 1.0, -1.0)
