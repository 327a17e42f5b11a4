"""Sums of four bytes: sums modulo 2^32, used where public numbers show that they fit.

Modulo 2^32 is as private as modulo 2^64 while everything up to the noise stays modulo 2^32. A table with more rows than
were declared may wrap an exact counter; widened afterwards, it would jump by 2^32 for one record. So raw sums are never
widened; released ones may be. Source: docs/proofs/release.md.
"""

from __future__ import annotations

import numpy as np

from dpsketch.maps.base import Sums

NARROW_ROOM = 2**31


def narrow(sums: Sums) -> bool:
    return sums.dtype == np.int32


def room(kind: type) -> int:
    """The bound below which entries of this type must stay, in absolute value, to be read back correctly."""
    return NARROW_ROOM if kind is np.int32 else 2**63


def add(one: Sums, two: Sums, four_bytes: bool) -> Sums:
    """Return one + two modulo 2^32 or 2^64, with no copy of either; memory-mapped sums stay where they are."""
    if four_bytes:
        return np.add(one, two, dtype=np.int32, casting="unsafe")
    return np.add(one, two, dtype=np.int64)


def subtract(one: Sums, two: Sums) -> Sums:
    """Return one - two modulo 2^32 or 2^64, in the bytes of `one`: raw sums are never widened."""
    if narrow(one):
        return np.subtract(one, two, dtype=np.int32, casting="unsafe")
    return np.subtract(one, two, dtype=np.int64)
