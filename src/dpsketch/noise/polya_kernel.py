"""Inner loops of the shares of Laplace noise, in a separate module because Numba is slow to import."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.compiler import int64, uint64
from dpsketch.numerics.jit import kernel, part

_HALF = 2.0**-63
_ROUNDING = 2.0**-46  # relative error of a probability, far above that of ten products: docs/proofs/shares.md
_UNKNOWN = 2.0**-62  # bits of the uniform number that a double does not hold


@part
def _value(word, bounds, guide):  # type: ignore[no-untyped-def]
    """The first value whose bound is above this word; -1 where the word's 64 bits do not decide it."""
    value = guide[int64(word >> uint64(56))]
    last = bounds.size - 1
    while value < last and word > bounds[value]:
        value += 1
    return int64(-1) if word >= bounds[value] else int64(value)


@kernel("int64(uint64[::1], uint64[::1], int64[::1], int64[::1], int64[::1])")
def fill_counts(words, bounds, guide, counts, undecided):  # type: ignore[no-untyped-def]
    """Write the number of terms of every word to `counts` and return how many are undecided."""
    count = 0
    for i in range(words.size):
        counts[i] = _value(words[i], bounds, guide)
        if counts[i] < 0:
            undecided[count] = i
            count += 1
    return count


@kernel("UniTuple(int64, 2)(uint64[::1], int64, uint64[::1], int64[::1], float64[:,::1], int64[::1], int64)")
def fill_terms(words, proposal, bounds, guide, powers, terms, filled):  # type: ignore[no-untyped-def]
    """Append accepted proposals, from `proposal` on, to the first `filled` of `terms`.

    Stops when either is exhausted, or at an undecided proposal. Returns where it stopped.
    """
    while 3 * proposal < words.size and filled < terms.size:
        octave = _value(words[3 * proposal], bounds, guide)
        if octave < 0:
            break
        drawn = words[3 * proposal + 1]
        place = int64(0)
        if octave > 0:
            place = int64(drawn >> uint64(64 - octave))
        value = (int64(1) << octave) + place
        share = np.float64(int64(1) << octave) / np.float64(value)
        row = 0
        while place > 0:
            share *= powers[row, place & int64(255)]
            place >>= int64(8)
            row += 1
        uniform = np.float64(int64(words[3 * proposal + 2] >> uint64(1))) * _HALF
        if abs(uniform - share) <= share * _ROUNDING + _UNKNOWN:
            break
        if uniform < share:
            terms[filled] = -value if drawn & uint64(1) else value
            filled += 1
        proposal += 1
    return proposal, filled


@kernel("void(int64[::1], int64[::1], int64[::1])")
def add_terms(counts, terms, noise):  # type: ignore[no-untyped-def]
    """Add to every entry of `noise` the next terms, as many as its count."""
    term = 0
    for i in range(counts.size):
        for _ in range(counts[i]):
            noise[i] += terms[term]
            term += 1
