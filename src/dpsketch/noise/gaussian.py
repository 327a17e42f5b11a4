"""Exact rounded Gaussian noise. Only `sketch.release` and audits may draw it.

Sums are integers, so adding round(Z), Z ~ N(0, σ²), is the continuous Gaussian mechanism followed by rounding, which is
post-processing. The subtleties of discrete Gaussians in many dimensions do not arise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import factorial
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import BudgetError
from dpsketch.noise.keystream import Stream
from dpsketch.noise.lazy_bits import BLOCK, Exactly, Interval, Number, double, extended, wrapped
from dpsketch.numerics.precision import precise

MOST_DEVIATION = 2.0**50
OCTAVES, CELLS, TERMS = 24, 64, 8  # table of tail probabilities: octaves, cells per octave, coefficients per cell
_CHUNK = 1 << 15
_PRECISION = 120
_FLOAT_ERROR = 2.0**-44  # error of a quantile from the table, including rounding: docs/proofs/rounded_gaussian.md
_MOST_REMAINDER = 2.0**-50
_FINE_TERMS, _FINE_PLACES = 16, 128  # terms and binary places of the longer polynomials, in integers
_FINE_ERROR = 1 << 32  # their error, in units of 2^-_FINE_PLACES


def rounded_gaussian(size: int, deviation: float, stream: Stream) -> NDArray[np.int64]:
    """Draw `size` independent integers round(σ·Z), Z standard normal, exactly, for any uniform word stream.

    Guarantee: added to integer sums, it is post-processing of the continuous Gaussian mechanism with the same σ.
    Source: docs/proofs/rounded_gaussian.md.

    A uniform is an infinite bit string. Its first 64 bits give a quantile with a proven error from a table of
    polynomials. Where that error could change the rounding, longer polynomials and more bits decide the entry.
    """
    if not 0 < deviation <= MOST_DEVIATION:
        raise BudgetError(
            f"the noise's standard deviation must be above 0 and at most {MOST_DEVIATION:g}",
            "raise epsilon or delta, or use fewer features",
        )
    return scaled_gaussian(size, Exactly(deviation), stream)


def scaled_gaussian(size: int, deviation: Number, stream: Stream) -> NDArray[np.int64]:
    """Draw the same noise for a σ known only by an interval, such as a random one that several entries share."""
    from dpsketch.noise.gaussian_kernel import fill_rounded

    table, rough = quantile_table(), double(deviation, stream)
    noise = np.empty(size, np.int64)
    undecided = np.empty(min(size, _CHUNK), np.int64)
    for start in range(0, size, _CHUNK):
        part = noise[start : start + _CHUNK]
        words = stream.words(2 * part.size).view(np.uint64)
        count = fill_rounded(words, table.coefficients, table.errors, rough, part, undecided)
        for entry in undecided[:count].tolist():
            part[entry] = wrapped(resolve(int(words[entry]), deviation, stream))
        words.fill(0)  # whoever knows the words can subtract the noise
    return noise


@dataclass(frozen=True)
class QuantileTable:
    """Upper quantiles of tail probabilities in (2^-(OCTAVES+1), 1/2), the widest octave first.

    In each cell of an octave, z(p) = Σ c_n·x^n to within `errors[octave]`, with x from −½ to ½ across the cell. The
    error includes that of the 64-bit prefix used for p.
    """

    coefficients: NDArray[np.float64]
    errors: NDArray[np.float64]


@lru_cache(maxsize=1)
def quantile_table() -> QuantileTable:
    """Compute Taylor polynomials at the midpoint of each cell, with coefficients correctly rounded from high precision.

    With p = Q(z), the nth derivative of z is (−1)^n·P_n(z)/φ(z)^n, P_1 = 1, P_(n+1) = P_n' + n·z·P_n: non-negative
    coefficients, so that the remainder in a cell is largest at its smaller p, where z is at most the next cell's.
    """
    coefficients = np.empty((OCTAVES * CELLS, TERMS))
    polynomials = [[1]]
    for n in range(1, TERMS):
        polynomials.append(_next(polynomials[-1], n))
    with precise(_PRECISION) as exact:
        widths, middles = [], []
        for octave in range(OCTAVES):
            width = exact.ldexp(1, -2 - octave) / CELLS  # width of a cell, in p
            for cell in range(CELLS - 1, -1, -1):
                widths.append(width)
                middles.append((CELLS + cell + exact.mpf(1) / 2) * width)
        quantiles = _quantiles(exact, [*middles, middles[-1] * (1 - exact.mpf(1) / CELLS)])
        for index, (middle, width) in enumerate(zip(quantiles[:-1], widths, strict=True)):
            octave, cell = divmod(index, CELLS)
            row = octave * CELLS + CELLS - 1 - cell
            density = exact.npdf(middle)
            coefficients[row, 0] = float(middle)
            for n in range(1, TERMS):
                derivative = (-1) ** n * _value(polynomials[n - 1], middle) / density**n
                coefficients[row, n] = float(derivative * width**n / factorial(n))
            outer = quantiles[index + 1]
            bound = _value(polynomials[TERMS - 1], outer) / exact.npdf(outer) ** TERMS
            if bound * (width / 2) ** TERMS / factorial(TERMS) > _MOST_REMAINDER:
                raise AssertionError("the remainder of the table's polynomials is too large")
    # A prefix of 64 bits leaves x uncertain by 2^-(56−octave); a cell spans less than 2^-5 in z.
    errors = np.array([_FLOAT_ERROR + 2.0 ** (octave - 56 - 5) for octave in range(OCTAVES)])
    return QuantileTable(coefficients, errors)


def _next(polynomial: list[int], n: int) -> list[int]:
    """P_(n+1) = P_n' + n·z·P_n, coefficients by rising power."""
    shifted = [0] + [n * number for number in polynomial]
    for power, number in enumerate(polynomial[1:], start=1):
        shifted[power - 1] += power * number
    return shifted


def _value(polynomial: list[int], z: Any) -> Any:
    total = 0
    for number in reversed(polynomial):
        total = total * z + number
    return total


def _quantiles(exact: Any, tails: list[Any]) -> list[Any]:
    """Upper quantiles. One Newton step from double precision leaves an error below z·step², far below 2^-70."""
    quantiles = []
    for tail in tails:
        start = exact.mpf(-NormalDist().inv_cdf(float(tail)))
        step = (_tail(exact, start) - tail) / exact.npdf(start)
        if abs(step) > exact.ldexp(1, -40):
            raise AssertionError("the double-precision quantile is inaccurate")
        quantiles.append(start + step)
    return quantiles


def _tail(exact: Any, z: Any) -> Any:
    return exact.erfc(z / exact.sqrt(2)) / 2


def resolve(word: int, deviation: Number, stream: Stream) -> int:
    """The entry whose uniform starts with this 64-bit word: the top bit is the sign, the rest a tail probability.

    σ·z grows with σ and falls with the tail probability. If the ends of both intervals give the same integer, it is
    decided.
    """
    sign = -1 if word >> 63 else 1
    tail = Interval(word & (2**63 - 1), (word & (2**63 - 1)) + 1, 64)
    while True:
        entry = _by_table(tail, deviation.interval())
        if entry is None and tail.places > BLOCK:  # more bits are cheaper than more precision
            entry = _by_tails(tail, deviation.interval())
        if entry is not None:
            return sign * entry
        drawn = extended(tail.low, stream)
        tail = Interval(drawn, drawn + 1, tail.places + BLOCK)
        deviation.refine(tail.places, stream)


def _by_table(tail: Interval, deviation: Interval) -> int | None:
    """round(σ·z) by a polynomial in integers; None where its error, or the uncertainty of σ and p, could change it."""
    drawn, _, bits = tail
    octave = bits - 1 - drawn.bit_length()
    shift = bits - 8 - octave
    if octave >= OCTAVES:
        return None
    cell, rest = (drawn >> shift) - CELLS, drawn & ((1 << shift) - 1)
    x = ((rest << _FINE_PLACES) >> shift) - (1 << (_FINE_PLACES - 1))
    z = 0
    for coefficient in _fine_coefficients(octave, cell):
        z = ((z * x) >> _FINE_PLACES) + coefficient
    unknown = 1 << max(_FINE_PLACES - shift - 5, 0)  # z moves by less than 2^-5 in a cell
    quantile = Interval(max(z - unknown - _FINE_ERROR, 0), z + _FINE_ERROR, _FINE_PLACES)
    return deviation.times(quantile).rounded()


@lru_cache(maxsize=OCTAVES * CELLS)
def _fine_coefficients(octave: int, cell: int) -> tuple[int, ...]:
    """The Taylor polynomial of `quantile_table` with twice the number of terms, highest power first."""
    with precise(2 * _PRECISION) as exact:
        width = exact.ldexp(1, -2 - octave) / CELLS
        tail = (CELLS + cell + exact.mpf(1) / 2) * width
        (middle,) = _quantiles(exact, [tail])
        middle += (_tail(exact, middle) - tail) / exact.npdf(middle)
        density = exact.npdf(middle)
        coefficients, polynomial = [middle], [1]
        for n in range(1, _FINE_TERMS):
            derivative = (-1) ** n * _value(polynomial, middle) / density**n
            coefficients.append(derivative * width**n / factorial(n))
            polynomial = _next(polynomial, n)
        outer = middle + exact.ldexp(1, -5)
        remainder = _value(polynomial, outer) / exact.npdf(outer) ** _FINE_TERMS
        remainder *= (width / 2) ** _FINE_TERMS / factorial(_FINE_TERMS)
        if _tail(exact, outer) > tail - width / 2 or exact.ldexp(remainder, _FINE_PLACES + 1) > _FINE_ERROR:
            raise AssertionError("the remainder of the table's polynomials is too large")
        return tuple(int(exact.nint(exact.ldexp(number, _FINE_PLACES))) for number in reversed(coefficients))


def _by_tails(tail: Interval, deviation: Interval) -> int | None:
    """round(σ·z) from tail probabilities in high precision at both ends."""
    low = _rounded_quantile(tail.high, tail.places, deviation.low, deviation.places)
    high = _rounded_quantile(tail.low, tail.places, deviation.high, deviation.places)
    return low if low == high else None


def _rounded_quantile(drawn: int, bits: int, numerator: int, places: int) -> int | None:
    """round(σ·z) with Q(z) = drawn/2^bits, at most ½, and σ = numerator/2^places; None where that is not certain."""
    if drawn == 0:
        return None
    precision = bits + 128
    with precise(precision) as exact:
        target, deviation = exact.ldexp(drawn, -bits), exact.ldexp(numerator, -places)
        z = exact.sqrt(-2 * exact.log(2 * target))
        for _ in range(200):
            value = _tail(exact, z)
            step = (exact.log(value) - exact.log(target)) * value / exact.npdf(z)
            z += step
            if abs(step) * deviation < exact.ldexp(1, -20):
                break
        nearest = max(int(exact.floor(z * deviation + exact.mpf(1) / 2)), 0)
        margin = exact.ldexp(1, 64 - precision)
        for entry in (nearest, nearest + 1, max(nearest - 1, 0)):  # close to a boundary, z may be on the wrong side
            above = _tail(exact, (entry + exact.mpf(1) / 2) / deviation) + margin < target
            below = entry == 0 or target < _tail(exact, (entry - exact.mpf(1) / 2) / deviation) - margin
            if above and below:
                return entry
        return None
