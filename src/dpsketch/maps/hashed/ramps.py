"""A public embedding for records of undeclared centre and scale: ramps for numbers, indicators for labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsketch.maps.hashed.embedding import MOST_NUMBERS, Embedding
from dpsketch.schema.columns import Boolean, Category
from dpsketch.schema.schema import Schema

_Ramp = tuple[float, float]  # its slope, and the position of its midpoint in −1 … 1


def ramps(schema: Schema, columns: Sequence[str], octaves: int) -> Embedding | None:
    """An embedding of ramps and indicators; None if it changes no column or would need too many weights.

    Numbers, dates and integers are kept. For j = 1 … `octaves`, two ramps are added that rise between 1/2 and 3/2 of
    2^−j of the bounds' width from either bound. Booleans become 0 or 1; categories become one unit per label.

    Signed projections distinguish directions from the midpoint of the bounds. These are all similar for a column whose
    records lie near one bound, or for booleans that are nearly all false. The ramps near that bound, and the zeros, are
    not.
    """
    first, second = _layers(schema, columns, _slopes(octaves))
    if octaves == 0 and all(schema.column(name).numeric for name in columns):
        return None
    if first[0].size + second[0].size > MOST_NUMBERS:
        return None
    return Embedding.from_arrays([first, second])


def _slopes(octaves: int) -> list[_Ramp]:
    sides = [(2.0**j, side * (1 - 2.0 ** (1 - j))) for j in range(1, octaves + 1) for side in (-1, 1)]
    return [(1.0, 0.0), *sides]


def _layers(
    schema: Schema, columns: Sequence[str], slopes: Sequence[_Ramp]
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Two layers. The first clamps to 0 … 1, because negative numbers are lost between layers. The second shifts and
    subtracts.
    """
    inner: list[tuple[int, float, float]] = []  # column, weight, bias
    outer: list[tuple[dict[int, float], float]] = []  # weights by inner unit, bias
    for index, name in enumerate(columns):
        column = schema.column(name)
        if isinstance(column, Category):
            steps = range(1, column.levels)  # step l is 0 up to label l − 1 and 1 from label l on
            start = len(inner)
            inner += [(index, (column.levels - 1) / 2, (column.levels - 1) / 2 - (step - 1)) for step in steps]
            for label in range(column.levels):
                weights = {start + step - 1: sign for step, sign in ((label, 1.0), (label + 1, -1.0)) if step in steps}
                outer.append((weights, float(label == 0)))
        elif isinstance(column, Boolean):
            outer.append(({len(inner): 1.0}, 0.0))
            inner.append((index, 0.5, 0.5))
        else:
            for slope, middle in slopes:
                outer.append(({len(inner): 2.0}, -1.0))
                inner.append((index, slope / 2, (1 - slope * middle) / 2))
    first = np.zeros((len(inner), len(columns)))
    for unit, (index, weight, _) in enumerate(inner):
        first[unit, index] = weight
    second = np.zeros((len(outer), len(inner)))
    for unit, (weights, _) in enumerate(outer):
        second[unit, list(weights)] = list(weights.values())
    return (first, np.array([bias for *_, bias in inner])), (second, np.array([bias for _, bias in outer]))


def with_one(columns: int) -> Embedding:
    """The identity with a constant one appended, for linear models with an intercept."""
    return Embedding.from_arrays([(np.eye(columns + 1, columns), np.eye(columns + 1)[-1])])
