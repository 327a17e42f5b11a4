"""Which cells of a grid a record can be in, column by column, and the smaller cells inside them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpsketch.maps.tables.grid import cells_along, level_along
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import Column, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

Ranks = NDArray[np.int32]  # one matrix row a column, one column a cell


class ColumnCells:
    """Cells of one column at each of several levels that hold a value of the column, by rank; the last rank is the
    missing cell, unless the schema replaces missing values.

    A level cuts codes, and codes of few values lie far apart: a category has at most as many cells as labels, however
    fine the level.
    """

    def __init__(self, column: Column, levels: Sequence[int]) -> None:
        self.column, self.levels = column, tuple(levels)
        places = column.codes_of(np.arange(column.levels)).astype(np.int64) + 32768
        self.missing = getattr(column, "missing", None) is None
        own = [np.unique(places >> (16 - level)) for level in self.levels]
        self.numbers = [
            np.append(cells, 1 << at) if self.missing else cells for cells, at in zip(own, levels, strict=True)
        ]
        # Values before each cell; the missing cell has a place of its own after the last one.
        self._firsts = [
            np.append(np.searchsorted(places, cells << (16 - at)), column.levels)
            for cells, at in zip(own, self.levels, strict=True)
        ]
        self._children = [
            np.append(np.searchsorted(own[i + 1], own[i] << (levels[i + 1] - levels[i])), len(own[i + 1]))
            for i in range(len(levels) - 1)
        ]
        if self.missing:
            self._children = [np.append(starts, starts[-1] + 1) for starts in self._children]

    def count(self, position: int) -> int:
        return len(self.numbers[position])

    def children(self, position: int) -> NDArray[np.int64]:
        """The first child's rank at the next level for each rank, and the end of the last one's."""
        return self._children[position]

    def values(self, position: int) -> NDArray[np.int64]:
        """How many values of the column each cell holds; the missing cell holds one."""
        inside = np.diff(self._firsts[position])
        return np.append(inside, 1) if self.missing else inside

    def span(self, position: int, ranks: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First value of each cell and the one after its last; of the missing cell an empty span."""
        inside = np.minimum(ranks, len(self._firsts[position]) - 1)
        firsts = self._firsts[position]
        return firsts[inside], firsts[np.minimum(inside + 1, len(firsts) - 1)]

    def codes(self, position: int, ranks: NDArray[np.integer], steps: Floats) -> Codes:
        """The code at a relative place (0 to 1) among the values of each cell."""
        first, last = self.span(position, ranks)
        levels = first + np.minimum((steps * (last - first)).astype(np.int64), np.maximum(last - first - 1, 0))
        return self.column.codes_of(np.where(last > first, levels, -1))

    def volumes(self, position: int) -> Floats:
        """The size of each cell: its width in the column's units for numbers (dates: days), else how many values."""
        column, firsts = self.column, self._firsts[position]
        if isinstance(column, Number | Datetime):
            edges = _values_between(column, firsts)
            widths = np.diff(edges) / column.unit
        else:
            step = (column.upper - column.lower) / max(column.levels - 1, 1) if isinstance(column, Integer) else 1.0
            widths = np.diff(firsts) * step
        return np.append(widths, 1.0) if self.missing else widths


def _values_between(column: Number | Datetime, firsts: NDArray[np.int64]) -> Floats:
    """In the middle between each value and the one before it; the bounds at the ends."""
    below, above = (
        column.values_of(column.codes_of(np.clip(levels, 0, column.levels - 1))) for levels in (firsts - 1, firsts)
    )
    return np.asarray((below + above) / 2, np.float64)


class GridCells:
    """Cells of several columns together, by their ranks in every column. The level of a column may differ from the
    grid's by an offset.
    """

    def __init__(
        self, schema: Schema, columns: Sequence[str], levels: Sequence[int], offsets: Sequence[int] | None = None
    ) -> None:
        self.names, self.levels, self.offsets = tuple(columns), tuple(levels), tuple(offsets or [0] * len(columns))
        self.columns = [
            ColumnCells(schema.column(name), [level_along(level, offset) for level in levels])
            for name, offset in zip(columns, self.offsets, strict=True)
        ]

    def count(self, position: int) -> int:
        return prod(column.count(position) for column in self.columns)

    def every(self, position: int) -> Ranks:
        """All cells of a level."""
        shape = [column.count(position) for column in self.columns]
        return np.indices(shape, np.int32).reshape(len(shape), -1)

    def numbers(self, position: int, ranks: Ranks) -> NDArray[np.int64]:
        """As `BoundGrid.cells` has them."""
        return np.stack([own.numbers[position][rank] for own, rank in zip(self.columns, ranks, strict=True)])

    def numbers_of(self, position: int, codes: Codes) -> NDArray[np.int64]:
        """The same for records, by their codes: one matrix row a column."""
        return cells_along(codes, self.levels[position], self.offsets)

    def ranks(self, position: int, numbers: NDArray[np.integer]) -> Ranks:
        """Inverse of `numbers`."""
        return np.stack(
            [np.searchsorted(own.numbers[position], cell) for own, cell in zip(self.columns, numbers, strict=True)]
        ).astype(np.int32)

    def child_counts(self, position: int, ranks: Ranks) -> NDArray[np.int64]:
        counts = np.ones(ranks.shape[1], np.int64)
        for own, rank in zip(self.columns, ranks, strict=True):
            counts *= np.diff(own.children(position))[rank]
        return counts

    def split(self, position: int, ranks: Ranks) -> tuple[Ranks, NDArray[np.int64]]:
        """The cells at the next level inside given ones, those of one cell together, and which cell each is in."""
        parents = np.arange(ranks.shape[1])
        found = ranks
        for place, own in enumerate(self.columns):
            starts = own.children(position)
            rank = found[place]
            repeats = np.diff(starts)[rank]
            before = np.cumsum(repeats) - repeats
            again = np.repeat(np.arange(len(rank)), repeats)
            found, parents = found[:, again], parents[again]
            found[place] = starts[rank[again]] + np.arange(len(again)) - before[again]
        return found, parents

    def values(self, position: int, ranks: Ranks) -> Floats:
        """How many different records each cell can hold: its size, where nothing is known."""
        sizes = np.ones(ranks.shape[1])
        for own, rank in zip(self.columns, ranks, strict=True):
            sizes *= own.values(position)[rank]
        return sizes

    def volumes(self, position: int, ranks: Ranks) -> Floats:
        sizes = np.ones(ranks.shape[1])
        for own, rank in zip(self.columns, ranks, strict=True):
            sizes *= own.volumes(position)[rank]
        return sizes
