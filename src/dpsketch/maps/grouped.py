"""Grouped maps: one sketch for each label of a column, such as classes, sites or years."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import Body, BoundMap, FeatureMap, RecordCount, Sensitivity, SumBlock, Sums
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

MOST_GROUPS = 10_000


@dataclass(frozen=True)
class Grouped(FeatureMap):
    """`map` applied to the records of each label of `column` separately. A record is in exactly one group; missing is
    last.
    """

    map: FeatureMap
    column: str

    name: ClassVar[str] = "grouped"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.map, FeatureMap) or isinstance(self.map, Grouped):
            raise RecipeError("Grouped: map must be a feature map that is not grouped itself")
        if not isinstance(self.column, str):
            raise RecipeError(f"Grouped: column must be a column's name, got {self.column!r} instead")

    def groups(self, schema: Schema) -> int:
        schema.index(self.column)
        groups = schema.column(self.column).levels + 1
        if groups > MOST_GROUPS:
            raise RecipeError(
                f"Grouped: column '{self.column}' would make {groups} groups, more than {MOST_GROUPS}",
                "group by a category or boolean column",
            )
        return groups

    def length(self, schema: Schema) -> int:
        return self.groups(schema) * self.map.length(schema)

    def work(self, schema: Schema) -> int:
        return self.map.work(schema)

    def bind(self, schema: Schema) -> BoundGrouped:
        return BoundGrouped(self, schema)

    def to_dict(self) -> dict[str, Any]:
        return {"map": self.name, "version": self.version, "of": self.map.to_dict(), "column": self.column}


class BoundGrouped(BoundMap):
    """Guarantee: a record changes the sums of its own group only. Adding or removing a row therefore has the L1 and L2²
    of the inner map (parallel composition); replacing a row has 2·L1 and max(L2²_replace, 2·L2²_add). Source: race §4,
    PRIVACY "Sensitivity"; docs/proofs/grouped.md.
    """

    def __init__(self, description: Grouped, schema: Schema) -> None:
        self.inner = description.map.bind(schema)
        if self.inner.adaptive:
            raise RecipeError(
                f"Grouped: map {self.inner.description.name} is settled by a release, and cannot be grouped",
                "of pairs, give groups, not pool; of adaptive marginals, group marginals",
            )
        names = self.inner.columns
        columns = names if description.column in names else (*names, description.column)
        super().__init__(replace(description, map=self.inner.description), schema, columns)
        self.groups = description.groups(schema)
        self.size = description.length(schema)
        self.largest, self.grid, self.narrow = self.inner.largest, self.inner.grid, self.inner.narrow
        self.secret, self.certified = self.inner.secret, self.inner.certified
        self.rate, self.counter_table = self.inner.rate, self.inner.counter_table
        self.separates_points, self.sparse = self.inner.separates_points, True
        self.title, self.term, self.sums_per_term = self.inner.title, self.inner.term, self.inner.sums_per_term
        self.grouped_by = description.column
        self.column = schema.column(description.column)
        self.row = schema.index(description.column)

    def accumulate(self, records: Records, sums: Sums) -> None:
        group = self.group_numbers(records)
        parts = sums.reshape(self.groups, self.inner.size)
        order = np.argsort(group, kind="stable")
        present, starts = np.unique(group[order], return_index=True)
        for label, members in zip(present, np.split(order, starts[1:]), strict=True):
            self.inner.accumulate(records.take(members), parts[label])

    def features(self, records: Records) -> Floats:
        every = np.zeros((len(records), self.groups, self.inner.size))
        every[np.arange(len(records)), self.group_numbers(records)] = self.inner.features(records)
        return every.reshape(len(records), self.size)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        alone = self.inner.record_sensitivity(Relation.ADD_REMOVE)
        if relation is Relation.ADD_REMOVE:
            return alone
        within = self.inner.record_sensitivity(Relation.REPLACE_ONE)
        return Sensitivity(2 * alone.l1, max(within.l2_squared, 2 * alone.l2_squared))

    def record_body(self, relation: Relation) -> Body | None:
        alone = self.inner.record_body(Relation.ADD_REMOVE)
        if alone is None or relation is Relation.ADD_REMOVE:
            return alone
        within = self.inner.record_body(Relation.REPLACE_ONE)
        return Body(alone.shape, max(2 * alone.radius, within.radius if within else 0))

    def parameters(self) -> bytes:
        return self.inner.parameters()

    @property
    def core(self) -> BoundMap:
        return self.inner.core

    @property
    def ungrouped(self) -> BoundMap:
        return self.inner

    def group_numbers(self, records: Records) -> NDArray[np.int64]:
        return self.group_of(records.codes[self.row])

    def sum_blocks(self) -> Iterator[SumBlock]:
        for block in self.inner.sum_blocks():
            yield replace(block, columns=tuple(dict.fromkeys((*block.columns, self.column.name))))

    @property
    def entries_per_record(self) -> int:
        return self.inner.entries_per_record

    @property
    def record_count(self) -> RecordCount | None:
        """The sums over all groups that count records; only for tables of counters."""
        each = self.inner.record_count if self.counter_table else None
        return None if each is None else RecordCount(self.groups * each.sums, each.times)

    def group_of(self, codes: Codes) -> NDArray[np.int64]:
        levels = self.column.levels_of(codes)
        return np.where(levels < 0, self.groups - 1, levels)
