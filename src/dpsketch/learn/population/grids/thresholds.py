"""Numbers that questions compare columns with, in cells where many records share a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpsketch.encoding.levels import levels_at
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.population.grids.cell_points import Places, PointsInCells, above_neighbours
from dpsketch.learn.population.grids.grid_cells import GridCells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

ENDS = (0.0, 1 - 2**-53)  # relative places of the first and the last value of a cell


def threshold_changes(
    schema: Schema, cells: GridCells, points: PointsInCells, factors: Sequence[Factor]
) -> Iterator[tuple[tuple[int, int, int], Floats]]:
    """How much sums of a product of functions over the points may be off because of a shared value near a number asked
    about; and the column, level and cell that the value is in.

    Where within its cell such a value lies is not known: on either side of the number, or at the number itself, while
    the nearest level, in which its records are, lies on one side. So the records that a cell has above its neighbours
    are moved to the number and to both ends of the cell, and the largest change counts.
    """
    asked = list(_asked(schema, cells, factors))
    for position in np.unique(points.positions).tolist() if asked else ():
        here = np.flatnonzero(points.positions == position)
        numbers = cells.numbers_of(position, points.codes[:, here])
        above = {column: above_neighbours(cells, points, column, position) for column in {each[0] for each in asked}}
        for column, number, code in asked:
            cell = (code - MISSING) >> (16 - cells.columns[column].levels[position])
            inside = here[numbers[column] == cell]
            if len(inside) and above[column][cell] > 0:
                change = _most(schema, cells, points, factors, column, number, inside)
                yield (column, position, cell), float(above[column][cell]) * change


def _asked(schema: Schema, cells: GridCells, factors: Sequence[Factor]) -> Iterator[tuple[int, float, int]]:
    """The columns and the numbers between their bounds that they may be compared with, and the codes of these."""
    pairs = {(name, number) for factor in factors for name in factor.columns for number in factor.asked}
    for name, number in sorted(pairs):
        own = schema.column(name)
        if isinstance(own, Number | Integer | Datetime):
            low, high = own.values_of(np.array([LOWEST, HIGHEST]))
            if low <= number <= high:
                yield cells.names.index(name), number, int(own.codes_of(levels_at(own, np.array([number])))[0])


def _most(
    schema: Schema,
    cells: GridCells,
    points: PointsInCells,
    factors: Sequence[Factor],
    column: int,
    number: float,
    inside: Places,
) -> Floats:
    """The change of sums of functions over points of a cell that is largest among those at the number and the ends."""
    codes, weights, name = points.codes[:, inside], points.weights[inside], cells.names[column]

    def summed(along: Codes | None = None, values: dict[str, Floats] | None = None) -> Floats:
        every = dict(zip(cells.names, codes, strict=True)) | ({} if along is None else {name: along})
        return np.asarray(product_at(factors, Frame(schema, every, values)) @ weights)

    own, ranks = cells.columns[column], points.ranks[column, inside]
    position = int(points.positions[inside[0]])
    ends = [own.codes(position, ranks, np.full(len(ranks), end)) for end in ENDS]
    moved = np.stack([summed(values={name: np.full(len(inside), number)}), *map(summed, ends)]) - summed()
    return np.asarray(np.take_along_axis(moved, np.abs(moved).argmax(0)[None], 0)[0])
