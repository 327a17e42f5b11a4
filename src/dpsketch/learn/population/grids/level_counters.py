"""The noisy counters of a release's grids, level by level, and estimates of how many records a cell holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.population.grids.grid_cells import GridCells
from dpsketch.maps.base import Sums
from dpsketch.maps.tables.grid import BoundGrid
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch

RECOVERIES = ("mean", "median")
_NORMAL_MEDIAN = 0.6745  # of the size of a normal number, in standard deviations
_LOOKED_AT = 1 << 20


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

    def by_row(self, numbers: NDArray[np.int64]) -> Floats:
        """What each row of counters says of the records in given cells: one matrix row a row."""
        index, signs = self.bound.counters(numbers, self.position)
        return np.asarray(self.sums[index - self.start] * signs, np.float64)

    def counts(self, numbers: NDArray[np.int64], recovery: str = "mean") -> Floats:
        """Estimates of the records in given cells: the mean or the median of the rows. Source: density sec. 3."""
        found = self.by_row(numbers)
        if self.rows == 1:
            return found[0]
        return found.mean(axis=0) if recovery == "mean" else np.median(found, axis=0)

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

    @cached_property
    def _shared(self) -> bool:
        """Whether cells share counters of the first row; taken for granted where there are too many to look."""
        cells = GridCells(self.schema, self.bound.columns, [self.level])
        if cells.count(0) > _LOOKED_AT:
            return True
        index = self.bound.counters(cells.numbers(0, cells.every(0)), self.position)[0][0]
        return len(np.unique(index)) < len(index)

    def variance(self, recovery: str = "mean") -> float:
        """Variance of an empty cell's estimate. The median of many has up to π/2 times the variance of the mean."""
        more = np.pi / 2 if recovery == "median" and self.rows > 2 else 1.0
        return self.row_variance / self.rows * more

    @property
    def start(self) -> int:
        """The place of the level's first counter among those of its part."""
        return self.position * self.rows * self.bound.width


def grid_tables(released: ReleasedSketch) -> list[GridTable]:
    """Levels of the grids of the most columns, coarse first; of a level that several parts hold the least noisy one."""
    parts = list(released.parts_with(BoundGrid))
    if not parts:
        raise QueryError("this release holds no grid", "use Recipe.synthetic, or add Part(Grid(…), share=…)")
    columns = max((grid.columns for _, grid in parts), key=len)
    found: dict[int, GridTable] = {}
    for part, grid in parts:
        if grid.columns != columns:
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
