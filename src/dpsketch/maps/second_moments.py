"""Second moments: the sums of x_i·x_j of records clipped to a ball."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

import numpy as np

from dpsketch.maps.ball import check_dimension, check_radius, clipped
from dpsketch.maps.base import Body, BoundMap, FeatureMap, Sensitivity, Shape, Sums, check_columns, chosen_columns
from dpsketch.records import Records
from dpsketch.relation import Relation
from dpsketch.schema import HIGHEST, Floats, Schema


@dataclass(frozen=True)
class SecondMoments(FeatureMap):
    """The upper triangle of Σ x·xᵀ, x in [-1, 1]^d by the declared bounds, clipped to the ball of `radius`.

    A missing cell counts as the middle of its bounds. `radius` is in half-widths of a column's bounds: the square root
    of the number of columns clips nothing; a smaller one shortens long records and needs less noise.
    """

    columns: tuple[str, ...] | None = None
    radius: float = 1.0

    name: ClassVar[str] = "second_moments"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", check_columns("SecondMoments", self.columns))
        object.__setattr__(self, "radius", check_radius("SecondMoments", self.radius))

    def length(self, schema: Schema) -> int:
        dimension = len(chosen_columns(schema, self.columns))
        check_dimension("SecondMoments", dimension)
        return dimension * (dimension + 1) // 2

    def bind(self, schema: Schema) -> BoundSecondMoments:
        return BoundSecondMoments(self, schema)


class BoundSecondMoments(BoundMap):
    """Guarantee: records have Euclidean norm at most B = ⌊32767·radius⌋, so L1 <= (d+1)·B²/2 and L2² <= B⁴ for a row
    more or less; twice both for a row replaced (inner products are non-negative).
    Source: PRIVACY "Sensitivity"; docs/proofs/second_moments.md.
    """

    def __init__(self, description: SecondMoments, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = description.length(schema)
        self.ball = int(HIGHEST * description.radius)
        self.largest = self.grid = self.ball**2
        self._rows = np.array([schema.index(name) for name in self.columns])

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.kernels import second_moment_sums

        second_moment_sums(records.codes, self._rows, self.ball, sums)

    def features(self, records: Records) -> Floats:
        """Products over the squared radius of the ball."""
        numbers = clipped(records.codes, self._rows, self.ball)
        first, second = np.triu_indices(len(self.columns))
        return (numbers[first] * numbers[second]).T / self.grid

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        times = 1 if relation is Relation.ADD_REMOVE else 2
        l1 = times * (len(self.columns) + 1) * self.ball**2 // 2
        return Sensitivity(l1, times * self.ball**4)

    def record_body(self, relation: Relation) -> Body:
        """‖xxᵀ‖ = ‖x‖²; two such matrices have a non-negative inner product, so ‖xxᵀ − yyᵀ‖² <= 2·B⁴."""
        if relation is Relation.ADD_REMOVE:
            return Body(Shape.BALL, self.ball**2)
        return Body(Shape.BALL, isqrt(2 * self.ball**4 - 1) + 1)
