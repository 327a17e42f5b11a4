"""Parts of dates and the beginnings of calendar units, in UTC, as functions of microseconds since 1970.

Conventions are those of DuckDB: `dayofweek` is 0 for Sunday to 6 for Saturday, `isodow` 1 for Monday to 7 for Sunday,
and `week` is the week of ISO 8601.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import DAY, SECOND

Moments = NDArray[np.datetime64]
_FARTHEST = 2.0**62  # microseconds: later moments have no parts
_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_THURSDAY = 3  # days from the Monday of a week to the day that says to which year the week belongs


def _whole(unit: str) -> Callable[[Moments], NDArray[np.int64]]:
    """Calendar units since 1970."""
    return lambda moments: moments.astype(f"M8[{unit}]").astype(np.int64)


def _since(unit: str, of: str, step: float = DAY) -> Callable[[Moments], NDArray[np.int64]]:
    """Steps since the beginning of a longer unit."""
    return lambda moments: (moments - moments.astype(f"M8[{of}]")).astype(np.int64) // int(step)


def _from_monday(moments: Moments) -> NDArray[np.int64]:
    return (_whole("D")(moments) + 3) % 7  # 1970-01-01 was a Thursday


def _iso_week(moments: Moments) -> NDArray[np.int64]:
    days = moments.astype("M8[D]") - _from_monday(moments) + _THURSDAY
    return (days - days.astype("M8[Y]").astype("M8[D]")).astype(np.int64) // 7 + 1


_PARTS: dict[str, tuple[Callable[[Moments], NDArray[np.int64]], tuple[int, int] | None]] = {
    "year": (lambda moments: _whole("Y")(moments) + 1970, None),
    "quarter": (lambda moments: _whole("M")(moments) % 12 // 3 + 1, (1, 4)),
    "month": (lambda moments: _whole("M")(moments) % 12 + 1, (1, 12)),
    "week": (_iso_week, (1, 53)),
    "day": (lambda moments: _since("D", "M")(moments) + 1, (1, 31)),
    "dayofyear": (lambda moments: _since("D", "Y")(moments) + 1, (1, 366)),
    "dayofweek": (lambda moments: (_from_monday(moments) + 1) % 7, (0, 6)),
    "isodow": (lambda moments: _from_monday(moments) + 1, (1, 7)),
    "hour": (_since("h", "D", _HOUR), (0, 23)),
    "minute": (_since("m", "h", _MINUTE), (0, 59)),
    "second": (_since("s", "m", SECOND), (0, 59)),
}
PARTS = tuple(_PARTS)
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_LENGTHS = {"hour": _HOUR, "minute": _MINUTE, "second": SECOND}  # all others are days or longer


def part_values(part: str, moments: Floats) -> Floats:
    """A part of each moment; NaN where it is missing, or many thousand years away."""
    return _where_known(moments, lambda known: _PARTS[part][0](known).astype(np.float64))


def part_range(part: str) -> tuple[int, int] | None:
    """The least and the greatest value of a part; None for the year."""
    return _PARTS[part][1]


def part_length(part: str) -> float:
    """How long a part or unit keeps its value at least, in microseconds."""
    return _LENGTHS.get(part, DAY)


def repeats(part: str) -> bool:
    """Whether the calendar repeats the values of a part."""
    return part != "year"


def truncated(unit: str, moments: Floats, ahead: int = 0) -> Floats:
    """The beginning of the unit that each moment is in, or of the unit that lies `ahead` of that one."""
    return _where_known(moments, lambda known: _begin(unit, known, ahead).astype("M8[us]").astype(np.float64))


def _begin(unit: str, moments: Moments, ahead: int) -> Moments:
    match unit:
        case "year":
            return moments.astype("M8[Y]") + ahead
        case "quarter":
            months = moments.astype("M8[M]")
            return months + (3 * ahead - _whole("M")(moments) % 3).astype("m8[M]")
        case "month":
            return moments.astype("M8[M]") + ahead
        case "week":
            return moments.astype("M8[D]") + (7 * ahead - _from_monday(moments)).astype("m8[D]")
        case _:
            return moments.astype({"day": "M8[D]", "hour": "M8[h]", "minute": "M8[m]", "second": "M8[s]"}[unit]) + ahead


def later(moments: Floats, count: int, unit: str) -> Floats:
    """Each moment moved by a number of calendar units. In a shorter month it is the last day of that month, as in
    DuckDB.
    """
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit)
    if months is None:
        length = 7 * DAY if unit == "week" else part_length(unit)
        return moments + count * length

    def moved(known: Moments) -> Floats:
        month = known.astype("M8[M]")
        day = known.astype("M8[D]") - month.astype("M8[D]")
        there = month + months * count
        last = (there + 1).astype("M8[D]") - 1
        return (np.minimum(there.astype("M8[D]") + day, last) + (known - known.astype("M8[D]"))).astype(np.float64)

    return _where_known(moments, moved)


def _where_known(moments: Floats, function: Callable[[Moments], Floats]) -> Floats:
    known = np.abs(moments) < _FARTHEST  # false for NaN
    whole = np.floor(np.where(known, moments, 0.0)).astype(np.int64)
    return np.where(known, function(whole.astype("M8[us]")), np.nan)
