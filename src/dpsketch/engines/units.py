"""Keep at most c rows of every unit, whatever the order of rows.

Guarantee: which rows of a unit are kept depends on that unit's rows only, so adding or removing a unit never
changes another one's. Kept are the c rows with the smallest keyed hash of (unit, codes); equal rows are
interchangeable. Units are told apart by their full ids. Rows without a unit are dropped.
Memory grows with the number of units: about 2·d + 100 bytes for each kept row. Source: docs/proofs/units.md.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsketch.encoding import texts
from dpsketch.schema import Codes

_SLACK = 1 << 18
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class UnitSelection:
    """Collects batches; `kept()` gives the codes of the rows that count."""

    def __init__(self, columns: int, most: int) -> None:
        self._most = most
        self._numbers: dict[bytes, int] = {}
        self._units = np.empty(0, np.int64)
        self._hashes = np.empty(0, np.uint64)
        self._codes = np.empty((columns, 0), np.int16)
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.uint64], Codes]] = []
        self._waiting_rows = 0

    def add(self, units: pa.Array, codes: Codes) -> None:
        """Take the rows of one batch, in any order, from one thread at a time."""
        encoded = texts(units).view(pa.large_binary()).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        numbers = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names], np.int64)
        keys = np.array([_key(name) for name in names], np.uint64)
        present = pc.is_valid(encoded.indices).to_numpy(zero_copy_only=False)
        index = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)[present]
        codes = codes[:, present]
        if not len(index):
            return
        self._waiting.append((numbers[index], _row_hashes(keys[index], codes), codes))
        self._waiting_rows += len(index)
        if self._waiting_rows > len(self._units) + _SLACK:
            self._select()

    def kept(self) -> Codes:
        self._select()
        return np.ascontiguousarray(self._codes)

    def _select(self) -> None:
        units = np.concatenate([self._units] + [entry[0] for entry in self._waiting])
        hashes = np.concatenate([self._hashes] + [entry[1] for entry in self._waiting])
        codes = np.concatenate([self._codes] + [entry[2] for entry in self._waiting], axis=1)
        self._waiting, self._waiting_rows = [], 0
        content = [np.ascontiguousarray(codes.T).view(f"S{2 * len(codes)}").ravel()] if len(codes) else []
        order = np.lexsort((*content, hashes, units))
        sorted_units = units[order]
        firsts = np.flatnonzero(np.diff(sorted_units, prepend=-1))
        rank = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
        chosen = order[rank < self._most]
        self._units, self._hashes, self._codes = units[chosen], hashes[chosen], codes[:, chosen]


def _key(unit: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(unit, digest_size=8, key=b"dpsketch units 1").digest(), "little")


def _row_hashes(keys: NDArray[np.uint64], codes: Codes) -> NDArray[np.uint64]:
    """A 64-bit mix of the unit's key and every code: spreads the choice evenly over a unit's rows."""
    hashes = _mix(keys)
    for row in codes:
        hashes = _mix(hashes ^ row.view(np.uint16).astype(np.uint64))
    return hashes


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))
