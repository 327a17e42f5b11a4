"""Methods of a view: histograms of one column, and pictures of one or two columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpsketch.displays import listed
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.answer_pictures import HATCHED, Binned, answer_picture
from dpsketch.learn.factors import Factor
from dpsketch.learn.histogram_bins import Bins, bins_of, drawn_bins, short_labels
from dpsketch.learn.points import Frame
from dpsketch.learn.sql import ranges
from dpsketch.learn.sql.findings import Finding
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.selection import Selection
from dpsketch.numerics.arrays import Floats
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import NAMES, Axis, Cells, Picture
from dpsketch.schema.columns import Column

View = Any  # dpsketch.learn.view.View, which imports this module

_BINS, _PAIR_BINS, _MOST_PANELS, _MOST_CELLS = 32, 12, 12, 1600
_IN_NOTEBOOK = 4


def histogram(
    view: View, column: str, bins: int = 20, edges: Sequence[Any] | None = None, where: str | None = None
) -> Answer:
    """Number of records in equal bins of a number, or of each label; the last entry counts missing cells. With
    `edges`, in the bins below the first of these numbers or dates, between two, and from the last on.
    """
    return _counts(view, bins_of(find_column(view.schema, column), bins, edges), where)


def plot(view: View, columns: Sequence[str] | str | None = None, where: str | None = None) -> Drawing:
    """A picture of a column, a heat map of two, or pictures of all: `view.plot("age").save("age.svg")`."""
    names = [columns] if isinstance(columns, str) else columns
    if names is not None and len(names) == 2:
        return Drawing((_pair(view, where, *(find_column(view.schema, name) for name in names)),))
    if names is not None and not 1 <= len(names) <= 2:
        raise QueryError("a picture shows one column or two", "plot('age'), plot(['age', 'city']) or plot() for all")
    if names is not None:
        return Drawing((_single(view, find_column(view.schema, names[0]), where),))
    shown = columns_to_show(view, where)
    if not shown:
        raise QueryError(
            "this release has no column to draw",
            f"its columns are {listed([column.name for column in view.schema.columns])}",
        )
    return Drawing(tuple(shown), across=2)


def columns_to_show(view: View, where: str | None = None, most: int = _MOST_PANELS) -> list[Picture]:
    """A picture of each of the first columns that the release knows."""
    shown = []
    for column in view.schema.scalars[:most]:
        try:
            shown.append(_single(view, column, where))
        except QueryError:  # the release knows nothing about it
            continue
    return shown


def in_notebook(view: View) -> str:
    """Pictures of the first few columns."""
    shown = columns_to_show(view, most=_IN_NOTEBOOK)
    return Drawing(tuple(shown), across=2).svg if shown else ""


def _single(view: View, column: Column, where: str | None) -> Picture:
    counts = _counts(view, drawn_bins(column, _BINS), where)
    picture = answer_picture(counts, counts.binned)
    if picture is None:
        raise QueryError(
            f"column '{column.name}' has too many labels for a picture", "group by some of them with where"
        )
    return picture


def _counts(view: View, bins: Bins, where: str | None) -> Answer:
    counts = _found(view, where, (bins.each,), len(bins.labels)).array(bins.labels)
    return replace(counts, binned=Binned(bins.axis, bins.edges))


def _found(view: View, where: str | None, groups: tuple[Factor, ...], number: int) -> Finding:
    """The number of records in each group that meet a condition."""
    return view.about((), where, Selection.count, ranges.NOT_NEGATIVE, in_rows=True, groups=groups, number=number)


def _pair(view: View, where: str | None, across: Column, up: Column) -> Picture:
    """Counts of the cells of two columns, with columns of numbers in bins."""
    bins = [drawn_bins(column, _PAIR_BINS) for column in (across, up)]
    sizes = [len(each.labels) for each in bins]
    if sizes[0] * sizes[1] > _MOST_CELLS:
        raise QueryError("these columns have too many labels for a picture", "group by some of them with where")

    def of_columns(frame: Frame) -> Floats:
        return np.tile(bins[0].each.at(frame), (sizes[1], 1))

    def of_rows(frame: Frame) -> Floats:
        return np.repeat(bins[1].each.at(frame), sizes[0], axis=0)

    groups = Factor((across.name,), of_columns), Factor((up.name,), of_rows)
    counts = _found(view, where, groups, sizes[0] * sizes[1]).array()
    low, _ = counts.interval()
    values, hatched = (each.reshape(sizes[1], sizes[0]) for each in (np.asarray(counts.value), low <= 0))
    kept = [_without_missing(each, np.nan_to_num(values).sum(axis)) for axis, each in enumerate(bins)]
    cells = Cells(values[: kept[1], : kept[0]], hatched[: kept[1], : kept[0]])
    axes = [Axis(each.column.name, NAMES, short_labels(each)[:number]) for each, number in zip(bins, kept, strict=True)]
    return Picture(f"records by {across.name} and {up.name}", axes[0], axes[1], cells=cells, note=HATCHED)


def _without_missing(bins: Bins, counts: Floats) -> int:
    """The number of bins shown: that of missing cells only where it holds a thousandth of the records."""
    return len(bins.labels) - int(counts[-1] < 1e-3 * counts.sum())
