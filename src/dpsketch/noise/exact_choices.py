"""Exact random choices: coins of a rational probability or of e^−x, and one of several by the exponential mechanism.

Only `sketch.auction_draws` and audits may draw them. Nothing is rounded: all comparisons are of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsketch.noise.keystream import Stream

_BLOCK = 256


class Bits:
    """Whole numbers from a stream of words, drawn in blocks. Words are wiped once they are used."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._words: list[int] = []

    def word(self) -> int:
        if not self._words:
            drawn = self._stream.words(_BLOCK)
            self._words = drawn.tolist()
            drawn.fill(0)
        return self._words.pop()

    def below(self, bound: int) -> int:
        """A uniform number from 0 to bound − 1, by rejection."""
        words = max(1, -(-bound.bit_length() // 32))
        space = 1 << (32 * words)
        limit = space - space % bound
        while True:
            number = 0
            for _ in range(words):
                number = (number << 32) | self.word()
            if number < limit:
                return number % bound


def coin(probability: Fraction, bits: Bits) -> bool:
    """True with exactly this probability."""
    if not 0 <= probability <= 1:
        raise ValueError("probability")
    return bits.below(probability.denominator) < probability.numerator


def coin_of_exponential(exponent: Fraction, bits: Bits) -> bool:
    """True with probability e^−exponent, for an exponent of at least 0, exactly.

    For an exponent x of at most 1, coins of probability x/1, x/2, x/3 … are thrown until one fails; the number of the
    failing one is odd with probability e^−x. Source: Canonne, Kamath and Steinke (NeurIPS 2020), algorithm 1.
    """
    while exponent > 1:
        if not _small_exponential(Fraction(1), bits):
            return False
        exponent -= 1
    return _small_exponential(exponent, bits)


def _small_exponential(exponent: Fraction, bits: Bits) -> bool:
    count = 1
    while coin(exponent / count, bits):
        count += 1
    return count % 2 == 1


def exponential_choice(scores: Sequence[int], rate: Fraction, bits: Bits) -> int:
    """An index with probability proportional to e^(rate·score), exactly: a uniform one, accepted with probability
    e^(−rate·(largest − score)).

    Guarantee: (2·rate·Δ)-differential privacy, and a range of 2·rate·Δ, if scores change by at most Δ.
    """
    largest = max(scores)
    while True:
        index = bits.below(len(scores))
        if coin_of_exponential(rate * (largest - scores[index]), bits):
            return index
