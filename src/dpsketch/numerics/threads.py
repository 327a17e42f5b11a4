"""The number of threads that linear algebra may use while a release is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any


class _Limit:
    """The limit of the whole process: set when the first concurrent fit starts, lifted when the last one ends."""

    def __init__(self) -> None:
        self._lock, self._fits = Lock(), 0
        self._set: Any = None

    def enter(self) -> None:
        from threadpoolctl import threadpool_limits

        with self._lock:
            if self._fits == 0:
                self._set = threadpool_limits(1)
            self._fits += 1

    def leave(self) -> None:
        with self._lock:
            self._fits -= 1
            if self._fits == 0:
                self._set.restore_original_limits()


_LIMIT = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread. Also a decorator: `@one_thread()`.

    Matrices of a fit are small: threads would spend several times as long waiting for each other as working. Entering
    takes some milliseconds.
    """
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()
