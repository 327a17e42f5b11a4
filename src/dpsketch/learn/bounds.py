"""Tighter bounds for a second release of a table, from the quantiles of a first one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.sql.literals import find_column
from dpsketch.maps.base import check_columns
from dpsketch.schema.columns import Column, Datetime, Integer, Number, as_moment
from dpsketch.schema.parsing import LONGEST_NOTE
from dpsketch.schema.schema import TIGHTENED, Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_LEAST = 1 / 64  # of a column's width, one bin: quantiles in the same bin do not show the spread inside it


def tighten(view: View, share: float = 0.02, columns: Sequence[str] | None = None) -> Schema:
    """The schema of a release with bounds that leave about a `share` of the records outside at each end of a column.

    Noise grows with the width of the bounds, so a second release with this schema is more accurate inside them. Values
    outside are clamped, so means and sums are those of clamped values. Only numbers, integers and dates are tightened:
    those named, or all whose quantiles the release estimates. A column with nearly all records at one value keeps its
    bounds. Guarantee: the bounds depend on the released sums alone; the schema's note carries the sentence that the
    privacy statement of a release with these bounds must contain.
    """
    if not view.released.private:
        raise QueryError(
            "this release is not private: bounds taken from it would leak the table", "tighten from a private release"
        )
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 0.5:
        raise QueryError(f"share must be above 0 and below 0.5, got {share!r} instead", "0.02 cuts two in a hundred")
    named = check_columns("tighten", columns)
    if named is None:
        named = tuple(c.name for c in view.schema.scalars if c.numeric and view.knows((c.name,)))
    if not named:
        raise QueryError(
            "this release tells the quantiles of no column", "release Recipe.bounds(schema, …), or a general one"
        )
    bounds = {name: _bounds(view, find_column(view.schema, name), float(share)) for name in named}
    tightened = tuple(bounds.get(column.name, column) for column in view.schema.columns)
    if tightened == view.schema.columns:
        return view.schema
    return replace(view.schema, columns=tightened, note=_noted(view.schema.note))


def _bounds(view: View, column: Column, share: float) -> Column:
    if not isinstance(column, Number | Integer | Datetime):
        raise QueryError(f"column '{column.name}' is a {column.kind}, without bounds", "name numbers or dates")
    low, high = (_plain(view.quantile(column.name, each).value) for each in (share, 1 - share))
    if low is None or high is None:
        return column
    lower, upper = max(low, column.lower), min(high, column.upper)
    declared = _scaled(column, column.upper) - _scaled(column, column.lower)
    if _scaled(column, upper) - _scaled(column, lower) < _LEAST * declared:
        return column
    if isinstance(column, Integer):
        lower, upper = math.floor(lower), math.ceil(upper)
    return replace(column, lower=lower, upper=upper)


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


def _noted(note: str | None) -> str:
    if note is None or TIGHTENED in note:
        return note or TIGHTENED
    if len(note) + len(TIGHTENED) + 1 > LONGEST_NOTE:
        raise QueryError("the schema's note has no room for where the bounds come from", "shorten privacy.note")
    return f"{note} {TIGHTENED}"
