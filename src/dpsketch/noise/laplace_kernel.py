"""Inner loop of the discrete Laplace noise, in a separate module because Numba is slow to import."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.jit import kernel


@kernel("int64(uint32[::1], uint32[:,::1], uint8[:,::1], int64[::1], int64[::1])")
def fill_digits(words, bounds, guides, noise, undecided):  # type: ignore[no-untyped-def]
    """Add both geometric numbers of every entry to `noise` and return the number of undecided words."""
    digits, size = bounds.shape[0], noise.size
    count = 0
    for block in range(2 * digits):
        position = block % digits
        bound, guide = bounds[position], guides[position]
        step = np.int64(1) << np.int64(8 * position)
        if block >= digits:
            step = -step
        for entry in range(size):
            word = words[block * size + entry]
            digit = np.int64(guide[word >> np.uint32(24)])
            while word > bound[digit] and digit < 255:
                digit += 1
            if word >= bound[digit]:
                undecided[count] = block * size + entry
                count += 1
            else:
                noise[entry] += step * digit
    return count
