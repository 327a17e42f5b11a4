"""Tables of the cells of two columns, in fine cells or in groups of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import (
    BoundMap,
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
    """The table of every two columns, or of the listed pairs of them, with `bins` bins between a number's bounds.

    `groups` pools cells: for each column, in the order of `columns`, the group of each of its cells. With `pool`, the
    raw sketch keeps fine tables, and a release chooses groups from its own noisy marginals: the recipe needs
    `Marginals` of these columns with as many bins, or with fewer that these divide evenly. With `most`, it also chooses
    that many of the pairs, and its noise is that of these alone; pairs with a column of `hints` come first. With
    `contrasts`, it cuts each column in two halves instead, and shows one number a pair: `Contrasts`.
    """

    columns: tuple[str, ...] | None = None
    bins: int = 64
    pairs: tuple[tuple[str, str], ...] | None = None
    groups: Groups | None = None
    pool: bool = False
    most: int | None = None
    hints: tuple[str, ...] | None = None
    contrasts: bool = False

    name: ClassVar[str] = "pairs"
    good_for: ClassVar[str] = "questions about several columns, models, synthetic rows"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = {"most": None, "hints": None, "contrasts": False}

    def __post_init__(self) -> None:
        check_whole("Pairs", "bins", self.bins, 1, MOST_BINS)
        object.__setattr__(self, "columns", check_columns("Pairs", self.columns))
        object.__setattr__(self, "pairs", _checked_pairs(self.pairs, self.columns))
        object.__setattr__(self, "groups", _checked_groups(self.groups))
        if not isinstance(self.pool, bool):
            raise RecipeError(f"Pairs: pool must be true or false, got {self.pool!r} instead")
        if self.pool and self.groups is not None:
            raise RecipeError("Pairs: groups are either given or chosen by the release", "leave out pool or groups")
        if not isinstance(self.contrasts, bool):
            raise RecipeError(f"Pairs: contrasts must be true or false, got {self.contrasts!r} instead")
        if self.contrasts and not self.pool:
            raise RecipeError(
                "Pairs: contrasts need pool: a release chooses the halves of columns",
                "pass pool=True, or Contrasts with halves of your own",
            )
        self._check_most()

    def _check_most(self) -> None:
        if self.most is not None:
            check_whole("Pairs", "most", self.most, 1, MOST_PAIRS)
            if not self.pool:
                raise RecipeError(
                    "Pairs: most needs pool: a release chooses pairs as it chooses groups",
                    "pass pool=True, or list pairs",
                )
        object.__setattr__(self, "hints", check_columns("Pairs", self.hints, "hints"))
        if self.hints is not None and self.most is None:
            raise RecipeError(
                "Pairs: hints say which pairs are kept first when not all are", "pass most, or leave out hints"
            )

    def names(self, schema: Schema) -> tuple[str, ...]:
        """The columns: as named, or those of the pairs, or every scalar one."""
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
        fine = {name: cells_of(schema.column(name), self.bins).count for name in names}
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

    def kept(self, schema: Schema) -> int:
        """How many tables a release shows."""
        every = len(self.tables(schema))
        return every if self.most is None else min(self.most, every)

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
        if self.groups is None and not self.pool:
            return self
        return Pairs(bins=self.bins, pool=self.contrasts, contrasts=self.contrasts)

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
        self.pairs, self.bins, self.pending = description.tables(schema), description.bins, description.pool
        self.cells = tuple(cells_of(schema.column(name), description.bins) for name in self.columns)
        for name in description.hints or ():
            if name not in self.columns:
                raise RecipeError(
                    f"Pairs: hints name '{name}', which is not among the columns", "add it to columns, or leave it out"
                )
        self.schema = schema
        self._rows = np.array([schema.index(name) for name in self.columns])
        place = {name: index for index, name in enumerate(self.columns)}
        self._members = np.array([[place[one], place[two]] for one, two in self.pairs], np.int64)
        counts = description.counts(schema)
        self._shapes = [(counts[one], counts[two]) for one, two in self.pairs]
        self._strides = np.array([columns for _, columns in self._shapes], np.int64)
        self.offsets = np.cumsum([0] + [rows * columns for rows, columns in self._shapes])

    def shape(self, pair: int) -> tuple[int, int]:
        """Cells, or groups of them, of the two columns of a pair, given by its place."""
        return self._shapes[pair]

    def table(self, pair: int) -> slice:
        """Where the sums hold the table of a pair, row by row."""
        return slice(int(self.offsets[pair]), int(self.offsets[pair + 1]))

    def shown(self) -> PairMap:
        from dpsketch.maps.tables.contrasts import shown_of

        return shown_of(self)

    def shown_as(self, other: BoundMap) -> PairMap:
        """The groups or halves, and the pairs, of `other`."""
        if not isinstance(other, PairMap) or other.pending or other.halved != self.description.contrasts:
            raise RecipeError("Pairs: the other release has no groups of such tables or contrasts")
        return self.settled(other.groups_of_cells, other.pairs)

    def settled(self, groups: Sequence[Sequence[int]], kept: Sequence[tuple[str, str]]) -> PairMap:
        """Tables with these groups of cells, or contrasts with these halves, of the pairs that are kept."""
        from dpsketch.maps.tables.contrasts import contrasts_of

        return contrasts_of(self, groups, kept) if self.description.contrasts else self.coarsened(groups, kept)

    def sums_shown(self, sums: Sums, shown: BoundMap) -> Sums:
        from dpsketch.maps.tables.contrasts import coarse_sums

        return coarse_sums(self, sums, shown)

    def released(self) -> BoundPairs:
        """A map with the sensitivity of whatever a release shows of this one: as many tables, the first ones.

        Which ones a release chooses makes no difference: a record adds one to one cell of each.
        """
        if self.description.kept(self.schema) == len(self.pairs):
            return self
        return self._of(self.pairs[: self.description.kept(self.schema)], None, self.description.pool)

    def coarsened(self, groups: Sequence[Sequence[int]], pairs: Sequence[tuple[str, str]] | None = None) -> BoundPairs:
        """The same tables with these groups of cells, or of these pairs alone: as many as a release keeps."""
        chosen = self.pairs if pairs is None else tuple(pairs)
        if len(chosen) != self.description.kept(self.schema) or not set(chosen) <= set(self.pairs):
            raise RecipeError(f"Pairs: a release keeps {self.description.kept(self.schema)} of the pairs")
        return self._of(chosen, groups, pool=False)

    def _of(self, pairs: tuple[tuple[str, str], ...], groups: Sequence[Sequence[int]] | None, pool: bool) -> BoundPairs:
        changes: dict[str, Any] = {"groups": groups, "pool": pool, "most": None, "hints": None, "contrasts": False}
        if pairs != self.pairs:  # all columns keep their groups, also those without a table
            changes |= {"columns": self.columns, "pairs": pairs}
        return replace(self.description, **changes).bind(self.schema)

    def coarse_sums(self, sums: Sums, coarse: BoundPairs) -> Sums:
        """Exact sums of `coarse` from those of this map, of the same type: what `coarse` would have found itself."""
        groups, place = coarse.description.groups, {pair: number for number, pair in enumerate(self.pairs)}
        alike = (coarse.columns, coarse.cells) == (self.columns, self.cells) and set(coarse.pairs) <= set(place)
        if groups is None or self.description.groups is not None or not alike:
            raise RecipeError("Pairs: coarse sums need a map of fine cells and one that it was coarsened to")
        found = np.zeros(coarse.size, sums.dtype)
        for pair, (one, two) in enumerate(coarse._members):
            own = place[coarse.pairs[pair]]
            rows = np.zeros((coarse.shape(pair)[0], self.shape(own)[1]), sums.dtype)
            np.add.at(rows, np.array(groups[one]), sums[self.table(own)].reshape(self.shape(own)))
            np.add.at(found[coarse.table(pair)].reshape(coarse.shape(pair)).T, np.array(groups[two]), rows.T)
        return found

    @cached_property
    def _shared(self) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Which table each column reads, and the tables: cell or group of every code; index is code - MISSING."""
        groups = self.description.groups or (None,) * len(self.cells)
        keys = [(cells.cut, own) for cells, own in zip(self.cells, groups, strict=True)]
        firsts, kinds = distinct(keys)
        tables = []
        for place in firsts:
            own, fine = groups[place], self.cells[place].cells(EVERY_CODE)
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
        places = self.places(records.codes).T
        return places, np.ones(places.shape)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        q = len(self.pairs)
        return Sensitivity(q, q) if relation is Relation.ADD_REMOVE else Sensitivity(2 * q, 2 * q)


def _checked_pairs(pairs: object, columns: tuple[str, ...] | None) -> tuple[tuple[str, str], ...] | None:
    """None, or distinct pairs of names among the columns, if those are named."""
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
    """None, or for each column groups 0, 1, … of its cells, none of them empty."""
    if groups is None:
        return None
    if not isinstance(groups, list | tuple) or not all(isinstance(each, list | tuple) for each in groups):
        raise RecipeError("Pairs: groups must list, for each column, the group of each cell")
    for each in groups:
        numbers = set(each) if all(type(group) is int for group in each) else set()
        if not numbers or numbers != set(range(len(numbers))):
            raise RecipeError("Pairs: the groups of a column must be whole numbers 0, 1, …, without gaps")
    return tuple(tuple(each) for each in groups)
