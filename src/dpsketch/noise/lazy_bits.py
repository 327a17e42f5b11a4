"""Numbers known by the bits drawn so far, shared by the exact samplers of rounded continuous noise.

A uniform number is an infinite bit string. A finite prefix gives an interval. Where that does not decide the rounding
of a result, more bits are drawn. All arithmetic is on integers and rounds outwards.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dpsketch.noise.keystream import Stream

BLOCK = 64  # bits drawn at a time


class Interval(NamedTuple):
    """low/2^places <= the number <= high/2^places, with both ends at least 0."""

    low: int
    high: int
    places: int

    def times(self, other: Interval) -> Interval:
        return Interval(self.low * other.low, self.high * other.high, self.places + other.places)

    def rounded(self) -> int | None:
        """The nearest integer; None where the interval does not decide it. Ties round up; they have
        probability zero.
        """
        half = (1 << self.places) >> 1
        low = (self.low + half) >> self.places
        return low if low == (self.high + half) >> self.places else None


class Number(Protocol):
    """A positive number whose interval shrinks as `bits`, the bits drawn of each of its uniforms, grow."""

    @property
    def bits(self) -> int: ...

    def interval(self) -> Interval: ...

    def refine(self, bits: int, stream: Stream) -> None:
        """Draw until each uniform has at least `bits` bits."""


class Exactly:
    """A double, as an exact fraction whose denominator is a power of two."""

    bits = 0

    def __init__(self, value: float) -> None:
        numerator, denominator = value.as_integer_ratio()
        self._interval = Interval(numerator, numerator, denominator.bit_length() - 1)

    def interval(self) -> Interval:
        return self._interval

    def refine(self, bits: int, stream: Stream) -> None:
        """Do nothing: there is nothing left to draw."""


def double(number: Number, stream: Stream) -> float:
    """The number to a relative error of 2^-52: 2^-54 from the interval, 2^-53 from rounding. Draws the
    bits it needs.
    """
    while True:
        low, high, places = number.interval()
        if (high - low) << 54 <= low:
            return low / (1 << places)
        number.refine(number.bits + BLOCK, stream)


def extended(drawn: int, stream: Stream) -> int:
    """The bits drawn, with BLOCK more appended."""
    high, low = stream.words(2).tolist()
    return (drawn << BLOCK) | (high << 32) | low


def wrapped(entry: int) -> int:
    """The entry modulo 2^64, like the sums: adding is correct even beyond an int64."""
    return ((entry + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
