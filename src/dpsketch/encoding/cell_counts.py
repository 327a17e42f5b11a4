"""How the cells of a column were read: exact counts, for the curator's eyes only.

These numbers are as secret as the table. Nothing here reaches a sketch, a file or a log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.arrow import cell_levels, cell_numbers, texts
from dpsketch.encoding.layouts import cells_of, is_null
from dpsketch.schema.columns import OTHER, Category, Column, Datetime, Integer, Number

_READ, _MISSING, _UNREADABLE, _OUTSIDE = range(4)


@dataclass(frozen=True)
class CellCounts:
    """Numbers of cells of a column: missing (empty, null, NaN), unreadable, and outside what is declared: clamped to a
    bound, or "other".
    """

    column: str
    missing: int = 0
    unreadable: int = 0
    outside: int = 0

    def __add__(self, other: CellCounts) -> CellCounts:
        return CellCounts(
            self.column,
            self.missing + other.missing,
            self.unreadable + other.unreadable,
            self.outside + other.outside,
        )


def count_cells(column: Column, array: pa.Array) -> CellCounts:
    """How the cells of a scalar column are read."""
    found = cells_of(array).read(lambda values: _read(column, values))
    counts = np.bincount(found, minlength=_OUTSIDE + 1)
    return CellCounts(column.name, *(int(counts[kind]) for kind in (_MISSING, _UNREADABLE, _OUTSIDE)))


def _read(column: Column, values: pa.Array) -> NDArray[np.int64]:
    """How each cell is read."""
    missing = is_null(texts(values))
    if pa.types.is_floating(values.type):  # infinities are there, but no numbers
        missing = is_null(values) | np.isnan(values.to_numpy(zero_copy_only=False))
    if isinstance(column, Number | Integer | Datetime):
        numbers = cell_numbers(column, values)
        unreadable = np.isnan(numbers)
        low, high = column.bounds if isinstance(column, Datetime) else (column.lower, column.upper)
        outside = (numbers < low) | (numbers > high)
    else:
        levels = cell_levels(column, values)
        unreadable = levels < 0
        outside = np.zeros(len(levels), bool)
        if isinstance(column, Category):
            outside = levels == column.labels.index(OTHER)
    found = np.where(unreadable, _UNREADABLE, np.where(outside, _OUTSIDE, _READ))
    return np.where(missing, _MISSING, found).astype(np.int64)
