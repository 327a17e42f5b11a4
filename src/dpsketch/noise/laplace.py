"""Exact discrete Laplace noise on integers. Only `sketch.release` and audits may draw it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import BudgetError
from dpsketch.noise.keystream import Stream
from dpsketch.numerics.precision import precise

_BASE = 256
_CHUNK = 4096
MOST_NOISE_SCALE = Fraction(2**50)


def discrete_laplace(size: int, noise_scale: Fraction, stream: Stream) -> NDArray[np.int64]:
    """Draw `size` independent integers z with P(z) ∝ exp(−|z|/noise_scale), exactly.

    Guarantee: added to integer sums of L1 sensitivity Δ, it gives (Δ/noise_scale)-differential privacy, for any uniform
    word stream. Source: docs/proofs/discrete_laplace.md.

    Each z is the difference of two geometric numbers. A geometric number has independent base-256 digits, each drawn by
    inversion from one 32-bit word. A word whose bits do not yet decide the digit gets more bits.
    """
    if not 0 < noise_scale <= MOST_NOISE_SCALE:
        raise BudgetError(
            f"the noise scale must be above 0 and at most {MOST_NOISE_SCALE}", "raise epsilon or use fewer features"
        )
    from dpsketch.noise.laplace_kernel import fill_digits

    digits = _digits(noise_scale)
    bounds, guides = _tables(noise_scale)
    noise = np.zeros(size, np.int64)
    undecided = np.empty(2 * len(digits) * min(size, _CHUNK), np.int64)
    for start in range(0, size, _CHUNK):
        part = noise[start : start + _CHUNK]
        words = stream.words(2 * len(digits) * part.size)
        count = fill_digits(words, bounds, guides, part, undecided)
        for index in undecided[:count].tolist():
            sign_and_digit, entry = divmod(index, part.size)
            sign, position = divmod(sign_and_digit, len(digits))
            value = digits[position].resolve(int(words[index]), stream)
            part[entry] += (1 - 2 * sign) * value * _BASE**position
        words.fill(0)  # whoever knows the words can subtract the noise
    return noise


@dataclass(frozen=True)
class _Digit:
    """Distribution of one digit: P(digit <= d) = (1 − q^(d+1)) / (1 − q^256), with log q = −rate.

    The last digit is unbounded, and its distribution has no denominator.
    """

    rate: Fraction
    last: bool
    bounds: NDArray[np.uint32]
    guide: NDArray[np.uint8]

    def resolve(self, word: int, stream: Stream) -> int:
        """The digit given its first 32 bits. Draws 64 more whenever they do not decide it."""
        bits, drawn = 32, word
        while True:
            low, high = (_digit_at(self.rate, self.last, Fraction(edge, 1 << bits)) for edge in (drawn, drawn + 1))
            if low is not None and low == high:
                return low
            more = stream.words(2)
            drawn = (drawn << 64) | (int(more[0]) << 32) | int(more[1])
            bits += 64


def _cumulative(exact: Any, rate: Fraction, last: bool, digit: int) -> Any:
    """P(digit' <= digit) in the precision of the context `exact`."""
    exponent = exact.mpf(rate.numerator) / rate.denominator
    share = -exact.expm1(-exponent * (digit + 1))
    return share if last else share / -exact.expm1(-exponent * _BASE)


def _digit_at(rate: Fraction, last: bool, point: Fraction) -> int | None:
    """The digit whose cell contains `point`; None where that is uncertain, or beyond all digits."""
    if point >= 1:
        return None if last else _BASE - 1
    precision = point.denominator.bit_length() + 128
    with precise(precision) as exact:
        target = exact.mpf(point.numerator) / point.denominator
        exponent = exact.mpf(rate.numerator) / rate.denominator
        scaled = target if last else target * -exact.expm1(-exponent * _BASE)
        digit = int(exact.floor(-exact.log1p(-scaled) / exponent))
        margin = exact.ldexp(1, 64 - precision)  # 2^64 times the rounding error of either side
        above = digit == 0 or _cumulative(exact, rate, last, digit - 1) + margin < target
        below = (digit == _BASE - 1 and not last) or target < _cumulative(exact, rate, last, digit) - margin
        return digit if above and below else None


@lru_cache(maxsize=64)
def _digits(noise_scale: Fraction) -> tuple[_Digit, ...]:
    """Digits from the least significant up. The last is unbounded; above 255, once in a million, it is
    resolved singly.
    """
    rate = 1 / noise_scale
    rates = [rate]
    while rates[-1] * _BASE < 14:
        rates.append(rates[-1] * _BASE)
    return tuple(_digit(rate, last=rate == rates[-1]) for rate in rates)


@lru_cache(maxsize=64)
def _tables(noise_scale: Fraction) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Bounds and guides of all digits, one row per digit."""
    digits = _digits(noise_scale)
    return np.stack([digit.bounds for digit in digits]), np.stack([digit.guide for digit in digits])


def _digit(rate: Fraction, last: bool) -> _Digit:
    bounds = np.array([_first_word(rate, last, digit) for digit in range(_BASE)], np.uint32)
    guide = np.searchsorted(bounds, (np.arange(256, dtype=np.uint64) << np.uint64(24)).astype(np.uint32), side="left")
    return _Digit(rate, last, bounds, np.minimum(guide, 255).astype(np.uint8))


def _first_word(rate: Fraction, last: bool, digit: int) -> int:
    """floor(2^32 · P(digit' <= digit)), exactly: precision grows until rounding errors cannot change it."""
    if digit == _BASE - 1 and not last:
        return 2**32 - 1  # the probability is 1; the all-ones word is left to `resolve`
    precision = 128
    while True:
        with precise(precision) as exact:
            share = _cumulative(exact, rate, last, digit)
            if 1 - share < exact.ldexp(1, -64):
                return 2**32 - 1
            margin = exact.ldexp(1, 64 - precision)
            low, high = (int(exact.floor((share + side) * 2**32)) for side in (-margin, margin))
        if low == high:
            return low
        precision *= 2
