"""Ticks of axes: round numbers, powers of ten, dates, and names, as many as have room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10

import numpy as np

from dpsketch.plots.picture import ASINH, DATE, LOG, NAMES, Axis

Tick = tuple[float, str]  # a value and its text
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400e6


def ticks_of(axis: Axis, low: float, high: float, most: int) -> list[Tick]:
    """At most about `most` ticks between two values."""
    if axis.scale == NAMES:
        step = max(1, ceil(len(axis.names) / most))
        return [(float(index), name) for index, name in enumerate(axis.names) if index % step == 0]
    if axis.scale == DATE:
        return _dates(low, high, most)
    if axis.scale in (LOG, ASINH):
        powers = _powers(axis.scale, low, high, most)
        steps = _steps(low, high) if axis.scale == LOG and len(powers) < 3 else []
        if 2 <= len(steps) <= most:
            return steps
        if len(powers) >= (2 if axis.scale == LOG else 3):
            return powers
    return _round(low, high, most)


def number_label(value: float) -> str:
    """A round number as a person writes it: 0.25, 1,500, 2e+09."""
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-4:
        return f"{value:.3g}"
    text = f"{value:,.10f}".rstrip("0").rstrip(".")
    return text if text not in ("-0", "") else "0"


def _round(low: float, high: float, most: int) -> list[Tick]:
    if not high > low:
        return [(low, number_label(low))]
    rough = (high - low) / max(most, 1)
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [(index * step, number_label(round(index * step, 12))) for index in range(first, last + 1)]


def _powers(scale: str, low: float, high: float, most: int) -> list[Tick]:
    """Powers of ten, and for asinh also zero and negative ones."""
    tops = range(-9 if scale == LOG else 0, 19)
    values = [10.0**power for power in tops]
    if scale == ASINH:
        values = [*(-value for value in reversed(values)), 0.0, *values]
    inside = [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9) or low <= value <= high]
    step = max(1, ceil(len(inside) / most))
    zero = inside.index(0.0) if 0.0 in inside else 0
    return [(value, number_label(value)) for index, value in enumerate(inside) if (index - zero) % step == 0]


def _steps(low: float, high: float) -> list[Tick]:
    """1, 2 and 5 times the powers of ten."""
    powers = range(floor(log10(low)), floor(log10(high)) + 1) if 0 < low < high else ()
    values = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [(value, number_label(value)) for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def _dates(low: float, high: float, most: int) -> list[Tick]:
    """The starts of years, months or days."""
    start, end = (_EPOCH + timedelta(microseconds=float(each)) for each in (low, high))
    months = (end.year - start.year) * 12 + end.month - start.month
    if months < 3:
        return _days(low, high, most)
    step = next((each for each in _MONTHS if months / each <= most), _MONTHS[-1])
    found, month = [], -(-(start.year * 12 + start.month - 1) // step) * step
    while month <= end.year * 12 + end.month - 1 and month // 12 <= 9999:
        moment = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        if start <= moment <= end:
            found.append(
                ((moment - _EPOCH) / timedelta(microseconds=1), f"{moment:%Y}" if step >= 12 else f"{moment:%Y-%m}")
            )
        month += step
    return found


def _days(low: float, high: float, most: int) -> list[Tick]:
    step = next(each for each in (1, 2, 5, 10, 20, 40, 1000) if (high - low) / _DAY / each <= most)
    moments = np.arange(ceil(low / _DAY), floor(high / _DAY) + 1, step) * _DAY
    return [(float(moment), f"{_EPOCH + timedelta(microseconds=float(moment)):%Y-%m-%d}") for moment in moments]
