"""Keep at most c rows of every unit, whatever the order of rows.

Guarantee: which rows of a unit are kept depends on that unit's rows only, so adding or removing a unit never
changes another one's. Kept are the c rows with the smallest keyed hash of (unit, codes); equal rows are
interchangeable. Units are told apart by their full ids. Rows without a unit are dropped.
Memory grows with the number of units: about 2·d + 100 bytes for each kept row. Source: docs/proofs/units.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsketch.encoding import filled, texts
from dpsketch.records import Records, concatenated

_SLACK = 1 << 18
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class UnitSelection:
    """Collects batches; `kept()` gives the codes of the rows that count."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[bytes, int] = {}
        self._dropped: set[int] = set()
        self._kept: _Rows | None = None
        self._waiting: list[_Rows] = []
        self._waiting_rows = 0

    def add(self, units: pa.Array, records: Records) -> None:
        """Take the rows of one batch, in any order, from one thread at a time."""
        encoded = texts(units).view(pa.large_binary()).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        numbers = self._numbered(names)
        keys = np.array([_key(name) for name in names], np.uint64)
        present = pc.is_valid(encoded.indices).to_numpy(zero_copy_only=False)
        index = filled(encoded.indices, 0)[present]
        records = records.take(np.flatnonzero(present))
        self._waiting.append(_Rows(numbers[index], _row_hashes(keys[index] if len(keys) else keys, records), records))
        self._waiting_rows += len(index)
        if self._waiting_rows > _SLACK + (0 if self._kept is None else len(self._kept.units)):
            self._select()

    def drop(self, units: pa.Array) -> None:
        """No row of these units counts, before or after."""
        self._dropped.update(
            self._numbered(texts(units).view(pa.large_binary()).unique().drop_null().to_pylist()).tolist()
        )

    def kept(self) -> tuple[NDArray[np.int64], Records] | None:
        """Unit numbers, rising, and the records that count; None if there was no batch at all."""
        self._select()
        if self._kept is None:
            return None
        stay = np.flatnonzero(~np.isin(self._kept.units, np.array(sorted(self._dropped), np.int64)))
        return self._kept.units[stay], self._kept.records.take(stay)

    def _numbered(self, names: list[bytes]) -> NDArray[np.int64]:
        return np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names], np.int64)

    def _select(self) -> None:
        every = self._waiting if self._kept is None else [self._kept, *self._waiting]
        if not every:
            return
        units = np.concatenate([rows.units for rows in every])
        hashes = np.concatenate([rows.hashes for rows in every])
        records = concatenated([rows.records for rows in every])
        self._waiting, self._waiting_rows = [], 0
        codes = records.codes
        content = [np.ascontiguousarray(codes.T).view(f"S{2 * len(codes)}").ravel()] if len(codes) else []
        order = np.lexsort((*content, hashes, units))
        sorted_units = units[order]
        firsts = np.flatnonzero(np.diff(sorted_units, prepend=-1))
        rank = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
        chosen = order[rank < self._most]
        self._kept = _Rows(units[chosen], hashes[chosen], records.take(chosen))


@dataclass(frozen=True)
class _Rows:
    """Records with the numbers of their units and the hashes of their contents."""

    units: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    records: Records


def _key(unit: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(unit, digest_size=8, key=b"dpsketch units 1").digest(), "little")


def _row_hashes(keys: NDArray[np.uint64], records: Records) -> NDArray[np.uint64]:
    """A 64-bit mix of the unit's key, every code and every set: spreads the choice evenly over a unit's rows."""
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
