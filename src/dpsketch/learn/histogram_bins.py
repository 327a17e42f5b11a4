"""Bins of a column for a histogram: equal parts of the bounds, or labels, and missing cells last."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.grouping import MOST_GROUPS
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, LOWEST, Column


def bins_of(column: Column, bins: int) -> tuple[Factor, tuple[str, ...]]:
    """A function for each bin, one where a record is in it, and their labels."""
    if column.numeric:
        if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= 10_000:
            raise QueryError(f"bins must be a whole number from 1 to 10000, got {bins!r} instead")
        low, high = column.values_of(np.array([LOWEST, HIGHEST]))
        edges = np.linspace(low, high, bins + 1)
        shown = [_edge_text(column, float(edge)) for edge in edges]
        labels = [f"{left} to {right}" for left, right in pairwise(shown)]
    else:
        edges = np.arange(column.levels + 1.0)
        labels = list(getattr(column, "labels", ()))
        if len(labels) > MOST_GROUPS:
            raise QueryError(
                f"column '{column.name}' has more than {MOST_GROUPS} labels", "count some of them with where"
            )
    last = len(labels)

    def each(frame: Frame) -> Floats:
        values = frame.values(column.name)
        missing = np.isnan(values)
        index = np.searchsorted(edges, np.where(missing, edges[0], values), side="right") - 1
        index = np.where(missing, last, np.clip(index, 0, last - 1))
        return (index == np.arange(last + 1)[:, None]).astype(np.float64)

    return Factor((column.name,), each), (*labels, "missing")


def _edge_text(column: Column, edge: float) -> str:
    """The edge of a bin, as a person writes it."""
    if column.dates:
        return str(np.datetime64(round(edge), "us").astype("datetime64[m]")).replace("T", " ")
    return f"{edge:g}"
