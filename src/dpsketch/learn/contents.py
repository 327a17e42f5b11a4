"""The contents of a release: its declared columns, and the questions that its parts answer well."""

from __future__ import annotations

import re
from typing import Any

from dpsketch.schema.columns import Category, Column, Datetime, IdSet, Integer, Number
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch

COLUMNS = ("column", "kind", "values")
SAMPLE_HINT = "a sketch holds no rows; for synthetic ones: dpsketch sample (view.sample)"
_MOST_LABELS = 12
_ASKS_FOR_CONTENTS = re.compile(
    r"\s*(describe\s+(table\s+)?sketch|desc\s+sketch|show\s+columns(\s+(from|in)\s+sketch)?|select\s+\*\s+from\s+sketch"
    r"(\s+limit\s+\d+)?)\s*;?\s*",
    re.IGNORECASE,
)


def asks_for_contents(text: str) -> bool:
    """Whether a statement is about the sketch itself: describe sketch, show columns, select * from sketch."""
    return _ASKS_FOR_CONTENTS.fullmatch(text) is not None


def column_rows(schema: Schema) -> list[tuple[str, str, str]]:
    """Name, kind and declared values of every column."""
    return [(column.name, column.kind, _values(column)) for column in schema.columns]


def good_for(released: ReleasedSketch) -> list[str]:
    """The questions that the parts of a release are made for."""
    purposes = dict.fromkeys(feature_map.core.description.good_for for feature_map in released.maps)
    return [purpose for purpose in purposes if purpose]


def contents(released: ReleasedSketch) -> dict[str, Any]:
    """Columns, declared rows and what the release is good for, as plain facts."""
    columns = [dict(zip(COLUMNS, row, strict=True)) for row in column_rows(released.schema)]
    return {"declared_rows": released.schema.rows, "columns": columns, "good_for": good_for(released)}


def contents_line(released: ReleasedSketch) -> str:
    """Declared rows, and what the release is good for."""
    purposes = good_for(released)
    good = f" Good for: {'; '.join(purposes)}." if purposes else ""
    return f"{released.schema.rows:,} declared rows.{good}"


def _values(column: Column) -> str:
    match column:
        case Number():
            scale = f", {column.transform} scale" if column.transform else ""
            return f"{column.lower:g} to {column.upper:g}{scale}"
        case Integer():
            return f"{column.lower} to {column.upper}"
        case Datetime():
            return f"{column.lower:%Y-%m-%d} to {column.upper:%Y-%m-%d}"
        case Category():
            more = f", … ({len(column.labels)} in all)" if len(column.labels) > _MOST_LABELS else ""
            return ", ".join(column.labels[:_MOST_LABELS]) + more
        case IdSet():
            return f"sets of ids below {column.universe}"
    return "false, true"
