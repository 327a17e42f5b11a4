"""The smallest map: what a new one has to write. It leaves every question of readers at its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.maps.base import BoundMap, FeatureMap, Sensitivity, Sums, check_columns, chosen_columns
from dpsketch.maps.registry import MAPS
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class Middle(FeatureMap):
    """For each column, the number of records in the middle half of its bounds."""

    columns: tuple[str, ...] | None = None

    name: ClassVar[str] = "middle"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", check_columns("Middle", self.columns))

    def length(self, schema: Schema) -> int:
        return len(chosen_columns(schema, self.columns))

    def bind(self, schema: Schema) -> BoundMiddle:
        return BoundMiddle(self, schema)


class BoundMiddle(BoundMap):
    """Guarantee: d features of 0 or 1, so L1 = L2² = d for a row more or less, and for a row replaced."""

    largest = 1

    def __init__(self, description: Middle, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = len(self.columns)
        self._rows = np.array([schema.index(name) for name in self.columns])

    def accumulate(self, records: Records, sums: Sums) -> None:
        sums += self.features(records).sum(axis=0).astype(sums.dtype)

    def features(self, records: Records) -> Floats:
        return (np.abs(records.codes[self._rows].astype(np.int64)) <= HIGHEST // 2).T.astype(np.float64)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        return Sensitivity(self.size, self.size)


MAPS[Middle.name] = Middle
