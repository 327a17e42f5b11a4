"""Tables in cells for MST and AIM: 32 bins and two atoms per number, one cell per category or small whole number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.m2m.tables import Table
from dpsketch.numerics.arrays import Floats

BINS = 32


@dataclass(frozen=True)
class Cut:
    """The division of each column into cells; `sizes` include a cell for missing where a category has any."""

    table: Table
    binned: tuple[bool, ...]
    sizes: tuple[int, ...]

    def cells(self, rows: Floats) -> NDArray[np.int64]:
        columns = []
        for j, (column, binned, size) in enumerate(zip(self.table.columns, self.binned, self.sizes, strict=True)):
            values = rows[:, j]
            if binned:
                inner = np.minimum((values * BINS).astype(np.int64), BINS - 1) + 1
                columns.append(np.where(values <= 0, 0, np.where(values >= 1, BINS + 1, inner)))
            elif column.ordered:
                columns.append(np.rint(values * (column.levels - 1)).astype(np.int64))
            else:
                columns.append(np.where(np.isnan(values), size - 1, np.nan_to_num(values)).astype(np.int64))
        return np.column_stack(columns)

    def values(self, cells: NDArray[np.int64], generator: np.random.Generator) -> Floats:
        """Values uniform in bins; whole numbers on their levels."""
        columns = []
        for j, (column, binned) in enumerate(zip(self.table.columns, self.binned, strict=True)):
            cell = cells[:, j]
            if binned:
                value = np.clip((cell - 1 + generator.random(len(cell))) / BINS, 0, 1)
                if column.levels:
                    value = np.rint(value * (column.levels - 1)) / (column.levels - 1)
                columns.append(np.where(cell == 0, 0.0, np.where(cell == BINS + 1, 1.0, value)))
            elif column.ordered:
                columns.append(cell / (column.levels - 1))
            else:
                columns.append(np.where(cell < column.levels, cell, np.nan))
        return np.column_stack(columns)


def cut(table: Table) -> Cut:
    binned, sizes = [], []
    for j, column in enumerate(table.columns):
        binned.append(column.ordered and not 0 < column.levels <= BINS + 2)
        if binned[-1]:
            sizes.append(BINS + 2)
        else:
            sizes.append(column.levels + int(not column.ordered and np.isnan(table.rows[:, j]).any()))
    return Cut(table, tuple(binned), tuple(sizes))
