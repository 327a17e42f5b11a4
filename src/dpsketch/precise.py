"""High-precision arithmetic that threads cannot disturb."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_turn = threading.Lock()


@cache
def _context() -> Any:
    import mpmath

    return mpmath.MPContext()


@contextmanager
def precise(bits: int) -> Iterator[Any]:
    """A context with `bits` of precision, one user at a time.

    mpmath keeps its precision and its table of constants for the whole process, without locks: two threads that
    compute at once can get wrong numbers or never end.
    """
    with _turn:
        context = _context()
        context.prec = bits
        yield context
