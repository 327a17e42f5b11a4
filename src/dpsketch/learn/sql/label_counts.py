"""How many different labels records have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate, same_coordinates
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import NORMAL_95, Frame
from dpsketch.learn.sql.quantities import Quantity
from dpsketch.learn.sql.selection import Selection
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import OTHER, Category, Column

MOST_LABELS = 1000
_FALSE = 0.05  # labels of no record that are expected to be taken as present, whatever their number


def distinct_labels(selection: Selection, quantity: Quantity) -> Estimate:
    """The number of listed labels that occur in each group: halfway between those that are present for sure and
    all that may be, with an interval of 95 % that reaches to both.
    """
    from scipy.stats import norm

    column = checked_labels(quantity)
    counts = [selection.also([_indicator(column, level)]).count() for level in listed_levels(column)]
    sure = float(norm.isf(_FALSE / max(2 * len(counts), 1)))
    value, stderr = (np.stack([getattr(each, name) for each in counts]) for name in ("value", "stderr"))
    present = (value - sure * stderr > 0.5).sum(0).astype(np.float64)
    possible = (value + sure * stderr > 0.5).sum(0).astype(np.float64)
    width = max(influence.shape[-1] for influence in same_coordinates(*[each.influence for each in counts]))
    influence = np.zeros((len(present), width + 1))
    influence[:, -1] = (possible - present) / 2 / NORMAL_95
    return Estimate((present + possible) / 2, influence)


def checked_labels(quantity: Quantity) -> Column:
    """The column, if its values can be listed."""
    column = quantity.column
    if column is None:
        raise QueryError(f"'{quantity.numbers.text}' is no column: its values cannot be counted", "group by it instead")
    if column.levels > MOST_LABELS:
        raise QueryError(
            f"column '{column.name}' has more than {MOST_LABELS} values: how many of them occur is not known",
            "count intervals with group by: floor(x / 10), width_bucket(x, 0, 100, 10), date_trunc('month', d)",
        )
    return column


def listed_levels(column: Column) -> list[int]:
    """All levels but that of values that are not listed."""
    unlisted = isinstance(column, Category) and OTHER not in map(str, column.values)
    return list(range(column.levels - 1 if unlisted else column.levels))


def _indicator(column: Column, level: int) -> Factor:
    def at(frame: Frame) -> Floats:
        return (frame.levels(column.name) == level)[None, :].astype(np.float64)

    return Factor((column.name,), at)


def most_common(counts: Sequence[tuple[float, float, Any]]) -> Any:
    """The label of the largest of counts with errors, if it is significantly larger than the next; else None."""
    known = sorted((each for each in counts if not np.isnan(each[0])), key=lambda each: each[:2], reverse=True)
    if not known:
        return None
    (first, error, label), *others = known
    second, other = others[0][:2] if others else (0.0, 0.0)
    return label if first - second > 2 * np.hypot(error, other) else None
