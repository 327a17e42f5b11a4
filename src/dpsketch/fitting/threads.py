"""How many threads linear algebra may use while a release is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices of a fit are small: threads would wait for each other, several times as long as they work. Entering
    takes some milliseconds. Also a decorator: `@one_thread()`.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
