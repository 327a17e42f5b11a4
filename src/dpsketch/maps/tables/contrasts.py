"""One number for each pair of columns, each split in two halves: records in equal halves minus the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import Body, FeatureMap, Sensitivity, Shape, SumBlock, Sums
from dpsketch.maps.tables.pair_map import Groups, PairMap
from dpsketch.maps.tables.pairs import BoundPairs, Pairs
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class Contrasts(FeatureMap):
    """The contrast of all pairs of columns, or of the listed ones: +1 for a record in equal halves of both, else −1.

    `halves` holds, for each column in the order of `columns`, the half (0 or 1) of each of its cells. The cells are
    those of `Pairs`, with missing last. A release of `AdaptivePairs(contrasts=True)` shows contrasts.
    """

    halves: Groups
    columns: tuple[str, ...] | None = None
    bins: int = 64
    pairs: tuple[tuple[str, str], ...] | None = None
    tapered: bool = False

    absent: ClassVar[Mapping[str, Any]] = {"tapered": False}
    name: ClassVar[str] = "contrasts"
    good_for: ClassVar[str] = "questions about several columns, models"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        every = self.halves if isinstance(self.halves, list | tuple) else ()
        if not every or not all(_two_halves(each) for each in every):
            raise RecipeError("Contrasts: halves must list, for each column, the half of each cell: 0 or 1, and both")
        tables = self.tables
        for name, checked in (("halves", tables.groups), ("columns", tables.columns), ("pairs", tables.pairs)):
            object.__setattr__(self, name, checked)

    @property
    def tables(self) -> Pairs:
        """The map of two-by-two tables of halves, one for each pair."""
        return Pairs(self.columns, self.bins, self.pairs, self.halves, tapered=self.tapered)

    def length(self, schema: Schema) -> int:
        self.tables.length(schema)  # checks the halves against the schema
        return len(self.tables.tables(schema))

    def unsettled(self) -> Pairs:
        from dpsketch.maps.tables.adaptive_pairs import AdaptivePairs

        return AdaptivePairs(bins=self.bins, tapered=self.tapered, contrasts=True)

    def summary(self) -> dict[str, Any]:
        return {key: value for key, value in self.to_dict().items() if key != "halves"}

    def bind(self, schema: Schema) -> BoundContrasts:
        return BoundContrasts(self, schema)


class BoundContrasts(PairMap):
    """Guarantee: every feature is −1 or 1, so with q pairs L1 = L2² = q for a row more or less, and at most 2q and 4q
    for a row replaced, attained where one column is in every pair; every sum changes by at most 1, or 2.
    Source: docs/proofs/pairs.md.
    """

    largest = 1
    narrow = True
    halved = True
    description: Contrasts

    def __init__(self, description: Contrasts, schema: Schema) -> None:
        self.tables: BoundPairs = description.tables.bind(schema)
        super().__init__(description, schema, self.tables.columns)
        self.size = description.length(schema)
        self.pairs, self.cells, self.bins = self.tables.pairs, self.tables.cells, description.bins

    def of_tables(self, sums: Sums) -> Sums:
        """The contrasts from sums of `tables`, of the same type: the diagonal cells minus the others."""
        same, other, different, both = sums.reshape(self.size, 4).T
        return same - other - different + both

    def accumulate(self, records: Records, sums: Sums) -> None:
        tables = np.zeros(self.tables.size, sums.dtype)
        self.tables.accumulate(records, tables)
        sums += self.of_tables(tables)

    def features(self, records: Records) -> Floats:
        cell = self.tables.places(records.codes) - self.tables.offsets[:-1, None]
        return np.where((cell == 0) | (cell == 3), 1.0, -1.0).T

    @property
    def groups_of_cells(self) -> Groups:
        return self.description.halves

    def pair_table(self, sums: Sums, pair: int) -> Floats:
        return np.asarray(sums[pair : pair + 1], np.float64).reshape(1, 1)

    def sum_blocks(self) -> Iterator[SumBlock]:
        for pair, columns in enumerate(self.pairs):
            yield SumBlock(columns, pair, pair + 1)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        if relation is Relation.ADD_REMOVE:
            return Sensitivity(self.size, self.size)
        return Sensitivity(2 * self.size, 4 * self.size)

    def record_body(self, relation: Relation) -> Body:
        return Body(Shape.CUBE, 1 if relation is Relation.ADD_REMOVE else 2)


def _two_halves(cells: object) -> bool:
    return isinstance(cells, list | tuple) and all(type(cell) is int for cell in cells) and set(cells) == {0, 1}
