"""Clipping records to a ball in integers: what maps of squares and products share."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import RecipeError
from dpsketch.numerics.arrays import Codes
from dpsketch.schema.columns import MISSING

MOST_COLUMNS = 4096


def check_radius(owner: str, radius: Any) -> float:
    number = isinstance(radius, Real) and not isinstance(radius, bool)
    if not number or not 0.01 <= radius <= 32:
        raise RecipeError(f"{owner}: radius must be a number from 0.01 to 32, got {radius!r} instead")
    return float(radius)


def check_dimension(owner: str, dimension: int) -> None:
    """Squared lengths of records must be exact in float64."""
    if dimension > MOST_COLUMNS:
        raise RecipeError(f"{owner}: {dimension} columns are more than {MOST_COLUMNS}", "name fewer columns")


def clipped(codes: Codes, rows: NDArray[np.int64], ball: int) -> NDArray[np.int64]:
    """The chosen columns, missing as 0, shortened to Euclidean norm `ball` just as `clip_tile` does: one row a column.

    Guarantee: every record has norm at most `ball`, and no number grows. Source: docs/proofs/second_moments.md.
    """
    numbers = codes[rows].astype(np.int64)
    numbers[numbers == MISSING] = 0
    square = (numbers**2).sum(axis=0)
    length = np.sqrt(square.astype(np.float64)).astype(np.int64)
    length += length**2 < square  # upwards; float64 is exact enough for at most one step
    shortened = np.sign(numbers) * (np.abs(numbers) * ball // np.maximum(length, 1))
    return np.where(length > ball, shortened, numbers)
