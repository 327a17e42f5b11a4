"""How many threads linear algebra may use while a release is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any


class _Limit:
    """The limit of the whole process: set by the first fit that runs, lifted when the last one ends."""

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
    """Matrices of a fit are small: threads would wait for each other, several times as long as they work. Entering
    takes some milliseconds. Also a decorator: `@one_thread()`.
    """
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()
