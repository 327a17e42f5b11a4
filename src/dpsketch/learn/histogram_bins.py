"""Bins of a column for a histogram: equal parts of the bounds, parts between given edges, or labels; missing cells
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dpsketch.displays import counted
from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.grouping import MOST_GROUPS
from dpsketch.learn.sql.selection import column_number
from dpsketch.numerics.arrays import Floats
from dpsketch.plots.picture import ASINH, DATE, LINEAR, LOG, NAMES, Axis
from dpsketch.schema.columns import HIGHEST, LOWEST, SPAN, Column

MISSING = "missing"
_MOST_BINS = 10_000
_BY_VALUE = 16  # an integer with no more values has a bar for each in a picture


@dataclass(frozen=True)
class Bins:
    """A function for each bin, one where a record is in it; the labels of the bins; the edges of those with numbers.

    The bin of missing cells is the last and has no edges.
    """

    column: Column
    each: Factor
    labels: tuple[str, ...]
    edges: Floats | None

    @property
    def axis(self) -> Axis:
        """How a picture shows the column."""
        return Axis(self.column.name, NAMES, self.labels) if self.edges is None else number_axis(self.column)


def number_axis(column: Column) -> Axis:
    """How a picture shows the values of a number or date."""
    scales = {None: LINEAR, "log": LOG, "asinh": ASINH}
    return Axis(column.name, DATE if column.dates else scales[column.scale])


def even_edges(column: Column, bins: int) -> Floats:
    """The edges of bins that are equal after the column's transform."""
    low, high = column.values_of(np.array([LOWEST, HIGHEST]))
    scaled = column.scaled(np.array([low, high]))
    edges = column.unscaled(np.linspace(scaled[0], scaled[1], bins + 1))
    edges[0], edges[-1] = low, high
    return edges


def bins_of(column: Column, bins: int = 20, edges: Sequence[Any] | None = None) -> Bins:
    """Equal bins of a number or date, or one for each label. Edges cut what lies between the bounds: every record
    is in a bin.
    """
    if edges is not None:
        return _cut(column, _checked(column, edges))
    if column.numeric:
        if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= _MOST_BINS:
            raise QueryError(f"bins must be a whole number from 1 to {_MOST_BINS}, got {bins!r} instead")
        low, high = column.values_of(np.array([LOWEST, HIGHEST]))
        return _between(column, np.linspace(low, high, bins + 1))
    labels = list(getattr(column, "labels", ()))
    if len(labels) > MOST_GROUPS:
        raise QueryError(f"column '{column.name}' has more than {MOST_GROUPS} labels", "count some of them with where")
    found = _between(column, np.arange(column.levels + 1.0))
    return Bins(column, found.each, (*labels, MISSING), None)


def drawn_bins(column: Column, bins: int) -> Bins:
    """Bins for a picture: equal after the column's transform, of whole values for integers, each by itself if few."""
    if not column.numeric:
        return bins_of(column)
    if column.levels <= SPAN:  # an integer with exact values
        values = column.values_of(column.codes_of(np.arange(column.levels)))
        least = -(-len(values) // bins)
        size = max(range(least, 2 * least), key=lambda size: ((len(values) % size or size) / size, -size))
        firsts, lasts = values[::size], np.append(values[size - 1 :: size], values[-1])[: -(-len(values) // size)]
        ends = zip(firsts.tolist(), lasts.tolist(), strict=True)
        labels = [f"{first:g}" if first == last else f"{first:g} to {last:g}" for first, last in ends]
        found = _between(column, np.append(firsts, values[-1] + 1) - 0.5)
        edges = None if size == 1 and len(values) <= _BY_VALUE else found.edges
        return Bins(column, found.each, (*labels, MISSING), edges)
    return _between(column, even_edges(column, bins))


def short_labels(bins: Bins) -> tuple[str, ...]:
    """Labels with three digits, or days of dates, for a picture with many of them."""
    if bins.edges is None or not (bins.column.dates or bins.column.levels > SPAN):
        return bins.labels
    if bins.column.dates:
        shown = [str(np.datetime64(round(float(edge)), "us").astype("datetime64[D]")) for edge in bins.edges]
        return (*shown[:-1], MISSING)
    return (*(f"{left:.3g}–{right:.3g}" for left, right in pairwise(bins.edges.tolist())), MISSING)


def _checked(column: Column, edges: Sequence[Any]) -> Floats:
    if not column.numeric:
        raise QueryError(f"column '{column.name}' is a {column.kind} and has no edges", "leave out edges")
    found = np.array([column_number(column, edge) for edge in edges], np.float64)
    if not 1 <= len(found) <= _MOST_BINS or not np.all(np.diff(found) > 0):
        raise QueryError(
            f"edges must be 1 to {_MOST_BINS} rising numbers or dates, got {counted(len(found), 'edge')} instead",
            "write edges=[18, 40, 65]",
        )
    low, high = column.values_of(np.array([LOWEST, HIGHEST]))
    if found[0] < low or found[-1] > high:
        bounds = f"{_text(column, low)} to {_text(column, high)}"
        raise QueryError(
            f"edges must lie within the bounds of column '{column.name}', {bounds}",
            "records beyond a bound count as records at it",
        )
    return found


def _cut(column: Column, edges: Floats) -> Bins:
    """Bins below the first edge, between two, and from the last on; those without values left out."""
    low, high = column.values_of(np.array([LOWEST, HIGHEST])).tolist()
    bins = _between(column, np.unique([low, *edges, high]))
    labels, shown = list(bins.labels), [_text(column, float(edge), 12) for edge in edges]
    if edges[0] > low:
        labels[0] = f"below {shown[0]}"
    if edges[-1] < high:
        labels[-2] = f"{shown[-1]} or more"
    return replace(bins, each=replace(bins.each, asked=tuple(edges.tolist())), labels=tuple(labels))


def _between(column: Column, edges: Floats) -> Bins:
    """Bins with their lower edges, the last one with both, and one for missing cells."""
    shown = [_text(column, float(edge)) for edge in edges]
    labels = tuple(f"{left} to {right}" for left, right in pairwise(shown))
    last = len(labels)

    def each(frame: Frame) -> Floats:
        values = frame.values(column.name)
        missing = np.isnan(values)
        index = np.searchsorted(edges, np.where(missing, edges[0], values), side="right") - 1
        index = np.where(missing, last, np.clip(index, 0, last - 1))
        return (index == np.arange(last + 1)[:, None]).astype(np.float64)

    return Bins(column, Factor((column.name,), each), (*labels, MISSING), edges)


def _text(column: Column, edge: float, digits: int = 6) -> str:
    """The edge of a bin, as a person writes it."""
    if column.dates:
        return str(np.datetime64(round(edge), "us").astype("datetime64[m]")).replace("T", " ")
    return f"{edge:.{digits}g}"
