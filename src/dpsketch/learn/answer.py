"""Numbers with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsketch.schema import Floats


@dataclass(frozen=True)
class Answer:
    """A value and the standard error that the privacy noise gives it; both may be arrays.

    `how` says which part of the release it came from. `labels` names the entries of an array answer.
    The standard error does not cover the error of approximation: see docs/answers.md.
    """

    value: Any
    stderr: Any
    how: str = ""
    labels: tuple[str, ...] | None = None

    def interval(self, factor: float = 1.96) -> tuple[Any, Any]:
        """value ± factor · stderr; 1.96 holds about 95 % of the noise, 94 % where a single sum's noise dominates."""
        return self.value - factor * self.stderr, self.value + factor * self.stderr

    def __str__(self) -> str:
        if isinstance(self.value, float):
            return f"{number_text(self.value, self.stderr)} ± {self.stderr:.2g}"
        if isinstance(self.value, np.datetime64):
            return f"{np.datetime_as_string(self.value, unit='m').replace('T', ' ')} ± {_span_text(self.stderr)}"
        return f"{self.value} ± {self.stderr}"


def _span_text(span: np.timedelta64) -> str:
    """A span of time in the largest unit that it fills."""
    seconds = span / np.timedelta64(1, "s")
    for length, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= length:
            return f"{seconds / length:.2g} {name}"
    return f"{seconds:.2g} seconds"


def number_text(value: float, stderr: float) -> str:
    """A value with as many digits as its standard error supports."""
    if not np.isfinite(value) or not np.isfinite(stderr):
        return str(value)
    if stderr <= 0:
        return f"{value:,.6g}"
    digits = max(0, 1 - int(np.floor(np.log10(stderr))))
    return f"{value:,.{min(digits, 12)}f}"


@dataclass(frozen=True)
class Estimate:
    """k estimates and how each depends on the noise.

    `influence[i, j]` is the change of estimate i when noise coordinate j grows by one standard deviation;
    the noise of different coordinates is independent, so standard errors and covariances of anything computed from
    estimates follow by the chain rule, which the operators below apply.
    """

    value: Floats
    influence: Floats

    @property
    def stderr(self) -> Floats:
        return np.sqrt((self.influence**2).sum(axis=-1))

    def __getitem__(self, index: Any) -> Estimate:
        return Estimate(self.value[index], self.influence[index])

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.value + other.value, self.influence + other.influence)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.influence - other.influence)

    def __mul__(self, other: Estimate) -> Estimate:
        mine, theirs = self.value[..., None], other.value[..., None]
        return Estimate(self.value * other.value, self.influence * theirs + mine * other.influence)

    def __truediv__(self, other: Estimate) -> Estimate:
        """A ratio; not a number where the denominator is not above zero."""
        bottom = np.where(other.value > 0, other.value, np.nan)
        ratio = self.value / bottom
        return Estimate(ratio, (self.influence - ratio[..., None] * other.influence) / bottom[..., None])

    def scaled(self, factor: Floats | float) -> Estimate:
        factor = np.asarray(factor, np.float64)
        return Estimate(self.value * factor, self.influence * factor[..., None])

    def root(self) -> Estimate:
        """Square root; negative estimates of a variance count as zero, with the standard error of the root at
        one standard error of the variance.
        """
        root = np.sqrt(np.maximum(self.value, 0.0))
        slope = 0.5 / np.maximum(root, np.sqrt(np.maximum(self.stderr, 1e-300)))
        return Estimate(root, self.influence * slope[..., None])

    def clipped(self, low: float, high: float = np.inf) -> Estimate:
        return Estimate(np.clip(self.value, low, high), self.influence)
