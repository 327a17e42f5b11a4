"""Missing cells and values that many records share: sums hardly separate them from values beside them.

A missing number has the features of some number between its bounds (of the lower bound in Fourier sums, of the middle
in hashed counters), and a value at a bound those of values close to it. If records are there, some or all of them may
be missing cells, or sit on the bound; those around a number that a question names may all have that number. Where a
smooth density explains the sums, a regression takes none of them to be. The change of an answer, if they were, is part
of its error in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.levels import levels_at
from dpsketch.learn.cell_places import as_round
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import ALIKE, Frame
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Integer, Number
from dpsketch.schema.schema import Schema

_CHOSEN = Tuned(
    "california_housing and Beta(2,8), with missing cells and values at bounds; airfoil", by=BY_HAND, decision=58
)
BESIDE: Annotated[float, _CHOSEN] = 1 / 8  # of the bounds: places that sums may not tell from a single value
PART: Annotated[float, _CHOSEN] = 0.7  # of a peak that may be single values, as a standard error
ASKED = 4  # coordinates of numbers that a question names
MOST_POINTS = 256  # of a peak: time
FEW_VALUES = 128  # of a column, up to which a question may be about one of them
APART: Annotated[float, Tuned("no table: a tenth is clearly the same", by=BY_HAND, decision=58)] = (
    0.1  # of the usual squared distance of features, from which on they are different
)


@dataclass(frozen=True)
class Peak:
    """Some points of a column whose records may have another code instead, and the share of such records that there may
    be.
    """

    column: str
    code: int
    points: NDArray[np.int64]
    share: float

    def moved(self, schema: Schema, frame: Frame, columns: Sequence[str]) -> Frame:
        """The points with the other code."""
        codes = {name: frame.codes(name)[self.points] for name in columns}
        codes[self.column] = np.full(len(self.points), self.code, np.int16)
        return Frame(schema, codes)

    def change(self, changes: Floats) -> Floats:
        """The change of each function's mean, relative to the share, from its `changes` at the points. Missing cells
        may all be in the group that a question is about, hence the root mean square of their changes.
        """
        mean = changes.mean(axis=1)
        if self.code != MISSING:
            return np.asarray(mean)
        return np.asarray(np.copysign(np.sqrt(np.square(changes).mean(axis=1)), mean))


def peaks_of(
    cells: Cells, shares: Floats, bins: NDArray[np.int64], missing_like: int | None, uneven: float
) -> Iterator[Peak]:
    """The peaks of a column with these shares of its cells among the points, whose cells are `bins`.

    Any record close to a bound may sit on it. If the density is `uneven` by less than one relative to an even one, at
    most that part of them do, but no fewer than exceed the records beside them. Any record close to `missing_like`, the
    cell with the features of a missing cell, may be a missing cell, and the reverse, however even the density is.
    """
    places = np.arange(cells.missing) / max(cells.missing - 1, 1)
    inside = shares[: cells.missing]

    def peak(code: int, there: NDArray[np.bool_], share: float) -> Iterator[Peak]:
        chosen = np.flatnonzero(np.append(there, False)[bins])
        if len(chosen):
            yield Peak(cells.column.name, code, _few(chosen), PART * share)

    if cells.column.numeric:
        for code, distance in ((LOWEST, places), (HIGHEST, 1 - places)):
            there, beside = distance <= BESIDE, (distance > BESIDE) & (distance <= 2 * BESIDE)
            every = float(inside[there].sum())
            yield from peak(code, there, max(every - float(inside[beside].sum()), every * min(1.0, uneven)))
    if missing_like is not None:
        there = np.abs(places - places[missing_like]) <= BESIDE
        yield from peak(MISSING, there, float(inside[there].sum() + shares[cells.missing]))


def peaks_asked_about(
    schema: Schema, frame: Frame, factors: Sequence[Factor], rows: Floats, uneven: float
) -> Iterator[tuple[Peak, NDArray[np.bool_]]]:
    """The records around numbers that a question names and that many records may share, as round numbers are, and the
    functions that they matter to: those of the product of `factors`, whose values at the points are `rows`.
    """
    for factor in factors:
        for column in map(schema.column, factor.columns):
            if not isinstance(column, Number | Integer):
                continue
            here = frame.codes(column.name).astype(np.int64)
            numbers = np.array([each for each in factor.asked if column.lower < each < column.upper])
            numbers = numbers[as_round(column, numbers) <= ALIKE] if len(numbers) else numbers
            named = np.unique(column.codes_of(levels_at(column, numbers))).tolist() if len(numbers) else []
            alone = {code: each for code, each in _values_alone(here, rows) if code not in named}
            for code, functions in ({int(code): np.ones(len(rows), bool) for code in named} | alone).items():
                near = np.abs(here - code) <= BESIDE * (HIGHEST - LOWEST)
                chosen = np.flatnonzero(near & (here != MISSING))
                if len(chosen):
                    share = PART * len(chosen) / len(here) * min(1.0, uneven)
                    yield Peak(column.name, code, _few(chosen), share), functions


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


def missing_like(cells: Cells, features: Callable[[Codes], Any], points: int) -> int | None:
    """The cell whose features are those of a missing cell; none if all differ. `features` are those of a number of
    `points` whose codes in the column are given.
    """

    def at(code: int) -> Any:
        return features(np.full(points, code, np.int16))

    own = at(MISSING)
    distances = np.array([float((abs(at(int(code)) - own) ** 2).sum()) for code in cells.firsts[: cells.missing]])
    closest = int(distances.argmin())
    return closest if distances[closest] <= APART * float(np.median(distances)) else None


def _few(points: NDArray[np.int64]) -> NDArray[np.int64]:
    return points[:: -(-len(points) // MOST_POINTS)]
