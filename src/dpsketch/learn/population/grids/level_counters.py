"""The noisy counters of a release's grids, level by level, and estimates of how many records a cell holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.population.grids.grid_cells import GridCells
from dpsketch.maps.base import Sums
from dpsketch.maps.tables.grid import BoundGrid
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch

RECOVERIES = ("mean", "median")
_NORMAL_MEDIAN = 0.6745  # of the size of a normal number, in standard deviations
_LOOKED_AT = 1 << 20
# Standard deviations of a counter above which a cell's collisions are subtracted from other cells.
HEAVY: Annotated[float, Tuned("no table: rare in noise alone", by=BY_HAND, decision=48)] = 4.0

ROUNDS = 2  # in which heavy cells are found, from counters less those of the round before
SPREAD = 3  # rows of counters whose spread is an estimate of their error

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HeavyCells:
    """What heavy cells add to counters: the indices of these, rising, and their sums."""

    indices: Indices
    sums: Floats

    def at(self, index: Indices) -> Floats:
        """What heavy cells add to given counters."""
        if not len(self.indices):
            return np.zeros(index.shape)
        place = np.minimum(np.searchsorted(self.indices, index), len(self.indices) - 1)
        return np.where(self.indices[place] == index, self.sums[place], 0.0)


@dataclass(frozen=True, eq=False)
class GridTable:
    """The K rows of counters of one level, `sums`, with the variance of the noise in each counter."""

    schema: Schema
    bound: BoundGrid
    position: int
    sums: Sums | Floats
    noise_variance: float

    @property
    def level(self) -> int:
        return int(self.bound.levels[self.position])

    @property
    def rows(self) -> int:
        return int(self.bound.salts.shape[1])

    def by_row(self, numbers: Indices) -> Floats:
        """What each row of counters says of the records in given cells: one matrix row a row."""
        index, signs = self.bound.counters(numbers, self.position)
        return self._signed(index, signs)

    def counts(self, numbers: Indices, recovery: str = "mean") -> Floats:
        """Estimates of the records in given cells: the mean or the median of the rows. Source: density sec. 3."""
        return _recovered(self.by_row(numbers), recovery)

    def separated(self, numbers: Indices, recovery: str = "mean") -> tuple[Floats, Floats]:
        """As `estimates` of given cells, all heavy ones among them, less what these add to each other's counters."""
        index, signs = self.bound.counters(numbers, self.position)
        found = self._signed(index, signs)
        if self.rows == 1:
            return found[0], np.full(found.shape[1], self.variance())
        alone = found
        for _ in range(ROUNDS):
            own = self._heavy_counts(alone)
            alone = found - signs * _heavy_cells(index, signs, own).at(index) + own
        return _recovered(alone, recovery), self._variances(alone, recovery)

    def by_themselves(self, numbers: Indices) -> NDArray[np.bool_]:
        """Which of given cells have a counter of every row to themselves."""
        index = self.bound.counters(numbers, self.position)[0]
        _, place, count = np.unique(index, return_inverse=True, return_counts=True)
        return np.asarray((count[place].reshape(index.shape) == 1).all(axis=0))

    def most(self, numbers: Indices) -> Floats:
        """The larger of the mean and the median of the rows: a heavy cell is large by one of them."""
        found = self.by_row(numbers)
        return np.maximum(_recovered(found, "mean"), _recovered(found, "median"))

    def heavy_by_others(self, numbers: Indices) -> Floats:
        """Rough counts of the heavy ones among given cells, 0 for others: for each row from what the other rows say,
        whose hashes are independent of its own.
        """
        found = self.by_row(numbers)
        return np.stack([self._heavy_counts(np.delete(found, row, axis=0)) for row in range(self.rows)])

    def heavy_cells(self, numbers: Indices, own: Floats, row: int) -> HeavyCells:
        """What cells with given counts add to their counters of one row."""
        index, signs = self.bound.counters(numbers, self.position)
        return _heavy_cells(index[row : row + 1], signs[row : row + 1], own)

    def totals(self, numbers: Indices, heavy: Sequence[HeavyCells]) -> Floats:
        """What each row says of the records in all given cells, from counters less what heavy cells add to them."""
        index, signs = self.bound.counters(numbers, self.position)
        found = self._signed(index, signs)
        for row, cells in enumerate(heavy):
            found[row] -= signs[row] * cells.at(index[row])
        return np.asarray(found.sum(axis=1))

    def _heavy_counts(self, found: Floats) -> Floats:
        """From what each row says: its lower median, as a collision that adds records spoils few rows. One row cannot
        tell which of the cells that share a counter is heavy.
        """
        if self.rows == 1:
            return np.zeros(found.shape[1])
        middle = (len(found) - 1) // 2
        lower = np.partition(found, middle, axis=0)[middle]
        return np.where(lower > HEAVY * np.sqrt(self.row_variance), lower, 0.0)

    def estimates(self, numbers: Indices, recovery: str = "mean") -> tuple[Floats, Floats]:
        """As `counts`, with the variance of each: from the spread of three rows or more, which shows what other cells
        add to one of them, but at least that of an empty cell; else from the mean square of counters.
        """
        found = self.by_row(numbers)
        counts = _recovered(found, recovery)
        if self.rows < SPREAD:
            shared = np.maximum(self.collision_variance - counts**2 / self.bound.width, 0.0)
            return counts, (self.noise_variance + shared) / self.rows
        return counts, self._variances(found, recovery)

    def _variances(self, found: Floats, recovery: str) -> Floats:
        """Variances of estimates, from the spread of the rows."""
        if self.rows < SPREAD:
            return np.full(found.shape[1], self.variance(recovery))
        if recovery == "mean":
            spread = found.var(axis=0, ddof=1)
        else:
            spread = (np.median(np.abs(found - np.median(found, axis=0)), axis=0) / _NORMAL_MEDIAN) ** 2
        return np.maximum(self.row_variance, spread) / self.rows * self._more(recovery)

    def _signed(self, index: Indices, signs: Indices) -> Floats:
        return np.asarray(self.sums[index - self.start] * signs, np.float64)

    @cached_property
    def row_variance(self) -> float:
        """Variance of one row's estimate of an empty cell: that of the noise, or more where many cells share a counter.

        From the median size of counters, so that few heavy ones, which few cells meet, do not count.
        """
        if not self._shared:
            return self.noise_variance
        size = float(np.median(np.abs(self.sums[:_LOOKED_AT]))) / _NORMAL_MEDIAN
        return max(self.noise_variance, size**2)

    @cached_property
    def collision_variance(self) -> float:
        """Variance of one row's estimate of a cell due to cells that share its counter: the mean square of counters
        without their noise; zero if no two cells share one.
        """
        if not self._shared:
            return 0.0
        square = sum(
            float(np.square(self.sums[start : start + _LOOKED_AT], dtype=np.float64).sum())
            for start in range(0, len(self.sums), _LOOKED_AT)
        )
        return max(square / len(self.sums) - self.noise_variance, 0.0)

    def collision_variance_without(self, heavy: Sequence[HeavyCells]) -> float:
        """The same after what heavy cells add to the counters of each row was subtracted."""
        less = 0.0
        for cells in heavy:
            own = np.asarray(self.sums[cells.indices - self.start], np.float64)
            less += float((own**2 - (own - cells.sums) ** 2).sum())
        return max(self.collision_variance - less / len(self.sums), 0.0)

    @cached_property
    def _shared(self) -> bool:
        """Whether cells share counters of the first row; taken for granted where there are too many to look."""
        cells = GridCells(self.schema, self.bound.columns, [self.level], self.bound.offsets)
        if cells.count(0) > _LOOKED_AT:
            return True
        index = self.bound.counters(cells.numbers(0, cells.every(0)), self.position)[0][0]
        return len(np.unique(index)) < len(index)

    def variance(self, recovery: str = "mean") -> float:
        """Variance of an empty cell's estimate. The median of many has up to π/2 times the variance of the mean."""
        return self.row_variance / self.rows * self._more(recovery)

    def _more(self, recovery: str) -> float:
        return np.pi / 2 if recovery == "median" and self.rows > 2 else 1.0

    @property
    def start(self) -> int:
        """The place of the level's first counter among those of its part."""
        return self.position * self.rows * self.bound.width


def _recovered(found: Floats, recovery: str) -> Floats:
    if len(found) == 1:
        return found[0]
    return found.mean(axis=0) if recovery == "mean" else np.asarray(np.median(found, axis=0))


def _heavy_cells(index: Indices, signs: Indices, own: Floats) -> HeavyCells:
    heavy = own > 0
    indices, place = np.unique(index[:, heavy], return_inverse=True)
    sums = np.bincount(place.ravel(), (signs * own)[:, heavy].ravel(), len(indices))
    return HeavyCells(indices, sums.astype(np.float64))


def grid_tables(released: ReleasedSketch) -> list[GridTable]:
    """Levels of the grids of the most columns, coarse first; of a level that several parts hold the least noisy one.
    Grids whose columns have other cells than those of the first such grid are left out.
    """
    parts = list(released.parts_with(BoundGrid))
    if not parts:
        raise QueryError("this release holds no grid", "use Recipe.synthetic, or add Part(Grid(…), share=…)")
    first = max((grid for _, grid in parts), key=lambda grid: len(grid.columns))
    found: dict[int, GridTable] = {}
    for part, grid in parts:
        if (grid.columns, grid.offsets) != (first.columns, first.offsets):
            continue
        for position in range(len(grid.levels)):
            each = grid.size // len(grid.levels)
            sums = part.sums[position * each : (position + 1) * each]
            table = GridTable(released.schema, grid, position, sums, part.noise_variance)
            other = found.get(table.level)
            if other is None or table.noise_variance / table.rows < other.noise_variance / other.rows:
                found[table.level] = table
    return [found[level] for level in sorted(found)]


def check_recovery(recovery: str) -> None:
    if recovery not in RECOVERIES:
        raise QueryError(f"recovery must be one of {', '.join(RECOVERIES)}, got {recovery!r} instead")


def levels_of(tables: Sequence[GridTable]) -> list[int]:
    return [table.level for table in tables]
