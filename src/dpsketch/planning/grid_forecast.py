"""How far off rows from a grid will be, told before any budget is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns
from dpsketch.maps.tables.grid import Grid
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.grid_sizes import (
    FINEST,
    GRID_SHARE,
    GridError,
    best_grid,
    counter_deviation,
    filled_cells,
    grid_error,
    suits_grid,
)
from dpsketch.recipe.recipe import declared_rows
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class GridPlan:
    """Sizes of a grid and the error that they lead to, in total variation distance, for rows like the reference of
    `grid_sizes.grid_error`. `deviation` is the noise of a cell's estimate in records, `heavy` about how many cells
    hold records at the finest level: the size of a heap that keeps them, and `heap` the error with that.

    `finer` and `more_rows` are the errors with one level more and with three rows of counters. `suited` says whether
    a grid is what `Recipe.synthetic` takes for these columns.
    """

    rows: int
    budget: Budget
    grid: Grid
    deviation: float
    error: GridError
    heavy: int
    heap: GridError
    finer: GridError | None
    more_rows: GridError
    suited: bool

    @property
    def cell_width(self) -> float:
        """h: the finest cells' width, in widths of the bounds."""
        return float(2.0 ** -self.grid.levels[-1])

    def to_dict(self) -> dict[str, Any]:
        budget = {"rho": self.budget.rho} if self.budget.rho is not None else {"epsilon": self.budget.epsilon}
        errors = {"error": self.error, "heap_error": self.heap, "three_rows_error": self.more_rows}
        return (
            {"rows": self.rows}
            | budget
            | ({"delta": self.budget.delta} if self.budget.delta else {})
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
        """For a reader."""
        levels, error = ", ".join(map(str, self.grid.levels)), self.error
        found = [
            f"grid of {len(self.grid.columns or ())} columns, about {self.rows:,} rows, {self.budget}",
            f"levels {levels} (cells of 1/{2 ** self.grid.levels[-1]} of the bounds), {self.grid.rows} row of "
            f"{self.grid.width:,} counters each; noise of a cell: {self.deviation:.3g} records",
            f"predicted distance of the rows from the table: {error.total:.2g} "
            f"(cells {error.width:.2g}, noise {error.noise:.2g}, shared counters {error.shared:.2g})",
            f"the {self.heavy:,} heaviest cells of the finest level: {self.heap.total:.2g}; "
            f"three rows of counters: {self.more_rows.total:.2g}",
        ]
        if not self.suited:
            found.append(
                "Recipe.synthetic takes tables of pairs instead: they are expected to tell more of these columns"
            )
        return found


def plan_grid(
    schema: Schema,
    rows: int | None = None,
    budget: Budget | None = None,
    columns: Sequence[str] | None = None,
    grid: Grid | None = None,
) -> GridPlan:
    """The grid that is predicted to be off the least, or the error of a given one. Nothing is read and nothing spent.

    Source: density Theorems 2 to 5, by `grid_sizes.grid_error`.
    """
    if budget is None:
        raise RecipeError("plan_grid needs a budget", "pass budget=Budget(epsilon=1.0)")
    rows = declared_rows(schema, rows)
    names = check_columns("plan_grid", columns if grid is None or grid.columns is None else grid.columns)
    if names is None:
        names = tuple(column.name for column in schema.scalars)
    chosen = [schema.scalars[schema.index(name)] for name in names]
    if not chosen:
        raise RecipeError("plan_grid needs a column that is not a set of ids", "declare one in the schema")
    found = best_grid(schema, chosen, rows, budget) if grid is None else replace(grid, columns=names)

    def error(other: Grid, heavy: int | None = None) -> GridError:
        return grid_error(chosen, rows, counter_deviation(schema, budget, other), other, heavy)

    finest = found.levels[-1]
    heavy = ceil(filled_cells(chosen, finest))
    finer = replace(found, levels=(*found.levels, finest + 1)) if finest < FINEST[1] else None
    return GridPlan(
        rows,
        budget,
        found,
        counter_deviation(schema, budget, found, GRID_SHARE),
        error(found),
        heavy,
        error(found, heavy),
        None if finer is None else error(finer),
        error(replace(found, rows=3)),
        suits_grid(schema, chosen, rows, budget),
    )
