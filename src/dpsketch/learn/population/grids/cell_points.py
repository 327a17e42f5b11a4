"""Points inside the cells of a distribution over cells, with weights, and with changes of these weights that stand for
what is unknown of the distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.population.grids.grid_cells import GridCells, Ranks
from dpsketch.learn.population.grids.heavy_cells import LevelCells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

Places = NDArray[np.int64]
# Level below which the cells of a column are too wide to show what is inside their neighbours.
COARSE: Annotated[int, Tuned("no table: cells wider than an eighth of the bounds", by=BY_HAND, decision=62)] = 3
_ANY = 1 / sqrt(3)  # root mean square difference of two shares of which one is uniform between 0 and 1
_GOLDEN = (0.6180339887498949, 0.7548776662466927, 0.8191725133961645, 0.8566748838545029)


@dataclass(frozen=True, eq=False)
class PointsInCells:
    """Codes of points, one matrix row a column; the level and the ranks of the cell that each is in; their weights in
    records; how much of these moves where the records of neighbouring cells are spread evenly over them; and the group
    of neighbours that each point is in.

    The neighbours of a cell are those that make up one cell of the level before. What their counts show of the
    distribution inside that cell is about what is unknown of the distribution inside each of them.
    """

    codes: Codes
    positions: Places
    ranks: Ranks
    weights: Floats
    moved: Floats
    groups: Places

    def blocks(self, size: int) -> Iterator[slice]:
        for start in range(0, len(self.weights), size):
            yield slice(start, start + size)


def points_in_cells(cells: GridCells, leaves: Sequence[LevelCells], count: int, seed: int) -> PointsInCells:
    """About `count` points, the more in a cell the more records it holds, spread evenly inside each."""
    generator = np.random.default_rng([seed, 13])
    total = sum(float(leaf.masses.sum()) for leaf in leaves)
    found, first_group = [], 0
    for leaf in leaves:
        groups = _neighbours(cells, leaf.position, leaf.ranks)
        even = _spread_evenly(leaf.masses, cells.values(leaf.position, leaf.ranks), groups)
        largest = np.maximum(leaf.masses, even)
        repeats = np.where(largest > 0, 1 + (largest / max(total, 1e-300) * count).astype(np.int64), 0)
        chosen = np.repeat(np.arange(len(repeats)), repeats)
        number = np.arange(len(chosen)) - (np.cumsum(repeats) - repeats)[chosen]
        codes = np.empty((len(cells.columns), len(chosen)), np.int16)
        for index, column in enumerate(cells.columns):
            step = 1 / repeats[chosen] if index == 0 else _GOLDEN[(index - 1) % len(_GOLDEN)]
            places = (number * step + generator.random(len(repeats))[chosen]) % 1.0
            codes[index] = column.codes(leaf.position, leaf.ranks[index][chosen], places)
        weights, moved = leaf.masses[chosen] / repeats[chosen], (leaf.masses - even)[chosen] / repeats[chosen]
        positions = np.full(len(chosen), leaf.position)
        found.append(
            PointsInCells(codes, positions, leaf.ranks[:, chosen], weights, moved, first_group + groups[chosen])
        )
        first_group += int(groups.max(initial=-1)) + 1
    return PointsInCells(
        np.concatenate([each.codes for each in found], axis=1),
        np.concatenate([each.positions for each in found]),
        np.concatenate([each.ranks for each in found], axis=1),
        np.concatenate([each.weights for each in found]),
        np.concatenate([each.moved for each in found]),
        np.concatenate([each.groups for each in found]),
    )


def cell_numbers(cells: GridCells, points: PointsInCells, column: int, up: int = 0) -> Places:
    """The cell along one column that each point is in, `up` levels coarser, in one numbering for all levels."""
    levels = np.array(cells.columns[column].levels)[points.positions]
    found = np.empty(len(levels), np.int64)
    for position in np.unique(points.positions).tolist():
        here = points.positions == position
        found[here] = cells.columns[column].numbers[position][points.ranks[column, here]]
    missing = found == 1 << levels
    above = np.maximum(levels - up, 0)
    return np.where(missing, 1 << above, found >> (levels - above)) + (2 << above)


def unevenness(cells: GridCells, points: PointsInCells, column: int) -> float:
    """How far the shares of the two halves of a cell along a column differ, from the pairs of cells that make up one
    of the level before: the root mean square of the difference over the sum, weighted by squares of the latter. In
    coarse cells the share of a half may be anything between 0 and 1.
    """
    _, own = np.unique(cell_numbers(cells, points, column), return_inverse=True)
    _, first = np.unique(own, return_index=True)
    sizes = np.zeros(len(first))
    for position in np.unique(points.positions).tolist():
        here = points.positions[first] == position
        sizes[here] = cells.columns[column].values(position)[points.ranks[column, first[here]]]
    _, pair = np.unique(cell_numbers(cells, points, column, 1)[first], return_inverse=True)
    masses = np.bincount(own, points.weights)
    both, size = np.bincount(pair, masses), np.bincount(pair, sizes)
    halves = np.bincount(pair) == 2
    apart = masses - sizes * (both / size)[pair]
    whole = float((both[halves] ** 2).sum())
    # apart is half the difference of two equal cells, and there are two of them.
    found = float(np.sqrt(2 * (apart[halves[pair]] ** 2).sum() / whole)) if whole > 0 else 0.0
    return max(found, _ANY) if cells.columns[column].levels[-1] < COARSE else found


def above_neighbours(cells: GridCells, points: PointsInCells, column: int, position: int) -> Floats:
    """By how much of its records each cell along a column exceeds the mean of the two beside it, at one level: a value
    that many records share is not like its neighbours. The last entry is for missing values, which have none.
    """
    numbers, count = cells.numbers_of(position, points.codes)[column], 1 << cells.columns[column].levels[position]
    masses = np.bincount(numbers, points.weights, count + 1)
    own = masses[:-1]
    if count == 1:
        return np.zeros(2)
    beside = (np.append(own[1:2], own[:-1]) + np.append(own[1:], own[-2:-1])) / 2
    above = np.maximum(own - beside, 0.0)
    return np.append(np.divide(above, own, out=np.zeros(len(own)), where=own > 0), 0.0)


def codes_along(cells: GridCells, points: PointsInCells, column: int, places: Floats) -> Codes:
    """Codes of one column at other places (0 to 1) in the cell that each point is in."""
    found = np.empty(len(places), np.int16)
    for position in np.unique(points.positions).tolist():
        here = points.positions == position
        found[here] = cells.columns[column].codes(position, points.ranks[column, here], places[here])
    return found


def _neighbours(cells: GridCells, position: int, ranks: Ranks) -> Places:
    """The number of the cell of the level before that each cell is in, along columns of COARSE levels and more."""
    levels = np.array([[own.levels[position]] for own in cells.columns])
    above = np.where(levels < COARSE, levels, levels - 1)
    numbers = cells.numbers(position, ranks)
    before = np.where(numbers == 1 << levels, 1 << above, numbers >> (levels - above))
    key = np.ravel_multi_index(tuple(before), ((1 << above) + 1).ravel().tolist())
    return np.asarray(np.unique(key, return_inverse=True)[1].ravel(), np.int64)


def _spread_evenly(masses: Floats, sizes: Floats, groups: Places) -> Floats:
    return np.asarray(sizes * (np.bincount(groups, masses) / np.bincount(groups, sizes))[groups])
