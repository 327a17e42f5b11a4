"""One pass over a source on this machine's cores, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from dpsketch.engines.engine import PartialSums, Pass, Workers
from dpsketch.engines.readers import Progress


@dataclass(frozen=True)
class Local:
    """Threads on this machine. The result depends on neither the number of threads nor the batch size."""

    threads: int | None = None
    batch_rows: int = 1 << 16

    def run(self, one_pass: Pass, source: Any, progress: Progress) -> PartialSums:
        with _Threads(self.threads or os.cpu_count() or 1, self.batch_rows) as workers:
            return one_pass.partial(one_pass.batches(source, progress), workers=workers)


class _Threads(Workers):
    """A pool of threads with at most two jobs in flight per thread."""

    def __init__(self, threads: int, batch_rows: int) -> None:
        self.threads, self.batch_rows = threads, batch_rows
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dpsketch")
        self._running: set[Future[None]] = set()

    def __enter__(self) -> _Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, job: Callable[[], None]) -> None:
        while len(self._running) >= 2 * self.threads:
            self._collect()
        self._running.add(self._pool.submit(job))

    def finish(self) -> None:
        while self._running:
            self._collect()

    def _collect(self) -> None:
        done, self._running = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
