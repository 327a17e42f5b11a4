"""How a column is cut into cells: pure integer functions of one code, shared by maps and estimators."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Column

# One unit a code: a code's distance from the middle of the bounds is a whole number of units, and 2^63 units still
# hold 10^14 records.
GRID = 1 << 16
POSITION_GRID = GRID // 4  # units of a whole bin's width: positions have a quarter of a count's weight
MOST_BINS = 1 << 15  # every bin has a code
INTERIOR = HIGHEST - LOWEST - 1  # codes between the bounds
# Parts of the weight of tapered bins that are spread over levels, and over octaves of the distance from a bound. They
# are part of what `tapered` means in a file: other numbers need another parameter.
_TRIED = Tuned("payroll, fare, adult, kdd with bounds 1, 10 and 100 times as wide", by=BY_HAND, decision=34)
EVEN: Annotated[int, _TRIED] = 7
OCTAVES: Annotated[int, _TRIED] = 3
FEWEST_OCTAVE = 2  # levels nearer to a bound than 2^2 steps weigh as the next ones: there are only three
SCATTER = 40503  # GRID over the golden ratio: its multiples, modulo GRID, are far apart
EVERY_CODE = np.arange(MISSING, HIGHEST + 1)


@dataclass(frozen=True)
class Cells:
    """Cells of one column. The last one holds missing values.

    Categories, booleans, and integers with at most `bins` + 2 levels, have one cell a level. Other numbers have a cell
    for the lower bound by itself (clamped values pile up on the bounds), `bins` near-equal bins of the codes between
    the bounds, and a cell for the upper bound.

    Guarantee: `cells` and `positions` depend on one code alone, and |positions| ≤ POSITION_GRID / 2.
    Source: RESEARCH "Statistics and models from one general sketch"; docs/proofs/marginals.md.
    """

    column: Column
    bins: int

    chosen: ClassVar[bool] = False  # by a release, where records are
    uneven: ClassVar[bool] = False  # whether edges of one's own divide the column

    @property
    def ordered(self) -> bool:
        """Whether codes are numbers, so that their sum means something."""
        return self.column.numeric

    @property
    def binned(self) -> bool:
        """Whether cells 1 .. bins are bins of several codes, with a position in each."""
        return self.column.numeric and self.column.levels > self.bins + 2

    @property
    def count(self) -> int:
        """Number of cells, the missing one included."""
        return (self.bins + 2 if self.binned else self.column.levels) + 1

    @property
    def missing(self) -> int:
        """The cell of missing values."""
        return self.count - 1

    @property
    def cut(self) -> Any:
        """Columns with the same cut have the same cells and positions for every code."""
        return (self.bins, 0) if self.binned else (0, self.column.levels)

    def values_of(self, codes: Codes) -> Floats:
        """Values of codes in the user's units, each inside its cell; missing is NaN."""
        return self.column.values_of(codes)

    def cells(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """The cell of every code."""
        wide = np.asarray(codes).astype(np.int64)
        if not self.binned:
            levels = self.column.levels_of(wide)
            return np.where(levels < 0, self.missing, levels)
        found = 1 + (wide - LOWEST - 1) * self.bins // INTERIOR  # rounded down: 0 for LOWEST, bins + 1 for HIGHEST
        return np.where(wide == MISSING, self.missing, found)

    def positions(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Place of every code in its bin, seen from the middle, in units of 1/POSITION_GRID of the bin's width, rounded
        towards zero; 0 outside of bins.

        Of w codes in a bin, number i has the place (i + ½)/w: the bin's ends lie half a step outside of its codes.
        """
        wide = np.asarray(codes).astype(np.int64)
        if not self.binned:
            return np.zeros_like(wide)
        cells = self.cells(wide)
        inside = (cells >= 1) & (cells <= self.bins)
        bins = np.where(inside, cells, 1)
        first, width = self.firsts[bins], self.firsts[bins + 1] - self.firsts[bins]
        from_middle = np.where(inside, 2 * (wide - first) + 1 - width, 0)  # in half steps
        position: NDArray[np.int64] = np.sign(from_middle) * (np.abs(from_middle) * (POSITION_GRID // 2) // width)
        return position

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """First code of each cell but the missing one, then HIGHEST + 1."""
        if self.binned:
            inner = -(-np.arange(self.bins, dtype=np.int64) * INTERIOR // self.bins)
            return np.concatenate([[LOWEST], LOWEST + 1 + inner, [HIGHEST, HIGHEST + 1]])
        levels = self.column.levels_of(EVERY_CODE[1:])
        return np.append(LOWEST + np.searchsorted(levels, np.arange(self.column.levels)), HIGHEST + 1)

    @cached_property
    def single(self) -> NDArray[np.bool_]:
        """Which cells, the missing one included, are one value by itself: those of a single code."""
        return np.append(np.diff(self.firsts) == 1, True) if self.binned else np.ones(self.count, bool)

    @property
    def edges(self) -> Floats:
        """Edges of each cell but the missing one in the user's units: the bounds and, between cells, the middle of the
        neighbouring values. Cell k lies between edges k and k + 1.
        """
        first = self.first_levels
        below, above = self._value(first[1:] - 1), self._value(first[:-1])
        return np.concatenate([above[:1], (below[:-1] + above[1:]) / 2, below[-1:]])

    @property
    def centres(self) -> Floats:
        """The middle value of each cell in the user's units, in a bin that at position 0; NaN for missing."""
        first, last = self.first_levels[:-1], self.first_levels[1:] - 1
        return np.append((self._value((first + last) // 2) + self._value((first + last + 1) // 2)) / 2, np.nan)

    @cached_property
    def first_levels(self) -> NDArray[np.int64]:
        """First level with a code in each cell, then the number of levels."""
        return np.searchsorted(self._level_codes, self.firsts)

    @cached_property
    def _level_codes(self) -> Codes:
        return self.column.codes_of(np.arange(self.column.levels))

    def _value(self, levels: NDArray[np.int64]) -> Floats:
        return self.column.values_of(self.column.codes_of(levels))


@dataclass(frozen=True)
class HistogramCells(Cells):
    """The same cells, but for bins of near-equal numbers of levels instead of codes: what `Histogram` counts in.

    The edges of the two differ by a level here and there. Sums depend on them, so each map keeps its own.
    """

    @property
    def cut(self) -> Any:
        return (self.bins if self.binned else 0, self.column.levels)

    def cells(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        levels = self.column.levels_of(codes)
        own = np.searchsorted(self.first_levels, levels, side="right") - 1
        return np.where(levels < 0, self.missing, own)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        return LOWEST + np.searchsorted(self.column.levels_of(EVERY_CODE[1:]), self.first_levels)

    @cached_property
    def first_levels(self) -> NDArray[np.int64]:
        levels = self.column.levels
        if not self.binned:
            return np.arange(levels + 1)
        inner = 1 + np.arange(self.bins, dtype=np.int64) * (levels - 2) // self.bins
        return np.concatenate([[0], inner, [levels - 1, levels]])


@dataclass(frozen=True)
class TaperedCells(HistogramCells):
    """As many cells, whose bins become narrower towards both bounds, down to a few levels: where bounds were declared
    far too wide, nearly all records are close to one of them. See `tapered_bins`.

    Guarantee: `cells` depends on one code alone. Source: docs/proofs/pairs.md.
    """

    @property
    def cut(self) -> Any:
        return (self.bins, self.column.levels, "tapered") if self.binned else super().cut

    @cached_property
    def first_levels(self) -> NDArray[np.int64]:
        levels = self.column.levels
        if not self.binned:
            return np.arange(levels + 1)
        return np.concatenate([[0], 1 + np.array(tapered_bins(levels - 2, self.bins)), [levels - 1, levels]])


@lru_cache(64)
def tapered_bins(length: int, bins: int) -> tuple[int, ...]:
    """The first of each of `bins` bins of levels 0 .. length - 1.

    Half as many equal bins are halved, and their halves again, the heaviest first. EVEN parts of the weight are spread
    evenly over the levels, and OCTAVES parts over the octaves of the distance from the nearer end: all levels at 2^k to
    2^(k+1) - 1 steps from it weigh the same for every k. So each edge is one of equal bins, or divides those by a power
    of two, as the edges of adaptive marginals do. Of bins that weigh the same, those halved are scattered.
    """
    steps = np.arange(1, length + 1)
    octaves = np.frexp(np.minimum(steps, length + 1 - steps).astype(np.float64))[1].astype(np.int64) - 1
    by_octave = GRID >> np.maximum(octaves, FEWEST_OCTAVE)
    below = np.append(0, np.cumsum(EVEN * by_octave.sum() + OCTAVES * length * by_octave)).tolist()

    def entry(number: int, of: int) -> tuple[int, int, int, int]:
        first, end = -(-number * length // of), -(-(number + 1) * length // of)
        weight = below[end] - below[first] if end - first > 1 else 0
        return -weight, number * SCATTER % GRID, number, of

    base = max(bins // 2, 1)
    found = [entry(number, base) for number in range(base)]
    heapify(found)
    for _ in range(bins - base):
        _, _, number, of = heappop(found)
        for half in (2 * number, 2 * number + 1):
            heappush(found, entry(half, 2 * of))
    return tuple(sorted(-(-number * length // of) for _, _, number, of in found))


@dataclass(frozen=True)
class RunCells(HistogramCells):
    """Cells that are runs of levels between the bounds, given by the first level of each; the bounds and missing have
    cells of their own. `alone` are the levels that have a cell to themselves because many records share them.
    """

    starts: tuple[int, ...]
    alone: tuple[int, ...] = ()

    chosen: ClassVar[bool] = True

    @property
    def binned(self) -> bool:
        return True

    @property
    def cut(self) -> Any:
        return self.column.levels, self.starts

    @cached_property
    def first_levels(self) -> NDArray[np.int64]:
        levels = self.column.levels
        return np.array([0, *self.starts, levels - 1, levels], np.int64)

    @cached_property
    def single(self) -> NDArray[np.bool_]:
        """Those of a value that is not like its neighbours."""
        found = np.isin(np.append(self.first_levels[:-1], -1), self.alone)
        found[[0, -2, -1]] = True
        return found


def run_cells(column: Column, starts: NDArray[np.int64], alone: Sequence[int] = ()) -> RunCells:
    """Cells that begin at `starts` and at each level of `alone`, and that end after it."""
    singles = np.array(alone, np.int64)
    every = np.unique(np.concatenate([starts, singles, singles + 1]))
    inside = every[(every >= 1) & (every < column.levels - 1)]
    return RunCells(column, len(inside), tuple(inside.tolist()), tuple(sorted(int(level) for level in alone)))


def common_cells(one: Cells, two: Cells) -> Cells:
    """The cells in which neither `one` nor `two` cuts: theirs, if they cut alike."""
    if one.cut == two.cut:
        return one
    starts = np.union1d(one.first_levels[1:-2], two.first_levels[1:-2])
    alone = {level for each in (one, two) if isinstance(each, RunCells) for level in each.alone}
    return run_cells(one.column, starts, sorted(alone))


def cells_of(column: Column, bins: int, tapered: bool = False) -> Cells:
    """How `column` is cut, with `bins` bins between its bounds if it has more levels than that."""
    return TaperedCells(column, bins) if tapered else Cells(column, bins)


def level_cells(column: Column) -> Cells:
    """A cell for each level, and one for missing values."""
    return Cells(column, column.levels)


def distinct(keys: Sequence[Hashable]) -> tuple[list[int], NDArray[np.int64]]:
    """Where each different key stands first, and for every key which of them it is: columns share tables of codes."""
    firsts: dict[Hashable, int] = {}
    for place, key in enumerate(keys):
        firsts.setdefault(key, place)
    order = {key: number for number, key in enumerate(firsts)}
    return list(firsts.values()), np.array([order[key] for key in keys], np.int64)
