"""Missing cells and values that many records share: the sums of a map hardly separate them from values beside them.

A missing number has the features of some number between its bounds (of the lower bound in Fourier sums, of the middle
in hashed counters). The records close to it may all be missing cells, and those around a number that a question names
may all have that number. A regression takes none of them to be; the change of its answer, if all of them were, is a
part of the answer's error, such that a 95 % interval holds the answer in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.levels import levels_at
from dpsketch.learn.cell_places import as_round
from dpsketch.learn.estimators.block_moments import BlockMoments, MomentsAtPoints
from dpsketch.learn.factors import Factor, columns_of, product_at
from dpsketch.learn.points import ALIKE, Frame
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Column, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

_CHOSEN = Tuned("the chosen tables of benchmarks/m2m/single_tables.py", by=BY_HAND, decision=58)
# Distance from a single value, in parts of the bounds, up to which sums may not separate records from it: at least, and
# for each column that the sums depend on, if the value is not that of missing cells.
BESIDE: Annotated[float, _CHOSEN] = 1 / 8
BESIDE_EACH: Annotated[float, _CHOSEN] = 1 / 40
ANY_PART = 3**-0.5  # root mean square of a part that may be anything from none to all
ASKED = 4  # coordinates of numbers that a question names
COMPARED = 32  # points at which the features of missing cells are compared with those of numbers
SINGLE_VALUES = "missing cells and values that many records share"  # a cause of errors
MOST_POINTS = 256  # of a lump: time
FEW_VALUES = 128  # of a column, up to which a question may be about one of them
APART: Annotated[float, Tuned("no table: a tenth is clearly the same", by=BY_HAND, decision=58)] = (
    0.1  # of the usual squared distance of features, from which on they are different
)


@dataclass(frozen=True)
class Lump:
    """Points of a column whose records may all have another code instead, and the share of such records."""

    column: str
    code: int
    points: NDArray[np.int64]
    share: float
    value: float | None = None  # of the code, if that is not the value of a level

    def moved(self, schema: Schema, frame: Frame, columns: Sequence[str]) -> Frame:
        """The points with the other code."""
        codes = {name: frame.codes(name)[self.points] for name in columns}
        codes[self.column] = np.full(len(self.points), self.code, np.int16)
        values = {} if self.value is None else {self.column: np.full(len(self.points), self.value)}
        return Frame(schema, codes, values)

    def change(self, changes: Floats) -> Floats:
        """The change of each function's mean, from its `changes` at the points. Missing cells may all be in the group
        that a question is about, hence the root mean square of their changes; and means are divided by the share of
        those that are present, hence the odds.
        """
        mean = changes.mean(axis=1)
        if self.code != MISSING:
            return np.asarray(ANY_PART * self.share * mean)
        odds = self.share / max(1 - self.share, self.share)
        return np.asarray(ANY_PART * odds * np.copysign(np.sqrt(np.square(changes).mean(axis=1)), mean))


def unresolved(columns: int) -> float:
    """The part of a column's bounds on either side of a value that sums of so many columns may not separate from it."""
    return min(0.5, max(BESIDE, BESIDE_EACH * columns))


class SingleValues:
    """Errors by missing cells, and by numbers that questions name, in columns that have no marginal. `distributions`
    are the cells of these columns with their shares among the points, `bins` the cells that each point is in.
    """

    def __init__(
        self,
        schema: Schema,
        sums: BlockMoments,
        points: MomentsAtPoints,
        distributions: Mapping[str, tuple[Cells, Floats]],
        bins: Mapping[str, NDArray[np.int64]],
    ) -> None:
        self._schema, self._sums, self._at, self._columns = schema, sums, points, tuple(distributions)
        self._every = sums.block.columns
        self._beside = unresolved(len(self._every))
        few = {name: points.frame.codes(name)[:COMPARED] for name in self._every}
        found = []
        for name, (cells, shares) in distributions.items():
            if may_be_missing(schema.column(name)):

                def features(own: Codes, name: str = name) -> Any:
                    return sums.raw_features(few | {name: own})

                found.append(missing_lump(cells, shares, bins[name], features, COMPARED))
        self._missing = [lump for lump in found if lump is not None]

    @property
    def coordinates(self) -> int:
        """One for each column that may have missing cells, and some for numbers."""
        return len(self._missing) + ASKED

    def errors(self, factors: Sequence[Factor], rows: Floats, slopes: Floats) -> Floats:
        """The changes of functions, as standard errors: a matrix row a function of the product of `factors`, whose
        values at the points are `rows`, and whose regression on the sums has these slopes.
        """
        frame, names = self._at.frame, columns_of(factors)
        everything, found = np.ones(len(rows), bool), np.zeros((len(rows), self.coordinates))
        asked = lumps_asked_about(self._schema, frame, factors, rows, self._columns, self._beside)
        for index, (lump, mine) in enumerate([*((lump, everything) for lump in self._missing), *asked]):
            change = -slopes[mine] @ self._shift(lump)
            if lump.column in names:
                moved = product_at(factors, lump.moved(self._schema, frame, names))
                change = change + moved[mine] - rows[mine][:, lump.points]
            last = len(self._missing)
            place, own = index if index < last else last + (index - last) % ASKED, lump.change(change)
            found[mine, place] = np.copysign(np.hypot(found[mine, place], own), own)
        return found

    def _shift(self, lump: Lump) -> Floats:
        """The change of the features of a lump's points if they had its code: one column a point."""
        moved = lump.moved(self._schema, self._at.frame, self._every)
        features = self._sums.features_like(self._at, {name: moved.codes(name) for name in self._every})
        return np.asarray(features - self._at.features[:, lump.points])


def may_be_missing(column: Column) -> bool:
    """Whether cells of a column may be missing: the schema may give a value that takes their place."""
    return getattr(column, "missing", None) is None


def missing_lump(
    cells: Cells, shares: Floats, bins: NDArray[np.int64], features: Callable[[Codes], Any], points: int
) -> Lump | None:
    """The points, in the cells `bins`, that may be missing cells; none if the features of these are unlike those of any
    number or label. `features` are those of a number of `points` whose codes in the column are given.
    """

    def at(code: int) -> Any:
        return features(np.full(points, code, np.int16))

    own = at(MISSING)
    distances = np.array([float((abs(at(int(code)) - own) ** 2).sum()) for code in cells.firsts[: cells.missing]])
    like = int(distances.argmin())
    if distances[like] > APART * float(np.median(distances)):
        return None
    close = np.abs(np.arange(cells.count) - like) <= BESIDE * max(cells.missing - 1, 1)
    close[cells.missing] = False
    chosen = np.flatnonzero(close[bins])
    return Lump(cells.column.name, MISSING, _few(chosen), float(shares[close].sum())) if len(chosen) else None


def lumps_asked_about(
    schema: Schema, frame: Frame, factors: Sequence[Factor], rows: Floats, columns: Collection[str], beside: float
) -> Iterator[tuple[Lump, NDArray[np.bool_]]]:
    """The records around numbers that a question names and that many records may share, as bounds and round numbers
    are, and the functions to which they matter: those of the product of `factors`, whose values at the points are
    `rows`. Of these columns alone.
    """
    for name in columns_of(factors):
        column = schema.column(name)
        if name not in columns or not isinstance(column, Number | Integer | Datetime):
            continue
        here = frame.codes(name).astype(np.int64)
        named = _named(column, [each for factor in factors if name in factor.columns for each in factor.asked])
        alone = {code: each for code, each in _values_alone(here, rows) if code not in named}
        everything = np.ones(len(rows), bool)
        for code, functions in (dict.fromkeys(named, everything) | alone).items():
            chosen = np.flatnonzero((np.abs(here - code) <= beside * (HIGHEST - LOWEST)) & (here != MISSING))
            if len(chosen):
                yield Lump(name, code, _few(chosen), len(chosen) / len(here), named.get(code)), functions


def _named(column: Number | Integer | Datetime, asked: Sequence[float]) -> dict[int, float]:
    """Codes and values of the numbers asked about that many records may share."""
    low, high = column.bounds if isinstance(column, Datetime) else (float(column.lower), float(column.upper))
    numbers = np.array([each for each in asked if low <= each <= high])
    if not len(numbers):
        return {}
    shared = (as_round(column, numbers) <= ALIKE) | (numbers == low) | (numbers == high)
    codes = column.codes_of(levels_at(column, numbers))
    return {int(code): float(number) for code, number in zip(codes[shared], numbers[shared], strict=True)}


def _values_alone(codes: NDArray[np.int64], rows: Floats) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Values of a column of few values that functions are zero at and not beside, or the reverse; and the functions."""
    values, index = np.unique(codes, return_inverse=True)
    numbers = values != MISSING
    if not 2 < np.count_nonzero(numbers) <= FEW_VALUES:
        return
    zero = np.stack([np.bincount(index, row != 0, len(values)) == 0 for row in rows])[:, numbers]
    alone = (zero[:, 1:-1] != zero[:, :-2]) & (zero[:, 1:-1] != zero[:, 2:])
    for code, functions in zip(values[numbers][1:-1], alone.T, strict=True):
        if functions.any():
            yield int(code), functions


def _few(points: NDArray[np.int64]) -> NDArray[np.int64]:
    return points[:: -(-len(points) // MOST_POINTS)]
