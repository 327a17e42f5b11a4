"""What maps that count the cells of single columns have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.cuts import Sharing
from dpsketch.encoding.records import Records
from dpsketch.maps.base import BoundMap, FeatureMap, RecordCount, Sensitivity, SumBlock, Sums
from dpsketch.maps.tables.cells import EVERY_CODE, Cells, distinct
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


class OneWayMap(BoundMap):
    """A map whose sums hold, for each column, `grid` times the number of records in each of its cells. They may also
    hold where in their bins the records lie.
    """

    cells: tuple[Cells, ...]
    bins: int  # between a number's bounds, at least
    separates_points = True
    sparse = True

    @abstractmethod
    def table(self, column: int) -> slice:
        """Where the sums hold `grid` times the counts of the cells of a column, given by its index."""

    def positions(self, column: int) -> slice:
        """Where they hold the positions in cells 1 .. bins: POSITION_GRID times the number of records in the bin times
        their mean distance from its middle in widths of the bin. Empty if they hold none.
        """
        return slice(0, 0)

    def sharing(self, column: int) -> Sharing | None:
        """How many records of a column's cells share a value; None where it was not estimated."""
        return None

    @property
    def record_count(self) -> RecordCount:
        return RecordCount(self.cells[0].count, self.grid)

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        return True


def one_cell_a_column(columns: int, relation: Relation) -> Sensitivity:
    """Sensitivity of counters, one of which a record raises by one in each column. Source: docs/proofs/levels.md."""
    most = columns * (1 if relation is Relation.ADD_REMOVE else 2)
    return Sensitivity(most, most)


class CellCounter(BoundMap):
    """One counter for each cell of each column.

    Guarantee: a record adds one to one counter of each of the q columns: L1 = L2² = q for a row more or less, 2q and 2q
    for a row replaced (features are non-negative), whatever the cells are. Source: docs/proofs/levels.md.
    """

    largest = 1
    narrow = True
    separates_points = True
    sparse = True
    entries_per_record = 1  # in one column

    def __init__(self, description: FeatureMap, schema: Schema, columns: tuple[str, ...], cells: Sequence[Cells]):
        super().__init__(description, schema, columns)
        self.schema, self.cells = schema, tuple(cells)
        self._rows = np.array([schema.index(name) for name in columns])
        self._starts = np.cumsum([0] + [own.count for own in self.cells])
        self.size = int(self._starts[-1])

    def table(self, column: int) -> slice:
        """Where the sums hold the counts of the cells of a column, given by its index."""
        return slice(int(self._starts[column]), int(self._starts[column + 1]))

    @cached_property
    def _shared(self) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Which table each column reads, and the tables: the cell of every code; index is code - MISSING."""
        firsts, kinds = distinct([own.cut for own in self.cells])
        return kinds, np.stack([self.cells[index].cells(EVERY_CODE) for index in firsts]).astype(np.uint16)

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.tables.cells_kernels import cell_sums

        kinds, tables = self._shared
        kinds = np.where([own.count == EVERY_CODE.size for own in self.cells], -1, kinds)
        cell_sums(records.codes, self._rows, kinds, tables, self._starts[:-1], sums)

    def _indices(self, codes: Codes) -> NDArray[np.int64]:
        """Index into the sums of each record's cell: one matrix row a column."""
        kinds, tables = self._shared
        own = [tables[kind, row] for kind, row in zip(kinds, codes[self._rows].astype(np.int64) - MISSING, strict=True)]
        indices: NDArray[np.int64] = np.stack(own).astype(np.int64) + self._starts[:-1, None]
        return indices

    def features(self, records: Records) -> Floats:
        one_hot = np.zeros((len(records), self.size))
        one_hot[np.arange(len(records)), self._indices(records.codes)] = 1.0
        return one_hot

    def sum_blocks(self) -> Iterator[SumBlock]:
        for column, name in enumerate(self.columns):
            yield SumBlock((name,), int(self._starts[column]), int(self._starts[column + 1]))

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats]:
        indices = self._indices(records.codes)[self.columns.index(block.columns[0])][:, None]
        return indices, np.ones(indices.shape)

    @property
    def record_count(self) -> RecordCount:
        return RecordCount(self.cells[0].count, self.grid)

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        return True

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        return one_cell_a_column(len(self.columns), relation)
