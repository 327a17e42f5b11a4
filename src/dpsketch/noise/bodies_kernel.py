"""Inner loops of noise from a body, in a separate module because Numba is slow to import."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.compiler import int64, uint64
from dpsketch.numerics.jit import kernel, part

_MAGNITUDE = np.uint64(2**63 - 1)
_UNIT = 2.0**-63
_ROUNDING = 2.0**-50  # rounding error of an entry, relative to the radius: docs/proofs/bodies.md
_NEAR_CIRCLE = 2.0**-50
_UNDECIDED = np.int64(-(2**63))


@part
def _entry(word, radius):  # type: ignore[no-untyped-def]
    """The radius times the number in [-1, 1] that starts with this word, rounded; or _UNDECIDED."""
    y = np.float64(int64(word & _MAGNITUDE)) * _UNIT * radius
    whole = np.floor(y)
    if abs(y - whole - 0.5) <= radius * _ROUNDING or y >= 4503599627370496.0:
        return _UNDECIDED
    entry = int64(whole) + (int64(1) if y - whole > 0.5 else int64(0))
    return -entry if word >> uint64(63) else entry


@kernel("int64(uint64[::1], float64, int64[::1], int64[::1])")
def fill_cube(words, radius, noise, undecided):  # type: ignore[no-untyped-def]
    """Write the entry of every word to `noise` and return the number of undecided entries."""
    count = 0
    for i in range(words.size):
        noise[i] = _entry(words[i], radius)
        if noise[i] == _UNDECIDED:
            undecided[count] = i
            count += 1
    return count


@kernel("UniTuple(int64, 3)(uint64[::1], int64, float64, int64[::1], int64, int64[:,::1])")
def fill_discs(words, candidate, radius, noise, pairs, undecided):  # type: ignore[no-untyped-def]
    """Append the candidates inside the unit disc, from `candidate` on, to the first `pairs` pairs of `noise`.

    Stops when either is exhausted, or at a candidate too close to the circle to decide. Returns the candidate where it
    stopped, the number of pairs in `noise`, and the number of undecided entries; `undecided` holds their indices in
    `noise` and in `words`.
    """
    count = 0
    while 2 * candidate < words.size and 2 * pairs < noise.size:
        x = np.float64(int64(words[2 * candidate] & _MAGNITUDE)) * _UNIT
        y = np.float64(int64(words[2 * candidate + 1] & _MAGNITUDE)) * _UNIT
        excess = x * x + y * y - 1.0
        if abs(excess) <= _NEAR_CIRCLE:
            break
        if excess < 0.0:
            for side in range(2):
                place = 2 * pairs + side
                noise[place] = _entry(words[2 * candidate + side], radius)
                if noise[place] == _UNDECIDED:
                    undecided[count, 0] = place
                    undecided[count, 1] = 2 * candidate + side
                    count += 1
            pairs += 1
        candidate += 1
    return candidate, pairs, count
