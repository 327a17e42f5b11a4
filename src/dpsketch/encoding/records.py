"""A batch of encoded records: all that a feature map sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Codes


class Words(Protocol):
    """A source of independent uniform 32-bit words."""

    def words(self, count: int) -> NDArray[np.uint32]: ...


@dataclass(frozen=True)
class IdSets:
    """Sets of ids of one column: row i holds ids[offsets[i]:offsets[i+1]], sorted and distinct."""

    offsets: NDArray[np.int64]
    ids: NDArray[np.int32]

    def take(self, rows: NDArray[np.int64]) -> IdSets:
        """The sets of the given rows, in their order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        indices = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return IdSets(offsets, self.ids[indices])


@dataclass(frozen=True)
class Records:
    """Codes of the scalar columns, one matrix row per column; sets by column; secret words for maps that sample.

    Features are a pure function of a record's codes and sets, except that a subsampled map draws fresh masks from
    `secret`, which only an engine provides.
    """

    codes: Codes
    sets: Mapping[str, IdSets] = field(default_factory=dict)
    secret: Words | None = None

    def __len__(self) -> int:
        return self.codes.shape[1]

    def take(self, rows: NDArray[Any]) -> Records:
        """Some of the records, in the given order."""
        sets = {name: column.take(rows) for name, column in self.sets.items()}
        return Records(np.ascontiguousarray(self.codes[:, rows]), sets, self.secret)


def concatenated(parts: Sequence[Records]) -> Records:
    """Several batches, concatenated."""
    sets = {name: joined([part.sets[name] for part in parts]) for name in parts[0].sets}
    return Records(np.concatenate([part.codes for part in parts], axis=1), sets)


def joined(columns: Sequence[IdSets]) -> IdSets:
    """The sets of several batches, concatenated."""
    lengths = np.concatenate([*(np.diff(column.offsets) for column in columns), np.empty(0, np.int64)])
    ids = np.concatenate([*(column.ids for column in columns), np.empty(0, np.int32)])
    return IdSets(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), ids)
