"""Maps whose sums are rows of counters, of which there may be 10^9."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.maps.base import BoundMap, RecordCount, SumBlock, Sums
from dpsketch.numerics.arrays import Floats


class BoundTable(BoundMap):
    """A map whose sums are `rows` tables of `width` counters, each of which can be filled on its own.

    Threads own rows of one shared table, so that a large one is held once.
    """

    rows: int
    width: int
    narrow = True
    counter_table = True
    sparse = True
    unit_increments: bool = False  # whether every record adds exactly 1 to each row, so that a row's sum counts records

    @abstractmethod
    def prepare(self, records: Records) -> Any:
        """What all rows need of the records."""

    @abstractmethod
    def accumulate_rows(self, prepared: Any, sums: Sums, first: int, last: int) -> None:
        """Add the records to rows first .. last-1 of the whole table `sums`."""

    @abstractmethod
    def entries(self, records: Records, rows: int) -> tuple[NDArray[np.int64], Floats]:
        """Each record's counter in the first `rows` rows, as an index into the sums, and what it adds there."""

    def accumulate(self, records: Records, sums: Sums) -> None:
        self.accumulate_rows(self.prepare(records), sums, 0, self.rows)

    def features(self, records: Records) -> Floats:
        features = np.zeros((len(records), self.size))
        np.put_along_axis(features, *self.entries(records, self.rows), axis=1)
        return features

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats]:
        return self.entries(records, min(rows, self.rows))

    @property
    def record_count(self) -> RecordCount | None:
        return RecordCount(self.size, self.rows) if self.unit_increments else None
