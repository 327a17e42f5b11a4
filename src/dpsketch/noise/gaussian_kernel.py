"""Inner loop of the rounded Gaussian, in a separate module because Numba is slow to import."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.compiler import int64, uint64
from dpsketch.numerics.jit import double_bits, kernel

_TAIL = np.uint64(2**63 - 1)
_LEAST = np.uint64(2**39)  # smaller words are beyond the table's 24 octaves
_ROUNDING = 2.0**-50  # rounding error of the product and of the deviation itself: docs/proofs/rounded_gaussian.md


@kernel("int64(uint64[::1], float64[:,::1], float64[::1], float64, int64[::1], int64[::1])")
def fill_rounded(words, coefficients, errors, deviation, noise, undecided):  # type: ignore[no-untyped-def]
    """Write the rounded quantile of every word to `noise` and return the number of undecided entries."""
    count = 0
    for i in range(words.size):
        tail = uint64(words[i] & _TAIL)
        if tail < _LEAST:
            undecided[count] = i
            count += 1
            continue
        # 24 leading bits are exact in a double: its exponent is the position of the first set bit.
        top = int64(double_bits(np.float64(int64(tail >> uint64(39)))) >> int64(52)) - int64(1023)
        octave = int64(23) - top
        shift = uint64(int64(56) - octave)
        cell = int64(tail >> shift) & int64(63)
        rest = int64(tail & ((uint64(1) << shift) - uint64(1)))
        x = np.float64(rest) / np.float64(uint64(1) << shift) - 0.5
        c = coefficients[octave * 64 + cell]
        z = c[7]
        for n in range(6, -1, -1):
            z = z * x + c[n]
        y = z * deviation
        whole = np.floor(y)
        if abs(y - whole - 0.5) <= deviation * errors[octave] + y * _ROUNDING or y >= 4503599627370496.0 or y < 0.0:
            undecided[count] = i
            count += 1
            continue
        entry = int64(whole) + (int64(1) if y - whole > 0.5 else int64(0))
        noise[i] = -entry if words[i] >> uint64(63) else entry
    return count
