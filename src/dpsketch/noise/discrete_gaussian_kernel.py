"""Inner loop of the discrete Gaussian, in a separate module because Numba is slow to import."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.compiler import int64, uint64
from dpsketch.numerics.jit import kernel

_HALF = 2.0**-63
_ROUNDING = 2.0**-42  # relative error of an exponential, mostly that of its argument: docs/proofs/shares.md
_UNKNOWN = 2.0**-62  # bits of the uniform number that a double does not hold
_NEVER = 2.0**-56  # above e^(−40)


@kernel("UniTuple(int64, 2)(int64[::1], uint64[::1], int64, float64, float64, float64[::1], int64[::1], int64)")
def fill_accepted(drawn, words, proposal, centre, factor, table, noise, filled):  # type: ignore[no-untyped-def]
    """Append accepted numbers, from `proposal` on, to the first `filled` of `noise`.

    Stops when either is exhausted, or at an undecided proposal. Returns where it stopped.
    """
    while proposal < drawn.size and filled < noise.size:
        off = np.float64(abs(drawn[proposal])) - centre
        x = off * off * factor
        uniform = np.float64(int64(words[proposal] >> uint64(1))) * _HALF
        if x >= 40.0:
            if uniform <= _NEVER:
                break
        else:
            cell = int64(x * 256.0)
            r = x - np.float64(cell) / 256.0
            share = table[cell] * (1.0 - r * (1.0 - r / 2.0 * (1.0 - r / 3.0 * (1.0 - r / 4.0 * (1.0 - r / 5.0)))))
            if abs(uniform - share) <= share * _ROUNDING + _UNKNOWN:
                break
            if uniform < share:
                noise[filled] = drawn[proposal]
                filled += 1
        proposal += 1
    return proposal, filled
