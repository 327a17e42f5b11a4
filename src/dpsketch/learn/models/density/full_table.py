"""A noisy table of counts over up to three number columns, as a release holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpsketch.learn.points import Frame
from dpsketch.maps.tables.histogram import BoundHistogram
from dpsketch.maps.tables.marginals import BoundMarginals
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
    """Noisy counts, one for each cell and atom, with noise variance `variance`. Records with a missing cell are
    excluded.
    """

    columns: tuple[str, ...]
    axes: tuple[Axis, ...]
    counts: Floats
    variance: float
    how: str

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
    for part in released.parts:
        bound = part.map
        if isinstance(bound, BoundHistogram):
            for place, names in enumerate(bound.tables):
                if not _wanted(released.schema, names, columns, len(bound.tables)):
                    continue
                sums = part.sums[bound.offsets[place] : bound.offsets[place + 1]].reshape(bound.shape(place))
                bins = [bound.binnings[name] for name in names]
                axes = [_axis(binning.count - 1, binning.column.levels) for binning in bins]
                how = "histogram" if len(names) == 1 else f"{len(names)}-way table"
                return _ordered(names, columns, axes, sums.astype(np.float64), part.noise_variance, how)
        elif isinstance(bound, BoundMarginals):
            for place, name in enumerate(bound.columns):
                if not _wanted(released.schema, (name,), columns, len(bound.columns)):
                    continue
                axis = _axis(bound.cells[place].count - 1, released.schema.column(name).levels)
                counts = part.sums[bound.table(place)] / bound.grid
                return _ordered((name,), columns, [axis], counts, part.noise_variance / bound.grid**2, "marginal")
    return None


def _wanted(schema: Schema, names: Sequence[str], columns: Sequence[str] | None, tables: int) -> bool:
    if columns is None:
        return tables == 1 and len(names) <= MOST_TABLE_COLUMNS and all(schema.column(name).numeric for name in names)
    return set(names) == set(columns) and all(schema.column(name).numeric for name in names)


def _axis(cells: int, levels: int) -> Axis:
    return Axis(levels, False) if cells == levels else Axis(cells - 2, True)


def _ordered(
    names: Sequence[str], columns: Sequence[str] | None, axes: list[Axis], sums: Floats, variance: float, how: str
) -> FullTable:
    """The table without the cells of missing values, with the columns in the requested order."""
    present = sums[tuple(slice(0, -1) for _ in axes)]
    order = [list(names).index(name) for name in columns or names]
    chosen = tuple(names[place] for place in order)
    return FullTable(chosen, tuple(axes[place] for place in order), present.transpose(order), variance, how)


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
