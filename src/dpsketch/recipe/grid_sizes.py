"""How far off a grid's densities will be, and the sizes of a grid that are off the least: from public numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log, log2, prod, sqrt

from dpsketch.maps.tables.grid import Grid
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.sizes import schema_counter_noise
from dpsketch.schema.columns import Column
from dpsketch.schema.schema import Schema

GRID_SHARE = 0.98
START = 3  # the coarsest level
FINEST = (5, 10)  # from, to: a search stops earlier by itself where cells hold too little
MOST_START_CELLS = 8**4  # beyond, tables of pairs are better: RESEARCH "Density sketch"
MOST_ERROR = 0.25
MOST_WIDTH = 1 << 20
_REFERENCE_SD = 1 / 8  # of a column's records, in widths of its bounds
_SIZE = 0.75  # of a noise, on average, in its standard deviations


@dataclass(frozen=True)
class GridError:
    """Predicted total variation distance between the records' density and that of the sampled rows, by its causes: the
    width of cells, the noise, cells that share counters, and, for a heap, cells that it does not keep.
    """

    width: float
    noise: float
    shared: float
    lost: float = 0.0

    @property
    def total(self) -> float:
        return min(self.width + self.noise + self.shared + self.lost, 1.0)


def grid_error(
    columns: Sequence[Column], rows: int, deviation: float, grid: Grid, heavy: int | None = None
) -> GridError:
    """For rows like a reference: every number normal with a standard deviation of an eighth of its bounds, and columns
    as dependent as real ones usually are: of Π cⱼ cells that d columns could fill they fill about the power (d+1)/2d.

    `deviation` is that of the noise of an estimate, the mean of the grid's K rows. A search from coarse to fine stops
    at the level that is off the least; `heavy` is the size of a heap of the finest level instead.

    Source: density Theorems 2 and 3 (bias h·|∇f|, variance of the count sketch), in place of their squares the mean
    absolute errors that make up a distance; docs/synthetic.md has measurements beside predictions.
    """
    if heavy is not None:
        return _heap_error(columns, rows, deviation, grid, heavy)
    return min((_level_error(columns, rows, deviation, grid, at) for at in grid.levels), key=lambda error: error.total)


def _level_error(columns: Sequence[Column], rows: int, deviation: float, grid: Grid, level: int) -> GridError:
    filled = filled_cells(columns, level)
    noise = 0.5 * filled * _SIZE * deviation / rows
    return GridError(_width_error(columns, level), noise, 0.5 * filled / grid.width)


def _heap_error(columns: Sequence[Column], rows: int, deviation: float, grid: Grid, heavy: int) -> GridError:
    level = grid.levels[-1]
    filled, every = filled_cells(columns, level), every_cell(columns, level)
    kept, empty = min(filled, heavy), max(min(heavy, every) - filled, 0.0)
    scale = deviation / sqrt(2)
    top = scale * (1 + max(log(every / (2 * max(empty, filled))), 0.0))  # of as many of Laplace's numbers as are kept
    noise = 0.5 * (kept * _SIZE * deviation + 2 * empty * top) / rows
    lighter = top * filled / rows  # than the top of the noise: counts of cells taken as exponential
    lost = 1 - kept / filled * (1 + lighter) * exp(-lighter)
    return GridError(_width_error(columns, level), noise, 0.5 * filled / grid.width, lost)


def _width_error(columns: Sequence[Column], level: int) -> float:
    """½∫|f − f_h| of a normal f in cells of width h is about h/8·∫|f′| = h/(4·√2π·sd) for each column of numbers."""
    numbers = sum(column.levels > 1 << level for column in columns)
    return min(numbers * 2.0**-level / (4 * 2.5066 * _REFERENCE_SD), 1.0)


def filled_cells(columns: Sequence[Column], level: int) -> float:
    """About how many cells of a level hold records of the reference."""
    power = (len(columns) + 1) / (2 * len(columns))
    return prod(max(6 * _REFERENCE_SD * min(1 << level, column.levels), 1.0) for column in columns) ** power


def every_cell(columns: Sequence[Column], level: int) -> float:
    return float(prod(min(1 << level, column.levels) + 1 for column in columns))


def counter_deviation(schema: Schema, budget: Budget, grid: Grid, share: float = GRID_SHARE) -> float:
    """The standard deviation of the noise of an estimate, the mean of K rows."""
    return schema_counter_noise(schema, budget, grid.rows * len(grid.levels), share, signed=True) / sqrt(grid.rows)


def suits_grid(schema: Schema, columns: Sequence[Column], rows: int, budget: Budget) -> bool:
    """Whether a grid is expected to tell more of these columns together than tables of pairs: of up to four columns of
    numbers, if its predicted error is at most MOST_ERROR. Tables of pairs need two columns.

    Source: RESEARCH "Density sketch"; docs/synthetic.md has the measurements.
    """
    if len(columns) == 1:
        return True
    if prod(min(1 << START, column.levels) for column in columns) > MOST_START_CELLS:
        return False
    grid = best_grid(schema, columns, rows, budget)
    return grid_error(columns, rows, counter_deviation(schema, budget, grid), grid).total <= MOST_ERROR


def best_grid(schema: Schema, columns: Sequence[Column], rows: int, budget: Budget) -> Grid:
    """One row of counters (more only add noise) for each level from START to the one that is off the least by itself,
    wide enough that few cells share one.
    """
    names = tuple(column.name for column in columns)
    grids = [Grid(names, 1, _width(columns, finest), _levels(finest)) for finest in range(FINEST[0], FINEST[1] + 1)]

    def error(grid: Grid) -> float:
        return _level_error(columns, rows, counter_deviation(schema, budget, grid), grid, grid.levels[-1]).total

    return min(grids, key=error)


def _levels(finest: int) -> tuple[int, ...]:
    return tuple(range(START, finest + 1))


def _width(columns: Sequence[Column], level: int) -> int:
    return min(MOST_WIDTH, 1 << max(10, ceil(log2(4 * every_cell(columns, level)))))
