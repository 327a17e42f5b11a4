"""Shares of discrete Laplace noise, exactly. Only `sketch.release` and audits may draw them.

A geometric number is a sum of n independent Pólya (negative binomial) numbers of shape 1/n, so discrete Laplace noise
is a sum of n differences of two of them: n holders can each add one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import BudgetError
from dpsketch.noise.keystream import Stream
from dpsketch.noise.laplace import MOST_NOISE_SCALE
from dpsketch.noise.lazy_bits import wrapped
from dpsketch.noise.lazy_choices import accepted, chosen, first_words
from dpsketch.numerics.precision import precise

BYTES = 8  # of a number within an octave
_CHUNK = 1 << 14
_WORDS = 3  # 64-bit words of a proposal: its octave, its place there with a sign, and whether it is accepted
_TRIES = 1.8  # proposals a term, a little more than are needed
_SPARE = 64


def polya_difference(size: int, noise_scale: Fraction, shares: int, stream: Stream) -> NDArray[np.int64]:
    """Draw `size` independent integers of which a sum of `shares` is discrete Laplace noise, exactly.

    Guarantee: a sum of `shares` independent draws z has P(z) ∝ exp(−|z|/noise_scale), for any uniform word stream.
    Source: docs/proofs/shares.md.

    Each is a sum of a Poisson number of terms with random signs, and each term a logarithmic number: P(k) ∝ a^k/k. It
    is proposed within an octave 2^j <= k < 2^(j+1), chosen in proportion to a^(2^j), and accepted with the probability
    a^(k−2^j)·2^j/k. A word whose bits do not yet decide gets more bits.
    """
    if not 0 < noise_scale <= MOST_NOISE_SCALE or shares < 1:
        raise BudgetError(
            f"the noise scale must be above 0 and at most {MOST_NOISE_SCALE}", "raise epsilon or use fewer features"
        )
    from dpsketch.noise.polya_kernel import add_terms, fill_counts

    law = _law(noise_scale, shares)
    noise, counts = np.zeros(size, np.int64), np.empty(min(size, _CHUNK), np.int64)
    undecided = np.empty(min(size, _CHUNK), np.int64)
    for start in range(0, size, _CHUNK):
        part = noise[start : start + _CHUNK]
        words = stream.words(2 * part.size).view(np.uint64)
        count = fill_counts(words, law.counts, law.count_guide, counts[: part.size], undecided)
        for index in undecided[:count].tolist():
            counts[index] = law.count_of(int(words[index]), stream)
        terms = _terms(int(counts[: part.size].sum()), law, stream)
        add_terms(counts[: part.size], terms, part)
        for secret in (words, terms, counts):  # whoever knows them can subtract the noise
            secret.fill(0)
    return noise


def _terms(size: int, law: _Law, stream: Stream) -> NDArray[np.int64]:
    """Logarithmic numbers with random signs."""
    from dpsketch.noise.polya_kernel import fill_terms

    terms = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        proposals = int(_TRIES * (size - filled)) + _SPARE
        words = stream.words(2 * _WORDS * proposals).view(np.uint64)
        proposal = 0
        while True:
            proposal, filled = fill_terms(words, proposal, law.octaves, law.octave_guide, law.powers, terms, filled)
            if filled == size or proposal == proposals:
                break
            term = law.term_of([int(word) for word in words[_WORDS * proposal : _WORDS * (proposal + 1)]], stream)
            if term is not None:
                terms[filled] = term
                filled += 1
            proposal += 1
        words.fill(0)
    return terms


@dataclass(frozen=True)
class _Law:
    """Tables of the number of terms and of a term, for log a = −rate."""

    rate: Fraction
    shares: int
    counts: NDArray[np.uint64]
    count_guide: NDArray[np.int64]
    octaves: NDArray[np.uint64]
    octave_guide: NDArray[np.int64]
    powers: NDArray[np.float64]  # a^(256^i·d) in row i, column d, correctly rounded

    def count_of(self, word: int, stream: Stream) -> int:
        return chosen(word, *_counts(self.rate, self.shares), stream)

    def term_of(self, words: list[int], stream: Stream) -> int | None:
        """The proposal of these words, drawing more bits as needed; None where it is rejected."""
        octave = chosen(words[0], *_octaves(self.rate), stream)
        place, known = words[1] >> 1, 63
        while known < octave:
            high, low = stream.words(2).tolist()
            place, known = (place << 64) | (high << 32) | low, known + 64
        place >>= known - octave
        value = (1 << octave) + place

        def probability(exact: Any) -> Any:
            return exact.exp(-_number(exact, self.rate * place)) * (exact.mpf(1 << octave) / value)

        if not accepted(words[2], probability, stream):
            return None
        return wrapped(-value if words[1] & 1 else value)


@lru_cache(maxsize=64)
def _law(noise_scale: Fraction, shares: int) -> _Law:
    rate = 1 / noise_scale
    counts, octaves = first_words(*_counts(rate, shares)), first_words(*_octaves(rate))
    with precise(256) as exact:
        powers = np.array(
            [[float(exact.exp(-_number(exact, rate * 256**i * d))) for d in range(256)] for i in range(BYTES)]
        )
    return _Law(rate, shares, counts, _guide(counts), octaves, _guide(octaves), powers)


def _counts(rate: Fraction, shares: int) -> tuple[Any, Any]:
    """Poisson weights, of mean (2/shares)·(−ln(1−a)): the terms of two Pólya numbers of shape 1/shares."""
    weights: dict[tuple[int, int], Any] = {}

    def mean(exact: Any) -> Any:
        return -2 * exact.log(-exact.expm1(-_number(exact, rate))) / shares

    def weight(exact: Any, value: int) -> Any:
        key = exact.prec, value
        if key not in weights:
            weights[key] = weight(exact, value - 1) * mean(exact) / value if value else exact.mpf(1)
        return weights[key]

    return weight, lambda exact: exact.exp(mean(exact))


def _octaves(rate: Fraction) -> tuple[Any, Any]:
    """Weights a^(2^j), with which octaves are proposed."""

    def weight(exact: Any, octave: int) -> Any:
        return exact.exp(-_number(exact, rate * 2**octave))

    def total(exact: Any) -> Any:
        every, octave, more = exact.mpf(0), 0, weight(exact, 0)
        first = more
        while more > exact.ldexp(first, -exact.prec - 8):
            every, octave = every + more, octave + 1
            more = weight(exact, octave)
        return every

    return weight, total


def _guide(bounds: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For every leading byte of a word, the first value that such a word can stand for."""
    starts = np.arange(256, dtype=np.uint64) << np.uint64(56)
    return np.minimum(np.searchsorted(bounds, starts, side="left"), len(bounds) - 1).astype(np.int64)


def _number(exact: Any, fraction: Fraction) -> Any:
    return exact.mpf(fraction.numerator) / fraction.denominator
