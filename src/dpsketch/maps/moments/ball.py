"""Clipping of records to a ball in integer arithmetic, shared by the maps of squares and products."""

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
    """Check that squared lengths of records are exact in float64."""
    if dimension > MOST_COLUMNS:
        raise RecipeError(f"{owner}: {dimension} columns are more than {MOST_COLUMNS}", "name fewer columns")


def clipped(codes: Codes, rows: NDArray[np.int64], ball: int) -> NDArray[np.int64]:
    """The chosen columns, missing as 0, clipped to Euclidean norm `ball` exactly as `clip_tile` does: one row per
    column.

    Guarantee: every record has norm at most `ball`, and no number grows in absolute value. Source:
    docs/proofs/second_moments.md.
    """
    numbers = codes[rows].astype(np.int64)
    numbers[numbers == MISSING] = 0
    square = (numbers**2).sum(axis=0)
    length = np.sqrt(square.astype(np.float64)).astype(np.int64)
    length += length**2 < square  # round up; float64 is accurate enough that at most one step is needed
    shortened = np.sign(numbers) * (np.abs(numbers) * ball // np.maximum(length, 1))
    return np.where(length > ball, shortened, numbers)
