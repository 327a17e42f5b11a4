"""Exact rounded noise from a randomly scaled body. Only `sketch.release` and audits may draw it.

For the norm whose unit ball is the body K, noise with density ∝ exp(−‖z‖_K/scale) is pure ε-differentially private for
sums that change by at most scale·ε in that norm between neighbouring tables. Sums are integers, so rounding the noise
is post-processing. One random radius is common to the whole vector: two vectors that need separate guarantees need
separate draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import BudgetError
from dpsketch.noise.gaussian import scaled_gaussian
from dpsketch.noise.keystream import Stream
from dpsketch.noise.lazy_bits import BLOCK, Interval, Number, double, extended, wrapped
from dpsketch.numerics.precision import precise

MOST_SCALE = Fraction(2**50)
_CHUNK = 1 << 15
_FACTORS = 32  # factors multiplied before the product is cut to its leading bits
_SIGN = 63  # position of the sign bit in a word; the bits below start a number in [0, 1)


def disc_noise(pairs: int, scale: Fraction, stream: Stream) -> NDArray[np.int64]:
    """Draw `pairs` pairs of noise: a common random radius times points of the unit disc, rounded, exactly.

    Guarantee: added to integer sums whose pairs change by at most Δ each, in Euclidean length, between neighbouring
    tables, it gives (Δ/scale)-differential privacy, for any uniform word stream. Source: docs/proofs/bodies.md.
    """
    from dpsketch.noise.bodies_kernel import fill_discs

    radius = _Radius(_checked(scale), _Gamma(2 * pairs + 1, stream))
    rough = double(radius, stream)
    noise = np.empty(2 * pairs, np.int64)
    filled = 0
    while filled < pairs:
        candidates = min((pairs - filled) * 4 // 3 + 4, _CHUNK)
        words = stream.words(4 * candidates).view(np.uint64)
        undecided = np.empty((2 * candidates, 2), np.int64)
        candidate = 0
        while True:
            candidate, filled, count = fill_discs(words, candidate, rough, noise, filled, undecided)
            for index, source in undecided[:count].tolist():
                noise[index] = _Coordinate.of(words[source]).resolved(radius, stream)
            if candidate == candidates or filled == pairs:
                break
            point = [_Coordinate.of(word) for word in words[2 * candidate : 2 * candidate + 2]]
            if _inside(point, stream):
                noise[2 * filled : 2 * filled + 2] = [coordinate.resolved(radius, stream) for coordinate in point]
                filled += 1
            candidate += 1
        words.fill(0)  # whoever knows the words can subtract the noise
    return noise


def cube_noise(size: int, scale: Fraction, stream: Stream) -> NDArray[np.int64]:
    """Draw noise: a random radius times a point of the cube [−1, 1]^size, rounded, exactly.

    Guarantee: added to integer sums which change by at most Δ each between neighbouring tables, it gives
    (Δ/scale)-differential privacy, for any uniform word stream. Source: docs/proofs/bodies.md.
    """
    from dpsketch.noise.bodies_kernel import fill_cube

    radius = _Radius(_checked(scale), _Gamma(size + 1, stream))
    rough = double(radius, stream)
    noise = np.empty(size, np.int64)
    undecided = np.empty(min(size, _CHUNK), np.int64)
    for start in range(0, size, _CHUNK):
        part = noise[start : start + _CHUNK]
        words = stream.words(2 * part.size).view(np.uint64)
        count = fill_cube(words, rough, part, undecided)
        for index in undecided[:count].tolist():
            part[index] = _Coordinate.of(words[index]).resolved(radius, stream)
        words.fill(0)  # whoever knows the words can subtract the noise
    return noise


def ball_noise(dimension: int, scale: Fraction, stream: Stream) -> NDArray[np.int64]:
    """Draw the upper triangle, row by row, of a symmetric matrix with density ∝ exp(−‖Z‖_F/scale), rounded, exactly.

    Guarantee: added to the upper triangle of a symmetric matrix of integer sums which changes by at most Δ in the
    Frobenius norm between neighbouring tables, it gives (Δ/scale)-differential privacy, for any uniform word stream.
    Source: docs/proofs/bodies.md.

    Such noise is Gaussian with a random variance scale²·χ². Its degrees of freedom are the number of coordinates plus
    one; where that would be odd, one more coordinate is added and never used.
    """
    _checked(scale)
    size = dimension * (dimension + 1) // 2
    halved = _Gamma(size // 2 + 1, stream)  # χ²/2
    row = np.arange(dimension)
    diagonal = np.zeros(size, np.bool_)
    diagonal[row * (2 * dimension + 1 - row) // 2] = True
    noise = np.empty(size, np.int64)
    noise[diagonal] = scaled_gaussian(dimension, _Root(2 * scale**2, halved), stream)
    noise[~diagonal] = scaled_gaussian(size - dimension, _Root(scale**2, halved), stream)
    return noise


def _checked(scale: Fraction) -> Fraction:
    if not 0 < scale <= MOST_SCALE:
        raise BudgetError(
            f"the noise scale must be above 0 and at most {MOST_SCALE}", "raise epsilon or use fewer features"
        )
    return scale


class _Gamma:
    """Σ −ln U_i over `count` uniforms, with the bits drawn so far."""

    def __init__(self, count: int, stream: Stream) -> None:
        self.count, self.bits = count, 0
        self._drawn = [0] * count
        self.refine(BLOCK, stream)

    def refine(self, bits: int, stream: Stream) -> None:
        """Draw until each uniform has `bits` bits, and further while one is all zeros: the sum then has no upper bound
        yet.
        """
        if bits <= self.bits:
            return
        while self.bits < bits or not all(self._drawn):
            words = stream.words(2 * self.count).view(np.uint64).tolist()
            pairs = zip(self._drawn, words, strict=True)
            self._drawn = [(drawn << BLOCK) | word for drawn, word in pairs] if self.bits else words
            self.bits += BLOCK
        self.interval = self._sum()

    def _sum(self) -> Interval:
        """The interval of the sum, from one logarithm: that of the product's lower end. ln(1 + x) <= x bounds the
        difference.
        """
        keep, places = self.bits + 64, self.bits + 32
        least, cut = _product(self._drawn, keep, 0)
        most, cut_too = _product([drawn + 1 for drawn in self._drawn], keep, 1)
        with precise(self.bits + 128) as exact:
            total = -exact.log(exact.ldexp(least, cut - self.count * self.bits))
            high = int(exact.floor(exact.ldexp(total, places))) + 2  # one for the floor, one for rounding errors
        least, most = least << max(cut - cut_too, 0), most << max(cut_too - cut, 0)
        spread = -((least - most << places) // least)
        return Interval(max(high - 3 - spread, 0), high, places)


def _product(factors: list[int], keep: int, up: int) -> tuple[int, int]:
    """m and e such that m·2^e is the product, truncated to `keep` leading bits or, where `up` is 1,
    rounded up to them.
    """
    mantissa, exponent = 1, 0
    for start in range(0, len(factors), _FACTORS):
        mantissa *= prod(factors[start : start + _FACTORS])
        cut = mantissa.bit_length() - keep
        if cut > 0:
            mantissa = (mantissa >> cut) + up
            exponent += cut
    return mantissa, exponent


@dataclass(frozen=True)
class _OfGamma:
    """A number that is a function of `factor` and a sum Σ −ln U_i, known to the precision of that sum."""

    factor: Fraction
    gamma: _Gamma

    @property
    def bits(self) -> int:
        return self.gamma.bits

    def refine(self, bits: int, stream: Stream) -> None:
        self.gamma.refine(bits, stream)

    def _times(self, more_places: int) -> Interval:
        """factor·Σ −ln U_i, with `more_places` binary places more than the sum."""
        low, high, places = self.gamma.interval
        above, below = self.factor.numerator << more_places, self.factor.denominator
        return Interval(low * above // below, -(-high * above // below), places + more_places)


class _Radius(_OfGamma):
    """factor·Σ −ln U_i."""

    def interval(self) -> Interval:
        return self._times(0)


class _Root(_OfGamma):
    """√(factor·Σ −ln U_i)."""

    def interval(self) -> Interval:
        places = self.gamma.interval.places
        low, high, _ = self._times(places)
        return Interval(isqrt(low), isqrt(high) + 1, places)


@dataclass
class _Coordinate:
    """A number in [−1, 1]: a sign, and a uniform with `bits` bits drawn so far."""

    negative: bool
    drawn: int
    bits: int = _SIGN

    @classmethod
    def of(cls, word: np.uint64) -> _Coordinate:
        return cls(bool(int(word) >> _SIGN), int(word) & ((1 << _SIGN) - 1))

    def extend(self, stream: Stream) -> None:
        self.drawn, self.bits = extended(self.drawn, stream), self.bits + BLOCK

    def resolved(self, radius: Number, stream: Stream) -> int:
        """The radius times this coordinate, rounded. Draws bits until they decide it."""
        while True:
            entry = radius.interval().times(Interval(self.drawn, self.drawn + 1, self.bits)).rounded()
            if entry is not None:
                return wrapped(-entry if self.negative else entry)
            self.extend(stream)
            radius.refine(self.bits, stream)


def _inside(point: list[_Coordinate], stream: Stream) -> bool:
    """Whether the point lies in the unit disc. Draws more bits while its cell crosses the circle."""
    while True:
        circle = 1 << 2 * point[0].bits
        if sum((coordinate.drawn + 1) ** 2 for coordinate in point) <= circle:
            return True
        if sum(coordinate.drawn**2 for coordinate in point) >= circle:
            return False
        for coordinate in point:
            coordinate.extend(stream)
