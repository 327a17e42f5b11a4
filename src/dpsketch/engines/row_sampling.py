"""Row sampling: which rows count, drawn from secret randomness, independent of all cells.

Source: docs/proofs/row_sampling.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records, Words, concatenated

_SLACK = 1 << 16


def kept_units(units: NDArray[np.int32], threshold: int, secret: Words) -> NDArray[np.int64]:
    """Indices of the rows of kept units. Each unit is kept with probability threshold/2^32, with all its rows."""
    kept = secret.words(int(units.max(initial=-1)) + 1).astype(np.uint64) < threshold
    return np.flatnonzero(kept[units])


def kept_rows(rows: int, threshold: int, secret: Words) -> NDArray[np.int64]:
    """Indices of the kept rows. Each is kept with probability threshold/2^32."""
    return np.flatnonzero(secret.words(rows).astype(np.uint64) < threshold)


class Reservoir:
    """A uniform sample of `count` rows of a stream without replacement; all rows if there are fewer.

    Every row gets a secret key of 64 bits. The smallest keys are kept; of equal keys, the earlier row. Memory is about
    twice that of `count` rows, plus one batch.
    """

    def __init__(self, count: int, secret: Words) -> None:
        self._count, self._secret = count, secret
        self._keys: list[NDArray[np.uint64]] = []
        self._records: list[Records] = []
        self._waiting = 0
        self._full = False

    def add(self, records: Records) -> None:
        """Add the rows of one batch, from one thread at a time."""
        words = self._secret.words(2 * len(records)).astype(np.uint64)
        keys = (words[0::2] << np.uint64(32)) | words[1::2]
        if self._full:  # the kept keys are sorted: a row whose key is not below the last one is dropped
            indices = np.flatnonzero(keys < self._keys[0][-1])
            keys, records = keys[indices], records.take(indices)
        self._keys.append(keys)
        self._records.append(records)
        self._waiting += len(keys)
        if self._waiting > max(self._count, _SLACK):
            self._select()

    def kept(self) -> Records | None:
        """The sample; None if there was no batch at all."""
        self._select()
        return self._records[0] if self._records else None

    def _select(self) -> None:
        if not self._records:
            return
        keys = np.concatenate(self._keys)
        order = np.argsort(keys, kind="stable")[: self._count]
        self._records = [concatenated(self._records).take(order)]
        self._keys = [keys[order]]
        self._waiting, self._full = 0, len(order) == self._count
