"""High-precision arithmetic that threads cannot disturb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from dpsketch.numerics.forks import fork_safe_lock

_turn = fork_safe_lock()


@cache
def _context() -> Any:
    import mpmath

    return mpmath.MPContext()


@contextmanager
def precise(bits: int) -> Iterator[Any]:
    """A context with `bits` of precision, for one user at a time.

    mpmath keeps its precision and its table of constants for the whole process, without locks: two threads that compute
    at once can get wrong numbers or never end. A child forked in between could inherit a half-stored constant, so a
    fork waits as well.
    """
    with _turn:
        context = _context()
        with context.workprec(bits):
            yield context
