"""Second moments: the sums of x_i·x_j of records clipped to a ball."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, FeatureMap, Relation, Sensitivity, Sums, check_columns, chosen_columns
from dpsketch.records import Records
from dpsketch.schema import HIGHEST, MISSING, Codes, Floats, Schema

MOST_COLUMNS = 4096


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
        if isinstance(self.radius, bool) or not isinstance(self.radius, Real) or not 0.01 <= self.radius <= 32:
            raise RecipeError(f"SecondMoments: radius must be a number from 0.01 to 32, got {self.radius!r} instead")
        object.__setattr__(self, "radius", float(self.radius))

    def length(self, schema: Schema) -> int:
        dimension = len(chosen_columns(schema, self.columns))
        if dimension > MOST_COLUMNS:
            raise RecipeError(f"SecondMoments: {dimension} columns are more than {MOST_COLUMNS}", "name fewer columns")
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

    def clipped(self, codes: Codes) -> NDArray[np.int64]:
        """The integer records that are multiplied: one matrix row a column."""
        numbers = codes[self._rows].astype(np.int64)
        numbers[numbers == MISSING] = 0
        return clip_to_ball(numbers, self.ball)

    def features(self, records: Records) -> Floats:
        """Products over the squared radius of the ball."""
        numbers = self.clipped(records.codes)
        first, second = np.triu_indices(len(self.columns))
        return (numbers[first] * numbers[second]).T / self.grid

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        times = 1 if relation is Relation.ADD_REMOVE else 2
        l1 = times * (len(self.columns) + 1) * self.ball**2 // 2
        return Sensitivity(l1, times * self.ball**4)


def clip_to_ball(numbers: NDArray[np.int64], ball: int) -> NDArray[np.int64]:
    """Records (matrix columns) no longer than `ball`: divisions round towards zero, lengths upwards."""
    square = (numbers**2).sum(axis=0)
    length = np.sqrt(square.astype(np.float64)).astype(np.int64)
    length += length**2 < square  # float64 is exact enough for at most one step
    shortened = np.sign(numbers) * (np.abs(numbers) * ball // np.maximum(length, 1))
    return np.where(length > ball, shortened, numbers)
