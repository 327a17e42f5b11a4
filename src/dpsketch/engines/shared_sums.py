"""The sums of all maps of a pass, filled by several threads at once."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from threading import Lock

from dpsketch.encoding.records import Records
from dpsketch.maps.base import LARGE, BoundMap, Sums
from dpsketch.maps.counter_table import BoundTable
from dpsketch.sketch.raw import empty_sums


class SharedSums:
    """Sums to which up to `threads` threads add records; call `total` once all of them are done."""

    def __init__(self, maps: Sequence[BoundMap], rows: int, threads: int) -> None:
        self._accumulators = [_Accumulator(feature_map, rows, threads) for feature_map in maps]
        self._free: SimpleQueue[int] = SimpleQueue()
        for thread in range(threads):
            self._free.put(thread)

    def add(self, records: Records) -> None:
        """Add the features of the records to the sums of every map."""
        thread = self._free.get()
        try:
            for accumulator in self._accumulators:
                accumulator.add(records, thread)
        finally:
            self._free.put(thread)

    def total(self) -> tuple[Sums, ...]:
        """The sums of every map."""
        return tuple(accumulator.total() for accumulator in self._accumulators)


class _Accumulator:
    """Sums of one map.

    Small sums are private to a thread and added up at the end. Large ones are shared: a thread goes through the table's
    blocks of rows, holding one lock at a time, and each thread starts at a different block.
    """

    def __init__(self, feature_map: BoundMap, rows: int, threads: int) -> None:
        self._map = feature_map
        self._table = feature_map if isinstance(feature_map, BoundTable) else None
        shared = self._table is not None or feature_map.size >= LARGE
        self._sums = [empty_sums(feature_map, rows) for _ in range(1 if shared else threads)]
        blocks = min(2 * threads, self._table.rows) if self._table else 1
        self._edges = [block * self._table.rows // blocks for block in range(blocks + 1)] if self._table else []
        self._locks = [Lock() for _ in range(blocks if shared else threads)]

    def add(self, records: Records, thread: int) -> None:
        if self._table is None:
            own = thread % len(self._sums)
            with self._locks[own]:
                self._map.accumulate(records, self._sums[own])
            return
        prepared = self._table.prepare(records)
        blocks = len(self._locks)
        for step in range(blocks):
            block = (2 * thread + step) % blocks
            with self._locks[block]:
                first, last = self._edges[block : block + 2]
                self._table.accumulate_rows(prepared, self._sums[0], first, last)

    def total(self) -> Sums:
        total = self._sums[0]
        for sums in self._sums[1:]:
            total += sums
        return total
