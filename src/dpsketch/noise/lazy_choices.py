"""Exact choices by uniform numbers known by the bits drawn so far: one of many values, or yes or no.

A uniform number is an infinite bit string of which 64 bits are drawn first. Where these do not decide, probabilities
are computed in more precision and more bits are drawn. Source: docs/proofs/shares.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.noise.keystream import Stream
from dpsketch.noise.lazy_bits import BLOCK, extended
from dpsketch.numerics.precision import precise

_GUARD = 64  # bits of precision left for the rounding errors of a probability
_EXTRA = 128  # bits of precision beyond those of the uniform number

Weight = Callable[[Any, int], Any]  # the weight of value 0, 1, … in the precision of a context


def chosen(word: int, weight: Weight, total: Callable[[Any], Any], stream: Stream) -> int:
    """The value d with P(d' < d) <= U < P(d' <= d), where U starts with this word and P is in proportion to weights.

    `total` is the sum of all weights, to the precision of its context.
    """
    bits, drawn = BLOCK, word
    while True:
        precision = bits + _EXTRA
        with precise(precision) as exact:
            margin = exact.ldexp(1, _GUARD - precision)
            low, high = exact.ldexp(drawn, -bits), exact.ldexp(drawn + 1, -bits)
            every, value, below = total(exact), 0, exact.mpf(-1)
            above = weight(exact, 0) / every
            while above + margin <= low and above < 1 - margin:
                value, below = value + 1, above
                above += weight(exact, value) / every
            if below + margin <= low and high <= above - margin:
                return value
        drawn, bits = extended(drawn, stream), bits + BLOCK


def accepted(word: int, probability: Callable[[Any], Any], stream: Stream) -> bool:
    """Whether U, which starts with this word, is below a probability."""
    bits, drawn = BLOCK, word
    while True:
        precision = bits + _EXTRA
        with precise(precision) as exact:
            limit, margin = probability(exact), exact.ldexp(1, _GUARD - precision)
            if exact.ldexp(drawn + 1, -bits) <= limit - margin:
                return True
            if exact.ldexp(drawn, -bits) >= limit + margin:
                return False
        drawn, bits = extended(drawn, stream), bits + BLOCK


def first_words(weight: Weight, total: Callable[[Any], Any]) -> NDArray[np.uint64]:
    """⌊2^64·P(d' <= d)⌋ for d = 0, 1, … up to the first where that is all ones, exactly."""
    precision = 256
    while (bounds := _floors(weight, total, precision)) is None:
        precision *= 2
    return np.array(bounds, np.uint64)


def _floors(weight: Weight, total: Callable[[Any], Any], precision: int) -> list[int] | None:
    """The bounds; None where rounding errors could change one of them."""
    bounds: list[int] = []
    with precise(precision) as exact:
        every, share, margin = total(exact), exact.mpf(0), exact.ldexp(1, _GUARD - precision)
        while True:
            share += weight(exact, len(bounds)) / every
            if 1 - share < exact.ldexp(1, -2 * BLOCK):
                return [*bounds, 2**BLOCK - 1]
            low, high = (int(exact.floor(exact.ldexp(share + side, BLOCK))) for side in (-margin, margin))
            if low != high:
                return None
            bounds.append(low)
