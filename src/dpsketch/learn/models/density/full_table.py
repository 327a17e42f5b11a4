"""A noisy table of counts over up to three number columns, as a release holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpsketch.learn.estimators.small_table import SmallTable, small_tables
from dpsketch.learn.points import Frame
from dpsketch.maps.hashed.hashes import Euclidean
from dpsketch.maps.tables.cells import Cells, HistogramCells
from dpsketch.maps.tables.column_summaries import parents
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.tasks.task import MOST_TABLE_COLUMNS
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, SPAN
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch


@dataclass(frozen=True)
class Axis:
    """The division of a column by a table.

    There are `cells` of equal width between two atoms, the bounds themselves; or, if it is not `binned`, one cell for
    each of equidistant values.
    """

    cells: int
    binned: bool

    @property
    def step(self) -> float:
        """Distance between the midpoints of cells, in widths of the bounds."""
        return 1 / self.cells if self.binned else 1 / max(self.cells - 1, 1)

    def coordinates(self, places: Floats) -> Floats:
        """Coordinates of points between the bounds, scaled to 0 … 1: the midpoint of cell i has coordinate i."""
        return places / self.step - (0.5 if self.binned else 0.0)


@dataclass(frozen=True)
class FullTable:
    """Noisy counts, one for each cell and atom. Records with a missing cell are excluded.

    Each is the sum of a number of released counts, `summed`, whose noise has variance `variance`. `kernel` is the one
    that the table was released for, if it was for one.
    """

    columns: tuple[str, ...]
    axes: tuple[Axis, ...]
    counts: Floats
    variance: float
    how: str
    summed: Floats
    kernel: Euclidean | None = None

    @cached_property
    def shares(self) -> Floats:
        """The nearest distribution: counts projected on the simplex, which removes more noise than clipping."""
        flat = self.counts.ravel()
        total = max(float(flat.sum()), 1.0)
        descending = np.sort(flat)[::-1]
        level = (np.cumsum(descending) - total) / np.arange(1, flat.size + 1)
        last = np.flatnonzero(descending > level)[-1]
        return np.maximum(flat - level[last], 0.0).reshape(self.counts.shape) / total

    def drawn(self, count: int, generator: np.random.Generator) -> Floats:
        """Points of simulated records between the bounds, scaled to 0 … 1: one per matrix row."""
        cells = generator.choice(self.shares.size, size=count, p=self.shares.ravel() / self.shares.sum())
        found = []
        for axis, index in zip(self.axes, np.unravel_index(cells, self.shares.shape), strict=True):
            inside = (index - 1 + generator.random(count)) * axis.step
            found.append(np.clip(inside, 0.0, 1.0) if axis.binned else index * axis.step)
            if axis.binned:
                found[-1][index == 0], found[-1][index == axis.cells + 1] = 0.0, 1.0
        return np.stack(found, axis=1)


def full_table(released: ReleasedSketch, columns: Sequence[str] | None) -> FullTable | None:
    """The first table of exactly these columns, in their order, or of any one to three number columns."""
    if columns is not None and len(columns) > MOST_TABLE_COLUMNS:
        return None
    for tables in map(small_tables, released.parts):
        for table in tables:
            even = not any(cells.uneven for cells in table.cells)
            if (
                even
                and table.numeric
                and (
                    set(table.columns) == set(columns)
                    if columns is not None
                    else len(tables) == 1 and len(table.columns) <= MOST_TABLE_COLUMNS
                )
            ):
                return _ordered(table, columns)
    return None


def _ordered(table: SmallTable, columns: Sequence[str] | None) -> FullTable:
    """Without the cells of missing values, and with the columns in the order that is asked for."""
    cells, counts, summed = _even(table)
    present = tuple(slice(0, -1) for _ in cells)
    order = [table.columns.index(name) for name in columns or table.columns]
    names, axes = zip(*[(table.columns[index], _axis(cells[index])) for index in order], strict=True)
    counts, summed = (each[present].transpose(order) for each in (counts, summed))
    kernel = getattr(table.part.map.description, "kernel", None)
    return FullTable(names, axes, counts, table.variance, _how(table), summed, kernel)


def _even(table: SmallTable) -> tuple[tuple[Cells, ...], Floats, Floats]:
    """Cells of equal width, their counts, and how many released counts each is the sum of: cells that a release chose
    divide such bins.
    """
    (own, *others), part = table.cells, table.part.map
    if others or not own.chosen or not isinstance(part, OneWayMap):
        return table.cells, table.counts, np.ones(table.shape)
    even = HistogramCells(own.column, part.bins)
    into = parents(even, own)
    counts, summed = (np.bincount(into, each, even.count) for each in (table.counts, np.ones(own.count)))
    return (even,), counts.astype(np.float64), summed.astype(np.float64)


def _axis(cells: Cells) -> Axis:
    return Axis(cells.bins if cells.binned else cells.column.levels, cells.binned)


def _how(table: SmallTable) -> str:
    if len(table.columns) > 1:
        return f"{len(table.columns)}-way table"
    return "marginal" if isinstance(table.part.map, OneWayMap) else "histogram"


def places_of(schema: Schema, columns: Sequence[str], table: Any) -> Floats:
    """Rows in users' units scaled from the bounds to 0 … 1, NaN where missing: one per matrix row."""
    frame = Frame.read(schema, columns, table)
    return np.stack([_place(frame, name) for name in columns], axis=1)


def _place(frame: Frame, name: str) -> Floats:
    codes = frame.codes(name)
    return np.where(codes == MISSING, np.nan, (codes.astype(np.float64) - LOWEST) / SPAN)


def codes_at(places: Floats) -> Any:
    """Codes of scaled points, one matrix row per column."""
    return np.clip(np.rint(places.T * SPAN + LOWEST), LOWEST, HIGHEST).astype(np.int16)


def units_at(schema: Schema, columns: Sequence[str], places: Floats) -> dict[str, Any]:
    """Columns in users' units from points scaled to 0 … 1; dates as moments."""
    frame = Frame(schema, dict(zip(columns, codes_at(places), strict=True)))
    return {name: frame.cells(name) for name in columns}
