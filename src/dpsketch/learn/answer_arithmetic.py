"""Arithmetic on answers: exact with numbers, conservative between answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from math import sqrt
from numbers import Real
from typing import Any

import numpy as np

TOO_CLOSE = 2.0  # standard errors between a denominator and zero
DIVIDED = "the denominator is not significantly different from zero"
_MOMENTS = (np.datetime64, np.timedelta64)
_ANYTHING = (-np.inf, np.inf)
Ends = tuple[Any, Any]
_QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what overflows is infinite or not a number


class Arithmetic:
    """`+ - * /` with numbers, dates and spans of time, and with other answers.

    A number has no error, so the standard error is exact; that of a number divided by an answer follows Fieller's
    interval. Between two answers it is the largest that any correlation of their errors allows, since an answer does
    not keep how it depends on the noise: the error of a sum or difference is the sum of both errors. A statement that
    asks for all of it, such as `sum(a) - sum(b)`, has the exact error, which is often smaller.

    Estimates are computed from `raw`, as inside a statement, and then moved into what is possible.
    """

    __array_ufunc__ = None  # numbers and arrays of NumPy leave the operation to the answer
    value: Any
    stderr: Any
    raw: Any
    possible: Ends

    @_QUIET
    def __add__(self, other: Any) -> Any:
        if isinstance(other, Arithmetic):
            (low, high), (least, greatest) = _ends(self), _ends(other)
            return _made(self, self.raw + other.raw, self.stderr + other.stderr, (low + least, high + greatest), other)
        number = _exact(other)
        if number is NotImplemented:
            return NotImplemented
        low, high = _ends(self)
        return _made(self, self.raw + number, self.stderr, (low + number, high + number))

    __radd__ = __add__

    def __neg__(self) -> Any:
        low, high = _ends(self)
        return _made(self, -self.raw, self.stderr, (-high, -low))

    @_QUIET
    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Arithmetic):
            (low, high), (least, greatest) = _ends(self), _ends(other)
            return _made(self, self.raw - other.raw, self.stderr + other.stderr, (low - greatest, high - least), other)
        number = _exact(other)
        if number is NotImplemented:
            return NotImplemented
        low, high = _ends(self)
        return _made(self, self.raw - number, self.stderr, (low - number, high - number))

    @_QUIET
    def __rsub__(self, other: Any) -> Any:
        number = _exact(other)
        if number is NotImplemented:
            return NotImplemented
        low, high = _ends(self)
        return _made(self, number - self.raw, self.stderr, (number - high, number - low))

    @_QUIET
    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Arithmetic):
            stderr = abs(self.raw) * other.stderr + abs(other.raw) * self.stderr
            stderr = stderr + sqrt(2) * self.stderr * other.stderr  # the spread of a product of two equal errors
            return _made(self, self.raw * other.raw, stderr, _products(_ends(self), _ends(other)), other)
        number = _exact(other)
        if number is NotImplemented:
            return NotImplemented
        return _made(self, self.raw * number, self.stderr * abs(number), _products(_ends(self), (number, number)))

    __rmul__ = __mul__

    @_QUIET
    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Arithmetic):
            wider, inverse = _widened(other), _inverses(_ends(other))
            bottom = np.where(wider < np.inf, other.raw, np.nan)
            ratio = self.raw / bottom
            stderr = (self.stderr + abs(ratio) * other.stderr) / abs(bottom) * wider
            stderr = np.where(wider < np.inf, stderr, np.inf)
            return _made(self, ratio, stderr, _products(_ends(self), inverse), other, DIVIDED)
        number = _exact(other)
        if number is NotImplemented:
            return NotImplemented
        if np.any(number == 0):
            raise ZeroDivisionError("an answer divided by zero")
        ends = [end / number for end in _ends(self)] if _has_ends(self) else _ANYTHING
        return _made(self, self.raw / number, self.stderr / abs(number), (np.minimum(*ends), np.maximum(*ends)))

    @_QUIET
    def __rtruediv__(self, other: Any) -> Any:
        number = _exact(other)
        if number is NotImplemented:
            return NotImplemented
        wider = _widened(self)
        bottom = np.where(wider < np.inf, self.raw, np.nan)
        ratio = number / bottom
        stderr = np.where(wider < np.inf, abs(ratio) * self.stderr / abs(bottom) * wider, np.inf)
        ends = _products((number, number), _inverses(_ends(self)))
        return _made(self, ratio, stderr, ends, reason=DIVIDED)


def widened(relative: Any) -> Any:
    """The factor by which the relative standard error of a denominator widens that of a ratio: TOO_CLOSE standard
    errors are half of Fieller's interval of that width. Infinite where zero is within TOO_CLOSE standard errors of the
    denominator: nothing bounds such a ratio. Source: Fieller, JRSS B 16 (1954) 175.
    """
    doubt = (TOO_CLOSE * relative) ** 2
    with np.errstate(divide="ignore"):
        return np.asarray(1 / (1 - np.minimum(doubt, 1.0)))


def _exact(number: Any) -> Any:
    """A number, an array of numbers, a date or a span of time, as NumPy computes with it."""
    if isinstance(number, timedelta):
        return np.timedelta64(number, "us")
    if isinstance(number, date):
        return np.datetime64(number, "us")
    if isinstance(number, _MOMENTS) or (isinstance(number, Real) and not isinstance(number, bool | np.bool_)):
        return number
    if isinstance(number, np.ndarray) and number.dtype.kind in "iuf":
        return number
    return NotImplemented


def _has_ends(answer: Any) -> bool:
    """Whether the ends of what is possible are of the kind of the answer itself: those of a date may be infinite."""
    return not isinstance(answer.raw, _MOMENTS) or all(isinstance(end, type(answer.raw)) for end in answer.possible)


def _ends(answer: Any) -> Ends:
    """What is possible; not a time where nothing bounds a date."""
    if _has_ends(answer):
        return (answer.possible[0], answer.possible[1])
    nothing = type(answer.raw)("NaT")
    return nothing, nothing


def _products(one: Ends, two: Ends) -> Ends:
    """The interval of the products of numbers from two intervals."""
    with np.errstate(invalid="ignore"):
        every = [np.multiply(left, right) for left in one for right in two]
    if every[0].dtype.kind != "m":
        every = [np.where(np.isnan(each), 0.0, each) for each in every]  # zero times infinity
    return np.minimum.reduce(every), np.maximum.reduce(every)


def _inverses(ends: Ends) -> Ends:
    """The interval of 1/x for the numbers of an interval but zero."""
    low, high = np.asarray(ends[0], np.float64), np.asarray(ends[1], np.float64)
    with np.errstate(divide="ignore"):
        least = np.where((low < 0) & (high > 0), -np.inf, np.where(high == 0, -np.inf, 1 / high))
        greatest = np.where((low < 0) & (high > 0), np.inf, np.where(low == 0, np.inf, 1 / low))
    return least, greatest


def _widened(denominator: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = denominator.stderr / np.abs(np.asarray(denominator.raw))
        return np.asarray(widened(np.nan_to_num(relative, nan=np.inf)))


def _made(first: Any, raw: Any, stderr: Any, ends: Ends, second: Any = None, reason: str = "") -> Any:
    """The answer with these numbers; not known where an operand is not known or, with this reason, where the
    computation itself says nothing.
    """
    operands = [each for each in (first, second) if each is not None]
    reasons = [each.reason for each in operands if each.reason]
    unknown = np.any([np.isnan(np.broadcast_to(each.value, np.shape(raw))) for each in operands if each.reason], axis=0)
    if not reasons and reason and np.any(np.isnan(raw)):
        reasons = [reason]
    low, high = ends
    bounded = not np.any(np.isnan(low)) and not np.any(np.isnan(high))
    value = np.clip(raw, low, high) if bounded else raw
    if np.ndim(raw) == 0:
        value = type(raw)("NaT") if np.any(unknown) and isinstance(raw, _MOMENTS) else value
        value = np.nan if np.any(unknown) and not isinstance(raw, _MOMENTS) else value
    elif reasons:
        value = np.where(unknown, np.nan, value)
    plain = [each if np.ndim(each) or isinstance(each, _MOMENTS) else float(each) for each in (value, stderr, raw)]
    possible = (low, high) if bounded else _ANYTHING
    if np.ndim(low) == 0 and not isinstance(low, _MOMENTS) and bounded:
        possible = float(low), float(high)
    return replace(
        first,
        value=plain[0],
        stderr=plain[1],
        raw=plain[2],
        possible=possible,
        how="; ".join(dict.fromkeys(each.how for each in operands if each.how)),
        considered=(),
        bounds=None,
        reason=next(iter(reasons), ""),
        laplace=np.any([each.laplace for each in operands], axis=0) if second is not None else first.laplace,
        notes=tuple(dict.fromkeys(note for each in operands for note in each.notes)),
        derived=True,
    )
