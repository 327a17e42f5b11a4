"""The number of records, as a map like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.maps.base import BoundMap, FeatureMap, RecordCount, Sensitivity, Sums
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class Count(FeatureMap):
    """One sum: the number of records."""

    name: ClassVar[str] = "count"
    version: ClassVar[int] = 1

    def bind(self, schema: Schema) -> BoundCount:
        return BoundCount(self, schema, ())

    def length(self, schema: Schema) -> int:
        return 1


class BoundCount(BoundMap):
    """Guarantee: L1 = L2² = 1 for a row more or less, 0 for a row replaced. Source: docs/proofs/count.md."""

    size = 1
    largest = 1
    only_counts = True
    separates_points = True  # by its groups, if it has some: it has no columns of its own
    sparse = True

    def accumulate(self, records: Records, sums: Sums) -> None:
        sums[0] += len(records)

    def features(self, records: Records) -> Floats:
        return np.ones((len(records), 1))

    @property
    def record_count(self) -> RecordCount:
        return RecordCount(1, 1)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        return Sensitivity(1, 1) if relation is Relation.ADD_REMOVE else Sensitivity(0, 0)

    def sensitivity(self, relation: Relation, rows_per_unit: int | None = None) -> Sensitivity:
        """A unit holds 0 to c rows, so replacing one changes the count by at most c, not 2c."""
        if rows_per_unit is None:
            return self.record_sensitivity(relation)
        return Sensitivity(rows_per_unit, rows_per_unit**2)
