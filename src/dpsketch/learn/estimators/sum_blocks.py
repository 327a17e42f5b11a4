"""Sums of a part that depend on some columns together, and their features at given points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import QueryError
from dpsketch.maps.base import BoundMap, SumBlock
from dpsketch.schema.columns import IdSet
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart

MOST_FREQUENCIES = 2000
MOST_SUMS = 2 * MOST_FREQUENCIES  # of a dense map, in which every record has as many features as there are sums
MOST_ROWS = 512  # of a table of counters; further rows are ignored
MOST_ENTRIES = 1 << 24  # non-zero features of all points together


@dataclass(frozen=True)
class Block:
    """Sums first .. last-1 of a part, or of each of its groups: those that depend on `columns` alone."""

    part: ReleasedPart
    columns: tuple[str, ...]
    first: int
    last: int

    @property
    def core(self) -> BoundMap:
        """The map without its groups and masks."""
        return self.part.map.core

    @property
    def counters(self) -> bool:
        """Whether the sums are a table of counters."""
        return self.part.map.counter_table

    @property
    def sparse(self) -> bool:
        """Whether a record has few non-zero features."""
        return self.part.map.sparse

    @property
    def separates_points(self) -> bool:
        """Whether the features distinguish points: second moments do not distinguish a point from its mirror image,
        and a sum is a single number.
        """
        return self.part.map.separates_points

    @property
    def single(self) -> bool:
        """Whether the block is only the sum of one column."""
        return self.last - self.first == 1 and self.first in self.core.column_totals.values()

    @property
    def size(self) -> int:
        return self.part.map.groups * (self.last - self.first)

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        """Indices of the block's sums among those of the part."""
        each = self.part.map.size // self.part.map.groups
        return (np.arange(self.part.map.groups)[:, None] * each + np.arange(self.first, self.last)).ravel()

    @property
    def name(self) -> str:
        """The sums that the regression uses, as a text."""
        title = self.core.title or f"sums of {self.part.map.description.name}"
        return f"{self.size // self.core.sums_per_term} {title}"

    def check_size(self, points: int) -> None:
        """Refuse a block that would take too much memory or time."""
        core = self.core
        if core.sparse:
            if not self.counters and points * core.entries_per_record > MOST_ENTRIES:
                raise QueryError(
                    f"the regression takes at most {MOST_ENTRIES // points} tables of one part", "release fewer tables"
                )
            return
        if self.size > MOST_SUMS:
            what, most, has = core.term, MOST_SUMS // core.sums_per_term, self.size // core.sums_per_term
            raise QueryError(
                f"the regression takes at most {most} {what}, this release has {has}",
                f"release fewer {what}, or a table of the columns: Part(Histogram(ways=2, columns=…), share=…)",
            )

    def features(self, records: Records) -> Any:
        """One row a record, one column a sum of the block: a sparse matrix if the block is."""
        feature_map = self.part.map
        every = self._sparse_features(records) if self.sparse else feature_map.features(records)
        return every if self.size == feature_map.size else every[:, self.indices]

    def _sparse_features(self, records: Records) -> Any:
        """All features that the block needs, as a matrix over all sums of the part."""
        from scipy.sparse import csr_array

        feature_map, inner = self.part.map, self.part.map.ungrouped
        entries = inner.sparse_entries(records, SumBlock(self.columns, self.first, self.last), MOST_ROWS)
        if entries is None:
            features = csr_array(inner.features(records))
        else:
            indices, values = entries
            starts = np.arange(len(records) + 1) * indices.shape[1]
            features = csr_array((values.ravel(), indices.ravel(), starts), shape=(len(records), inner.size))
        if inner is feature_map:
            return features
        moved = features.indices + np.repeat(feature_map.group_numbers(records) * inner.size, np.diff(features.indptr))
        return csr_array((features.data, moved, features.indptr), shape=(len(records), feature_map.size))


def blocks(schema: Schema, part: ReleasedPart) -> Iterator[Block]:
    """The blocks of a part, except those with sets of ids, which have no points. A count has no columns."""
    for block in part.map.sum_blocks():
        if block.columns and not any(isinstance(schema.column(name), IdSet) for name in block.columns):
            yield Block(part, block.columns, block.first, block.last)
