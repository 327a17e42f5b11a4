"""Contingency tables of three columns, in fine cells or in groups of them that a release chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod, sqrt
from typing import Any, ClassVar

from dpsketch.denoise.groups import choose_few_groups, pooling_threshold, triple_groups_wanted
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, FeatureMap, NoisyPart, Sums, check_columns, check_whole, chosen_columns
from dpsketch.maps.tables.adaptive_pairs import chosen_from, fitted_columns
from dpsketch.maps.tables.cells import MOST_BINS, cells_of
from dpsketch.maps.tables.column_summaries import widths_of
from dpsketch.maps.tables.count_tables import CountTables, check_groups, check_listed, group_counts
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.maps.tables.pair_map import Groups, PairMap
from dpsketch.schema.schema import Schema

MOST_TRIPLES = 100_000
MOST_CELLS = 1 << 31

Triple = tuple[str, str, str]


@dataclass(frozen=True)
class Triples(FeatureMap):
    """The tables of all triples of columns, or of the listed ones, with `bins` bins between a number's bounds.

    `groups` pools cells: for each column, in the order of `columns`, the group of each of its cells. With `pool`, the
    raw sketch holds fine tables, and a release chooses the groups from its own noisy marginals.
    """

    columns: tuple[str, ...] | None = None
    bins: int = 32
    groups: Groups | None = None
    pool: bool = False
    triples: tuple[Triple, ...] | None = None

    absent: ClassVar[Mapping[str, Any]] = {"triples": None}
    name: ClassVar[str] = "triples"
    good_for: ClassVar[str] = "questions about three columns, beside pairs"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_whole("Triples", "bins", self.bins, 1, MOST_BINS)
        object.__setattr__(self, "columns", check_columns("Triples", self.columns))
        object.__setattr__(self, "triples", _checked_triples(self.triples, self.columns))
        object.__setattr__(self, "groups", check_groups("Triples", self.groups))
        if not isinstance(self.pool, bool):
            raise RecipeError(f"Triples: pool must be true or false, got {self.pool!r} instead")
        if self.pool and self.groups is not None:
            raise RecipeError("Triples: groups are either given or chosen by the release", "leave out pool or groups")

    def names(self, schema: Schema) -> tuple[str, ...]:
        """The named columns, or those of the triples, or all scalar ones."""
        if self.columns is not None or self.triples is None:
            return chosen_columns(schema, self.columns)
        named = {name for triple in self.triples for name in triple}
        for name in sorted(named):
            schema.index(name)
        return tuple(column.name for column in schema.scalars if column.name in named)

    def tables(self, schema: Schema) -> tuple[Triple, ...]:
        """The triples of columns that have a table."""
        if self.triples is not None:
            return self.triples
        names = self.names(schema)
        if len(names) < 3:
            raise RecipeError(f"Triples needs at least 3 columns, got {len(names)}", "name more columns")
        if comb(len(names), 3) > MOST_TRIPLES:
            raise RecipeError(
                f"Triples: {len(names)} columns have {comb(len(names), 3)} triples, more than {MOST_TRIPLES}",
                "name fewer columns, or list triples",
            )
        return tuple(combinations(names, 3))

    def counts(self, schema: Schema) -> dict[str, int]:
        """The number of cells, or of groups of them, of each column."""
        fine = {name: cells_of(schema.column(name), self.bins).count for name in self.names(schema)}
        return group_counts("Triples", fine, self.groups)

    def cells(self, schema: Schema) -> int:
        """The number of cells, or of groups of them, of all tables."""
        counts = self.counts(schema)
        return sum(prod(counts[name] for name in table) for table in self.tables(schema))

    def length(self, schema: Schema) -> int:
        size = self.cells(schema)
        if size > MOST_CELLS:
            raise RecipeError(
                f"Triples: the tables would have {size} cells, more than {MOST_CELLS}",
                "lower bins, name fewer columns, or list triples",
            )
        return size

    def unsettled(self) -> Triples:
        return self if self.groups is None and not self.pool else Triples(bins=self.bins, triples=self.triples)

    def summary(self) -> dict[str, Any]:
        groups = None if self.groups is None else [max(each) + 1 for each in self.groups]
        return self.to_dict() | {"groups": groups}

    def bind(self, schema: Schema) -> BoundTriples:
        return BoundTriples(self, schema)


class BoundTriples(CountTables):
    """Guarantee: a record adds one to one cell of each of the q tables, so L1 = L2² = q for a row more or less; 2q and
    2q for a row replaced. Whatever `settle` returns has the same sensitivities, and `coarsen` gives its exact sums.
    Source: docs/proofs/pairs.md.
    """

    description: Triples

    def __init__(self, description: Triples, schema: Schema) -> None:
        super().__init__(description, schema, description.names(schema))
        self.size = description.length(schema)
        self.adaptive = description.pool
        self.cells = tuple(cells_of(schema.column(name), description.bins) for name in self.columns)
        self.schema = schema
        self.lay_out(description.tables(schema), description.counts(schema), description.groups)

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.tables.cells_kernels import triple_sums

        triple_sums(records.codes, self.rows, *self.shared, self.members, self.strides, self.offsets[:-1], sums)

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        """Beside pair tables of these columns: what pairs do not show of the joint distribution."""
        return any(
            isinstance(other, PairMap) and other.read_as_tables(maps) and set(self.columns) <= set(other.columns)
            for other in maps
        )

    def noise_coordinates(self, maps: Sequence[BoundMap]) -> int:
        return 0 if self.read_as_tables(maps) else self.size

    def depends_on(self, other: BoundMap) -> bool:
        return self.adaptive and chosen_from(other)

    def _marginals_in(self, maps: Sequence[BoundMap]) -> tuple[int, OneWayMap] | None:
        """The first marginals of these columns among `maps`, with their index."""
        for index, bound in enumerate(maps):
            if isinstance(bound, OneWayMap) and set(self.columns) <= set(bound.columns):
                return index, bound
        return None

    def check_beside(self, maps: Sequence[BoundMap]) -> None:
        if self.adaptive and self._marginals_in(maps) is None:
            raise RecipeError(
                "Triples: pool needs Marginals of the same columns",
                "add Part(Marginals(), share=0.4) to the recipe, or leave out pool",
            )

    def noised(self) -> BoundTriples:
        return self._grouped(None) if self.adaptive else self

    def settle(self, earlier: Sequence[NoisyPart], variance: float) -> BoundTriples:
        """Groups of the cells of every column: from the noisy marginals, sums of columns and count of the same
        release.
        """
        if not self.adaptive:
            return self
        beside = self._marginals_in([part.map for part in earlier])
        assert beside is not None, "recipes are checked for it"
        rows, columns = fitted_columns(self, beside, earlier)
        sd = max(sqrt(variance), 1.0) / rows
        wanted, groups = triple_groups_wanted(sd, len(self.tables)), []
        for own, (shares, cell_sd) in zip(self.cells, columns, strict=True):
            threshold = pooling_threshold(cell_sd, sd)
            groups.append(tuple(choose_few_groups(shares, widths_of(own), wanted, threshold).tolist()))
        return self._grouped(tuple(groups))

    def settle_as(self, other: BoundMap) -> BoundTriples:
        """The groups of `other`."""
        if not isinstance(other, BoundTriples) or other.adaptive:
            raise RecipeError("Triples: the other release has no groups of such tables")
        return self._grouped(other.groups_of_cells)

    def _grouped(self, groups: Groups | None) -> BoundTriples:
        facts = self.description
        return BoundTriples(Triples(facts.columns, facts.bins, groups, triples=facts.triples), self.schema)

    def coarsen(self, sums: Sums, settled: BoundMap) -> Sums:
        if not self.adaptive:
            return sums
        if not isinstance(settled, BoundTriples):
            raise RecipeError("Triples: coarse sums are those of tables of three columns")
        return self.coarse_sums(sums, settled)


def _checked_triples(triples: object, columns: tuple[str, ...] | None) -> tuple[Triple, ...] | None:
    """Check triples: None, or distinct triples of names, all among the columns if those are named."""
    found = check_listed("Triples", "triples", triples, columns, 3, MOST_TRIPLES)
    return None if found is None else tuple((one, two, three) for one, two, three in found)
