"""The sum of every column of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import Body, BoundMap, FeatureMap, Sensitivity, Shape, SumBlock, Sums, check_columns
from dpsketch.maps.tables.cells import GRID
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, MISSING
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class Totals(FeatureMap):
    """The sum of the codes of each named column, by default of every number, integer and date.

    With the number of records they give means. A missing cell counts as the middle of the bounds.
    """

    columns: tuple[str, ...] | None = None

    name: ClassVar[str] = "totals"
    good_for: ClassVar[str] = "means and sums"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", check_columns("Totals", self.columns))

    def names(self, schema: Schema) -> tuple[str, ...]:
        names = self.columns
        if names is None:
            names = tuple(column.name for column in schema.scalars if column.numeric)
        for name in names:
            schema.index(name)
            if not schema.column(name).numeric:
                raise RecipeError(f"Totals: column '{name}' is not a number", "name numbers, integers and dates")
        if not names:
            raise RecipeError("Totals needs a column of numbers", "declare one in the schema, or leave out the map")
        return names

    def length(self, schema: Schema) -> int:
        return len(self.names(schema))

    def bind(self, schema: Schema) -> BoundTotals:
        return BoundTotals(self, schema)


class BoundTotals(BoundMap):
    """Features are codes, SPAN·(x − ½) for a number's position x between its bounds, and 0 where it is missing.

    Guarantee: with d columns and codes from −32767 to 32767, L1 = 32767·d, L2² = 32767²·d, and every sum changes by at
    most 32767, for a row more or less; twice, four times and twice as much for a row replaced. All are attained.
    Source: docs/proofs/totals.md.
    """

    largest = HIGHEST
    grid = GRID
    sparse = True
    description: Totals

    def __init__(self, description: Totals, schema: Schema) -> None:
        super().__init__(description, schema, description.names(schema))
        self.size = len(self.columns)
        self._rows = np.array([schema.index(name) for name in self.columns])

    def accumulate(self, records: Records, sums: Sums) -> None:
        for index, row in enumerate(self._rows):
            codes = records.codes[row]
            sums[index] += codes.sum(dtype=np.int64) - MISSING * np.count_nonzero(codes == MISSING)

    def features(self, records: Records) -> Floats:
        codes = records.codes[self._rows]
        return np.where(codes == MISSING, 0, codes).T / self.grid

    def sum_blocks(self) -> Iterator[SumBlock]:
        for name, index in self.column_totals.items():
            yield SumBlock((name,), index, index + 1)

    @property
    def column_totals(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.columns)}

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        most = self._most(relation)
        return Sensitivity(most * self.size, most**2 * self.size)

    def record_body(self, relation: Relation) -> Body:
        return Body(Shape.CUBE, self._most(relation))

    def _most(self, relation: Relation) -> int:
        """The most by which one sum can change."""
        return HIGHEST if relation is Relation.ADD_REMOVE else 2 * HIGHEST
