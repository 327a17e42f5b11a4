"""Pictures of answers and of tables of answers: bars, steps and lines with 95 % intervals, and heat maps of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsketch.numerics.arrays import Floats
from dpsketch.plots.picture import DATE, NAMES, Axis, Cells, Picture, Series

MOST_PANELS = 4
_MOST_NAMES, _MOST_MATRIX = 60, 40
_AS_LINE = 8  # groups of a number from which a line is clearer than bars
BANDS, BARS = "band: 95 % intervals", "error bars: 95 % intervals"
HATCHED = "hatched: not significantly different from zero"


@dataclass(frozen=True)
class Binned:
    """The axis and the edges that an array answer is drawn over."""

    axis: Axis
    edges: Floats | None  # of all entries, or of all but a last one for missing cells


def answer_picture(answer: Any, binned: Binned | None = None) -> Picture | None:
    """The picture of an array answer: a histogram or a matrix. None for others, and where it would not be readable."""
    size = np.shape(answer.value)
    if not size or size[0] < 2:
        return None
    names = answer.labels or tuple(map(str, range(size[0])))
    if len(size) == 2:
        return _matrix(answer, names) if size[0] == size[1] <= _MOST_MATRIX else None
    if len(size) != 1:
        return None
    low, high = answer.interval()
    title = binned.axis.label if binned is not None else ""
    unit = "records" if binned is not None and not answer.derived else "value"
    if binned is not None and binned.edges is not None:
        inside = len(binned.edges) - 1
        values, lows, highs = answer.value[:inside], low[:inside], high[:inside]
        note = BANDS
        if inside < size[0] and answer.value[-1] >= 1:
            note += f"; missing cells: {answer.value[-1]:,.0f}"
        series = Series("steps", binned.edges, values, lows, highs)
        return Picture(title, binned.axis, Axis(unit), (series,), note=note)
    if size[0] > _MOST_NAMES:
        return None
    series = Series("bars", np.zeros(0), answer.value, low, high)
    return Picture(title, Axis(title, NAMES, names), Axis(unit), (series,), note=BARS)


def _matrix(answer: Any, names: tuple[str, ...]) -> Picture:
    """Rows from the top, as in the table."""
    low, high = answer.interval()
    hatched = (low <= 0) & (high >= 0)
    values = np.asarray(answer.value)
    cells = Cells(values[::-1], hatched[::-1], signed=bool(np.nanmin(values, initial=0.0) < 0))
    return Picture("", Axis("", NAMES, names), Axis("", NAMES, names[::-1]), cells=cells, note=HATCHED)


def table_pictures(columns: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Picture]:
    """A picture for each of the first estimates: over one column of labels, or over two as a heat map."""
    estimates = [index for index, kind in enumerate(kinds) if kind.startswith("estimate")]
    labels = [index for index in range(len(columns)) if index not in estimates]
    if not estimates or len(rows) < 2 or not 1 <= len(labels) <= 2:
        return []
    shown = [index for index in estimates if kinds[index] == "estimate"][:MOST_PANELS]
    if len(labels) == 2:
        return [each for index in shown if (each := _pairs(columns, rows, labels, index)) is not None]
    return [each for index in shown if (each := _groups(columns, kinds, rows, labels[0], index)) is not None]


def _groups(
    columns: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[Any]], label: int, index: int
) -> Picture | None:
    numeric = kinds[label] in ("integer", "number", "date")
    present = [row for row in rows if row[label] is not None]
    title = f"{columns[index]} by {columns[label]}"
    if numeric and len(present) >= _AS_LINE:
        present = sorted(present, key=lambda row: row[label])
        scale = DATE if kinds[label] == "date" else "linear"
        x = np.array([_position(row[label]) for row in present])
        series = replace(_series("line", [row[index] for row in present]), x=x)
        note = BANDS + ("; the group of missing cells is not shown" if len(present) < len(rows) else "")
        return Picture(title, Axis(columns[label], scale), Axis(columns[index]), (series,), note=note)
    if len(rows) > _MOST_NAMES:
        return None
    names = tuple(_name(row[label]) for row in rows)
    series = _series("bars", [row[index] for row in rows])
    return Picture(title, Axis(columns[label], NAMES, names), Axis(columns[index]), (series,), note=BARS)


def _pairs(columns: Sequence[str], rows: Sequence[Sequence[Any]], labels: Sequence[int], index: int) -> Picture | None:
    up, across = (list(dict.fromkeys(row[label] for row in rows)) for label in labels)
    if len(up) > _MOST_MATRIX or len(across) > _MOST_MATRIX:
        return None
    values, hatched = np.full((len(up), len(across)), np.nan), np.zeros((len(up), len(across)), bool)
    for row in rows:
        place = up.index(row[labels[0]]), across.index(row[labels[1]])
        low, high = row[index].interval()
        values[place], hatched[place] = row[index].value, low <= 0 <= high
    names = [tuple(map(_name, each)) for each in (across, up[::-1])]
    cells = Cells(values[::-1], hatched[::-1], signed=bool(np.nanmin(values, initial=0.0) < 0))
    axes = Axis(columns[labels[1]], NAMES, names[0]), Axis(columns[labels[0]], NAMES, names[1])
    return Picture(
        f"{columns[index]} by {columns[labels[0]]} and {columns[labels[1]]}", *axes, cells=cells, note=HATCHED
    )


def _series(kind: str, answers: Sequence[Any]) -> Series:
    ends = [answer.interval() if answer.known else (np.nan, np.nan) for answer in answers]
    values = [answer.value if answer.known else np.nan for answer in answers]
    low, high = (np.array(each, np.float64) for each in zip(*ends, strict=True))
    return Series(kind, np.zeros(0), np.array(values, np.float64), low, high)


def _position(label: Any) -> float:
    if isinstance(label, int | float):
        return float(label)
    return float(np.datetime64(label, "us").astype(np.int64))


def _name(label: Any) -> str:
    if label is None:
        return "missing"
    return str(label).lower() if isinstance(label, bool) else str(label)
