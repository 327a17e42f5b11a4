"""Estimates beside what is possible: which of them say more than the bounds, and the answers that they become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.answer import TOO_CLOSE, Answer, Causes, Estimate, error_text, number_text, widened
from dpsketch.learn.sql.ranges import ANYTHING, Range
from dpsketch.learn.sql.selection import answer_in_units
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Column

WIDE = "the standard error is as wide as the range of possible values"
FEW = "the number of records in question is not significantly above zero"


@dataclass(frozen=True)
class Finding:
    """Unbiased estimates of one statistic, one a group, what is possible for each, and why nothing is known of some."""

    estimate: Estimate
    stderr: Floats
    least: Floats
    greatest: Floats
    reasons: tuple[str, ...]  # empty where something is known
    how: str = ""
    considered: tuple[tuple[str, float], ...] = ()
    dates: Column | None = None
    laplace: NDArray[np.bool_] | None = None
    causes_of: Callable[[Estimate], Causes] = field(default=lambda estimate: (), repr=False, compare=False)
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> Floats:
        """Inside what is possible; not a number where nothing is known."""
        unknown = np.array([bool(reason) for reason in self.reasons])
        return np.where(unknown, np.nan, np.clip(self.estimate.value, self.least, self.greatest))

    def answers(self) -> list[Answer]:
        return [self._answer(place, value) for place, value in enumerate(self.values.tolist())]

    def _answer(self, place: int, value: float) -> Answer:
        def in_units(number: float) -> Answer:
            return answer_in_units(number, float(self.stderr[place]), self.dates)

        shown, raw = in_units(value), in_units(float(self.estimate.value[place]))
        if self.dates is not None and np.isnan(value):
            shown = Answer(np.datetime64("NaT"), raw.stderr)
        ends = float(self.least[place]), float(self.greatest[place])
        return Answer(
            shown.value,
            raw.stderr,
            self.how,
            considered=self.considered,
            raw=raw.value,
            possible=(in_units(ends[0]).value, in_units(ends[1]).value),
            reason=self.reasons[place],
            laplace=self.laplace is not None and bool(self.laplace[place]),
            causes=self.causes_of(self.estimate[place : place + 1]),
            notes=self.notes,
        )

    def array(self, labels: tuple[str, ...] | None = None) -> Answer:
        """All of them as one answer."""
        reason = next(filter(None, self.reasons), "")
        return Answer(
            self.values,
            self.stderr,
            self.how,
            labels,
            self.considered,
            raw=self.estimate.value,
            possible=(self.least, self.greatest),
            reason=reason,
            laplace=self.estimate.rough,
            causes=self.causes_of(self.estimate),
            notes=self.notes,
        )


def nothing_known(possible: tuple[Any, Any]) -> Any:
    """Standard deviation of the uniform distribution over what is possible: the error of the bounds alone."""
    return (possible[1] - possible[0]) / sqrt(12)


@dataclass(frozen=True)
class Rows:
    """The number of records: noisy, and as the schema declares it."""

    noisy: Estimate
    declared: int | None = None

    @property
    def stderr(self) -> float:
        return float(np.squeeze(self.noisy.stderr))

    @property
    def number(self) -> float:
        """The lesser of the two: noise alone may exceed a small number of records many times over."""
        noisy = float(np.squeeze(self.noisy.value))
        return noisy if self.declared is None else min(noisy, float(self.declared))

    @property
    def swamped(self) -> str:
        """Why nothing but counts and sums is known; empty if the number of records differs significantly from zero."""
        if self.number >= TOO_CLOSE * self.stderr:
            return ""
        text = number_text(self.number, self.stderr)
        return f"the noise hides all records: their number is {text} ± {error_text(self.stderr)}"


def judged(estimate: Estimate, possible: Range, rows: Rows, in_rows: bool = True, null: bool = False) -> Finding:
    """What is known by an estimate. `in_rows` if it grows with the number of records: all others are ratios to it.
    `null` if not-a-number may be the value of a formula, such as a division by zero.
    """
    value, stderr = estimate.value, np.array(estimate.stderr)
    reason = "" if in_rows else rows.swamped
    if not in_rows and not reason and rows.stderr:
        stderr = stderr * widened(np.array(rows.stderr / rows.number))
    widest = nothing_known(possible)
    reasons = []
    for one, error in zip(value.tolist(), stderr.tolist(), strict=True):
        if np.isnan(one):
            reasons.append("" if null or rows.stderr == 0 else reason or FEW)
        elif not np.isfinite(error) and np.isfinite(one):
            reasons.append(reason or FEW)
        else:
            reasons.append(reason or (WIDE if 0 < widest <= error else ""))
    least, greatest = (np.full(len(value), end) for end in possible)
    return Finding(estimate, stderr, least, greatest, tuple(reasons))


def judged_matrix(answer: Answer, possible: Range, rows: Rows) -> Answer:
    """A matrix of ratios, each entry by itself."""
    value, stderr = np.asarray(answer.value), np.asarray(answer.stderr)
    found = judged(Estimate(value.ravel(), stderr.reshape(-1, 1)), possible, rows, in_rows=False)
    reason = next(filter(None, found.reasons), "")
    shown, errors = found.values.reshape(value.shape), found.stderr.reshape(value.shape)
    return replace(answer, value=shown, stderr=errors, raw=value, possible=possible, reason=reason)


def between(none: Finding, all_of: Finding, possible: Range, reason: str) -> Finding:
    """What is known if no record at a bound, or every one, may lie beyond it: nothing but these two limits, each with
    twice its standard error, where both exist.
    """
    ends = [
        np.where(np.isnan(each.estimate.value), end, each.estimate.value + sign * 2 * np.nan_to_num(each.stderr))
        for sign, end in ((-1, possible[0]), (1, possible[1]))
        for each in (none, all_of)
    ]
    least = np.clip(np.minimum(ends[0], ends[1]), *possible)
    greatest = np.clip(np.maximum(ends[2], ends[3]), *possible)
    if possible == ANYTHING:
        least, greatest = np.full_like(least, -np.inf), np.full_like(greatest, np.inf)
    nothing = Estimate(np.full_like(least, np.nan), np.full((len(least), 1), np.nan))
    errors = nothing_known((least, greatest))
    reasons = (reason,) * len(least)
    return Finding(nothing, errors, least, greatest, reasons, none.how, none.considered, none.dates, notes=none.notes)
