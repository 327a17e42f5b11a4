"""Points in the space of records, as codes, and their values in the user's units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import POSITION_VARIANCE
from dpsketch.denoise.heaping import CERTAIN, Lumps
from dpsketch.encoding.frames import read_codes
from dpsketch.maps.tables.cells import POSITION_GRID, Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import LOWEST, SPAN, Category
from dpsketch.schema.schema import Schema

COLUMN_POINTS = 1 << 14
_INNER = 4  # parts of a cell between which a quantile is interpolated
_GOLDEN = (0.6180339887498949, 0.7548776662466927, 0.8191725133961645, 0.8566748838545029)


class Frame:
    """Points with named columns: numbers in the user's units, levels of categories, NaN where missing. `values` are
    numbers that codes round.
    """

    def __init__(self, schema: Schema, codes: Mapping[str, Codes], values: Mapping[str, Floats] | None = None) -> None:
        self.schema = schema
        self._codes = codes
        self._values: dict[str, Floats] = dict(values or {})

    @classmethod
    def read(cls, schema: Schema, columns: Sequence[str], X: Any) -> Frame:
        """Some columns of a user's table, or of a matrix with these columns."""
        return cls(schema, read_codes(schema, columns, X))

    @cached_property
    def size(self) -> int:
        return len(next(iter(self._codes.values())))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def codes(self, name: str) -> Codes:
        return self._codes[name]

    def values(self, name: str) -> Floats:
        if name not in self._values:
            self._values[name] = self.schema.column(name).values_of(self._codes[name])
        return self._values[name]

    def cells(self, name: str) -> NDArray[Any]:
        """As users see a column, in a new array: numbers and booleans as floats with NaN where missing, labels with
        None, moments with NaT.
        """
        column = self.schema.column(name)
        if isinstance(column, Category):
            return np.array([*column.labels, None], object)[self.levels(name)]
        values = self.values(name).copy()
        if column.dates:
            missing = np.isnan(values)
            moments = np.rint(np.where(missing, 0.0, values)).astype(np.int64).astype("datetime64[us]")
            moments[missing] = np.datetime64("NaT")
            return moments
        return values

    def levels(self, name: str) -> NDArray[np.int64]:
        return self.schema.column(name).levels_of(self._codes[name])


def cell_points(schema: Schema, columns: Sequence[Cells], most: int = 1 << 21) -> tuple[Frame, int]:
    """Equally many points spread evenly inside every cell of a table, cell after cell, and how many a cell.

    A cell of one level needs one point; 60 divides evenly into the small numbers of levels of an integer's cells.
    """
    shape = [cells.count for cells in columns]
    count = int(np.prod(shape))
    single = all(cells.column.levels + 1 == cells.count for cells in columns)
    inside = 1 if single else max(1, min(60, most // count))
    grid = np.indices(shape).reshape(len(shape), count)
    steps = (np.arange(inside) + 0.5) / inside
    codes = {}
    for way, cells in enumerate(columns):
        shift = steps if way == 0 else (np.arange(inside) * _GOLDEN[(way - 1) % len(_GOLDEN)] + 0.5) % 1.0
        codes[cells.column.name] = codes_in_cells(cells, np.repeat(grid[way], inside), np.tile(shift, count))
    return Frame(schema, codes), inside


class ColumnPoints:
    """Points of one column: `inside` of them spread evenly over the levels of each of its cells, cell after cell."""

    def __init__(self, schema: Schema, cells: Cells) -> None:
        self.cells, self._schema = cells, schema
        self.inside = max(1, COLUMN_POINTS // cells.count) if cells.binned else 1
        places = np.repeat(np.arange(cells.count), self.inside)
        steps = np.tile((np.arange(self.inside) + 0.5) / self.inside, cells.count)
        codes = codes_in_cells(cells, places, steps)
        self.frame = Frame(schema, {cells.column.name: codes})
        self.places: Floats = ((codes.astype(np.float64) - LOWEST) / SPAN).reshape(cells.count, self.inside)
        self.positions: Floats = (cells.positions(codes) / POSITION_GRID).reshape(cells.count, self.inside)

    def by_cell(self, values: Floats) -> Floats:
        """Values on the points as [function, cell, place in the cell]."""
        return values.reshape(len(values), self.cells.count, self.inside)

    def at_asked(self, at: Callable[[Frame], Floats], asked: Sequence[float]) -> dict[int, Floats]:
        """Mean values of functions at the numbers that are asked about, for each cell that has such: of columns whose
        levels are finer than the values that people write, not of integers, each of which has a level of its own.
        """
        column = self.cells.column
        if not asked or self.inside == 1 or column.levels <= SPAN:
            return {}
        numbers = np.array(asked)
        cells = np.searchsorted(self.cells.edges[1:-1], numbers, side="right")
        inside = (cells >= 1) & (cells <= self.cells.bins)
        cells, numbers = cells[inside], numbers[inside]
        if not len(cells):
            return {}
        codes = codes_in_cells(self.cells, cells, np.full(len(cells), 0.5))
        values = at(Frame(self._schema, {column.name: codes}, {column.name: numbers}))
        return {int(cell): values[:, cells == cell].mean(1) for cell in np.unique(cells)}

    def values_of(
        self, at: Callable[[Frame], Floats], asked: Sequence[float], lumps: Lumps, shares: Floats, rows: float
    ) -> CellValues:
        """The values of functions of this column in cells that hold these shares of `rows` records."""
        # The number that is asked about is the value of a level, but for rounding.
        together = np.where(self.cells.single, 1.0, lumps.together_in(shares, rows))
        return CellValues(self, self.by_cell(at(self.frame)), self.at_asked(at, asked), together, lumps)


@dataclass(frozen=True)
class CellValues:
    """Values of functions on points of a column's cells, as [function, cell, place in the cell]: `even` where records
    are spread evenly over a cell, `asked` at the numbers that the question compares the column with.

    A part `together` of the records of a cell has the number that is asked about. Where records sit on few values of a
    cell, such a number is one of these rather than a place between two: conditions that hold for the number itself hold
    for the records that have it.
    """

    points: ColumnPoints
    even: Floats
    asked: Mapping[int, Floats]
    together: Floats
    lumps: Lumps

    def by_cell(self, sure: float = 1.0) -> Floats:
        """The values, with a fraction `sure` of the records that have the numbers asked about."""
        if not self.asked:
            return self.even
        mixed = np.array(self.even, np.float64)
        for cell, here in self.asked.items():
            part = sure * self.together[cell]
            mixed[:, cell] = (1 - part) * mixed[:, cell] + part * here[:, None]
        return mixed

    def hidden(self, shares: Floats, rows: float, lines: Floats) -> Floats:
        """The error of the functions' expectations by what cells hide, as a standard deviation: where in its cell each
        of `rows` records is by chance, which values records of a cell share, and how many have the number asked about.
        The sum of the column is known: `lines` is each function's slope in it, which hides nothing.
        """
        points = self.points
        if points.inside == 1:
            return np.zeros(len(self.even))
        likely = self.lumps.likely_in(shares, rows)
        if not self.lumps.positions_known:
            spread = (self.even - lines[:, None, None] * points.places).var(2)
            asked = [
                (self.together[cell] * shares[cell] * (here - self.even[:, cell].mean(1))) ** 2 / 2
                for cell, here in self.asked.items()
                if self.together[cell] < 1
            ]
            tilted = self._slopes() ** 2 @ (shares**2 * self._off_centre(shares))
            return np.sqrt(spread @ (likely * shares**2) + spread @ shares / rows + tilted + sum(asked, np.zeros(1)))
        return self._beside_positions(self.by_cell(CERTAIN), likely, shares, rows)

    def _slopes(self) -> Floats:
        """Slopes of the functions in each cell, for a cell's width: entry [function, cell]."""
        place = self.points.positions - self.points.positions.mean(1, keepdims=True)
        slopes = np.einsum("kci,ci->kc", self.even, place) / np.maximum((place**2).sum(1), 1e-300)
        return np.where(self.points.positions.any(1), slopes, 0.0)

    def _off_centre(self, shares: Floats) -> Floats:
        """Variances of mean positions in the cells, in squared widths. A density that goes on as it does between the
        neighbouring cells moves the mean by a twelfth of its relative change; no cell's mean is off by more than usual.
        """
        widths = np.diff(self.points.cells.first_levels)
        inner = slice(1, len(widths) - 1)
        density = shares[inner] / np.maximum(widths[inner], 1)
        change = np.abs(np.gradient(density)) if len(density) > 1 else np.full(len(density), np.inf)
        moved = np.zeros(len(shares))
        moved[inner] = np.where(density > 0, change / np.maximum(density, 1e-300) / 12, 0.0) ** 2
        return np.minimum(moved, POSITION_VARIANCE)

    def _beside_positions(self, values: Floats, likely: Floats, shares: Floats, rows: float) -> Floats:
        """Mean positions are known, and so are lines: a step is at least a quarter off any line, so what is left of a
        function after its line counts four times.
        """
        centred = values - values.mean(2, keepdims=True)
        place = self.points.positions - self.points.positions.mean(1, keepdims=True)
        along = np.einsum("kci,ci->kc", centred, place) ** 2 / np.maximum((place**2).sum(1), 1e-300)
        square = (centred**2).sum(2)
        left = np.clip(4 * (square - along), 0.0, square) / self.points.inside
        return np.sqrt(left @ (likely * shares**2) + left @ shares / rows)


def levels_to_try(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Levels that a quantile may fall on, rising: the last of each cell and a few before it; and whether the level is
    the only one of its cell, so that a distribution jumps there.
    """
    first, last = cells.first_levels[:-1], cells.first_levels[1:] - 1
    inner = first[:, None] + ((last - first)[:, None] * np.arange(1, _INNER) // _INNER)
    levels = np.unique(np.concatenate([inner.ravel(), last]))
    levels = levels[levels >= 0]
    jumps = np.isin(levels, last[last == first])
    return levels, jumps


def codes_in_cells(cells: Cells, places: NDArray[np.int64], steps: Floats) -> Codes:
    """Codes at relative places (0 to 1) among the levels of each given cell."""
    inside = np.minimum(places, cells.missing - 1)
    first = cells.first_levels[inside]
    width = cells.first_levels[inside + 1] - first
    levels = first + np.minimum((width * steps).astype(np.int64), np.maximum(width - 1, 0))
    return cells.column.codes_of(np.where(places == cells.missing, -1, levels))
