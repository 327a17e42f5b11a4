"""Points of a table's cells at the numbers that a question compares its columns with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.levels import levels_at
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import SPAN, Datetime, Integer, Number
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class AskedPoints:
    """Equally many points of every cell, cell after cell: at its ends, at each number inside it that the question
    compares a column with, and one level below and above that. A condition on such numbers that holds somewhere in a
    cell holds at one of them.

    `cells` are those with such a number. `complete` if no combination of the numbers is left out.
    """

    frame: Frame
    cells: NDArray[np.bool_]
    complete: bool


@dataclass(frozen=True)
class _Column:
    """The points of one column: those of each cell from `first` on, `count` many; none in a cell of one level. `asked`
    are the cells with numbers of the question.
    """

    first: NDArray[np.int64]
    count: NDArray[np.int64]
    levels: NDArray[np.int64]
    values: Floats
    asked: NDArray[np.bool_]


def asked_points(schema: Schema, columns: Sequence[Cells], factors: Sequence[Factor], most: int) -> AskedPoints:
    """At most `most` points a cell."""
    asked = [_asked_in(cells, factors) for cells in columns]
    shape = tuple(cells.count for cells in columns)
    inside = np.zeros(shape, bool)
    for way, column in enumerate(asked):
        inside |= column.asked.reshape([-1 if axis == way else 1 for axis in range(len(shape))])
    ways = [max(int(column.count.max()), 1) for column in asked]
    points, grid = min(prod(ways), max(most, 1)), np.indices(shape).reshape(len(shape), -1)
    codes, values, stride = {}, {}, 1
    for way, (cells, column) in enumerate(zip(columns, asked, strict=True)):
        places, name = np.repeat(grid[way], points), cells.column.name
        chosen = np.tile(np.arange(points) // stride % ways[way], prod(shape))
        codes[name] = codes_in_cells(cells, places, np.full(len(places), 0.5))
        values[name] = cells.values_of(codes[name])
        here = column.count[places] > 0
        entry = column.first[places[here]] + chosen[here] % column.count[places[here]]
        codes[name][here] = cells.column.codes_of(column.levels[entry])
        values[name][here] = column.values[entry]
        stride *= ways[way]
    return AskedPoints(Frame(schema, codes, values), inside.ravel(), points == prod(ways))


def _asked_in(cells: Cells, factors: Sequence[Factor]) -> _Column:
    column, none = cells.column, np.zeros(cells.count, np.int64)
    numbers = np.unique([number for factor in factors if column.name in factor.columns for number in factor.asked])
    if not cells.binned or not isinstance(column, Number | Integer | Datetime):
        return _Column(none, none, none, np.zeros(0), none > 0)
    numbers = numbers[(numbers >= cells.edges[0]) & (numbers <= cells.edges[-1])]
    firsts, lasts = cells.first_levels[:-1].astype(np.int64), cells.first_levels[1:].astype(np.int64) - 1
    wide, exact = np.nonzero(lasts > firsts)[0], column.levels > SPAN
    if exact and not cells.uneven:  # bins meet in a level that holds numbers of both: its own value is left out
        narrower = (lasts - firsts > 1).astype(np.int64)
        firsts, lasts = firsts + narrower, lasts - narrower
    at = levels_at(column, numbers)
    places = np.searchsorted(cells.first_levels, at, side="right") - 1
    inside = np.isin(places, wide)
    numbers, at, places = numbers[inside], at[inside], places[inside]
    beside = (np.clip(at + step, firsts[places], lasts[places]) for step in (-1, 1))
    levels = np.stack([at, *beside], axis=1)
    values = cells.values_of(column.codes_of(levels.ravel())).reshape(levels.shape)
    if exact:  # a level stands for many numbers
        least = np.where((at == firsts[places]) & cells.uneven, values[:, 0], -np.inf)
        values = np.where(levels == at[:, None], np.maximum(numbers, least)[:, None], values)
    ends: NDArray[np.int64] = np.stack([firsts[wide], lasts[wide]], axis=1).ravel()
    of = np.concatenate([np.repeat(places, 3), np.repeat(wide, 2)])
    order, count = np.argsort(of, kind="stable"), np.bincount(of, minlength=cells.count)
    return _Column(
        np.cumsum(count) - count,
        count,
        np.concatenate([levels.ravel(), ends])[order],
        np.concatenate([values.ravel(), cells.values_of(column.codes_of(ends))])[order],
        np.bincount(places, minlength=cells.count) > 0,
    )
