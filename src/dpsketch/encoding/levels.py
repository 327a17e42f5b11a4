"""Numbers to levels: the same rule for the cells of a table and for the points of a question."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.precision import precise
from dpsketch.schema.columns import SPAN, Datetime, Integer, Number


def levels_at(column: Number | Integer | Datetime, numbers: Floats) -> NDArray[np.int64]:
    """The level of each number (of dates: microseconds), −1 for NaN."""
    if isinstance(column, Number):
        return number_levels(column, numbers)
    low, high = column.bounds if isinstance(column, Datetime) else (float(column.lower), float(column.upper))
    return spread(numbers, low, high, column.levels - 1)


def number_levels(column: Number, numbers: Floats) -> NDArray[np.int64]:
    """Nearest level of each number, clamped to the bounds; −1 for NaN. Numbers between the bounds are never at one."""
    if column.transform is None:
        return spread(numbers, column.lower, column.upper, SPAN)
    levels = np.searchsorted(thresholds(column.transform, column.lower, column.upper), numbers, side="right")
    return np.where(np.isnan(numbers), -1, levels)


def spread(numbers: Floats, low: float, high: float, steps: int) -> NDArray[np.int64]:
    """Nearest of steps+1 levels. Of SPAN steps, which round numbers, those between the bounds take neither of theirs.
    Only correctly rounded operations, so the result is the same on every machine.
    """
    clamped = np.minimum(np.fmax(numbers, low), high)
    steps_up = clamped - low
    steps_up /= high - low
    steps_up *= steps
    levels = np.rint(steps_up, out=steps_up).astype(np.int64)
    if steps == SPAN:
        levels[(levels < 1) & (clamped > low)] = 1
        levels[(levels >= steps) & (clamped < high)] = steps - 1
    np.maximum(levels, 0, out=levels)
    np.minimum(levels, steps, out=levels)
    levels[np.isnan(numbers)] = -1
    return levels


@lru_cache(maxsize=256)
def thresholds(transform: str, lower: float, upper: float) -> Floats:
    """Boundaries between the levels of a log or asinh column, each correctly rounded.

    Comparison with these replaces a libm call, whose last bit differs between machines. The levels are evenly spaced in
    log or asinh, so their images follow a recurrence in fixed-point integers.
    """
    # bits of fraction: at least 200 significant ones everywhere
    bits = 300 + abs(math.frexp(lower)[1]) + abs(math.frexp(upper)[1])
    with precise(bits + 1200) as exact:
        image = exact.log if transform == "log" else exact.asinh
        start, end = image(exact.mpf(lower)), image(exact.mpf(upper))
        step = (end - start) / SPAN
        first = start + step / 2
        grow, up, shrink, down = (int(exact.ldexp(exact.exp(power), bits)) for power in (first, step, -first, -step))
    unit = 1 << bits
    bounds = np.empty(SPAN)
    for level in range(SPAN):
        if transform == "log":
            bounds[level] = grow / unit
            grow = grow * up >> bits
        else:
            bounds[level] = (grow - shrink) / (2 * unit)
            grow, shrink = grow * up >> bits, shrink * down >> bits
    bounds[0], bounds[-1] = min(np.nextafter(lower, np.inf), bounds[1]), upper  # numbers in between are at neither
    return bounds
