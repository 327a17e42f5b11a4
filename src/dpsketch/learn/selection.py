"""Statistics of groups of records: each group is a mask over an estimator's points."""

from __future__ import annotations

from numbers import Real
from typing import Protocol

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer, Estimate
from dpsketch.learn.points import Frame
from dpsketch.schema import Boolean, Column, Datetime, Floats, as_moment, microseconds

_GRID = 128
_LONGEST = 2.0**62  # microseconds


class Estimator(Protocol):
    """Expectations of functions of some columns, from a release."""

    columns: tuple[str, ...]
    how: str

    @property
    def frame(self) -> Frame: ...

    def expect(self, functions: Floats) -> Estimate: ...


class Selection:
    """Groups of records, one row of `masks` each; every statistic has one entry a group.

    Counts and shares are not cut off at zero: they stay unbiased and add up. Missing cells are left out of means,
    variances and quantiles, as in SQL.
    """

    def __init__(self, estimator: Estimator, rows: Estimate, masks: Floats) -> None:
        self._estimator, self._rows, self._masks = estimator, rows, masks

    def share(self) -> Estimate:
        """Share of all records."""
        return self._estimator.expect(self._masks)

    def count(self) -> Estimate:
        return self._rows * self._estimator.expect(self._masks)

    def present(self, column: Column) -> Estimate:
        """Number of records with a value in `column`."""
        return self._rows * self._moment(column, 0, 0.0)

    def sum(self, column: Column) -> Estimate:
        check_arithmetic(column, "sum")
        return self._rows * self._moment(column, 1, 0.0)

    def mean(self, column: Column) -> Estimate:
        check_numeric(column)
        return self._moment(column, 1, 0.0) / self._moment(column, 0, 0.0)

    def var(self, column: Column) -> Estimate:
        """Population variance, computed around the mean so that digits do not cancel."""
        check_arithmetic(column, "variance")
        centre = np.nan_to_num(self.mean(column).value)[:, None]
        present = self._moment(column, 0, 0.0)
        first = self._moment(column, 1, centre) / present
        return (self._moment(column, 2, centre) / present - first * first).clipped(0.0)

    def cdf(self, column: Column, at: Floats) -> Estimate:
        """Share of each group's present records with a value at or below each of `at`: entry [group, at]."""
        check_numeric(column)
        below = (self._estimator.frame.values(column.name)[None, :] <= at[:, None]).astype(np.float64)
        groups = [self._estimator.expect(mask * below) for mask in self._masks]  # one by one: memory
        below_share = Estimate(np.stack([g.value for g in groups]), np.stack([g.influence for g in groups]))
        present = self._moment(column, 0, 0.0)
        return below_share / Estimate(present.value[:, None], present.influence[:, None, :])

    def quantile(self, column: Column, q: float) -> Estimate:
        """The value below which a share q of each group lies; the error of the share over the local density."""
        from scipy.optimize import isotonic_regression

        if not 0 <= q <= 1:
            raise QueryError(f"a quantile is between 0 and 1, got {q:g}", "the median is 0.5")
        exact = column.levels <= 2 * _GRID
        codes = np.linspace(-32767, 32767, column.levels if exact else _GRID + 1)
        grid = column.values_of(np.rint(codes).astype(np.int16))
        cdf = self.cdf(column, grid)
        values, influences = [], []
        for share, influence in zip(cdf.value, cdf.influence, strict=True):
            if np.isnan(share).any():
                values.append(np.nan)
                influences.append(np.full(influence.shape[-1], np.nan))
                continue
            rising = np.clip(isotonic_regression(share).x, 0, 1)
            above = min(int(np.searchsorted(rising, q, side="left")), len(grid) - 1)
            under = max(above - 1, 0)
            if exact or above == under:
                values.append(grid[above])
                influences.append(_level_influence(grid, rising, influence, q, above))
                continue
            part = (q - rising[under]) / max(rising[above] - rising[under], 1e-12)
            values.append(grid[under] + np.clip(part, 0, 1) * (grid[above] - grid[under]))
            low, high = max(above - 2, 0), min(above + 1, len(grid) - 1)
            density = max(rising[high] - rising[low], 1e-9) / (grid[high] - grid[low])
            influences.append(influence[above] / density)
        return Estimate(np.array(values), np.stack(influences))

    def _moment(self, column: Column, power: int, centre: Floats | float) -> Estimate:
        """E[mask · (x − centre)^power] over present cells."""
        values = self._estimator.frame.values(column.name)
        present = ~np.isnan(values)
        distance = np.where(present, values, 0.0)[None, :] - centre
        return self._estimator.expect(self._masks * np.where(present, distance**power, 0.0))


def _level_influence(grid: Floats, shares: Floats, influence: Floats, q: float, level: int) -> Floats:
    """The quantile of a discrete column jumps between levels: its standard error is the spread of the level that
    noise would choose, P(quantile <= level k) = P(noisy share of k >= q); the direction is that of the share's noise.
    """
    from scipy.special import ndtr

    stderr = np.sqrt((influence**2).sum(axis=1))
    reached = ndtr((shares - q) / np.maximum(stderr, 1e-300))
    reached[-1] = 1.0
    chance = np.diff(np.maximum.accumulate(reached), prepend=0.0)
    distance = grid - grid[level]
    spread = float(np.sqrt(max(float(chance @ distance**2 - (chance @ distance) ** 2), 0.0)))
    return influence[level] * (spread / max(stderr[level], 1e-300))


def answer_in_units(value: float, stderr: float, column: Column | None) -> Answer:
    """A number as it is, or as a date with a span of time."""
    if not isinstance(column, Datetime) or not np.isfinite(value):
        return Answer(value, stderr)
    span = np.timedelta64(int(min(stderr, _LONGEST)), "us") if np.isfinite(stderr) else np.timedelta64("NaT")
    return Answer(np.datetime64(int(np.clip(value, -_LONGEST, _LONGEST)), "us"), span)


def column_number(column: Column, value: object) -> float:
    """A user's number or date in the terms of a column."""
    if isinstance(column, Datetime):
        moment = as_moment(str(value) if isinstance(value, np.datetime64) else value)
        if moment is None:
            raise QueryError(f"column '{column.name}' holds dates, got {value!r}", "write dates as '2024-01-31'")
        return float(microseconds(moment))
    if isinstance(value, Real):
        return float(value)
    raise QueryError(f"column '{column.name}' holds numbers, got {value!r}")


def check_numeric(column: Column) -> None:
    if not column.numeric and not isinstance(column, Boolean):
        raise QueryError(
            f"column '{column.name}' is a {column.kind} and has no numeric value", "count it, or group by it"
        )


def check_arithmetic(column: Column, what: str) -> None:
    check_numeric(column)
    if isinstance(column, Datetime):
        raise QueryError(
            f"the {what} of dates in column '{column.name}' is not defined", "ask for the mean or a quantile"
        )
