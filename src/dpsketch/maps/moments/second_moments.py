"""Second moments: sums of x_i·x_j over records clipped to a ball, optionally with the sums of x_i."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any, ClassVar

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import Body, BoundMap, FeatureMap, Sensitivity, Shape, Sums, check_columns, chosen_columns
from dpsketch.maps.moments.ball import check_dimension, check_radius, clipped
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class SecondMoments(FeatureMap):
    """The upper triangle of Σ x·xᵀ, with x scaled to [-1, 1]^d by the declared bounds and clipped to the ball of
    `radius`.

    A missing cell counts as the midpoint of its bounds. `radius` is in half-widths of a column's bounds: the square
    root of the number of columns clips nothing; a smaller radius shortens long records and needs less noise.

    With `means`, a constant of half the radius is appended to each record, so that the sums include those of x, for a
    quarter more noise.
    """

    columns: tuple[str, ...] | None = None
    radius: float = 1.0
    means: bool = False

    name: ClassVar[str] = "second_moments"
    good_for: ClassVar[str] = "principal components, linear regression"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = {"means": False}

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", check_columns("SecondMoments", self.columns))
        object.__setattr__(self, "radius", check_radius("SecondMoments", self.radius))
        if not isinstance(self.means, bool):
            raise RecipeError(f"SecondMoments: means must be true or false, got {self.means!r} instead")

    def length(self, schema: Schema) -> int:
        dimension = len(chosen_columns(schema, self.columns)) + self.means
        check_dimension("SecondMoments", dimension)
        return dimension * (dimension + 1) // 2

    def bind(self, schema: Schema) -> BoundSecondMoments:
        return BoundSecondMoments(self, schema)


class BoundSecondMoments(BoundMap):
    """Guarantee: records have Euclidean norm at most B = ⌊32767·radius⌋, beside a constant c: ⌊B/2⌋ for means, else 0.
    So with d numbers in all and m = min(B, 32767), L1 <= (d+1)·(B²+c²)/2 and L2² <= ((B²+c²)² + m²B² + c⁴)/2 for adding
    or removing a row; twice both for replacing a row (inner products are non-negative). Source: PRIVACY "Sensitivity";
    docs/proofs/second_moments.md.
    """

    def __init__(self, description: SecondMoments, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = description.length(schema)
        self.ball = int(HIGHEST * description.radius)
        self.largest = self.grid = self.ball**2
        self.constant = self.ball // 2 if description.means else 0
        self._square = self.ball**2 + self.constant**2
        self._dimension = len(self.columns) + description.means
        self._rows = np.array([schema.index(name) for name in self.columns])

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.kernels import second_moment_sums

        second_moment_sums(records.codes, self._rows, self.ball, self.constant, sums)

    def features(self, records: Records) -> Floats:
        """Products divided by the squared radius of the ball."""
        numbers = clipped(records.codes, self._rows, self.ball)
        if self.constant:
            numbers = np.vstack([numbers, np.full((1, numbers.shape[1]), self.constant)])
        first, second = np.triu_indices(self._dimension)
        return (numbers[first] * numbers[second]).T / self.grid

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        times = 1 if relation is Relation.ADD_REMOVE else 2
        l1 = times * (self._dimension + 1) * self._square // 2
        fourth_powers = min(self.ball, HIGHEST) ** 2 * self.ball**2 + self.constant**4
        return Sensitivity(l1, -(-times * (self._square**2 + fourth_powers) // 2))

    def record_body(self, relation: Relation) -> Body:
        """The Frobenius ball: ‖xxᵀ‖ = ‖x‖², and inner products are non-negative, so ‖xxᵀ − yyᵀ‖² <= 2·(B²+c²)²."""
        if relation is Relation.ADD_REMOVE:
            return Body(Shape.BALL, self._square)
        return Body(Shape.BALL, isqrt(2 * self._square**2 - 1) + 1)
