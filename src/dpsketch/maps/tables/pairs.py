"""Contingency tables of two columns, in fine cells or in groups of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations
from math import comb
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
from dpsketch.maps.tables.cells import EVERY_CODE, MOST_BINS, cells_of, distinct
from dpsketch.maps.tables.pair_map import Groups, PairMap
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

MOST_PAIRS = 100_000
MOST_CELLS = 1 << 31


@dataclass(frozen=True)
class Pairs(FeatureMap):
    """The table of all pairs of columns, or of the listed ones, with `bins` bins between a number's bounds: equal ones,
    or `tapered`, narrower towards the bounds.

    `groups` pools cells: for each column, in the order of `columns`, the group of each of its cells.
    `Pairs(pool=True, …)` makes `AdaptivePairs(…)`, whose groups a release chooses; files and recipes use this form.
    """

    columns: tuple[str, ...] | None = None
    bins: int = 64
    pairs: tuple[tuple[str, str], ...] | None = None
    groups: Groups | None = None
    pool: bool = False
    tapered: bool = False

    absent: ClassVar[Mapping[str, Any]] = {"tapered": False}
    name: ClassVar[str] = "pairs"
    good_for: ClassVar[str] = "questions about several columns, models, synthetic rows"
    version: ClassVar[int] = 1

    def __new__(cls, *first: Any, **parameters: Any) -> Pairs:
        given = dict(zip([each.name for each in fields(Pairs)], first, strict=False)) | parameters
        return object.__new__(cls.kind_for(given))

    @classmethod
    def kind_for(cls, parameters: Mapping[str, Any]) -> type[Pairs]:
        if cls is not Pairs:
            return cls
        from dpsketch.maps.tables.adaptive_pairs import AdaptivePairs, check_rule

        check_rule(parameters)
        return AdaptivePairs if parameters.get("pool") else Pairs

    def __post_init__(self) -> None:
        check_whole("Pairs", "bins", self.bins, 1, MOST_BINS)
        object.__setattr__(self, "columns", check_columns("Pairs", self.columns))
        object.__setattr__(self, "pairs", _checked_pairs(self.pairs, self.columns))
        object.__setattr__(self, "groups", _checked_groups(self.groups))
        for name in ("pool", "tapered"):
            if not isinstance(getattr(self, name), bool):
                raise RecipeError(f"Pairs: {name} must be true or false, got {getattr(self, name)!r} instead")

    def names(self, schema: Schema) -> tuple[str, ...]:
        """The named columns, or those of the pairs, or all scalar ones."""
        if self.columns is not None or self.pairs is None:
            return chosen_columns(schema, self.columns)
        named = {name for pair in self.pairs for name in pair}
        for name in sorted(named):
            schema.index(name)
        return tuple(column.name for column in schema.scalars if column.name in named)

    def tables(self, schema: Schema) -> tuple[tuple[str, str], ...]:
        """The pairs of columns that have a table."""
        if self.pairs is not None:
            return self.pairs
        names = self.names(schema)
        if len(names) < 2:
            raise RecipeError(f"Pairs needs at least 2 columns, got {len(names)}", "name more columns")
        if comb(len(names), 2) > MOST_PAIRS:
            raise RecipeError(
                f"Pairs: {len(names)} columns have {comb(len(names), 2)} pairs, more than {MOST_PAIRS}",
                "name fewer columns, or list pairs",
            )
        return tuple(combinations(names, 2))

    def counts(self, schema: Schema) -> dict[str, int]:
        """The number of cells, or of groups of them, of each column."""
        names = self.names(schema)
        fine = {name: cells_of(schema.column(name), self.bins, self.tapered).count for name in names}
        if self.groups is None:
            return fine
        if len(self.groups) != len(names):
            raise RecipeError(
                f"Pairs: groups must have an entry for each of the {len(names)} columns, got {len(self.groups)}"
            )
        for name, groups in zip(names, self.groups, strict=True):
            if len(groups) != fine[name]:
                raise RecipeError(
                    f"Pairs: the groups of column '{name}' must name the group of each of its {fine[name]} cells, "
                    f"got {len(groups)}"
                )
        return {name: max(groups) + 1 for name, groups in zip(names, self.groups, strict=True)}

    def length(self, schema: Schema) -> int:
        counts = self.counts(schema)
        size = sum(counts[one] * counts[two] for one, two in self.tables(schema))
        if size > MOST_CELLS:
            raise RecipeError(
                f"Pairs: the tables would have {size} cells, more than {MOST_CELLS}",
                "lower bins, name fewer columns, or list pairs",
            )
        return size

    def unsettled(self) -> Pairs:
        return self if self.groups is None else Pairs(bins=self.bins, tapered=self.tapered)

    def summary(self) -> dict[str, Any]:
        groups = None if self.groups is None else [max(each) + 1 for each in self.groups]
        return self.to_dict() | {"groups": groups}

    def bind(self, schema: Schema) -> BoundPairs:
        return BoundPairs(self, schema)


class BoundPairs(PairMap):
    """Guarantee: a record adds one to one cell of each of the q tables, so L1 = L2² = q for a row more or less; 2q and
    2q for a row replaced (features are non-negative). Source: m2m §2.3; docs/proofs/pairs.md.
    """

    largest = 1
    narrow = True
    description: Pairs

    def __init__(self, description: Pairs, schema: Schema) -> None:
        super().__init__(description, schema, description.names(schema))
        self.size = description.length(schema)
        self.pairs, self.bins, tapered = description.tables(schema), description.bins, description.tapered
        self.cells = tuple(cells_of(schema.column(name), self.bins, tapered) for name in self.columns)
        self.schema = schema
        self._rows = np.array([schema.index(name) for name in self.columns])
        index_of = {name: index for index, name in enumerate(self.columns)}
        self._members = np.array([[index_of[one], index_of[two]] for one, two in self.pairs], np.int64)
        counts = description.counts(schema)
        self._shapes = [(counts[one], counts[two]) for one, two in self.pairs]
        self._strides = np.array([columns for _, columns in self._shapes], np.int64)
        self.offsets = np.cumsum([0] + [rows * columns for rows, columns in self._shapes])

    def shape(self, pair: int) -> tuple[int, int]:
        """Numbers of cells, or of groups, of the two columns of a pair, given by its index."""
        return self._shapes[pair]

    def table(self, pair: int) -> slice:
        """The slice of the sums that holds the table of a pair, row by row."""
        return slice(int(self.offsets[pair]), int(self.offsets[pair + 1]))

    def coarsened(
        self, groups: Sequence[Sequence[int]] | None, pairs: Sequence[tuple[str, str]] | None = None
    ) -> BoundPairs:
        """The same tables with these groups of cells, for all or some of the pairs."""
        chosen = self.pairs if pairs is None else tuple(pairs)
        columns, listed = self.description.columns, self.description.pairs
        if chosen != self.pairs:  # all columns keep their groups, even those without a table
            columns, listed = self.columns, chosen
        tapered = self.description.tapered
        return BoundPairs(Pairs(columns, self.bins, listed, groups, tapered=tapered), self.schema)  # type: ignore

    def coarse_sums(self, sums: Sums, coarse: BoundPairs) -> Sums:
        """Exact sums of `coarse` from those of this map, of the same type: those that `coarse` would accumulate."""
        groups, index_of = coarse.description.groups, {pair: number for number, pair in enumerate(self.pairs)}
        alike = (coarse.columns, coarse.cells) == (self.columns, self.cells) and set(coarse.pairs) <= set(index_of)
        if groups is None or self.description.groups is not None or not alike:
            raise RecipeError("Pairs: coarse sums need a map of fine cells and one that it was coarsened to")
        pooled = np.zeros(coarse.size, sums.dtype)
        for pair, (one, two) in enumerate(coarse._members):
            own = index_of[coarse.pairs[pair]]
            rows = np.zeros((coarse.shape(pair)[0], self.shape(own)[1]), sums.dtype)
            np.add.at(rows, np.array(groups[one]), sums[self.table(own)].reshape(self.shape(own)))
            np.add.at(pooled[coarse.table(pair)].reshape(coarse.shape(pair)).T, np.array(groups[two]), rows.T)
        return pooled

    @cached_property
    def _shared(self) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """The lookup table of each column, and the tables: cell or group of every code, at index code - MISSING."""
        groups = self.description.groups or (None,) * len(self.cells)
        keys = [(cells.cut, own) for cells, own in zip(self.cells, groups, strict=True)]
        firsts, kinds = distinct(keys)
        tables = []
        for column in firsts:
            own, fine = groups[column], self.cells[column].cells(EVERY_CODE)
            tables.append(fine if own is None else np.array(own)[fine])
        return kinds, np.stack(tables).astype(np.uint16)

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.tables.cells_kernels import pair_sums

        pair_sums(records.codes, self._rows, *self._shared, self._members, self._strides, self.offsets[:-1], sums)

    def places(self, codes: Codes) -> NDArray[np.int64]:
        """Index into the sums of each record's cell in each table: one matrix row a pair."""
        kinds, tables = self._shared
        indices = codes[self._rows].astype(np.int64) - MISSING
        own = np.stack([tables[kind, index] for kind, index in zip(kinds, indices, strict=True)]).astype(np.int64)
        left, right = own[self._members.T]
        cells: NDArray[np.int64] = self.offsets[:-1, None] + left * self._strides[:, None] + right
        return cells

    def features(self, records: Records) -> Floats:
        one_hot = np.zeros((len(records), self.size))
        one_hot[np.arange(len(records)), self.places(records.codes)] = 1.0
        return one_hot

    @property
    def groups_of_cells(self) -> Groups:
        return self.description.groups or tuple(tuple(range(own.count)) for own in self.cells)

    def pair_table(self, sums: Sums, pair: int) -> Floats:
        return sums[self.table(pair)].reshape(self.shape(pair)).astype(np.float64)

    def sum_blocks(self) -> Iterator[SumBlock]:
        for pair, columns in enumerate(self.pairs):
            yield SumBlock(columns, int(self.offsets[pair]), int(self.offsets[pair + 1]))

    @property
    def entries_per_record(self) -> int:
        return len(self.pairs)

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats]:
        indices = self.places(records.codes).T
        return indices, np.ones(indices.shape)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        q = len(self.pairs)
        return Sensitivity(q, q) if relation is Relation.ADD_REMOVE else Sensitivity(2 * q, 2 * q)


def _checked_pairs(pairs: object, columns: tuple[str, ...] | None) -> tuple[tuple[str, str], ...] | None:
    """Check pairs: None, or distinct pairs of names, all among the columns if those are named."""
    if pairs is None:
        return None
    if not isinstance(pairs, list | tuple) or not all(_is_pair(pair) for pair in pairs):
        raise RecipeError(f"Pairs: pairs must be a list of pairs of column names, got {pairs!r} instead")
    if not pairs or len({frozenset(pair) for pair in pairs}) < len(pairs):
        raise RecipeError("Pairs: pairs must list at least one pair, each once")
    if len(pairs) > MOST_PAIRS:
        raise RecipeError(f"Pairs: {len(pairs)} pairs are more than {MOST_PAIRS}", "list fewer pairs")
    known = set(columns or ())
    for name in (name for pair in pairs for name in pair):
        if columns is not None and name not in known:
            raise RecipeError(f"Pairs: pairs name '{name}', which is not among columns", "add it, or leave out columns")
    return tuple((one, two) for one, two in pairs)


def _is_pair(pair: object) -> bool:
    return (
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(isinstance(name, str) for name in pair)
        and pair[0] != pair[1]
    )


def _checked_groups(groups: object) -> Groups | None:
    """Check groups: None, or for each column groups 0, 1, … of its cells, none of them empty."""
    if groups is None:
        return None
    if not isinstance(groups, list | tuple) or not all(isinstance(each, list | tuple) for each in groups):
        raise RecipeError("Pairs: groups must list, for each column, the group of each cell")
    for each in groups:
        numbers = set(each) if all(type(group) is int for group in each) else set()
        if not numbers or numbers != set(range(len(numbers))):
            raise RecipeError("Pairs: the groups of a column must be whole numbers 0, 1, …, without gaps")
    return tuple(tuple(each) for each in groups)
