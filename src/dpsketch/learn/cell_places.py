"""Places in the cells of a column: levels, values and codes at them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.levels import levels_at
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import DAY, SECOND, SPAN, Column, Datetime, Integer, Number

PARTS = 4  # of a cell, between which a quantile is interpolated
BESIDE = 2.0**-10  # of a level: just below or above its value
_MOMENTS = (DAY, 3_600 * SECOND, 60 * SECOND, SECOND)


def levels_to_try(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Levels that a quantile may fall on, rising: the last of each cell and a few before it; and whether the level is
    the only one of its cell, so that a distribution jumps there.
    """
    first, last = cells.first_levels[:-1], cells.first_levels[1:] - 1
    inner = first[:, None] + ((last - first)[:, None] * np.arange(1, PARTS) // PARTS)
    levels = np.unique(np.concatenate([inner.ravel(), last]))
    levels = levels[levels >= 0]
    jumps = np.isin(levels, last[last == first])
    return levels, jumps


def places_to_try(cells: Cells) -> Floats:
    """Values between which a quantile of a continuous column is interpolated, rising: the edges of its cells and a few
    values inside each; of a cell of one level, which may be a single value, those just below and above that.
    """
    width = np.diff(cells.first_levels)[1:-1]
    steps = np.where(width[:, None] > 1, np.arange(PARTS) / PARTS, [0.0, 0.5 - BESIDE, 0.5 + BESIDE, 1 - BESIDE])
    inner = levels_in_cells(cells, np.arange(1, len(width) + 1)[:, None], steps).ravel()
    last = float(cells.column.levels - 1)
    levels = np.concatenate([[-BESIDE, 0.0], inner[1:], [last - BESIDE, last]])
    return values_between(cells.column, levels)


def continuous(cells: Cells) -> bool:
    """Whether a level stands for all values around it, and cells may be as small as a level."""
    return cells.chosen and cells.column.levels > SPAN


def levels_in_cells(cells: Cells, places: NDArray[np.int64], steps: Floats) -> Floats:
    """Relative places (0 to 1) in each given cell, in levels. A level begins halfway from the one before; the bounds
    are single values, and the levels beside them begin and end there.
    """
    inside = np.minimum(places, cells.missing - 1)
    first, last = cells.first_levels[inside], cells.first_levels[inside + 1] - 1
    start = np.where(first == 1, 0.0, first - 0.5)
    end = np.where(last == cells.column.levels - 2, last + 1.0, last + 0.5)
    between = (inside >= 1) & (inside <= cells.bins)
    return np.where(between, start + (end - start) * steps, first)


def values_between(column: Column, levels: Floats) -> Floats:
    """Values at fractions of levels."""
    below = np.maximum(np.floor(levels), 0).astype(np.int64)
    low, high = (column.values_of(column.codes_of(np.minimum(each, column.levels - 1))) for each in (below, below + 1))
    return low + (levels - below) * (high - low)


def cells_at(cells: Cells, column: Number | Integer | Datetime, numbers: Floats) -> NDArray[np.int64]:
    """The cells of records with these numbers, also where a number lies half-way between two levels."""
    return cells.cells(column.codes_of(levels_at(column, numbers)))


def codes_in_cells(cells: Cells, places: NDArray[np.int64], steps: Floats) -> Codes:
    """Codes at relative places (0 to 1) among the levels of each given cell."""
    inside = np.minimum(places, cells.missing - 1)
    first = cells.first_levels[inside]
    width = cells.first_levels[inside + 1] - first
    levels = first + np.minimum((width * steps).astype(np.int64), np.maximum(width - 1, 0))
    return cells.column.codes_of(np.where(places == cells.missing, -1, levels))


def as_round(column: Number | Integer | Datetime, numbers: Floats) -> Floats:
    """How many numbers with no more digits than each of these are in its level, at least one; of dates, how many days,
    hours, minutes or seconds. A level of 1,547.42 to 1,547.48 has one whole number at most, and 60 with three decimals.
    """
    levels = np.clip(levels_at(column, numbers), 1, column.levels - 2)
    low, high = (values_between(column, np.add(levels, half)) for half in (-0.5, 0.5))
    if column.dates:
        steps = [next((step for step in _MOMENTS if number % step == 0), 1.0) for number in numbers]
    else:
        digits = (Decimal(repr(float(number))).normalize().as_tuple().exponent for number in numbers)
        steps = [10.0 ** int(exponent) for exponent in digits]
    return np.maximum(np.floor((high - low) / np.array(steps)), 1.0)
