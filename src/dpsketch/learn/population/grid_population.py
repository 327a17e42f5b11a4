"""Rows from the cells of a grid: the joint distribution that a release with grids estimates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.errors import QueryError
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.points import Frame
from dpsketch.learn.population.grids.cell_points import points_in_cells
from dpsketch.learn.population.grids.grid_cells import GridCells, Ranks
from dpsketch.learn.population.grids.heap import HEAVIEST, check_heavy, heaviest, number_of_records
from dpsketch.learn.population.grids.heavy_cells import (
    MOST_CELLS,
    LevelCells,
    missing_deviations,
    missing_in,
    never_missing,
    search,
)
from dpsketch.learn.population.grids.level_counters import GridTable, check_recovery, grid_tables, levels_of
from dpsketch.learn.population.weighted_rows import OF_CELLS, block_sizes, usual_rows
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.grid import BoundGrid
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

REDRAWN_POINTS = 1 << 18  # of a refit's table
METHODS = ("cells", "heap")


class CellModel:
    """A distribution over cells: `leaves` hold masses level by level; inside a cell values are uniform."""

    def __init__(self, cells: GridCells, leaves: Sequence[LevelCells]) -> None:
        self.cells, self.leaves = cells, [leaf for leaf in leaves if len(leaf.masses)]
        masses = np.concatenate([leaf.masses for leaf in self.leaves])
        self.total = float(masses.sum())
        if not self.total > 0:
            raise QueryError("no cell of the grid stands out from the noise", "release with a larger epsilon")
        self._shares = masses / self.total

    def draw(self, rows: int, generator: np.random.Generator) -> list[Codes]:
        """Codes of each column, in random order."""
        counts = generator.multinomial(rows, self._shares)
        ends = np.cumsum([len(leaf.masses) for leaf in self.leaves])
        codes = np.empty((len(self.cells.columns), rows), np.int16)
        filled = 0
        for leaf, own in zip(self.leaves, np.split(counts, ends[:-1]), strict=True):
            chosen = np.repeat(np.arange(len(own)), own)
            for index, column in enumerate(self.cells.columns):
                steps = generator.random(len(chosen))
                codes[index, filled : filled + len(chosen)] = column.codes(
                    leaf.position, leaf.ranks[index][chosen], steps
                )
            filled += len(chosen)
        return list(codes[:, generator.permutation(rows)])


class CellRows:
    """Rows drawn from a distribution over cells, in blocks."""

    def __init__(self, schema: Schema, model: CellModel) -> None:
        self._schema, self._model, self.columns = schema, model, model.cells.names

    def draw(self, rows: int, seed: int) -> Iterator[Frame]:
        for block, count in enumerate(block_sizes(rows, len(self.columns))):
            yield self.frame(count, np.random.default_rng([seed, block]))

    def frame(self, rows: int, generator: np.random.Generator) -> Frame:
        return Frame(self._schema, dict(zip(self.columns, self._model.draw(rows, generator), strict=True)))


class GridPopulation:
    """Rows of the heavy cells of a grid, and of refits to counters of such rows with new noise.

    `method` is "cells" (coarse to fine, projected onto the simplex) or "heap" (the paper's: the `heavy` heaviest
    cells of `level`, by default the finest). `recovery` takes the "mean" or the "median" of the K rows of counters.
    `smooth` is for densities of single cells: see `search`.
    """

    refits, hidden = 8, OF_CELLS

    def __init__(
        self,
        released: ReleasedSketch,
        noise: ReleaseNoise,
        method: str = "cells",
        recovery: str = "mean",
        heavy: int = HEAVIEST,
        level: int | None = None,
        smooth: bool = False,
    ) -> None:
        if method not in METHODS:
            raise QueryError(f"method must be one of {', '.join(METHODS)}, got {method!r} instead")
        check_recovery(recovery)
        check_heavy(heavy)
        self._schema: Schema = released.schema
        self.tables = grid_tables(released)
        self.columns = self.tables[0].bound.columns
        self.cells = GridCells(self._schema, self.columns, levels_of(self.tables), self.tables[0].bound.offsets)
        if method == "cells" and self.cells.count(0) > MOST_CELLS:
            raise QueryError(
                f"level {self.cells.levels[0]} of the grid has more than {MOST_CELLS} cells to start from",
                "hold a coarser level too: Grid(levels=[1, 2, …]), or fewer columns",
            )
        self._method, self._recovery, self._heavy, self._smooth = method, recovery, heavy, smooth
        self._level = len(self.tables) - 1 if level is None else self.cells.levels.index(level)
        counted = noise.counted_rows
        self._count = None if counted is None else (float(counted.value), float(counted.stderr) ** 2)
        self.model = Memo(self._model)
        self._points = Memo(self._drawn)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise of the share of rows in a cell of the finest level."""
        return sqrt(self.tables[-1].variance(self._recovery)) / self.model(0).total

    @made_once
    def unseen_missing(self) -> Floats:
        """Standard deviation of the share of missing values, for each column taken to have none; zero for others."""
        never = never_missing(self.cells, self.tables[0], self._recovery)
        deviations = missing_deviations(self.cells, self.tables[0], self._recovery)
        return np.where(never, np.minimum(deviations / self.model(0).total, 1.0), 0.0)

    @made_once
    def coarsest(self) -> tuple[Ranks, Floats]:
        """The coarsest cells that records can be in, and their noisy counts."""
        ranks = self.cells.every(0)
        never = never_missing(self.cells, self.tables[0], self._recovery)
        ranks = ranks[:, ~missing_in(self.cells, 0, ranks, never)]
        return ranks, self.tables[0].separated(self.cells.numbers(0, ranks), self._recovery)[0]

    @made_once
    def rows(self) -> tuple[float, float]:
        """The number of records and its standard deviation: from the count and, for a search, the coarsest cells; for a
        heap without a count the sum of the estimates of all cells of its level.
        """
        if self._method == "heap" and self._count is None:
            return number_of_records(self.cells, self.tables[self._level], self._level)
        if self._method == "heap" and self._count is not None:
            return self._count[0], sqrt(self._count[1])
        variance = self.cells.count(0) * self.tables[0].variance(self._recovery)
        if self._count is not None:
            variance = variance * self._count[1] / max(variance + self._count[1], 1e-300)
        return self.model(0).total, sqrt(variance)

    def _model(self, number: int) -> CellModel:
        """The fit (0), or one of the refits."""
        tables = self.tables if number == 0 else self._redrawn(number)
        return CellModel(self.cells, self._fitted(tables))

    def points(self, model: int, rows: int | None = None) -> WeightedPoints:
        return self._points((model, rows or usual_rows(model)))

    def _drawn(self, key: tuple[int, int]) -> WeightedPoints:
        model, count = key
        frame = CellRows(self._schema, self.model(model)).frame(count, np.random.default_rng([model, 11]))
        return WeightedPoints(frame, np.full(count, 1 / count))

    def draw(self, rows: int, seed: int) -> Iterator[Frame]:
        return CellRows(self._schema, self.model(0)).draw(rows, seed)

    def _fitted(self, tables: Sequence[GridTable]) -> list[LevelCells]:
        if self._method == "heap":
            coarse = self.cells.count(0) <= MOST_CELLS
            never = never_missing(self.cells, tables[0], self._recovery) if coarse else [False] * len(self.columns)
            return [heaviest(self.cells, tables[self._level], self._level, self._heavy, self._recovery, never)]
        total, variance = (None, 0.0) if self._count is None else self._count
        return search(self.cells, tables, self._recovery, total, variance, self._smooth)

    def _redrawn(self, number: int) -> list[GridTable]:
        """Counters of points of the fit, weighted to its records, plus new noise."""
        generator, fit = np.random.default_rng([number, 12]), self.model(0)
        points = points_in_cells(fit.cells, fit.leaves, REDRAWN_POINTS, number)
        records = self._records(points.codes)
        return [_redrawn_table(table, records, points.weights, generator) for table in self.tables]

    def _records(self, codes: Codes) -> Records:
        every = np.full((len(self._schema.scalars), len(codes[0])), MISSING, np.int16)
        for name, own in zip(self.columns, codes, strict=True):
            every[self._schema.index(name)] = own
        return Records(every)


def _redrawn_table(table: GridTable, records: Records, weights: Floats, generator: np.random.Generator) -> GridTable:
    feature_map, each = table.bound, table.rows * table.bound.width
    index, signs = feature_map.counters(feature_map.cells(records.codes, table.level), table.position)
    own = np.bincount(index.ravel() - table.start, (signs * weights).ravel(), each)
    drawn = generator.laplace(0.0, sqrt(max(table.noise_variance, 1e-300) / 2), each)
    return replace(table, sums=own + drawn)


def searchable(released: ReleasedSketch, part: ReleasedPart) -> bool:
    """Whether a part is a grid, and the coarsest level of the grids has few enough cells to start from."""
    if not any(grid is part for grid, _ in released.parts_with(BoundGrid)):
        return False
    tables = grid_tables(released)
    grid = tables[0].bound
    return GridCells(released.schema, grid.columns, levels_of(tables), grid.offsets).count(0) <= MOST_CELLS
