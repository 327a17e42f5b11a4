"""Synthetic rows: a count and a grid of all columns together, or the general recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log, log2, prod, sqrt
from typing import Annotated, Any, ClassVar

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.grid import Grid
from dpsketch.numerics.tuned import BY_HAND, GRID_TABLES, PROTOTYPE, UNRECORDED, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.general_task import general_of
from dpsketch.recipe.tasks.task import Prediction, Shares, Task, schema_counter_noise
from dpsketch.schema.columns import Column
from dpsketch.schema.schema import Schema

GRID_SHARE: Annotated[float, UNRECORDED] = 0.98
START: Annotated[int, Tuned(GRID_TABLES, by=PROTOTYPE)] = 3  # coarsest level
# Range of the finest level; a search stops earlier where cells hold too little.
FINEST: Annotated[tuple[int, int], UNRECORDED] = (5, 10)
# With more, tables of pairs are more accurate.
MOST_START_CELLS: Annotated[int, Tuned(GRID_TABLES, by=BY_HAND)] = 8**4
# With a larger predicted distance, tables of pairs are more accurate.
MOST_ERROR: Annotated[float, Tuned(GRID_TABLES, by=BY_HAND)] = 0.25
MOST_WIDTH = 1 << 20
# Standard deviation of a column's records, in widths of its bounds.
_REFERENCE_SD: Annotated[float, UNRECORDED] = 1 / 8
_SIZE: Annotated[float, UNRECORDED] = 0.75  # mean absolute noise, in standard deviations


class Synthetic(Task):
    """See `Recipe.synthetic`."""

    name = "synthetic"

    def parts(self, schema: Schema, rows: int, budget: Budget, columns: Sequence[str] | None = None) -> Shares:
        names = check_columns("Recipe.synthetic", columns) or tuple(column.name for column in schema.scalars)
        if not names:
            raise RecipeError("Recipe.synthetic needs a column that is not a set of ids", "declare one in the schema")
        chosen = [schema.scalars[schema.index(name)] for name in names]
        if suits_grid(schema, chosen, rows, budget):
            return [(Count(), 0.02), (best_grid(schema, chosen, rows, budget), GRID_SHARE)]
        return general_of(schema, names, rows, budget)

    def predict(
        self,
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> GridPrediction:
        return plan_grid(schema, rows=rows, budget=budget, columns=columns)

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch sample {sketch} -n 1000 -o rows.parquet"


TASK = Synthetic()


@dataclass(frozen=True)
class GridError:
    """Predicted total variation distance between the densities of the records and of the sampled rows, by cause.

    The causes are the width of cells, the noise, collisions of cells in counters and, for a heap, cells that it drops.
    """

    width: float
    noise: float
    shared: float
    lost: float = 0.0

    @property
    def total(self) -> float:
        return min(self.width + self.noise + self.shared + self.lost, 1.0)


@dataclass(frozen=True, kw_only=True)
class GridPrediction(Prediction):
    """Sizes of a grid and the resulting error in total variation distance, for rows like the reference of `grid_error`.

    `deviation` is the noise of a cell's estimate in records. `heavy` is about the number of occupied cells at the
    finest level, the size of a heap that keeps them, and `heap` the error with that heap. `finer` and `more_rows` are
    the errors with one more level and with three rows of counters. `suited` is true if `Recipe.synthetic` takes a grid
    for these columns.
    """

    grid: Grid
    deviation: float
    error: GridError
    heavy: int
    heap: GridError
    finer: GridError | None
    more_rows: GridError
    suited: bool

    note: ClassVar[str] = "Distance of the rows from the table in total variation; noise in records of a cell."

    @property
    def cell_width(self) -> float:
        """h: the width of the finest cells, in widths of the bounds."""
        return float(2.0 ** -self.grid.levels[-1])

    def to_dict(self) -> dict[str, Any]:
        errors = {"error": self.error, "heap_error": self.heap, "three_rows_error": self.more_rows}
        return (
            super().to_dict()
            | {
                "columns": list(self.grid.columns or ()),
                "levels": list(self.grid.levels),
                "cell_width": self.cell_width,
            }
            | {"counter_rows": self.grid.rows, "width": self.grid.width, "heavy": self.heavy}
            | {"deviation": self.deviation, "suited": self.suited}
            | {name: error.total for name, error in errors.items()}
            | {"error_from": {name: getattr(self.error, name) for name in ("width", "noise", "shared")}}
        )

    def lines(self) -> list[str]:
        """The prediction as lines of text."""
        levels, error = ", ".join(map(str, self.grid.levels)), self.error
        lines = [
            f"grid of {len(self.grid.columns or ())} columns, about {self.rows:,} rows, {self.budget}",
            f"levels {levels} (cells of 1/{2 ** self.grid.levels[-1]} of the bounds), {self.grid.rows} row of "
            f"{self.grid.width:,} counters each; noise of a cell: {self.deviation:.3g} records",
            f"predicted distance of the rows from the table: {error.total:.2g} "
            f"(cells {error.width:.2g}, noise {error.noise:.2g}, shared counters {error.shared:.2g})",
            f"the {self.heavy:,} heaviest cells of the finest level: {self.heap.total:.2g}; "
            f"three rows of counters: {self.more_rows.total:.2g}",
        ]
        if not self.suited:
            lines.append("Recipe.synthetic takes tables of pairs instead: they are expected to be more accurate here")
        return lines

    def cells(self) -> dict[str, str]:
        levels, counters = " ".join(map(str, self.grid.levels)), f"{self.grid.rows} × {self.grid.width:,}"
        sizes = {"budget": str(self.budget), "levels": levels, "counters of each": counters}
        errors = {"noise": f"{self.deviation:.3g}", "distance": f"{self.error.total:.2g}"}
        return sizes | errors | {"recipe": "grid" if self.suited else "pairs instead"}


def plan_grid(
    schema: Schema,
    *,
    rows: int | None = None,
    budget: Budget | None = None,
    columns: Sequence[str] | None = None,
    grid: Grid | None = None,
) -> GridPrediction:
    """The grid with the smallest predicted error, or the error of a given one. Nothing is read and nothing is spent.

    Source: density Theorems 2 to 5, by `grid_error`.
    """
    rows, budget = TASK.known(schema, rows, budget)
    names = check_columns("plan_grid", columns if grid is None or grid.columns is None else grid.columns)
    if names is None:
        names = tuple(column.name for column in schema.scalars)
    chosen = [schema.scalars[schema.index(name)] for name in names]
    if not chosen:
        raise RecipeError("plan_grid needs a column that is not a set of ids", "declare one in the schema")
    best = best_grid(schema, chosen, rows, budget) if grid is None else replace(grid, columns=names)

    def error(other: Grid, heavy: int | None = None) -> GridError:
        return grid_error(chosen, rows, counter_deviation(schema, budget, other), other, heavy)

    finest = best.levels[-1]
    heavy = ceil(filled_cells(chosen, finest))
    finer = replace(best, levels=(*best.levels, finest + 1)) if finest < FINEST[1] else None
    return GridPrediction(
        task="synthetic",
        rows=rows,
        budget=budget,
        recipe=TASK.recipe(schema, rows=rows, budget=budget, columns=names),
        grid=best,
        deviation=counter_deviation(schema, budget, best, GRID_SHARE),
        error=error(best),
        heavy=heavy,
        heap=error(best, heavy),
        finer=None if finer is None else error(finer),
        more_rows=error(replace(best, rows=3)),
        suited=suits_grid(schema, chosen, rows, budget),
    )


def grid_error(
    columns: Sequence[Column], rows: int, deviation: float, grid: Grid, heavy: int | None = None
) -> GridError:
    """Predicted error for reference rows.

    Every number of the reference is normal with a standard deviation of an eighth of its bounds. Columns are as
    dependent as is typical of real ones: if d columns could fill Π cⱼ cells, they fill about that number to the power
    (d+1)/2d. `deviation` is that of the noise of an estimate, the mean of the grid's K rows. A search from coarse to
    fine stops at the level with the smallest error; `heavy` is the size of a heap of the finest level instead.

    Source: density Theorems 2 and 3 (bias h·|∇f|, variance of the count sketch), with mean absolute errors, which make
    up the distance, in place of squares; docs/synthetic.md compares predictions with measurements.
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
    # mean of the largest Laplace numbers, those that are kept
    top = scale * (1 + max(log(every / (2 * max(empty, filled))), 0.0))
    noise = 0.5 * (kept * _SIZE * deviation + 2 * empty * top) / rows
    lighter = top * filled / rows  # top of the noise over the mean count of a cell; counts are taken as exponential
    lost = 1 - kept / filled * (1 + lighter) * exp(-lighter)
    return GridError(_width_error(columns, level), noise, 0.5 * filled / grid.width, lost)


def _width_error(columns: Sequence[Column], level: int) -> float:
    """½∫|f − f_h| of a normal f in cells of width h is about h/8·∫|f′| = h/(4·√2π·sd) for each column of numbers."""
    numbers = sum(column.levels > 1 << level for column in columns)
    return min(numbers * 2.0**-level / (4 * 2.5066 * _REFERENCE_SD), 1.0)


def filled_cells(columns: Sequence[Column], level: int) -> float:
    """Approximate number of cells of a level that contain records of the reference."""
    power = (len(columns) + 1) / (2 * len(columns))
    return prod(max(6 * _REFERENCE_SD * min(1 << level, column.levels), 1.0) for column in columns) ** power


def every_cell(columns: Sequence[Column], level: int) -> float:
    return float(prod(min(1 << level, column.levels) + 1 for column in columns))


def counter_deviation(schema: Schema, budget: Budget, grid: Grid, share: float = GRID_SHARE) -> float:
    """Standard deviation of the noise of an estimate, the mean of K rows."""
    return schema_counter_noise(schema, budget, grid.rows * len(grid.levels), share, signed=True) / sqrt(grid.rows)


def suits_grid(schema: Schema, columns: Sequence[Column], rows: int, budget: Budget) -> bool:
    """Whether a grid is expected to represent the joint distribution of these columns better than tables of pairs.

    It is for up to four columns of numbers, if its predicted error is at most MOST_ERROR. Tables of pairs need two
    columns. Source: RESEARCH "Density sketch"; docs/synthetic.md has the measurements.
    """
    if len(columns) == 1:
        return True
    if prod(min(1 << START, column.levels) for column in columns) > MOST_START_CELLS:
        return False
    grid = best_grid(schema, columns, rows, budget)
    return grid_error(columns, rows, counter_deviation(schema, budget, grid), grid).total <= MOST_ERROR


def best_grid(schema: Schema, columns: Sequence[Column], rows: int, budget: Budget) -> Grid:
    """A grid with one row of counters per level, wide enough that few cells collide.

    Levels go from START to the one with the smallest error on its own. More rows of counters would only add noise.
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
