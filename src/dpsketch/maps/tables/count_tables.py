"""The common base of pair tables and tables of three columns: contingency tables over cells, or groups of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, Sensitivity, SumBlock, Sums
from dpsketch.maps.tables.cells import EVERY_CODE, Cells, distinct
from dpsketch.maps.tables.pair_map import Groups
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


class CountTables(BoundMap):
    """Guarantee: a record adds a table's weight w to one cell of each table, so L1 = Σw and L2² = Σw² for a row more or
    less; 2Σw and 2Σw² for a row replaced (features are non-negative). Source: docs/proofs/pairs.md.
    """

    narrow = True
    separates_points = True
    sparse = True
    cells: tuple[Cells, ...]
    schema: Schema

    def lay_out(
        self,
        tables: Sequence[tuple[str, ...]],
        counts: dict[str, int],
        groups: Groups | None,
        weights: Sequence[int] | None = None,
    ) -> None:
        """Place tables of these columns one after another, each row by row; `counts` are those of cells or groups,
        `weights` what a record adds to each table, by default one.
        """
        self.tables, self._groups = tuple(tables), groups
        self.weights = np.array([1] * len(self.tables) if weights is None else weights, np.int64)
        self.largest = int(self.weights.max())
        self.rows = np.array([self.schema.index(name) for name in self.columns])
        index_of = {name: index for index, name in enumerate(self.columns)}
        self.members = np.array([[index_of[name] for name in table] for table in tables], np.int64)
        self._shapes = [tuple(counts[name] for name in table) for table in tables]
        self.offsets = np.cumsum([0] + [int(np.prod(shape)) for shape in self._shapes])

    def shape(self, table: int) -> tuple[int, ...]:
        """Numbers of cells, or of groups, of the columns of a table, given by its index."""
        return self._shapes[table]

    def table(self, table: int) -> slice:
        """The slice of the sums that holds a table, row by row."""
        return slice(int(self.offsets[table]), int(self.offsets[table + 1]))

    def counts_of(self, sums: Sums, table: int) -> Floats:
        """A table of counts of records: its sums divided by its weight."""
        return sums[self.table(table)].reshape(self.shape(table)) / float(self.weights[table])

    def coarse_sums(self, sums: Sums, coarse: CountTables) -> Sums:
        """Exact sums of `coarse` from those of this map, of the same type: those that `coarse` would accumulate."""
        groups, index_of = coarse._groups, {table: number for number, table in enumerate(self.tables)}
        alike = (coarse.columns, coarse.cells) == (self.columns, self.cells) and set(coarse.tables) <= set(index_of)
        same = alike and (coarse.weights == [self.weights[index_of[table]] for table in coarse.tables]).all()
        if groups is None or self._groups is not None or not same:
            name = type(self.description).__name__
            raise RecipeError(f"{name}: coarse sums need a map of fine cells and one that it was coarsened to")
        pooled = np.empty(coarse.size, sums.dtype)
        for number, members in enumerate(coarse.members):
            own = index_of[coarse.tables[number]]
            table = sums[self.table(own)].reshape(self.shape(own))
            for axis, column in enumerate(members):
                table = _pooled(table, axis, np.array(groups[column]))
            pooled[coarse.table(number)] = table.ravel()
        return pooled

    @cached_property
    def shared(self) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """The lookup table of each column, and the tables: cell or group of every code, at index code - MISSING."""
        groups = self._groups or (None,) * len(self.cells)
        keys = [(cells.cut, own) for cells, own in zip(self.cells, groups, strict=True)]
        firsts, kinds = distinct(keys)
        tables = []
        for column in firsts:
            own, fine = groups[column], self.cells[column].cells(EVERY_CODE)
            tables.append(fine if own is None else np.array(own)[fine])
        return kinds, np.stack(tables).astype(np.uint16)

    @cached_property
    def strides(self) -> NDArray[np.int64]:
        """For each table, the number of cells in a step along each column but the last, whose steps are 1."""
        return np.array([[int(np.prod(shape[axis + 1 :])) for axis in range(len(shape) - 1)] for shape in self._shapes])

    def places(self, codes: Codes) -> NDArray[np.int64]:
        """Index into the sums of each record's cell in each table: one matrix row a table."""
        kinds, tables = self.shared
        indices = codes[self.rows].astype(np.int64) - MISSING
        own = np.stack([tables[kind, index] for kind, index in zip(kinds, indices, strict=True)]).astype(np.int64)
        found = self.offsets[:-1, None] + own[self.members[:, -1]]
        for axis in range(self.members.shape[1] - 1):
            found = found + own[self.members[:, axis]] * self.strides[:, axis, None]
        return np.asarray(found)

    def features(self, records: Records) -> Floats:
        found = np.zeros((len(records), self.size))
        found[np.arange(len(records)), self.places(records.codes)] = self.weights[:, None]
        return found

    @property
    def groups_of_cells(self) -> Groups:
        """For each column, the group of each of its cells."""
        return self._groups or tuple(tuple(range(own.count)) for own in self.cells)

    def sum_blocks(self) -> Iterator[SumBlock]:
        for number, columns in enumerate(self.tables):
            yield SumBlock(columns, int(self.offsets[number]), int(self.offsets[number + 1]))

    @property
    def entries_per_record(self) -> int:
        return len(self.tables)

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats]:
        indices = self.places(records.codes).T
        return indices, np.broadcast_to(self.weights.astype(np.float64), indices.shape).copy()

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        times, weights = 1 if relation is Relation.ADD_REMOVE else 2, self.weights.tolist()
        return Sensitivity(times * sum(weights), times * sum(weight**2 for weight in weights))


def _pooled(table: Sums, axis: int, groups: NDArray[np.int64]) -> Sums:
    """The sums over cells of the same group along an axis, of the same type."""
    first = np.moveaxis(table, axis, 0)
    found = np.zeros((int(groups.max()) + 1, *first.shape[1:]), table.dtype)
    np.add.at(found, groups, first)
    return np.moveaxis(found, 0, axis)


def check_groups(owner: str, groups: object) -> Groups | None:
    """Check groups: None, or for each column groups 0, 1, … of its cells, none of them empty."""
    if groups is None:
        return None
    if not isinstance(groups, list | tuple) or not all(isinstance(each, list | tuple) for each in groups):
        raise RecipeError(f"{owner}: groups must list, for each column, the group of each cell")
    for each in groups:
        numbers = set(each) if all(type(group) is int for group in each) else set()
        if not numbers or numbers != set(range(len(numbers))):
            raise RecipeError(f"{owner}: the groups of a column must be whole numbers 0, 1, …, without gaps")
    return tuple(tuple(each) for each in groups)


def group_counts(owner: str, fine: dict[str, int], groups: Groups | None) -> dict[str, int]:
    """The number of groups of each column, or of its cells, `fine`, if there are none."""
    if groups is None:
        return fine
    if len(groups) != len(fine):
        raise RecipeError(f"{owner}: groups must have an entry for each of the {len(fine)} columns, got {len(groups)}")
    for (name, count), own in zip(fine.items(), groups, strict=True):
        if len(own) != count:
            raise RecipeError(
                f"{owner}: the groups of column '{name}' must name the group of each of its {count} cells, "
                f"got {len(own)}"
            )
    return {name: max(own) + 1 for name, own in zip(fine, groups, strict=True)}


def check_listed(
    owner: str, name: str, listed: object, columns: tuple[str, ...] | None, ways: int, most: int
) -> tuple[tuple[str, ...], ...] | None:
    """Check tables by their columns: None, or distinct pairs or triples of names, as `ways` says, all among the columns
    if those are named.
    """
    what = {2: "pair", 3: "triple"}[ways]
    if listed is None:
        return None
    if not isinstance(listed, list | tuple) or not all(_are_names(each, ways) for each in listed):
        raise RecipeError(f"{owner}: {name} must be a list of {what}s of column names, got {listed!r} instead")
    if not listed or len({frozenset(each) for each in listed}) < len(listed):
        raise RecipeError(f"{owner}: {name} must list at least one {what}, each once")
    if len(listed) > most:
        raise RecipeError(f"{owner}: {len(listed)} {what}s are more than {most}", f"list fewer {what}s")
    known = set(columns or ())
    for column in (column for each in listed for column in each):
        if columns is not None and column not in known:
            raise RecipeError(
                f"{owner}: {name} name '{column}', which is not among columns", "add it, or leave out columns"
            )
    return tuple(tuple(each) for each in listed)


def _are_names(names: object, count: int) -> bool:
    """Whether these are `count` different names."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return False
    return len(names) == len(set(names)) == count
