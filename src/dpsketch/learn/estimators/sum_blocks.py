"""Sums of a part that depend on some columns together, and their features at given points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import QueryError
from dpsketch.maps.base import BoundMap, BoundTable
from dpsketch.maps.fourier.fourier import BoundFourier
from dpsketch.maps.fourier.one_bit import BoundOneBitFourier
from dpsketch.maps.grouped import BoundGrouped
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.maps.moments.quadratic import BoundQuadratic
from dpsketch.maps.moments.second_moments import BoundSecondMoments
from dpsketch.maps.subsampled import BoundSubsampled
from dpsketch.maps.tables.cells import GRID
from dpsketch.maps.tables.contrasts import BoundContrasts
from dpsketch.maps.tables.count import BoundCount
from dpsketch.maps.tables.grid import BoundGrid
from dpsketch.maps.tables.histogram import BoundHistogram
from dpsketch.maps.tables.marginals import BoundMarginals
from dpsketch.maps.tables.pairs import BoundPairs
from dpsketch.maps.tables.totals import BoundTotals
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import MISSING, IdSet
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart

MOST_FREQUENCIES = 2000
MOST_SUMS = 2 * MOST_FREQUENCIES  # of a map that gives every record as many numbers as it has sums
MOST_ROWS = 512  # of a table of counters; further rows are left out
MOST_ENTRIES = 1 << 24  # numbers other than zero at all points together
_DENSE = (BoundFourier, BoundOneBitFourier, BoundQuadratic, BoundSecondMoments)


@dataclass(frozen=True)
class Block:
    """Sums first .. last-1 of a part, or of each of its groups: those that depend on `columns` alone."""

    part: ReleasedPart
    columns: tuple[str, ...]
    first: int
    last: int

    @property
    def inner(self) -> BoundMap:
        """The map without its groups and masks."""
        bound = self.part.map
        bound = bound.inner if isinstance(bound, BoundGrouped) else bound
        return bound.inner if isinstance(bound, BoundSubsampled) else bound

    @property
    def counters(self) -> bool:
        """Whether the sums are a table of counters."""
        return isinstance(self.inner, BoundTable)

    @property
    def sparse(self) -> bool:
        """Whether a record has few features other than zero."""
        return self.part.map.groups > 1 or not isinstance(self.inner, _DENSE)

    @property
    def telling(self) -> bool:
        """Whether the features tell points apart: squares and products cannot tell a point from its mirror image, and
        sums have a single number.
        """
        return not self.single and not isinstance(self.inner, BoundQuadratic | BoundSecondMoments)

    @property
    def single(self) -> bool:
        """Whether there is nothing but the sum of a column."""
        return isinstance(self.inner, BoundTotals)

    @property
    def size(self) -> int:
        return self.part.map.groups * (self.last - self.first)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Of the sums in the part's."""
        each = self.part.map.size // self.part.map.groups
        return (np.arange(self.part.map.groups)[:, None] * each + np.arange(self.first, self.last)).ravel()

    @property
    def name(self) -> str:
        """What the regression uses, for a reader."""
        frequencies = self.size // 2
        if isinstance(self.inner, BoundFourier):
            return f"{frequencies} Fourier frequencies"
        if isinstance(self.inner, BoundOneBitFourier):
            return f"{frequencies} one-bit Fourier frequencies"
        return f"{self.size} sums of {self.part.map.description.name}"

    def check_size(self, points: int) -> None:
        """Refuse what would take too much memory or time."""
        if not isinstance(self.inner, _DENSE):
            if not self.counters and points * _entries(self.inner) > MOST_ENTRIES:
                raise QueryError(
                    f"the regression takes at most {MOST_ENTRIES // points} tables of one part", "release fewer tables"
                )
            return
        if self.size > MOST_SUMS:
            what = "frequencies" if isinstance(self.inner, BoundFourier | BoundOneBitFourier) else "sums"
            most, has = (n // 2 if what == "frequencies" else n for n in (MOST_SUMS, self.size))
            raise QueryError(
                f"the regression takes at most {most} {what}, this release has {has}",
                f"release fewer {what}, or a table of the columns: Part(Histogram(ways=2, columns=…), share=…)",
            )

    def features(self, records: Records) -> Any:
        """One row a record, one column a sum of the block: a sparse matrix if the block is."""
        if not self.sparse:
            return self.part.map.features(records)
        every = _sparse(self.part.map, records, self.first)
        return every if self.size == self.part.map.size else every[:, self.places]


def blocks(schema: Schema, part: ReleasedPart) -> Iterator[Block]:
    """Of a part, those whose columns have points: no sets of ids. A count says nothing of columns."""
    bound = part.map
    inner = bound.inner if isinstance(bound, BoundGrouped) else bound
    group = (bound.column.name,) if isinstance(bound, BoundGrouped) else ()
    for columns, first, last in _inner_blocks(inner):
        every = tuple(dict.fromkeys((*columns, *group)))
        if every and not any(isinstance(schema.column(name), IdSet) for name in every):
            yield Block(part, every, first, last)


def _inner_blocks(inner: BoundMap) -> Iterator[tuple[tuple[str, ...], int, int]]:
    match inner:
        case BoundMarginals():
            for place, name in enumerate(inner.columns):
                yield (name,), inner.table(place).start, inner.centred(place).stop
        case BoundPairs():
            for place, pair in enumerate(inner.pairs):
                yield pair, int(inner.offsets[place]), int(inner.offsets[place + 1])
        case BoundContrasts():
            for place, pair in enumerate(inner.pairs):
                yield pair, place, place + 1
        case BoundTotals():
            for place, name in enumerate(inner.columns):
                yield (name,), place, place + 1
        case BoundHistogram():
            for place, table in enumerate(inner.tables):
                yield table, int(inner.offsets[place]), int(inner.offsets[place + 1])
        case BoundCount():
            yield (), 0, 1
        case _:
            yield inner.columns, 0, inner.size


def _entries(inner: BoundMap) -> int:
    """Numbers other than zero that a record has."""
    match inner:
        case BoundHistogram():
            return len(inner.tables)
        case BoundPairs():
            return len(inner.pairs)
        case BoundMarginals():
            return 3
        case _:
            return inner.size


def _sparse(bound: BoundMap, records: Records, first: int) -> Any:
    """All features of the map; of marginals only those of the column whose sums start at `first`."""
    from scipy.sparse import csr_array

    if isinstance(bound, BoundGrouped):
        inner = _sparse(bound.inner, records, first)
        group = bound.group_of(records.codes[bound.row])
        places = inner.indices + np.repeat(group * bound.inner.size, np.diff(inner.indptr))
        return csr_array((inner.data, places, inner.indptr), shape=(len(records), bound.size))
    if isinstance(bound, BoundRace | BoundGrid):
        places, values = bound.entries(records, min(bound.rows, MOST_ROWS))
    elif isinstance(bound, BoundHistogram | BoundPairs):
        find: Callable[[Any], Any] = bound.cells if isinstance(bound, BoundHistogram) else bound.places
        places = find(records.codes).T
        values = np.ones(places.shape)
    elif isinstance(bound, BoundMarginals):
        places, values = _marginal_entries(bound, records, first)
    else:
        return csr_array(bound.features(records))
    starts = np.arange(len(records) + 1) * places.shape[1]
    return csr_array((values.ravel(), places.ravel(), starts), shape=(len(records), bound.size))


def _marginal_entries(bound: BoundMarginals, records: Records, first: int) -> tuple[NDArray[np.int64], Floats]:
    """Cell, position and code of each record; what a cell or column does not have adds zero."""
    place = next(i for i in range(len(bound.columns)) if bound.table(i).start == first)
    cells, codes = bound.cells[place], records.codes[bound.rows[place]]
    own, positions, centred = cells.cells(codes), bound.positions(place), bound.centred(place)
    inside = (own >= 1) & (own <= positions.stop - positions.start)
    places = np.stack(
        [
            first + own,
            np.where(inside, positions.start + own - 1, first),
            np.full(len(codes), centred.start if centred.stop > centred.start else first),
        ],
        axis=1,
    )
    value = np.where((codes == MISSING) | (centred.stop == centred.start), 0, codes)
    position = np.where(inside, cells.positions(codes), 0)
    return places, np.stack([np.full(len(codes), GRID), position, value], axis=1) / GRID
