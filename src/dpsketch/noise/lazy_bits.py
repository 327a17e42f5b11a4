"""Numbers known by the bits drawn so far: what the exact samplers of rounded continuous noise share.

A uniform number is an infinite bit string. A finite part of it gives an interval; where that does not decide the
rounding of a result, more bits are drawn. All arithmetic is on integers, outward.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dpsketch.noise.keystream import Stream

BLOCK = 64  # bits drawn at a time


class Interval(NamedTuple):
    """low/2^places <= the number <= high/2^places, both at least 0."""

    low: int
    high: int
    places: int

    def times(self, other: Interval) -> Interval:
        return Interval(self.low * other.low, self.high * other.high, self.places + other.places)

    def rounded(self) -> int | None:
        """The nearest integer, None where more than one may be the nearest. Ties go up; they have probability zero."""
        half = (1 << self.places) >> 1
        low = (self.low + half) >> self.places
        return low if low == (self.high + half) >> self.places else None


class Number(Protocol):
    """A number above 0 whose interval shrinks as `bits`, those drawn of each of its uniforms, grow."""

    @property
    def bits(self) -> int: ...

    def interval(self) -> Interval: ...

    def refine(self, bits: int, stream: Stream) -> None:
        """Draw until each uniform has at least `bits` bits."""


class Exactly:
    """A double, which is a fraction with a power of two below."""

    bits = 0

    def __init__(self, value: float) -> None:
        numerator, denominator = value.as_integer_ratio()
        self._interval = Interval(numerator, numerator, denominator.bit_length() - 1)

    def interval(self) -> Interval:
        return self._interval

    def refine(self, bits: int, stream: Stream) -> None:
        """Nothing is left to draw."""


def double(number: Number, stream: Stream) -> float:
    """The number within 2^-52 of itself, after as many bits as that takes: 2^-54 for the interval, 2^-53 to round."""
    while True:
        low, high, places = number.interval()
        if (high - low) << 54 <= low:
            return low / (1 << places)
        number.refine(number.bits + BLOCK, stream)


def extended(drawn: int, stream: Stream) -> int:
    """The bits drawn, and BLOCK more."""
    high, low = stream.words(2).tolist()
    return (drawn << BLOCK) | (high << 32) | low


def wrapped(entry: int) -> int:
    """Modulo 2^64, as sums are: what exceeds an int64 is still added right."""
    return ((entry + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
