"""One pass over a source on this machine's cores, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from dpsketch.encoding import encode
from dpsketch.engines.sources import Progress, read_batches
from dpsketch.engines.units import UnitSelection
from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, Sums
from dpsketch.recipe import Recipe, declared_rows
from dpsketch.schema import Codes, Schema
from dpsketch.sketch.lineage import new_lineage
from dpsketch.sketch.raw import RawPart, RawSketch, empty_sums


@dataclass(frozen=True)
class Local:
    """Threads on this machine; the result does not depend on either number."""

    threads: int | None = None
    batch_rows: int = 1 << 16

    def run(self, source: Any, schema: Schema, maps: tuple[BoundMap, ...], progress: Progress) -> list[Sums]:
        threads = self.threads or os.cpu_count() or 1
        wanted = [column.name for column in schema.columns]
        if schema.unit_column is not None:
            wanted.append(schema.unit_column)
        batches = self._slices(read_batches(source, wanted, progress))
        with _Workers(maps, threads) as workers:
            if schema.unit_column is None:
                for batch in batches:
                    workers.submit(lambda batch=batch: encode(schema, batch))  # type: ignore[misc]
            else:
                selection = UnitSelection(len(schema.scalars), schema.max_rows_per_unit)
                for batch in batches:
                    selection.add(batch.column(schema.unit_column), encode(schema, batch))
                kept = selection.kept()
                for start in range(0, kept.shape[1], self.batch_rows):
                    part = kept[:, start : start + self.batch_rows].copy()
                    workers.submit(lambda part=part: part)  # type: ignore[misc]
            return workers.total()

    def _slices(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, self.batch_rows):
                yield batch.slice(start, self.batch_rows)


class _Workers:
    """A pool of threads, each adding to sums of its own; at most two batches a thread are in flight."""

    def __init__(self, maps: tuple[BoundMap, ...], threads: int) -> None:
        self._maps = maps
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dpsketch")
        self._most = 2 * threads
        self._running: set[Future[None]] = set()
        self._free: SimpleQueue[list[Sums]] = SimpleQueue()
        self._all = [empty_sums(maps) for _ in range(threads)]
        for sums in self._all:
            self._free.put(sums)

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, codes: Callable[[], Codes]) -> None:
        while len(self._running) >= self._most:
            self._collect(FIRST_COMPLETED)
        self._running.add(self._pool.submit(self._work, codes))

    def total(self) -> list[Sums]:
        while self._running:
            self._collect(FIRST_COMPLETED)
        total = self._all[0]
        for sums in self._all[1:]:
            for mine, theirs in zip(total, sums, strict=True):
                mine += theirs
        return total

    def _collect(self, when: str) -> None:
        done, self._running = wait(self._running, return_when=when)
        for future in done:
            future.result()

    def _work(self, make_codes: Callable[[], Codes]) -> None:
        codes = make_codes()
        sums = self._free.get()
        try:
            for bound, part in zip(self._maps, sums, strict=True):
                bound.accumulate(codes, part)
        finally:
            self._free.put(sums)


def accumulate(
    source: Any, schema: Schema, recipe: Recipe, engine: Local | None = None, progress: Progress | None = None
) -> RawSketch:
    """One pass over `source`: the exact sums of every map of `recipe`.

    `source` is a path (CSV, Parquet, or a folder of either), an Arrow table or reader, anything with
    `__arrow_c_stream__` (pandas, polars, DuckDB), or an iterable of batches. The sums are the same bytes for any
    batch size, number of threads and order of rows. `progress` gets the share of the source that was read.
    """
    schema = replace(schema, rows=declared_rows(schema, recipe.rows))
    maps = recipe.bind(schema)
    for bound in maps:
        if declared_rows(schema) * bound.largest >= 2**63:
            raise RecipeError(
                f"map {bound.description.name}: {schema.rows} declared rows do not fit 63 bits", "declare fewer rows"
            )
    sums = (engine or Local()).run(source, schema, maps, progress or (lambda share: None))
    parts = tuple(RawPart(bound, part) for bound, part in zip(maps, sums, strict=True))
    return RawSketch(schema, recipe, parts, new_lineage())
