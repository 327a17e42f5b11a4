"""High-precision arithmetic that threads cannot disturb."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import mpmath

_turn = threading.Lock()
_context = mpmath.MPContext()


@contextmanager
def precise(bits: int) -> Iterator[mpmath.MPContext]:
    """A context with `bits` of precision, one user at a time.

    mpmath keeps its precision and its table of constants for the whole process, without locks: two threads that
    compute at once can get wrong numbers or never end.
    """
    with _turn:
        _context.prec = bits
        yield _context
