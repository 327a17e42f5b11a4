"""High-precision arithmetic that threads cannot disturb."""

from __future__ import annotations

import threading

import mpmath

_local = threading.local()


def precise(bits: int) -> mpmath.MPContext:
    """This thread's own context, set to `bits` until the next call.

    mpmath's usual context has one precision for the whole process, which another thread may change on the way.
    """
    if not hasattr(_local, "context"):
        _local.context = mpmath.MPContext()
    _local.context.prec = bits
    return _local.context
