"""Usual spellings of numbers and dates to their values, and which cells have others.

Guarantee: a value is the one that `encoding.arrow` gives the cell by its slower rules, bit for bit: a decimal number is
the nearest float64. Cells that these kernels do not decide are left to those rules.
"""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.jit import double_bits, high_product, kernel, leading_zeros, part

_TENS = np.array([float(10**power) for power in range(23)])  # exact
_EXACT = 1 << 53
_MOST_DIGITS = 19  # they fit 64 bits
_REACH = 38
_HARD = np.int64(-1)  # the bits of a NaN that no cell has


def _leading(power: int) -> tuple[int, int]:
    """The first 64 bits of 10^power, rounded down, and the power of two that they are multiplied by."""
    above, below = (10**power, 1) if power >= 0 else (1, 10**-power)
    shift = above.bit_length() - below.bit_length() - 64
    while True:
        bits = above // (below << shift) if shift >= 0 else (above << -shift) // below
        if bits < 1 << 63:
            shift -= 1
        elif bits >= 1 << 64:
            shift += 1
        else:
            return bits, shift


_POWERS = [_leading(power) for power in range(-_REACH, _REACH + 1)]
_BITS = np.array([bits for bits, _ in _POWERS], np.uint64)
_SHIFTS = np.array([shift for _, shift in _POWERS], np.int64)


@part
def _nearest(digits, power):  # type: ignore[no-untyped-def]
    """The bits of the float64 nearest to digits·10^power, or _HARD.

    The product with 64 bits of the power is too small by less than one unit of its upper half. It decides the result
    unless that unit could carry into the 54 bits that count, or the number may be a tie (Lemire, 2021).
    """
    if digits <= np.uint64(_EXACT) and -23 < power < 23:
        number = np.float64(digits)
        return double_bits(number * _TENS[power] if power >= 0 else number / _TENS[-power])
    if digits == np.uint64(0) or not -_REACH <= power <= _REACH:
        return _HARD
    zeros = leading_zeros(digits)
    high = high_product(digits << zeros, _BITS[power + _REACH])
    cut = np.uint64(9) + (high >> np.uint64(63))
    rest = high & ((np.uint64(1) << cut) - np.uint64(1))
    if rest & np.uint64(511) == np.uint64(511) or rest == np.uint64(0):
        return _HARD
    mantissa = high >> cut
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    exponent = np.int64(cut) + 65 + _SHIFTS[power + _REACH] - np.int64(zeros)
    if mantissa == np.uint64(_EXACT):
        mantissa, exponent = np.uint64(_EXACT >> 1), exponent + 1
    return ((exponent + 1075) << 52) | np.int64(mantissa & np.uint64((_EXACT >> 1) - 1))


@part
def _blank(byte):  # type: ignore[no-untyped-def]
    return byte == 32 or 9 <= byte <= 13


@part
def _trimmed(data, first, last):  # type: ignore[no-untyped-def]
    while first < last and _blank(data[first]):
        first += 1
    while last > first and _blank(data[last - 1]):
        last -= 1
    return first, last


@kernel("void(Array(uint8, 1, 'C', readonly=True), Array(int64, 1, 'C', readonly=True), int64[::1], boolean[::1])")
def read_numbers(data, offsets, out, hard):  # type: ignore[no-untyped-def]
    """Write the bits of every cell's number to `out`, and mark the cells that are not decided here. Text that is no
    number leaves `out` as it is.
    """
    for cell in range(out.size):
        at, last = _trimmed(data, offsets[cell], offsets[cell + 1])
        negative = at < last and data[at] == 45
        if at < last and (data[at] == 43 or data[at] == 45):
            at += 1
        digits, seen, counted, power = np.uint64(0), 0, 0, 0
        point = False
        while at < last:
            digit = np.int64(data[at]) - 48
            if 0 <= digit <= 9:
                digits = digits * np.uint64(10) + np.uint64(digit)
                seen += 1
                counted += counted > 0 or digit > 0
                power -= point
            elif digit == -2 and not point:
                point = True
            else:
                break
            at += 1
        readable = seen > 0
        if readable and at < last and (data[at] == 69 or data[at] == 101):
            at += 1
            down = at < last and data[at] == 45
            if at < last and (data[at] == 43 or data[at] == 45):
                at += 1
            readable = at < last
            raised = 0
            while at < last and 48 <= data[at] <= 57:
                raised = min(10 * raised + np.int64(data[at]) - 48, 10000)
                at += 1
            power += -raised if down else raised
        hard[cell] = False
        if not readable or at < last:
            continue
        bits = _nearest(digits, power) if counted <= _MOST_DIGITS else _HARD
        hard[cell] = bits == _HARD
        if bits != _HARD:
            out[cell] = bits | (np.int64(negative) << 63)


@part
def _number(data, first, count):  # type: ignore[no-untyped-def]
    """The number that `count` digits are, or −1."""
    number = 0
    for at in range(first, first + count):
        digit = np.int64(data[at]) - 48
        if not 0 <= digit <= 9:
            return -1
        number = 10 * number + digit
    return number


@part
def _day(year, month, day):  # type: ignore[no-untyped-def]
    """Days since 1970 of a date, which may not exist: then −1 as the second number."""
    if year < 1 or not 1 <= month <= 12 or day < 1:
        return 0, -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    most = 30 + (month + month // 8) % 2 if month != 2 else 28 + leap
    if day > most:
        return 0, -1
    early = month < 3
    years = year - early
    in_year = (153 * (month + (9 if early else -3)) + 2) // 5 + day - 1  # from March on
    return 365 * years + years // 4 - years // 100 + years // 400 + in_year - 719468, 0


@kernel("void(Array(uint8, 1, 'C', readonly=True), Array(int64, 1, 'C', readonly=True), float64[::1], boolean[::1])")
def read_moments(data, offsets, out, hard):  # type: ignore[no-untyped-def]
    """Write microseconds since 1970 of YYYY-MM-DD and YYYY-MM-DD HH:MM:SS, also with T, and mark all other cells."""
    for cell in range(out.size):
        first, last = _trimmed(data, offsets[cell], offsets[cell + 1])
        length = last - first
        hard[cell] = True
        if length == 10 or length == 19:
            year, month, day = _number(data, first, 4), _number(data, first + 5, 2), _number(data, first + 8, 2)
            days, wrong = _day(year, month, day)
            seconds = 0
            if data[first + 4] != 45 or data[first + 7] != 45:
                wrong = -1
            if length == 19:
                hour, minute = _number(data, first + 11, 2), _number(data, first + 14, 2)
                second, between = _number(data, first + 17, 2), data[first + 10]
                if (between != 32 and between != 84) or data[first + 13] != 58 or data[first + 16] != 58:
                    wrong = -1
                if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
                    wrong = -1
                seconds = 3600 * hour + 60 * minute + second
            if wrong == 0:
                out[cell] = np.float64((86400 * days + seconds) * 1000000)
                hard[cell] = False
