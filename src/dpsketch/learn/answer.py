"""Numbers with their uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from dpsketch.displays import html_table, listed
from dpsketch.errors import QueryError
from dpsketch.numerics.arrays import Floats


@dataclass(frozen=True)
class Answer:
    """A value and its standard error; both may be arrays.

    `how` says which estimate it is, `labels` names the entries of an array answer, `considered` holds every estimate
    that the release allows with its predicted error, the chosen one first; `bounds` is what `bound` asks. What the
    standard error covers: docs/answers.md.
    """

    value: Any
    stderr: Any
    how: str = ""
    labels: tuple[str, ...] | None = None
    considered: tuple[tuple[str, float], ...] = ()
    bounds: Callable[[float], Any] | None = field(default=None, repr=False, compare=False)

    def explain(self) -> str:
        """Which estimate the answer is, which others there were, and how far off each was expected to be."""
        if len(self.considered) < 2:
            return f"{self.how or 'the only estimate'}: the only estimate that this release allows"
        (how, error), *others = self.considered
        lines = [f"{how}: predicted error {error:.3g}, the least of {len(self.considered)}"]
        lines += [f"not {how}: predicted error {error:.3g}" for how, error in others]
        return "\n".join(lines)

    def interval(self, factor: float = 1.96) -> tuple[Any, Any]:
        """value ± factor · stderr; 1.96 holds about 95 % of the noise, 94 % where a single sum's noise dominates."""
        return self.value - factor * self.stderr, self.value + factor * self.stderr

    def bound(self, delta: float) -> Any:
        """What the error exceeds with a probability of at most `delta`: a theorem, so far above the standard error.
        Only answers of hashed counters have one. Source: race Thm 3.4; docs/densities.md.
        """
        if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 < delta < 1:
            raise QueryError(
                f"delta must be a number between 0 and 1, got {delta!r} instead", "0.05 is a common choice"
            )
        if self.bounds is None:
            raise QueryError(
                "no theorem bounds the error of this answer",
                "use interval(), or ask hashed counters: view.kernel_sum(points)",
            )
        return self.bounds(float(delta))

    def __repr__(self) -> str:
        if np.ndim(self.value):
            shape = " × ".join(map(str, np.shape(self.value)))
            return f"Answer({shape} values" + (f": {listed(self.labels)}" if self.labels else "") + f"; {self.how})"
        return f"Answer({self}" + (f", {self.how})" if self.how else ")")

    def _repr_html_(self) -> str:
        """A row for each entry; a matrix has a column for each entry as well."""
        if np.ndim(self.value) == 0:
            return html_table(self.how, ("value ± standard error",), [(str(self),)])
        labels = self.labels or tuple(map(str, range(len(self.value))))
        matrix = np.ndim(self.value) == 2
        header = labels if matrix else ("value ± standard error",)
        values, errors = (array if matrix else array[:, None] for array in (self.value, self.stderr))
        rows = [(label, *map(Answer, value, error)) for label, value, error in zip(labels, values, errors, strict=True)]
        return html_table(self.how, ("", *header), rows)

    def __str__(self) -> str:
        if isinstance(self.value, float):
            return f"{number_text(self.value, self.stderr)} ± {_error_text(self.stderr)}"
        if isinstance(self.value, np.datetime64):
            return f"{np.datetime_as_string(self.value, unit='m').replace('T', ' ')} ± {_span_text(self.stderr)}"
        return f"{self.value} ± {self.stderr}"


def _error_text(stderr: float) -> str:
    """Two digits, and no exponent where zeros will do."""
    text = f"{stderr:.2g}"
    return f"{float(text):,.0f}" if 100 <= float(text) < 1e9 else text


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
    if stderr <= 1e-12 * abs(value) or abs(value) >= 1e15:
        return f"{value:,.6g}"
    digits = max(0, 1 - int(np.floor(np.log10(stderr))))
    return f"{value:,.{min(digits, 12)}f}"


@dataclass(frozen=True)
class Estimate:
    """k estimates and how each depends on the noise.

    `influence[i, j]` is the change of estimate i when noise coordinate j grows by one standard deviation; coordinates
    that an estimate lacks do not move it. The noise of different coordinates is independent, so standard errors and
    covariances of anything computed from estimates follow by the chain rule, which the operators below apply.
    """

    value: Floats
    influence: Floats

    @property
    def stderr(self) -> Floats:
        with np.errstate(over="ignore"):
            found = np.sqrt((self.influence**2).sum(axis=-1))
        odd = (found > 1e150) | (found < 1e-150)  # squares do not fit
        return np.where(odd, np.hypot.reduce(self.influence, axis=-1), found) if odd.any() else found

    def __getitem__(self, index: Any) -> Estimate:
        return Estimate(self.value[index], self.influence[index])

    def __add__(self, other: Estimate) -> Estimate:
        mine, theirs = same_coordinates(self.influence, other.influence)
        return Estimate(self.value + other.value, mine + theirs)

    def __sub__(self, other: Estimate) -> Estimate:
        mine, theirs = same_coordinates(self.influence, other.influence)
        return Estimate(self.value - other.value, mine - theirs)

    def __mul__(self, other: Estimate) -> Estimate:
        mine, theirs = same_coordinates(self.influence, other.influence)
        return Estimate(self.value * other.value, mine * other.value[..., None] + self.value[..., None] * theirs)

    def __truediv__(self, other: Estimate) -> Estimate:
        """A ratio; not a number where the denominator is not above zero."""
        bottom = np.where(other.value > 0, other.value, np.nan)
        ratio = self.value / bottom
        mine, theirs = same_coordinates(self.influence, other.influence)
        return Estimate(ratio, (mine - ratio[..., None] * theirs) / bottom[..., None])

    def over(self, other: Estimate) -> Estimate:
        """A ratio to an estimate that may have either sign; not a number where that is zero."""
        return (self * other) / (other * other)

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
        """Between two bounds; nothing between them is farther off than the farther bound."""
        value = np.clip(self.value, low, high)
        if not np.isfinite(high):
            return Estimate(value, self.influence)
        farthest = np.maximum(value - low, high - value)
        return Estimate(value, self.influence * np.minimum(1.0, farthest / np.maximum(self.stderr, 1e-300))[..., None])


def stacked(estimates: Sequence[Estimate]) -> Estimate:
    """All estimates one after the other."""
    if len(estimates) == 1:
        return estimates[0]
    influences = same_coordinates(*(estimate.influence for estimate in estimates))
    return Estimate(np.concatenate([estimate.value for estimate in estimates]), np.concatenate(influences))


def same_coordinates(*influences: Floats) -> list[Floats]:
    """Influences with as many coordinates as the longest: estimators add coordinates of their own at the end."""
    most = max(influence.shape[-1] for influence in influences)
    return [
        influence
        if influence.shape[-1] == most
        else np.pad(influence, [(0, 0)] * (influence.ndim - 1) + [(0, most - influence.shape[-1])])
        for influence in influences
    ]
