"""Tighter bounds for a second release of a table, from the quantiles of a first one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.sql.literals import find_column
from dpsketch.maps.base import check_columns
from dpsketch.schema.columns import Code, Column, Datetime, Integer, Number, as_moment
from dpsketch.schema.schema import TIGHTENED, Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_STEPS = 50  # round numbers within the bounds
_DURATIONS = (1, 60, 3_600, 86_400)  # seconds
_LEAST = 1 / 64  # of a column's width, one bin: quantiles in the same bin do not show the spread inside it


def tighten(view: View, share: float = 0.02, columns: Sequence[str] | None = None) -> Schema:
    """The schema of a release with bounds that leave about a `share` of the records outside at each end of a column.

    Noise grows with the width of the bounds, so a second release with this schema is more accurate inside them. Values
    outside are clamped, so means and sums are those of clamped values. Only numbers, integers and dates are tightened:
    those named, or all whose quantiles the release estimates. Bounds are rounded outwards to round numbers. Codes keep
    theirs, as clamping would turn one code into another, and so does a column with nearly all records at one value.
    Guarantee: the bounds depend on the released sums alone; the schema's note carries the sentence that the privacy
    statement of a release with these bounds must contain.
    """
    if not view.released.private:
        raise QueryError(
            "this release is not private: bounds taken from it would leak the table", "tighten from a private release"
        )
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 0.5:
        raise QueryError(f"share must be above 0 and below 0.5, got {share!r} instead", "0.02 cuts two in a hundred")
    named = check_columns("tighten", columns)
    if named is None:
        named = tuple(
            c.name for c in view.schema.scalars if c.numeric and not isinstance(c, Code) and view.knows((c.name,))
        )
    if not named:
        raise QueryError(
            "this release tells the quantiles of no column", "release Recipe.bounds(schema, …), or a general one"
        )
    bounds = {name: _bounds(view, find_column(view.schema, name), float(share)) for name in named}
    tightened = tuple(bounds.get(column.name, column) for column in view.schema.columns)
    if tightened == view.schema.columns:
        return view.schema
    return replace(view.schema, columns=tightened).noted(TIGHTENED)


def _bounds(view: View, column: Column, share: float) -> Column:
    if isinstance(column, Code):
        raise QueryError(
            f"column '{column.name}' holds codes: clamping would turn one into another", "leave it out of --columns"
        )
    if not isinstance(column, Number | Integer | Datetime):
        raise QueryError(f"column '{column.name}' is a {column.kind}, without bounds", "name numbers or dates")
    low, high = (_plain(view.quantile(column.name, each).value) for each in (share, 1 - share))
    if low is None or high is None:
        return column
    low, high = _outwards(column, low, high)
    lower, upper = max(low, column.lower), min(high, column.upper)
    declared = _scaled(column, column.upper) - _scaled(column, column.lower)
    if _scaled(column, upper) - _scaled(column, lower) < _LEAST * declared:
        return column
    if isinstance(column, Integer):
        lower, upper = math.floor(lower), math.ceil(upper)
    return replace(column, lower=lower, upper=upper)


@dataclass(frozen=True)
class Cut:
    """The bounds of a column before and after tightening, as texts."""

    column: str
    before: tuple[str, str]
    after: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.column}: {' to '.join(self.before)} became {' to '.join(self.after)}"


def cuts(before: Schema, after: Schema) -> list[Cut]:
    """The columns whose bounds differ between a schema and its tightened one."""
    pairs = zip(before.columns, after.columns, strict=True)
    return [Cut(one.name, _texts(one), _texts(two)) for one, two in pairs if one != two]


def _texts(column: Any) -> tuple[str, str]:
    if isinstance(column, Datetime):
        return column.lower.isoformat(), column.upper.isoformat()
    return f"{column.lower:.15g}", f"{column.upper:.15g}"


def _outwards(column: Number | Integer | Datetime, low: Any, high: Any) -> tuple[Any, Any]:
    """Both bounds rounded outwards: to a fiftieth of the width, as a round number, or on a scale to two digits."""
    if isinstance(column, Datetime):
        seconds = (high - low).total_seconds() / _STEPS
        unit = max((each for each in _DURATIONS if each <= seconds), default=1)
        first, last = math.floor(low.timestamp() / unit) * unit, math.ceil(high.timestamp() / unit) * unit
        return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)
    if column.scale is not None:
        return _rounded(low, _digit(abs(low) / 10), math.floor), _rounded(high, _digit(abs(high) / 10), math.ceil)
    width = (high - low) / _STEPS
    step = max((each * _digit(width) for each in (1, 2, 5) if each * _digit(width) <= width), default=0)
    step = max(step, 1) if isinstance(column, Integer) else step
    return _rounded(low, step, math.floor), _rounded(high, step, math.ceil)


def _digit(size: float) -> float:
    """The power of ten of a positive number's first digit; 0 for 0."""
    return 10.0 ** math.floor(math.log10(size)) if size > 0 else 0.0


def _rounded(number: float, step: float, rule: Callable[[float], int]) -> float:
    """A multiple of a step. Steps below 1 are divided by, so that the result is the shortest decimal."""
    if step == 0:
        return number
    return rule(number * round(1 / step)) / round(1 / step) if step < 1 else rule(number / step) * float(step)


def _plain(value: Any) -> Any:
    """A number, a date, or None if all cells are missing."""
    if value is None or value != value:
        return None
    return as_moment(value.item()) if isinstance(value, np.datetime64) else value


def _scaled(column: Column, value: Any) -> float:
    """A value on the scale that the codes of the column divide evenly."""
    if isinstance(value, datetime):
        return value.timestamp()
    return float(column.scaled(np.array(value, np.float64)))
