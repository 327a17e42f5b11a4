"""Bins of a column for a histogram: equal parts of the bounds, parts between given edges, or labels, and missing cells
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.grouping import MOST_GROUPS
from dpsketch.learn.sql.selection import column_number
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, LOWEST, Column


def bins_of(column: Column, bins: int, edges: Sequence[Any] | None = None) -> tuple[Factor, tuple[str, ...]]:
    """A function for each bin, one where a record is in it, and their labels.

    With `edges` a bin lies below the first of them, between two, or from the last on.
    """
    asked: tuple[float, ...] = ()
    if edges is not None:
        asked = _given(column, edges)
        starts = np.array([-np.inf, *asked])
        shown = [_edge_text(column, edge, 12) for edge in asked]
        between = [f"{left} to {right}" for left, right in pairwise(shown)]
        labels = [f"below {shown[0]}", *between, f"{shown[-1]} or more"]
    elif column.numeric:
        if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= 10_000:
            raise QueryError(f"bins must be a whole number from 1 to 10000, got {bins!r} instead")
        low, high = column.values_of(np.array([LOWEST, HIGHEST]))
        starts = np.linspace(low, high, bins + 1)
        shown = [_edge_text(column, float(edge)) for edge in starts]
        labels = [f"{left} to {right}" for left, right in pairwise(shown)]
    else:
        starts = np.arange(column.levels + 1.0)
        labels = list(getattr(column, "labels", ()))
        if len(labels) > MOST_GROUPS:
            raise QueryError(
                f"column '{column.name}' has more than {MOST_GROUPS} labels", "count some of them with where"
            )
    last = len(labels)

    def each(frame: Frame) -> Floats:
        values = frame.values(column.name)
        missing = np.isnan(values)
        index = np.searchsorted(starts, np.where(missing, starts[0], values), side="right") - 1
        index = np.where(missing, last, np.clip(index, 0, last - 1))
        return (index == np.arange(last + 1)[:, None]).astype(np.float64)

    return Factor((column.name,), each, asked), (*labels, "missing")


def _given(column: Column, edges: Sequence[Any]) -> tuple[float, ...]:
    """Edges on the scale of the column."""
    if not column.numeric:
        raise QueryError(f"column '{column.name}' has labels, which have no edges", "leave out edges")
    if isinstance(edges, str) or not isinstance(edges, Sequence | np.ndarray) or not 1 <= len(edges) <= 10_000:
        raise QueryError("edges must be a list of 1 to 10000 values", "pass edges=[18, 40, 65]")
    numbers = tuple(column_number(column, edge) for edge in edges)
    if any(low >= high for low, high in pairwise(numbers)):
        raise QueryError(f"edges of column '{column.name}' must rise", "pass edges=[18, 40, 65]")
    return numbers


def _edge_text(column: Column, edge: float, digits: int = 6) -> str:
    """The edge of a bin, as a person writes it."""
    if column.dates:
        return str(np.datetime64(round(edge), "us").astype("datetime64[m]")).replace("T", " ")
    return f"{edge:.{digits}g}"
