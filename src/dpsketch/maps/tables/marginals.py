"""Counts of the cells of every column, where in its bins the records lie, and the sum of its codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import (
    FeatureMap,
    Sensitivity,
    SumBlock,
    Sums,
    check_columns,
    check_whole,
    chosen_columns,
)
from dpsketch.maps.tables.cells import EVERY_CODE, GRID, MOST_BINS, Cells, cells_of, distinct
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class Marginals(FeatureMap):
    """For each column the number of records in every cell; of numbers also, for every bin, their mean place in it, and
    with `totals` their mean. `bins` is the number of bins between a number's bounds.
    """

    columns: tuple[str, ...] | None = None
    bins: int = 64
    totals: bool = True

    name: ClassVar[str] = "marginals"
    good_for: ClassVar[str] = "questions about one column"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = {"totals": True}

    def __post_init__(self) -> None:
        check_whole("Marginals", "bins", self.bins, 1, MOST_BINS)
        if not isinstance(self.totals, bool):
            raise RecipeError(f"Marginals: totals must be true or false, got {self.totals!r} instead")
        object.__setattr__(self, "columns", check_columns("Marginals", self.columns))

    def cells(self, schema: Schema) -> tuple[Cells, ...]:
        names = chosen_columns(schema, self.columns)
        if not names:
            raise RecipeError(
                "Marginals needs a column that is not a set of ids", "declare number, category or boolean columns"
            )
        return tuple(cells_of(schema.column(name), self.bins) for name in names)

    def length(self, schema: Schema) -> int:
        return sum(sum(_lengths(cells, self.totals)) for cells in self.cells(schema))

    def bind(self, schema: Schema) -> BoundMarginals:
        return BoundMarginals(self, schema)


class BoundMarginals(OneWayMap):
    """The sums of each column in turn: GRID for a record in each cell; of binned columns `Cells.positions` in each bin;
    of ordered columns the code, 0 if missing, which is SPAN·(x − ½) for a number's place x between its bounds, unless
    totals are left out.

    Guarantee: a record changes a column's sums by at most what the worst of its 65536 codes does, two records by what
    the worst pair does; columns add up, and both are attained. Source: PRIVACY "Sensitivity"; docs/proofs/marginals.md.
    """

    largest = GRID
    grid = GRID
    entries_per_record = 3  # cell, position and code in one column
    description: Marginals

    def __init__(self, description: Marginals, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size, self.bins = description.length(schema), description.bins
        self.cells = description.cells(schema)
        self.rows = np.array([schema.index(name) for name in self.columns])
        lengths = [_lengths(cells, description.totals) for cells in self.cells]
        ends = np.cumsum(lengths).reshape(len(lengths), 3)
        self._slices = [
            [slice(int(end) - length, int(end)) for end, length in zip(*column, strict=True)]
            for column in zip(ends, lengths, strict=True)
        ]

    def table(self, column: int) -> slice:
        """Where the sums hold GRID times the number of records in each cell of a column, given by its place."""
        return self._slices[column][0]

    def positions(self, column: int) -> slice:
        """Where they hold the positions in cells 1 .. bins: POSITION_GRID times the number of records in the bin times
        their mean distance from its middle in widths of the bin. Empty if the column is not binned.
        """
        return self._slices[column][1]

    def centred(self, column: int) -> slice:
        """Where they hold the sum of codes: SPAN times the present records times their mean distance from the middle of
        the bounds in widths of the bounds. Empty if the column is not ordered, or totals are left out.
        """
        return self._slices[column][2]

    @cached_property
    def _shared(self) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[np.int16]]:
        """Which table each column reads, and the tables: cell and position of every code; index is code - MISSING."""
        firsts, kinds = distinct([cells.cut for cells in self.cells])
        cells = [self.cells[place].cells(EVERY_CODE) for place in firsts]
        positions = [self.cells[place].positions(EVERY_CODE) for place in firsts]
        return kinds, np.stack(cells).astype(np.uint16), np.stack(positions).astype(np.int16)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        return np.array([[part.start if part.stop > part.start else -1 for part in each] for each in self._slices])

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.tables.cells_kernels import marginal_sums

        marginal_sums(records.codes, self.rows, *self._shared, self._places, sums)

    def features(self, records: Records) -> Floats:
        found = np.zeros((len(records), self.size))
        every = np.arange(len(records))
        for cells, row, (table, bins, centre) in zip(self.cells, self.rows, self._slices, strict=True):
            codes = records.codes[row]
            own = cells.cells(codes)
            found[every, table.start + own] = 1.0
            inside = every[(own >= 1) & (own <= bins.stop - bins.start)]
            found[inside, bins.start + own[inside] - 1] = cells.positions(codes[inside]) / GRID
            if centre.stop > centre.start:
                found[:, centre] = _centred(cells, codes)[:, None] / GRID
        return found

    def sum_blocks(self) -> Iterator[SumBlock]:
        for name, (table, _, centred) in zip(self.columns, self._slices, strict=True):
            yield SumBlock((name,), table.start, centred.stop)

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats]:
        """Cell, position and code of each record; what a cell or column does not have adds zero."""
        column = self.columns.index(block.columns[0])
        cells, codes = self.cells[column], records.codes[self.rows[column]]
        own, positions, centred = cells.cells(codes), self.positions(column), self.centred(column)
        inside = (own >= 1) & (own <= positions.stop - positions.start)
        indices = np.stack(
            [
                block.first + own,
                np.where(inside, positions.start + own - 1, block.first),
                np.full(len(codes), centred.start if centred.stop > centred.start else block.first),
            ],
            axis=1,
        )
        value = np.where((codes == MISSING) | (centred.stop == centred.start), 0, codes)
        position = np.where(inside, cells.positions(codes), 0)
        return indices, np.stack([np.full(len(codes), GRID), position, value], axis=1) / GRID

    @property
    def column_totals(self) -> Mapping[str, int]:
        every = {name: self.centred(column) for column, name in enumerate(self.columns)}
        return {name: where.start for name, where in every.items() if where.stop > where.start}

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        firsts, kinds = distinct([(cells.cut, cells.ordered) for cells in self.cells])
        change = _largest_feature if relation is Relation.ADD_REMOVE else _largest_exchange
        worst = [change(self.cells[place], self.description.totals) for place in firsts]
        each = [worst[kind] for kind in kinds]
        return Sensitivity(sum(column.l1 for column in each), sum(column.l2_squared for column in each))


def _lengths(cells: Cells, totals: bool) -> tuple[int, int, int]:
    """Sums of a column: counts, positions, codes."""
    return cells.count, cells.bins if cells.binned else 0, int(cells.ordered and totals)


def _centred(cells: Cells, codes: NDArray[np.integer]) -> NDArray[np.int64]:
    """What a code adds to the column's sum of codes."""
    return np.where((codes == MISSING) | (not cells.ordered), 0, codes).astype(np.int64)


@lru_cache(1000)
def _largest_feature(cells: Cells, totals: bool) -> Sensitivity:
    """Largest features of a single code."""
    position, centred = np.abs(cells.positions(EVERY_CODE)), totals * np.abs(_centred(cells, EVERY_CODE))
    return Sensitivity(GRID + int((position + centred).max()), GRID**2 + int((position**2 + centred**2).max()))


@lru_cache(1000)
def _largest_exchange(cells: Cells, totals: bool) -> Sensitivity:
    """Largest change between two codes. The ends of the outermost cells of each width, and missing, are enough."""
    widths = np.diff(cells.firsts)
    outermost = [place for width in np.unique(widths) for place in np.flatnonzero(widths == width)[[0, -1]]]
    ends = [code for place in outermost for code in (cells.firsts[place], cells.firsts[place + 1] - 1)]
    codes = np.array([*ends, MISSING])
    own, position, centred = cells.cells(codes), np.abs(cells.positions(codes)), totals * _centred(cells, codes)
    one, two = np.nonzero(own[:, None] != own)
    apart = np.abs(centred[one] - centred[two])
    return Sensitivity(
        2 * GRID + int((position[one] + position[two] + apart).max()),
        2 * GRID**2 + int((position[one] ** 2 + position[two] ** 2 + apart**2).max()),
    )
