"""Contingency tables of two columns, in fine cells or in groups of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from math import comb
from typing import Any, ClassVar

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap, Sums, check_columns, check_whole, chosen_columns
from dpsketch.maps.tables.cells import MOST_BINS, cells_of
from dpsketch.maps.tables.count_tables import CountTables, check_groups, check_listed, group_counts
from dpsketch.maps.tables.pair_map import Groups, PairMap
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema

MOST_PAIRS = 100_000
MOST_TIMES = 1000
MOST_CELLS = 1 << 31


@dataclass(frozen=True)
class Pairs(FeatureMap):
    """The table of all pairs of columns, or of the listed ones, with `bins` bins between a number's bounds: equal ones,
    or `tapered`, narrower towards the bounds.

    `groups` pools cells: for each column, in the order of `columns`, the group of each of its cells. A record counts
    `times` in the tables of `important` pairs and once in the others, so that answers from these tables have that much
    less noise. `Pairs(pool=True, …)` makes `AdaptivePairs(…)`, whose groups a release chooses; files and recipes use
    this form.
    """

    columns: tuple[str, ...] | None = None
    bins: int = 64
    pairs: tuple[tuple[str, str], ...] | None = None
    groups: Groups | None = None
    pool: bool = False
    tapered: bool = False
    important: tuple[tuple[str, str], ...] | None = None
    times: int = 1

    absent: ClassVar[Mapping[str, Any]] = {"tapered": False, "important": None, "times": 1}
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
        object.__setattr__(self, "pairs", _checked_pairs("pairs", self.pairs, self.columns))
        object.__setattr__(self, "important", _checked_pairs("important", self.important, self.columns))
        check_whole("Pairs", "times", self.times, 1, MOST_TIMES)
        if self.times > 1 and self.important is None:
            raise RecipeError("Pairs: times is the weight of important pairs", "list important pairs, or leave it out")
        object.__setattr__(self, "groups", check_groups("Pairs", self.groups))
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

    def weights(self, schema: Schema) -> list[int]:
        """What a record adds to each table."""
        if self.important is None:
            return [1] * len(self.tables(schema))
        known = {frozenset(pair): 1 for pair in self.tables(schema)}
        for one, two in self.important:
            if frozenset((one, two)) not in known:
                raise RecipeError(
                    f"Pairs: the important pair of '{one}' and '{two}' has no table", "add it, or leave it out"
                )
            known[frozenset((one, two))] = self.times
        return list(known.values())

    def counts(self, schema: Schema) -> dict[str, int]:
        """The number of cells, or of groups of them, of each column."""
        names = self.names(schema)
        fine = {name: cells_of(schema.column(name), self.bins, self.tapered).count for name in names}
        return group_counts("Pairs", fine, self.groups)

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
        if self.groups is None:
            return self
        return Pairs(bins=self.bins, tapered=self.tapered, important=self.important, times=self.times)

    def summary(self) -> dict[str, Any]:
        groups = None if self.groups is None else [max(each) + 1 for each in self.groups]
        return self.to_dict() | {"groups": groups}

    def bind(self, schema: Schema) -> BoundPairs:
        return BoundPairs(self, schema)


class BoundPairs(CountTables, PairMap):
    """Guarantee: a record adds a table's weight w to one cell of each table, so L1 = Σw and L2² = Σw² for a row more or
    less; 2Σw and 2Σw² for a row replaced (features are non-negative). Source: m2m §2.3; docs/proofs/pairs.md.
    """

    description: Pairs

    def __init__(self, description: Pairs, schema: Schema) -> None:
        super().__init__(description, schema, description.names(schema))
        self.size = description.length(schema)
        self.pairs, self.bins, tapered = description.tables(schema), description.bins, description.tapered
        self.cells = tuple(cells_of(schema.column(name), self.bins, tapered) for name in self.columns)
        self.schema = schema
        self.lay_out(self.pairs, description.counts(schema), description.groups, description.weights(schema))

    def coarsened(
        self, groups: Sequence[Sequence[int]] | None, pairs: Sequence[tuple[str, str]] | None = None
    ) -> BoundPairs:
        """The same tables with these groups of cells, for all or some of the pairs."""
        chosen = self.pairs if pairs is None else tuple(pairs)
        columns, listed = self.description.columns, self.description.pairs
        if chosen != self.pairs:  # all columns keep their groups, even those without a table
            columns, listed = self.columns, chosen
        facts = self.description
        weighted = {"tapered": facts.tapered, "important": facts.important, "times": facts.times}
        return BoundPairs(Pairs(columns, self.bins, listed, groups, **weighted), self.schema)  # type: ignore

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.tables.cells_kernels import pair_sums

        places = self.members, self.strides[:, 0], self.offsets[:-1]
        pair_sums(records.codes, self.rows, *self.shared, *places, self.weights, sums)

    def pair_table(self, sums: Sums, pair: int) -> Floats:
        return self.counts_of(sums, pair)

    def pair_weight(self, pair: int) -> int:
        return int(self.weights[pair])


def _checked_pairs(name: str, pairs: object, columns: tuple[str, ...] | None) -> tuple[tuple[str, str], ...] | None:
    """Check pairs: None, or distinct pairs of names, all among the columns if those are named."""
    found = check_listed("Pairs", name, pairs, columns, 2, MOST_PAIRS)
    return None if found is None else tuple((one, two) for one, two in found)
