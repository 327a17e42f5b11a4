"""Points in the space of records, as codes, and their values in the user's units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import POSITION_VARIANCE
from dpsketch.denoise.heaping import CERTAIN, Lumps
from dpsketch.encoding.frames import read_codes
from dpsketch.learn.cell_places import (
    PARTS,
    as_round,
    cells_at,
    codes_in_cells,
    continuous,
    levels_in_cells,
    values_between,
)
from dpsketch.maps.tables.cells import POSITION_GRID, Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.columns import LOWEST, SPAN, Category, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

COLUMN_POINTS = 1 << 14
# Times by which a cell's records a level exceed those of the cells beside it where its peak begins to be unknown.
STEEP: Annotated[float, Tuned("no table: a density falling by e² a cell is a peak", by=BY_HAND)] = 4.0
# Numbers of one level among which a question may still name the one that many records share.
ALIKE: Annotated[float, Tuned("no table: one digit more than levels resolve", by=BY_HAND, decision=32)] = 10
NORMAL_95 = 1.96  # standard errors in half of an interval: a bound on an error is one
MOST_MOVED = 1 / 12  # variance of mean positions that may be anywhere in a cell, in squared widths
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

    A cell of one level needs one point; 60 divides evenly into the small numbers of levels of an integer's cells. A
    small table has more points, so that they find each value of an integer that questions may name.
    """
    shape = [cells.count for cells in columns]
    count = int(np.prod(shape))
    single = all(cells.column.levels + 1 == cells.count for cells in columns)
    inside = 1 if single else max(1, min(60 * max(1, COLUMN_POINTS // (60 * count)), most // count))
    grid = np.indices(shape).reshape(len(shape), count)
    steps = (np.arange(inside) + 0.5) / inside
    codes, values = {}, {}
    for way, cells in enumerate(columns):
        shift = steps if way == 0 else (np.arange(inside) * _GOLDEN[(way - 1) % len(_GOLDEN)] + 0.5) % 1.0
        name = cells.column.name
        codes[name] = codes_in_cells(cells, np.repeat(grid[way], inside), np.tile(shift, count))
        values[name] = cells.values_of(codes[name])
    return Frame(schema, codes, values), inside


class ColumnPoints:
    """Points of one column: `inside` of them spread evenly over each of its cells, cell after cell; over their levels
    where each is a value, and between these where a level stands for all values around it. `parents` are the counted
    cells that cells are parts of, if they are.
    """

    def __init__(self, schema: Schema, cells: Cells, parents: NDArray[np.int64] | None = None) -> None:
        self.cells, self._schema = cells, schema
        self.parents = np.arange(cells.count) if parents is None else parents
        self.inside = max(1, COLUMN_POINTS // cells.count) if cells.binned else 1
        if continuous(cells):
            self.inside = max(1, self.inside // PARTS) * PARTS
        places = np.repeat(np.arange(cells.count), self.inside)
        steps = np.tile((np.arange(self.inside) + 0.5) / self.inside, cells.count)
        self.frame = self._frame(places, steps)
        codes = self.frame.codes(cells.column.name)
        on_levels = codes.astype(np.float64) - LOWEST
        positions = cells.positions(codes) / POSITION_GRID
        if continuous(cells):
            on_levels = levels_in_cells(cells, places, steps)
            positions = np.where((places >= 1) & (places <= cells.bins), steps - 0.5, 0.0)
        self.places: Floats = (on_levels / SPAN).reshape(cells.count, self.inside)
        self.positions: Floats = positions.reshape(cells.count, self.inside)

    def _frame(self, places: NDArray[np.int64], steps: Floats) -> Frame:
        """Points at relative places (0 to 1) in the given cells."""
        name, codes = self.cells.column.name, codes_in_cells(self.cells, places, steps)
        if not continuous(self.cells):
            return Frame(self._schema, {name: codes})
        values = np.where(
            places == self.cells.missing,
            np.nan,
            values_between(self.cells.column, levels_in_cells(self.cells, places, steps)),
        )
        return Frame(self._schema, {name: codes}, {name: values})

    def by_cell(self, values: Floats) -> Floats:
        """Values on the points as [function, cell, place in the cell]."""
        return values.reshape(len(values), self.cells.count, self.inside)

    def _cells_asked(self, asked: Sequence[float]) -> tuple[NDArray[np.int64], Floats]:
        """The cells between the bounds that hold numbers asked about, and these numbers: of columns whose levels are
        finer than the values that people write, not of integers, each of which has a level of its own.
        """
        column = self.cells.column
        if (
            not asked
            or self.inside == 1
            or column.levels <= SPAN
            or not isinstance(column, Number | Integer | Datetime)
        ):
            return np.zeros(0, np.int64), np.zeros(0)
        numbers = np.array(asked)
        cells = cells_at(self.cells, column, numbers)
        inside = (cells >= 1) & (cells <= self.cells.bins)
        return cells[inside], numbers[inside]

    def at_asked(self, at: Callable[[Frame], Floats], asked: Sequence[float]) -> dict[int, Floats]:
        """Mean values of functions at the numbers that are asked about, for each cell that has such."""
        cells, numbers = self._cells_asked(asked)
        if not len(cells):
            return {}
        codes = codes_in_cells(self.cells, cells, np.full(len(cells), 0.5))
        name = self.cells.column.name
        values = at(Frame(self._schema, {name: codes}, {name: numbers}))
        return {int(cell): values[:, cells == cell].mean(1) for cell in np.unique(cells)}

    def evenly(self, at: Callable[[Frame], Floats], asked: Sequence[float]) -> Floats:
        """Values of functions as [function, cell, place in the cell]. In cells with numbers that are asked about, where
        functions jump, each is a mean over many places.
        """
        values = self.by_cell(at(self.frame))
        cells = np.unique(self._cells_asked(asked)[0]) if continuous(self.cells) else np.zeros(0, np.int64)
        times = COLUMN_POINTS // (self.inside * max(len(cells), 1))
        if not len(cells) or times < 2:
            return values
        steps = (np.arange(times * self.inside) + 0.5) / (times * self.inside)
        finer = at(self._frame(np.repeat(cells, len(steps)), np.tile(steps, len(cells))))
        values[:, cells] = finer.reshape(len(values), len(cells), self.inside, times).mean(3)
        return values

    def values_of(
        self,
        at: Callable[[Frame], Floats],
        asked: Sequence[float],
        lumps: Lumps,
        shares: Floats,
        rows: float,
        repeated: bool = False,
    ) -> CellValues:
        """The values of functions of this column in cells that hold these shares of `rows` records."""
        together = lumps.together_in(shares, rows)
        unsure = together**2 / 2
        if continuous(self.cells):
            widths = np.append(np.diff(self.cells.first_levels), 0)
            same = _above_neighbours(shares, widths) ** 2
            together = np.where(widths == 1, same, together)
            unsure = np.where(widths == 1, same * (1 - same) + self._spread_out(asked) * same**2, unsure)
        return CellValues(self, self.evenly(at, asked), self.at_asked(at, asked), together, unsure, lumps, repeated)

    def _spread_out(self, asked: Sequence[float]) -> Floats:
        """How likely the records of a heavy level are spread over it rather than at the number asked about: up to ½
        where far more than ALIKE numbers of the level are `as_round` as that one.
        """
        likely, column = np.zeros(self.cells.count), self.cells.column
        cells, numbers = self._cells_asked(asked)
        if len(cells) and isinstance(column, Number | Integer | Datetime):
            likely[cells] = (1 - np.minimum(ALIKE / as_round(column, numbers), 1)) / 2
        return likely

    def off_centre(self, shares: Floats) -> Floats:
        """Variances of mean positions in the cells, in squared widths. A density that changes as it does to one of the
        neighbouring cells moves the mean by a twelfth of its relative change, or to anywhere in the cell.
        """
        widths = np.diff(self.cells.first_levels)
        moved = np.zeros(len(shares))
        if len(widths) < 4:
            moved[1 : len(widths) - 1] = POSITION_VARIANCE
            return moved
        inner = np.maximum(widths[1:-1], 1)
        density = shares[1 : len(widths) - 1] / inner
        step = np.abs(np.diff(density)) / (inner[1:] + inner[:-1]) * 2
        change = inner * np.maximum(np.append(step, 0.0), np.append(0.0, step))
        moved[1 : len(widths) - 1] = np.divide(change, 12 * density, out=np.zeros(len(inner)), where=density > 0) ** 2
        return np.minimum(moved, MOST_MOVED)

    def counted(self, values: Floats) -> Floats:
        """Sums over the parts of each counted cell, along the last axis; a cell without levels has none."""
        below = np.concatenate([np.zeros_like(values[..., :1]), np.cumsum(values, axis=-1)], axis=-1)
        return np.diff(below[..., np.searchsorted(self.parents, np.arange(self.parents[-1] + 2))], axis=-1)

    def peaked(self, shares: Floats) -> Floats:
        """How far each counted cell rises above the cells beside it: 1 where these are empty, 0 where one of them has
        at least 1/STEEP of its density; heavy single values beside it do not count. Where in such a cell records are is
        not known. Bounds are often set far beyond all values: 95 % of the records between 0 and 20,000 may be below 30.
        """
        widths, held = self.counted(np.append(np.diff(self.cells.first_levels), 1)), self.counted(shares)
        density = held[1:-2] / np.maximum(widths[1:-2], 1)
        heavy = np.where(widths[1:-2] == 1, density, 0.0)
        sides = ((np.append(each[1:], 0.0), np.append(0.0, each[:-1])) for each in (density, heavy))
        beside = np.maximum(*(np.where(alone > STEEP * density, 0.0, own) for own, alone in zip(*sides, strict=True)))
        ratio = np.divide(beside, density, out=np.ones(len(density)), where=density > 0)
        peaked = np.zeros(len(held))
        peaked[1:-2] = np.where(widths[1:-2] > 1, np.clip(1 - STEEP * ratio, 0.0, 1.0), 0.0)
        return peaked

    @cached_property
    def _anywhere(self) -> Floats:
        """Probabilities of the points of a counted cell, were all its records at one of them: half of it even, half of
        it growing towards the ends, as for values of unknown size near a bound.
        """
        first = np.searchsorted(self.parents, self.parents)
        rank, count = np.arange(self.cells.count) - first, np.bincount(self.parents)[self.parents]
        place = (rank[:, None] + (np.arange(self.inside) + 0.5) / self.inside) / count[:, None]
        ends = 1 / place + 1 / (1 - place)
        total = np.bincount(self.parents, ends.sum(1))[self.parents]
        return 0.5 / (count[:, None] * self.inside) + 0.5 * ends / total[:, None]

    def gathered(self, even: Floats, lines: Floats, shares: Floats) -> Floats:
        """Variances of functions, given on the points, less their lines, if the records of each peaked cell are at one
        place.
        """
        peaked = self.peaked(shares)
        inside = np.flatnonzero(peaked[self.parents] > 0)
        if not len(inside):
            return np.zeros(len(even))
        values = even[:, inside] - lines[:, None, None] * self.places[inside]
        own, held = self.parents[inside], self.counted(shares)
        member = (own == np.arange(len(peaked))[:, None]).astype(np.float64)
        means = (values.mean(2) * shares[inside]) @ member.T / np.where(held > 0, held, 1.0)
        away = ((values - means[:, own, None]) ** 2 * self._anywhere[inside]).sum(2) @ member.T
        return np.asarray(away @ (held**2 * peaked))

    @cached_property
    def slope_of_places(self) -> Floats:
        """What a line of slope one rises by across each cell."""
        return np.asarray(self.slopes(self.places[None])[0])

    def slopes(self, values: Floats) -> Floats:
        """Slopes of functions, given on the points, in each cell, for a cell's width: entry [function, cell]."""
        place = self.positions - self.positions.mean(1, keepdims=True)
        return np.einsum("kci,ci->kc", values, place) / np.maximum((place**2).sum(1), 1e-300)


@dataclass(frozen=True)
class CellValues:
    """Values of functions on points of a column's cells, as [function, cell, place in the cell]: `even` where records
    are spread evenly over a cell, `asked` at the numbers that the question compares the column with.

    A part `together` of the records of a cell has the number that is asked about, with a variance of `unsure`. Where
    records sit on few values of a cell, such a number is one of these rather than a place between two: conditions that
    hold for the number itself hold for the records that have it.

    Where functions follow the calendar (`repeated`), all cells may lean the same way: the records of every day may be
    in its mornings.
    """

    points: ColumnPoints
    even: Floats
    asked: Mapping[int, Floats]
    together: Floats
    unsure: Floats
    lumps: Lumps
    repeated: bool = False

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
        """The error of the functions' expectations by what cells hide, as a standard deviation: what `scattered` says,
        and how far the records of a cell are off its centre. The sum of the column is known: `lines` is each function's
        slope in it, which hides nothing.
        """
        if self.points.inside == 1 or self.lumps.positions_known:
            return self.scattered(shares, rows, lines)
        tilted = self._slopes(lines) ** 2 @ (shares**2 * self.points.off_centre(shares))
        return np.sqrt(self.scattered(shares, rows, lines) ** 2 + tilted)

    def scattered(self, shares: Floats, rows: float, lines: Floats) -> Floats:
        """The same but for how far off its centre a cell is: where in its cell each of `rows` records is by chance,
        alone or with those that share its value, where in a cell above all others they are, and how many have the
        number asked about.
        """
        if self.points.inside == 1:
            return np.zeros(len(self.even))
        if self.repeated:
            return np.ptp(self.even, axis=2) @ np.maximum(shares, 0.0) / 2 / NORMAL_95
        if self.lumps.positions_known:
            return self._beside_positions(self.by_cell(CERTAIN), self.lumps.likely_in(shares, rows), shares, rows)
        asked = [
            self.unsure[cell] * (shares[cell] * (here - self.even[:, cell].mean(1))) ** 2
            for cell, here in self.asked.items()
        ]
        peaked = self.points.gathered(self.even, lines, shares)
        return np.sqrt(self._by_chance(lines, shares, rows) + peaked + sum(asked, np.zeros(1)))

    def _by_chance(self, lines: Floats, shares: Floats, rows: float) -> Floats:
        """Variances of functions less their lines by where in its counted cell each record is, with those that
        share its value. The part of a cell's records that have the number asked about is not among them.
        """
        around, counted = shares.copy(), self.points.counted
        around[list(self.asked)] *= 1 - self.together[list(self.asked)]
        places, inside, line = self.points.places, self.points.inside, lines[:, None]
        first = self.even.mean(2) - line * places.mean(1)
        second = np.einsum("kci,kci->kc", self.even, self.even) / inside
        if lines.any():
            second += line**2 * (places**2).mean(1) - 2 * line * np.einsum("kci,ci->kc", self.even, places) / inside
        spread = counted(around) * counted(second * around) - counted(first * around) ** 2
        return np.maximum(spread, 0.0) @ self.lumps.likely_in(counted(shares), rows)

    def _slopes(self, lines: Floats) -> Floats:
        """Slopes of the functions less their lines in each cell, for a cell's width: entry [function, cell]."""
        return np.asarray(self.points.slopes(self.even) - lines[:, None] * self.points.slope_of_places)

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


def _above_neighbours(shares: Floats, widths: NDArray[np.int64]) -> Floats:
    """How far the number of records a level of each cell is above that of the cells beside it, as a part of it. A value
    that many records share is not like its neighbours.

    If a part u of the records of a level have one value and the others are spread over it, a number asked about, as
    that of any record of the level, is this value with probability u. In all, u² of the records then have that number,
    and as a share of them this has the variance u²·(1 − u²).
    """
    density = np.maximum(shares, 0.0) / np.maximum(widths, 1)
    beside = density.copy()
    inner = density[1:-2]  # neither bounds nor missing
    if len(inner) > 1:
        left, right = np.append(inner[1], inner[:-1]), np.append(inner[1:], inner[-2])
        beside[1:-2] = (left + right) / 2
    return np.maximum(density - beside, 0.0) / np.maximum(density, 1e-300)
