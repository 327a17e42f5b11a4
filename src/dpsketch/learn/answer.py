"""Numbers with their uncertainty."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from dpsketch.displays import html_table, listed, plain_number
from dpsketch.errors import QueryError
from dpsketch.learn.answer_arithmetic import TOO_CLOSE, Arithmetic, widened
from dpsketch.learn.answer_pictures import Binned, answer_picture
from dpsketch.learn.error_shape import error_quantiles
from dpsketch.numerics.arrays import Floats
from dpsketch.plots.drawing import Drawing

__all__ = ["TOO_CLOSE", "Answer", "Estimate", "error_text", "number_text", "stacked", "widened"]
_MOMENTS = (np.datetime64, np.timedelta64)
_UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
# A format of a number, perhaps with a width for the whole text: >20.2f.
_NUMBER_FORMAT = re.compile(r"((?:.?[<>^])?\d*)([-+ ]?[,_]?(?:\.\d+)?[eEfFgGn%]?)")
Causes = tuple[tuple[str, float], ...]  # causes of an error and their shares of its variance


@dataclass(frozen=True)
class Answer(Arithmetic):
    """A value and its standard error; both may be arrays.

    `float(answer)` is the value, `f"{answer:.2f}"` keeps the error, `+ - * /` carry it (see `Arithmetic`). There is no
    `<` or `>`: compare `value`, or an end of `interval()`, with a number.

    `how` says which estimate it is, `labels` names the entries of an array answer, `considered` holds every estimate
    that the release allows with its predicted error, the chosen one first; `bounds` is what `bound` asks.

    `possible` are the least and the greatest value that any table could have; `value` lies between them, `raw` is the
    unbiased estimate, which may not. Where nothing is known, `reason` says why and `value` is not a number.
    The shape of the error is that of Laplace noise, or normal by default. What ± means: docs/plus-minus.md.
    """

    value: Any
    stderr: Any
    how: str = ""
    labels: tuple[str, ...] | None = None
    considered: tuple[tuple[str, float], ...] = ()
    bounds: Callable[[float], Any] | None = field(default=None, repr=False, compare=False)
    raw: Any = None
    possible: tuple[Any, Any] = (-np.inf, np.inf)
    reason: str = ""
    laplace: bool = False  # one number with Laplace noise dominates the error, or its size is only roughly known
    causes: Causes = ()  # of the error, the largest share first; none where the estimator does not tell them apart
    notes: tuple[str, ...] = ()  # what `explain` says beside the estimates, such as which labels were pooled
    derived: bool = False  # computed from other answers
    binned: Binned | None = field(default=None, repr=False, compare=False)  # what a histogram is drawn over

    def __post_init__(self) -> None:
        if self.raw is None:
            object.__setattr__(self, "raw", self.value)

    @property
    def known(self) -> Any:
        """False where the release says no more than the bounds; of an array answer, one truth for each entry."""
        if np.ndim(self.value) == 0:
            return not self.reason
        return ~np.isnan(self.value) if self.reason else np.ones(np.shape(self.value), bool)

    def explain(self) -> str:
        """Which estimate the answer is, which others there were, the predicted error of each, and the shares of the
        causes in the variance of the answer's own error, where the estimator separates them.
        """
        lines = [f"not known: {self.reason}"] if self.reason else []
        if self.derived:
            return "\n".join([*lines, f"computed from answers: {self.how}", *self.notes])
        error = [self._by_cause()] if np.any(np.nan_to_num(np.asarray(self.stderr).astype(np.float64)) > 0) else []
        if len(self.considered) < 2:
            only = f"{self.how or 'the only estimate'}: the only estimate that this release allows"
            return "\n".join([*lines, only, *error, *self.notes])
        (how, least), *others = self.considered
        lines += [f"{how}: predicted error {least:.3g}, the least of {len(self.considered)}"]
        lines += [f"not {how}: predicted error {more:.3g}" for how, more in others]
        return "\n".join([*lines, *error, *self.notes])

    def _by_cause(self) -> str:
        if not self.causes:
            return "variance of the error: its causes are not told apart"
        shown = [f"{share:.0%} {cause}" for cause, share in self.causes if share >= 0.005]
        return f"variance of the error: {', '.join(shown)}"

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """The confidence interval of a level, inside what is possible; all that is possible where nothing is known."""
        half = _half_width(level, self.laplace) * self.stderr
        low, high = self.value - half, self.value + half
        least, greatest = self.possible
        if isinstance(self.value, _MOMENTS) and not isinstance(least, type(self.value)):
            return low, high
        low, high = np.fmax(low, least), np.fmin(high, greatest)  # not a number gives way
        return (low, high) if np.ndim(self.value) or isinstance(low, _MOMENTS) else (float(low), float(high))

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
        picture = answer_picture(self, self.binned)
        return self._html_rows() if picture is None else self._html_rows() + Drawing((picture,)).svg

    def plot(self) -> Drawing:
        """A picture of a histogram or of a matrix."""
        picture = answer_picture(self, self.binned)
        if picture is None:
            raise QueryError(
                "there is no picture of this answer", "histograms and matrices of up to 40 columns have one"
            )
        return Drawing((picture,))

    def _html_rows(self) -> str:
        labels = self.labels or tuple(map(str, range(len(self.value))))
        matrix = np.ndim(self.value) == 2
        header = labels if matrix else ("value ± standard error",)
        values, errors = (array if matrix else array[:, None] for array in (self.value, self.stderr))
        least, greatest = (np.broadcast_to(end, np.shape(self.value)).reshape(values.shape) for end in self.possible)
        rows = [
            (label, *map(self._entry, *entries))
            for label, *entries in zip(labels, values, errors, least, greatest, strict=True)
        ]
        return html_table(self.how, ("", *header), rows)

    def _entry(self, value: Any, stderr: Any, least: Any, greatest: Any) -> Answer:
        return Answer(value, stderr, possible=(least, greatest), reason=self.reason if np.isnan(value) else "")

    def __float__(self) -> float:
        """The value alone, not a number where nothing is known."""
        if np.ndim(self.value) or isinstance(self.value, _MOMENTS):
            what = "an answer with several values" if np.ndim(self.value) else "an answer in dates"
            raise TypeError(f"{what} is not a number: use its value")
        return float(self.value)

    def __format__(self, spec: str) -> str:
        """Both numbers in a format for one: `.2f` gives 38.60 ± 0.10. Formats of texts apply to all of it; those of
        dates, such as %Y-%m-%d, to the date.
        """
        scalar = np.ndim(self.value) == 0 and bool(self.known)
        if scalar and isinstance(self.value, np.datetime64) and "%" in spec:
            return f"{self.value.astype('datetime64[us]').item():{spec}} ± {_span_text(self.stderr)}"
        parts = _NUMBER_FORMAT.fullmatch(spec)
        if scalar and parts and parts[2] and not isinstance(self.value, _MOMENTS):
            return format(f"{self.value:{parts[2]}} ± {self.stderr:{parts[2].lstrip('+- ')}}", parts[1])
        return format(str(self), parts[1] if parts else spec)

    def __str__(self) -> str:
        if np.ndim(self.value) == 0 and not self.known:
            return f"not known{_range_text(*self.possible)}"
        if isinstance(self.value, float):
            return f"{number_text(self.value, self.stderr)} ± {error_text(self.stderr)}"
        if isinstance(self.value, np.datetime64):
            return f"{_date_text(self.value)} ± {_span_text(self.stderr)}"
        if isinstance(self.value, np.timedelta64):
            length, name = _unit_of(max(abs(self.value), self.stderr))
            value, stderr = (span / np.timedelta64(length, "s") for span in (self.value, self.stderr))
            return f"{number_text(value, stderr)} ± {error_text(stderr)} {name}"
        return f"{self.value} ± {self.stderr}"


def _half_width(level: float, laplace: bool) -> float:
    """Half the width of the interval of a level, in standard errors."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < level < 1:
        factor = isinstance(level, Real) and level > 1
        hint = "value ± 1.96 standard errors is level 0.95" if factor else "0.95 is a common choice"
        raise QueryError(f"the level of an interval must be a number between 0 and 1, got {level!r} instead", hint)
    return float(error_quantiles(np.array(0.5 + level / 2), laplace))


def _range_text(least: Any, greatest: Any) -> str:
    if isinstance(least, np.datetime64):
        return f" ({_date_text(least)} to {_date_text(greatest)})"
    if isinstance(least, np.timedelta64):
        return f" ({_span_text(least)} to {_span_text(greatest)})"
    low, high = (plain_number(end) for end in (least, greatest))
    if np.isfinite(least) and np.isfinite(greatest):
        return f" ({low} to {high})"
    return f" ({low} or more)" if np.isfinite(least) else f" (at most {high})" if np.isfinite(greatest) else ""


def _date_text(moment: np.datetime64) -> str:
    return str(np.datetime_as_string(moment, unit="m").replace("T", " "))


def error_text(stderr: float) -> str:
    """Two digits, and no exponent where zeros will do."""
    text = f"{stderr:.2g}"
    return f"{float(text):,.0f}" if 100 <= float(text) < 1e9 else text


def _unit_of(span: np.timedelta64) -> tuple[int, str]:
    """The largest unit that a span of time fills, in seconds, and its name."""
    seconds = abs(span) / np.timedelta64(1, "s")
    return next((unit for unit in _UNITS if seconds >= unit[0]), _UNITS[-1])


def _span_text(span: np.timedelta64) -> str:
    length, name = _unit_of(span)
    return f"{span / np.timedelta64(length, 's'):.2g} {name}"


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

    `rough` if the influence is itself uncertain, as that of a fitted dependence between columns: a normal error whose
    variance is spread like an exponential distribution's is distributed as Laplace noise is.
    Source: Andrews & Mallows, JRSS B 36 (1974) 99.
    """

    value: Floats
    influence: Floats
    rough: bool = False

    @property
    def stderr(self) -> Floats:
        with np.errstate(over="ignore"):
            found = np.sqrt((self.influence**2).sum(axis=-1))
        odd = (found > 1e150) | (found < 1e-150)  # squares do not fit
        return np.where(odd, np.hypot.reduce(self.influence, axis=-1), found) if odd.any() else found

    def __getitem__(self, index: Any) -> Estimate:
        return Estimate(self.value[index], self.influence[index], self.rough)

    def __add__(self, other: Estimate) -> Estimate:
        mine, theirs = same_coordinates(self.influence, other.influence)
        return Estimate(self.value + other.value, mine + theirs, self.rough or other.rough)

    def __sub__(self, other: Estimate) -> Estimate:
        mine, theirs = same_coordinates(self.influence, other.influence)
        return Estimate(self.value - other.value, mine - theirs, self.rough or other.rough)

    def __mul__(self, other: Estimate) -> Estimate:
        mine, theirs = same_coordinates(self.influence, other.influence)
        influence = mine * other.value[..., None] + self.value[..., None] * theirs
        return Estimate(self.value * other.value, influence, self.rough or other.rough)

    def __truediv__(self, other: Estimate) -> Estimate:
        """A ratio; not a number where the denominator is not above zero.

        The standard error grows as the denominator comes near zero: `widened`.
        """
        bottom = np.where(other.value > 0, other.value, np.nan)
        ratio = self.value / bottom
        with np.errstate(invalid="ignore"):
            wider = widened(other.stderr / bottom) / bottom
            mine, theirs = same_coordinates(self.influence, other.influence)
            influence = (mine - ratio[..., None] * theirs) * wider[..., None]
        return Estimate(ratio, influence, self.rough or other.rough)

    def over(self, other: Estimate) -> Estimate:
        """A ratio to an estimate that may have either sign; not a number where that is zero."""
        sign = np.where(other.value < 0, -1.0, 1.0)
        return self.scaled(sign) / other.scaled(sign)

    def scaled(self, factor: Floats | float) -> Estimate:
        factor = np.asarray(factor, np.float64)
        return Estimate(self.value * factor, self.influence * factor[..., None], self.rough)

    def root(self) -> Estimate:
        """Square root; negative estimates of a variance count as zero. The slope is that one standard error below, so
        that two of them reach to the root two below, and a variance that is large by noise does not look precise; it is
        at most that at one standard error.
        """
        root, stderr = np.sqrt(np.maximum(self.value, 0.0)), self.stderr
        slope = 0.5 / np.sqrt(np.maximum(np.maximum(self.value - stderr, stderr), 1e-300))
        return Estimate(root, self.influence * slope[..., None], self.rough)

    def clipped(self, low: float, high: float = np.inf) -> Estimate:
        """Between two bounds; nothing between them is farther off than the farther bound."""
        value = np.clip(self.value, low, high)
        if not np.isfinite(high):
            return Estimate(value, self.influence, self.rough)
        farthest = np.maximum(value - low, high - value)
        smaller = np.minimum(1.0, farthest / np.maximum(self.stderr, 1e-300))
        return Estimate(value, self.influence * smaller[..., None], self.rough)


def stacked(estimates: Sequence[Estimate]) -> Estimate:
    """All estimates one after the other."""
    if len(estimates) == 1:
        return estimates[0]
    influences = same_coordinates(*(estimate.influence for estimate in estimates))
    rough = any(each.rough for each in estimates)
    return Estimate(np.concatenate([each.value for each in estimates]), np.concatenate(influences), rough)


def same_coordinates(*influences: Floats) -> list[Floats]:
    """Influences with as many coordinates as the longest: estimators add coordinates of their own at the end."""
    most = max(influence.shape[-1] for influence in influences)
    return [
        influence
        if influence.shape[-1] == most
        else np.pad(influence, [(0, 0)] * (influence.ndim - 1) + [(0, most - influence.shape[-1])])
        for influence in influences
    ]
