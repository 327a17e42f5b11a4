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
MOST_SUMS = 2 * MOST_FREQUENCIES  # of a map that gives every record as many numbers as it has sums
MOST_ROWS = 512  # of a table of counters; further rows are left out
MOST_ENTRIES = 1 << 24  # numbers other than zero at all points together


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
        """Whether a record has few features other than zero."""
        return self.part.map.sparse

    @property
    def telling(self) -> bool:
        """Whether the features tell points apart: squares and products cannot tell a point from its mirror image, and
        sums have a single number.
        """
        return self.part.map.separates_points

    @property
    def single(self) -> bool:
        """Whether there is nothing but the sum of a column."""
        return self.last - self.first == 1 and self.first in self.core.column_totals.values()

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
        title = self.core.title or f"sums of {self.part.map.description.name}"
        return f"{self.size // self.core.sums_per_term} {title}"

    def check_size(self, points: int) -> None:
        """Refuse what would take too much memory or time."""
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
        bound = self.part.map
        every = self._sparse_features(records) if self.sparse else bound.features(records)
        return every if self.size == bound.size else every[:, self.places]

    def _sparse_features(self, records: Records) -> Any:
        """All features that the block needs, as a matrix over all sums of the part."""
        from scipy.sparse import csr_array

        bound, inner = self.part.map, self.part.map.ungrouped
        entries = inner.sparse_entries(records, SumBlock(self.columns, self.first, self.last), MOST_ROWS)
        if entries is None:
            found = csr_array(inner.features(records))
        else:
            places, values = entries
            starts = np.arange(len(records) + 1) * places.shape[1]
            found = csr_array((values.ravel(), places.ravel(), starts), shape=(len(records), inner.size))
        if inner is bound:
            return found
        moved = found.indices + np.repeat(bound.group_numbers(records) * inner.size, np.diff(found.indptr))
        return csr_array((found.data, moved, found.indptr), shape=(len(records), bound.size))


def blocks(schema: Schema, part: ReleasedPart) -> Iterator[Block]:
    """The blocks of a part whose columns have points: no sets of ids. A count says nothing of columns."""
    for block in part.map.sum_blocks():
        if block.columns and not any(isinstance(schema.column(name), IdSet) for name in block.columns):
            yield Block(part, block.columns, block.first, block.last)
