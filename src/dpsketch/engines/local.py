"""One pass over a source on this machine's cores, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.arrow import encode, unit_ids
from dpsketch.encoding.records import Records
from dpsketch.engines.readers import Progress, read_batches
from dpsketch.engines.row_sampling import Reservoir, kept_rows, kept_units
from dpsketch.engines.units import UnitSelection
from dpsketch.errors import RecipeError
from dpsketch.maps.base import LARGE, BoundMap, BoundTable, Sums
from dpsketch.noise.keystream import Keystream
from dpsketch.recipe.recipe import Recipe, RowSampling, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch.merging import new_lineage
from dpsketch.sketch.raw import RawPart, RawSketch, empty_sums


@dataclass(frozen=True)
class Local:
    """Threads on this machine; the result does not depend on either number."""

    threads: int | None = None
    batch_rows: int = 1 << 16

    def run(
        self,
        source: Any,
        schema: Schema,
        recipe: Recipe,
        maps: tuple[BoundMap, ...],
        progress: Progress,
    ) -> list[Sums]:
        threads = self.threads or os.cpu_count() or 1
        sampling = recipe.sampling
        wanted = [column.name for column in schema.columns]
        if schema.unit_column is not None:
            wanted.append(schema.unit_column)
        sets = [column.name for column in schema.sets]
        batches = self._slices(read_batches(source, wanted, progress, sets, schema.csv))
        with _Workers(maps, declared_rows(schema), threads) as workers:
            if schema.unit_column is not None:
                selection = UnitSelection(schema.max_rows_per_unit)
                for batch in batches:
                    workers.run(lambda batch=batch: _collect(schema, recipe, batch, selection))  # type: ignore[misc]
                workers.finish()
                for numbers, records in selection.kept():
                    chosen = np.arange(len(numbers))
                    if sampling is not None:
                        chosen = kept_units(numbers, sampling.threshold, Keystream())
                    self._submit(workers, records, chosen)
            elif sampling is not None and sampling.count is not None:
                reservoir = Reservoir(sampling.count, Keystream())
                for batch in batches:
                    reservoir.add(_kept(schema, recipe, batch))
                sample = reservoir.kept()
                self._submit(workers, sample, np.arange(0 if sample is None else len(sample)))
            else:
                for batch in batches:
                    workers.submit(lambda batch=batch: _sampled(_kept(schema, recipe, batch), sampling))  # type: ignore[misc]
            return workers.total()

    def _submit(self, workers: _Workers, records: Records | None, chosen: NDArray[np.int64]) -> None:
        for start in range(0, len(chosen), self.batch_rows):
            part = chosen[start : start + self.batch_rows]
            workers.submit(lambda part=part: records.take(part))  # type: ignore[misc, union-attr]

    def _slices(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, self.batch_rows):
                yield batch.slice(start, self.batch_rows)


def _kept(schema: Schema, recipe: Recipe, batch: pa.RecordBatch) -> Records:
    """The rows of a batch that the recipe is about."""
    records = encode(schema, batch)
    return records if recipe.only is None else records.take(recipe.only.places(schema, records))


def _collect(schema: Schema, recipe: Recipe, batch: pa.RecordBatch, selection: UnitSelection) -> None:
    """Hand the rows of a batch that the recipe is about to the selection of units."""
    records, ids = encode(schema, batch), unit_ids(batch.column(schema.unit), schema.unit_kind)
    if recipe.only is not None:
        if recipe.only.column in schema.constant_per_unit:
            selection.drop(ids.take(recipe.only.places_elsewhere(schema, records)))
        places = recipe.only.places(schema, records)
        ids, records = ids.take(places), records.take(places)
    selection.add(ids, records)


def _sampled(records: Records, sampling: RowSampling | None) -> Records:
    """The rows of a batch that count: all, or each with the rate's probability."""
    if sampling is None:
        return records
    return records.take(kept_rows(len(records), sampling.threshold, Keystream()))


class _Accumulator:
    """Sums of one map, filled by several threads.

    Small sums are private to a thread and added up at the end. Large ones are shared: a thread goes through the
    table's blocks of rows, holding one lock at a time, each thread starting at another block.
    """

    def __init__(self, bound: BoundMap, rows: int, threads: int) -> None:
        self._map = bound
        self._table = bound if isinstance(bound, BoundTable) else None
        shared = self._table is not None or bound.size >= LARGE
        self._sums = [empty_sums(bound, rows) for _ in range(1 if shared else threads)]
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


class _Workers:
    """A pool of threads; at most two batches a thread are in flight."""

    def __init__(self, maps: tuple[BoundMap, ...], rows: int, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dpsketch")
        self._most = 2 * threads
        self._running: set[Future[None]] = set()
        self._secret = any(bound.secret for bound in maps)
        self._accumulators = [_Accumulator(bound, rows, threads) for bound in maps]
        self._free: SimpleQueue[int] = SimpleQueue()
        for thread in range(threads):
            self._free.put(thread)

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, records: Callable[[], Records]) -> None:
        """Add the features of the records that the call returns."""
        self.run(lambda: self._work(records))

    def run(self, job: Callable[[], None]) -> None:
        while len(self._running) >= self._most:
            self._collect()
        self._running.add(self._pool.submit(job))

    def finish(self) -> None:
        """Wait for all jobs; raise what one of them raised."""
        while self._running:
            self._collect()

    def total(self) -> list[Sums]:
        self.finish()
        return [accumulator.total() for accumulator in self._accumulators]

    def _collect(self) -> None:
        done, self._running = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()

    def _work(self, make_records: Callable[[], Records]) -> None:
        records = make_records()
        if len(records) == 0:
            return
        if self._secret:  # a stream of its own: fresh masks, and no thread waits for another's
            records = replace(records, secret=Keystream())
        thread = self._free.get()
        try:
            for accumulator in self._accumulators:
                accumulator.add(records, thread)
        finally:
            self._free.put(thread)


def accumulate(
    source: Any, schema: Schema, recipe: Recipe, engine: Local | None = None, progress: Progress | None = None
) -> RawSketch:
    """One pass over `source`: the exact sums of every map of `recipe`.

    `source` is a path (CSV, Parquet, or a folder of either), an Arrow table or reader, anything with
    `__arrow_c_stream__` (pandas, polars, DuckDB), or an iterable of batches. The sums are the same bytes for any
    batch size, number of threads and order of rows, except that sampled rows and the masks of
    subsampled maps are drawn afresh, in secret. `progress` gets the share of the source that was read.
    """
    schema = replace(schema, rows=declared_rows(schema, recipe.rows))
    maps = recipe.bind(schema)
    for bound in maps:
        if declared_rows(schema) * bound.largest >= 2**63:
            raise RecipeError(
                f"map {bound.description.name}: {schema.rows} declared rows do not fit 63 bits", "declare fewer rows"
            )
    sums = (engine or Local()).run(source, schema, recipe, maps, progress or (lambda share: None))
    parts = tuple(RawPart(bound, part) for bound, part in zip(maps, sums, strict=True))
    return RawSketch(schema, recipe.settled(maps), parts, new_lineage())
