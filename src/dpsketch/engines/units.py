"""Keep at most c rows of every unit, whatever the order of rows.

Guarantee: which rows of a unit are kept depends on that unit's rows only, so adding or removing a unit never changes
those of another. The c rows with the smallest keyed hash of (unit, codes) are kept; equal rows are interchangeable.
Units are distinguished by their full ids. Rows without a unit are dropped.

Memory grows with the kept rows, by about 3·d + 2·(length of an id) + 75 bytes each. Source: docs/proofs/units.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsketch.encoding.layouts import Cells, buffer_values, int64_array, is_null
from dpsketch.encoding.records import Records, concatenated

_BUCKETS = 64
_SLACK = 1 << 12
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def unit_shares(ids: Cells, count: int) -> NDArray[np.int64]:
    """One of `count` shares for each row, a function of its unit's id alone; arbitrary for a row without a unit."""
    high = ids.used().read(_keys) >> np.uint64(32)  # the low bits select a bucket
    return (high % np.uint64(count)).astype(np.int64)


def belong(ids: Cells, share: int, count: int) -> bool:
    """Whether all rows with a unit belong to this share of `count`."""
    return bool(((unit_shares(ids, count) == share) | ids.read(is_null)).all())


class UnitSelection:
    """Collects batches from any number of threads; `kept()` yields the records that count.

    Units are spread over buckets by a hash of their ids. Threads therefore seldom wait for each other, and sorting
    needs the memory of one bucket only.
    """

    def __init__(self, most: int) -> None:
        self._buckets = [_Bucket(most) for _ in range(_BUCKETS)]

    def add(self, ids: Cells, records: Records) -> None:
        """Add the rows of one batch; `ids` are those of `encoding.arrow.unit_ids`."""
        ids = ids.used()
        keys = ids.read(_keys)
        for bucket, rows in self._spread(ids, keys):
            names, units = _distinct(ids, rows)
            part = records.take(rows)
            bucket.add(_Rows(names, units, _row_hashes(keys[rows], part), part))

    def drop(self, ids: Cells) -> None:
        """Exclude all rows of these units, earlier and later ones."""
        ids = ids.used()
        for bucket, rows in self._spread(ids, ids.read(_keys)):
            bucket.drop(_distinct(ids, rows)[0])

    def kept(self) -> Iterator[tuple[NDArray[np.int32], Records]]:
        """The records that count, whole units at a time, each with the index of its unit in the batch."""
        for bucket in self._buckets:
            rows = bucket.kept()
            if rows is not None:
                yield rows.units, rows.records

    def _spread(self, ids: Cells, keys: NDArray[np.uint64]) -> Iterator[tuple[_Bucket, NDArray[np.int64]]]:
        """Yield the rows that have a unit, by bucket."""
        present = np.flatnonzero(~ids.read(is_null))
        buckets = (keys[present] % np.uint64(_BUCKETS)).astype(np.uint8)
        order = np.argsort(buckets, kind="stable")
        edges = np.cumsum(np.bincount(buckets, minlength=_BUCKETS))[:-1]
        for bucket, rows in zip(self._buckets, np.split(present[order], edges), strict=True):
            if len(rows):
                yield bucket, rows


@dataclass(frozen=True)
class _Rows:
    """Records with their units, as indices into a list of full ids, and the hashes of their contents."""

    ids: pa.Array
    units: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    records: Records


class _Bucket:
    """The rows of some of the units."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._rows: list[_Rows] = []  # after a selection, the rows kept so far
        self._selected = 0
        self._waiting = 0
        self._dropped: list[pa.Array] = []
        self._dropped_most = _SLACK

    def add(self, rows: _Rows) -> None:
        with self._lock:
            self._rows.append(rows)
            self._waiting += len(rows.units)
            if self._waiting > _SLACK + self._selected // 2:
                self._select()

    def drop(self, ids: pa.Array) -> None:
        with self._lock:
            self._dropped.append(ids)
            if sum(map(len, self._dropped)) > self._dropped_most:
                self._dropped = [pa.concat_arrays(self._dropped).unique()]
                self._dropped_most = _SLACK + 2 * len(self._dropped[0])

    def kept(self) -> _Rows | None:
        with self._lock:
            if not self._rows:
                return None
            self._select()
            (rows,) = self._rows
            if not self._dropped:
                return rows
            gone = pc.is_in(rows.ids, value_set=pa.concat_arrays(self._dropped)).cast(pa.int8())
            stay = np.flatnonzero(buffer_values(gone, np.int8)[rows.units] == 0)
            return _Rows(rows.ids, rows.units[stay], rows.hashes[stay], rows.records.take(stay))

    def _select(self) -> None:
        encoded = pa.concat_arrays([rows.ids for rows in self._rows]).dictionary_encode()
        numbers = np.split(
            buffer_values(encoded.indices, np.int32), np.cumsum([len(rows.ids) for rows in self._rows])[:-1]
        )
        units = np.concatenate([number[rows.units] for number, rows in zip(numbers, self._rows, strict=True)])
        hashes = np.concatenate([rows.hashes for rows in self._rows])
        records = concatenated([rows.records for rows in self._rows])
        order = _sorted(units, hashes, records)
        firsts = np.flatnonzero(np.diff(units[order], prepend=-1))
        rank = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
        chosen = order[rank < self._most]
        self._rows = [_Rows(encoded.dictionary, units[chosen], hashes[chosen], records.take(chosen))]
        self._selected, self._waiting = len(chosen), 0


def _sorted(units: NDArray[np.int32], hashes: NDArray[np.uint64], records: Records) -> NDArray[np.int64]:
    """Rows sorted by unit, hash and content. Content almost never decides: rows of equal hashes are equal."""
    order = np.lexsort((hashes, units))
    same = (units[order][1:] == units[order][:-1]) & (hashes[order][1:] == hashes[order][:-1])
    ties = np.flatnonzero(same)
    if not len(ties) or _equal(records, order[ties], order[ties + 1]):
        return order

    def content(row: int) -> tuple[int, int, bytes, tuple[bytes, ...]]:
        sets = tuple(c.ids[c.offsets[row] : c.offsets[row + 1]].tobytes() for c in records.sets.values())
        return int(units[row]), int(hashes[row]), records.codes[:, row].tobytes(), sets

    return np.array(sorted(range(len(units)), key=content), np.int64)


def _equal(records: Records, some: NDArray[np.int64], others: NDArray[np.int64]) -> bool:
    one, two = records.take(some), records.take(others)
    return np.array_equal(one.codes, two.codes) and all(
        np.array_equal(one.sets[name].offsets, two.sets[name].offsets)
        and np.array_equal(one.sets[name].ids, two.sets[name].ids)
        for name in one.sets
    )


def _distinct(ids: Cells, rows: NDArray[np.int64]) -> tuple[pa.Array, NDArray[np.int32]]:
    """The stored ids of some rows without repetition, and each row's index among them."""
    if ids.index is None:
        return ids.values.take(int64_array(rows)), np.arange(len(rows), dtype=np.int32)
    needed, units = np.unique(ids.index[rows], return_inverse=True)
    return ids.values.take(int64_array(needed)), units.astype(np.int32)


def _keys(ids: pa.Array) -> NDArray[np.uint64]:
    """A 64-bit hash of each id: of the sum of its bytes, each mixed with its position."""
    if not len(ids) or ids.buffers()[1] is None:
        return np.zeros(len(ids), np.uint64)
    offsets = np.frombuffer(ids.buffers()[1], np.int64)[ids.offset : ids.offset + len(ids) + 1]
    lengths = np.diff(offsets)
    data = ids.buffers()[2]
    letters = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    position = np.arange(len(letters)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    mixed = _mix(letters.astype(np.uint64) | position.astype(np.uint64) << np.uint64(8))
    totals = np.concatenate([[np.uint64(0)], np.cumsum(mixed, dtype=np.uint64)])
    ends = offsets - offsets[0]
    return _mix(totals[ends[1:]] - totals[ends[:-1]])


def _row_hashes(keys: NDArray[np.uint64], records: Records) -> NDArray[np.uint64]:
    """A 64-bit hash of the unit's key, every code and every set, which spreads the choice evenly over a unit's rows."""
    hashes = _mix(keys)
    for row in records.codes:
        hashes = _mix(hashes ^ row.view(np.uint16).astype(np.uint64))
    for column in records.sets.values():
        totals = np.concatenate([[np.uint64(0)], np.cumsum(_mix(column.ids.astype(np.uint64)), dtype=np.uint64)])
        hashes = _mix(hashes ^ (totals[column.offsets[1:]] - totals[column.offsets[:-1]]))
    return hashes


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))
