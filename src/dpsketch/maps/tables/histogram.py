"""Marginals and contingency tables over bins that come from the public bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import comb, prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import (
    BoundMap,
    FeatureMap,
    RecordCount,
    Sensitivity,
    SumBlock,
    Sums,
    check_columns,
    check_whole,
    chosen_columns,
)
from dpsketch.maps.hashed.hashes import Euclidean, hash_from_dict
from dpsketch.maps.tables.cells import EVERY_CODE, Cells, HistogramCells
from dpsketch.maps.tables.edges import Edges, cells_between, checked_edges
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

MOST_CELLS = 2**31


@dataclass(frozen=True)
class Histogram(FeatureMap):
    """All `ways`-way tables among the columns; `bins` bounds the bins of a numeric column.

    `edges` divides some of the columns where you say, such as {"age": [18, 40, 65]}: these four groups and missing. The
    edges are in the units of the column, dates as texts or dates, and a value at an edge is in the group above it.
    `kernel` is the one that densities from a table have unless another is asked for. It changes no count.
    """

    ways: int = 1
    columns: tuple[str, ...] | None = None
    bins: int = 64
    kernel: Euclidean | None = None
    edges: Edges | None = None

    name: ClassVar[str] = "histogram"
    good_for: ClassVar[str] = "counts of the cells of its tables"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = {"kernel": None, "edges": None}

    def __post_init__(self) -> None:
        if self.kernel is not None:
            kernel = hash_from_dict(self.kernel)
            if not isinstance(kernel, Euclidean):
                raise RecipeError(
                    f"Histogram: kernel must be a kernel of distance, got {kernel!r} instead", "pass Euclidean(0.05)"
                )
            object.__setattr__(self, "kernel", kernel)
        check_whole("Histogram", "ways", self.ways, 1, 8)
        check_whole("Histogram", "bins", self.bins, 1, 32768)
        object.__setattr__(self, "columns", check_columns("Histogram", self.columns))
        object.__setattr__(self, "edges", checked_edges("Histogram", self.edges, self.columns))

    def column_cells(self, schema: Schema) -> dict[str, Cells]:
        """How each column is cut."""
        own, names = dict(self.edges or ()), chosen_columns(schema, self.columns)
        for name in own.keys() - set(names):
            schema.column(name)
            raise RecipeError(f"Histogram: column '{name}' has edges but no cells", "leave out its edges")
        return {
            name: cells_between("Histogram", schema.column(name), own[name])
            if name in own
            else HistogramCells(schema.column(name), self.bins)
            for name in names
        }

    def tables(self, schema: Schema) -> tuple[tuple[str, ...], ...]:
        names = chosen_columns(schema, self.columns)
        if len(names) < self.ways:
            raise RecipeError(
                f"Histogram: ways = {self.ways} needs at least {self.ways} columns, got {len(names)}",
                "lower ways or name more columns",
            )
        if comb(len(names), self.ways) > 100_000:
            raise RecipeError(
                f"Histogram: {self.ways}-way tables of {len(names)} columns are too many", "name fewer columns"
            )
        return tuple(combinations(names, self.ways))

    def length(self, schema: Schema) -> int:
        counts = {name: cells.count for name, cells in self.column_cells(schema).items()}
        size = sum(prod(counts[name] for name in table) for table in self.tables(schema))
        if size > MOST_CELLS:
            raise RecipeError(
                f"Histogram: the tables would have {size} cells, more than {MOST_CELLS}",
                "lower bins or ways, or name fewer columns",
            )
        return size

    def to_dict(self) -> dict[str, Any]:
        kernel = {} if self.kernel is None else {"kernel": self.kernel.to_dict()}
        edges = {} if self.edges is None else {"edges": {name: list(numbers) for name, numbers in self.edges}}
        return super().to_dict() | kernel | edges

    def counted(self) -> Histogram:
        return replace(self, kernel=None)

    def bind(self, schema: Schema) -> BoundHistogram:
        return BoundHistogram(self, schema)


class BoundHistogram(BoundMap):
    """Guarantee: a record adds one to one cell of each of the q tables, so L1 = L2² = q for a row more or
    less; 2q and 2q for a row replaced (features are non-negative). Source: m2m §2.3; docs/proofs/histogram.md.
    """

    largest = 1
    separates_points = True
    sparse = True

    def __init__(self, description: Histogram, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = description.length(schema)
        self.tables = description.tables(schema)
        self.column_cells = description.column_cells(schema)
        self._rows = np.array([schema.index(name) for name in self.columns])
        position = {name: index for index, name in enumerate(self.columns)}
        self._members = np.array([[position[name] for name in table] for table in self.tables], np.int64)
        counts = [self.shape(table) for table in range(len(self.tables))]
        self.offsets = np.cumsum([0] + [prod(shape) for shape in counts])
        strides = [[prod(shape[way + 1 :]) for way in range(len(shape))] for shape in counts]
        self._strides = np.array(strides, np.int64)

    def shape(self, table: int) -> tuple[int, ...]:
        return tuple(self.column_cells[name].count for name in self.tables[table])

    @cached_property
    def _lookups(self) -> NDArray[np.uint16]:
        """The cell of every code in each column; index is code - MISSING."""
        return np.stack([self.column_cells[name].cells(EVERY_CODE) for name in self.columns]).astype(np.uint16)

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.kernels import histogram_sums

        histogram_sums(records.codes, self._rows, self._lookups, self._members, self._strides, self.offsets[:-1], sums)

    def cells(self, codes: Codes) -> NDArray[np.int64]:
        """Index into the sums of each record's cell in each table: one matrix row a table."""
        bins = np.stack([self._lookups[i, codes[row].astype(np.int64) - MISSING] for i, row in enumerate(self._rows)])
        within = (bins.astype(np.int64)[self._members] * self._strides[:, :, None]).sum(axis=1)
        cells: NDArray[np.int64] = within + self.offsets[:-1, None]
        return cells

    def features(self, records: Records) -> Floats:
        one_hot = np.zeros((len(records), self.size))
        one_hot[np.arange(len(records)), self.cells(records.codes)] = 1.0
        return one_hot

    def sum_blocks(self) -> Iterator[SumBlock]:
        for table, columns in enumerate(self.tables):
            yield SumBlock(columns, int(self.offsets[table]), int(self.offsets[table + 1]))

    @property
    def entries_per_record(self) -> int:
        return len(self.tables)

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats]:
        cells = self.cells(records.codes).T
        return cells, np.ones(cells.shape)

    @property
    def record_count(self) -> RecordCount:
        return RecordCount(int(self.offsets[1]), 1)

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        return True

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        q = len(self.tables)
        return Sensitivity(q, q) if relation is Relation.ADD_REMOVE else Sensitivity(2 * q, 2 * q)
