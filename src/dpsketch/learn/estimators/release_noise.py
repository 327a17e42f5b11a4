"""The error of a release as one vector of independent coordinates, and the noisy number of records."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import sqrt

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Causes, Estimate
from dpsketch.learn.shared import Guard
from dpsketch.maps.base import RecordCount, Sums
from dpsketch.maps.tables.column_summaries import NoisyTotals, noisy_totals
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.recipe import declared_rows
from dpsketch.schema.relation import Relation
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

_BLOCK = 1 << 20
# Causes of errors, as texts.
NOISE = "privacy noise"
FITTED = "privacy noise and bias of the fit"  # refits have both
COUNTED = "privacy noise of the number of records"
MASKED = "privacy noise and the choice of features"
SAMPLED = "the sampling of rows"
FLOOR = "the least error that is stated"
UNRESOLVED = "what the sums do not resolve"


class ReleaseNoise:
    """Places every part's sums in one vector of noise coordinates.

    A table of counters, which may have 10^9 of them, has a single coordinate: the noise of its total. Pair tables
    and contrasts with marginals have none: what their noise does is found by fitting to new noise, in coordinates that
    the estimator reserves.
    """

    def __init__(self, released: ReleasedSketch) -> None:
        self.parts = released.parts
        self.sampling, self._schema = released.recipe.sampling, released.schema
        self._starts = np.cumsum([0] + [bound.noise_coordinates(released.maps) for bound in released.maps])
        self._reserved, self._lock = self.coordinates, Guard()
        self._released = released
        self._causes = [*zip(self._starts, map(_cause_of, self.parts), strict=False)]
        if self.sampling is not None:
            self._causes.append((self._starts[-1], SAMPLED))

    @property
    def coordinates(self) -> int:
        """The noise of every part and, last, the chance in the number of rows that were sampled."""
        return int(self._starts[-1]) + (self.sampling is not None)

    def reserve(self, *errors: tuple[str, int]) -> int:
        """The first of further coordinates, for errors that an estimator knows of by itself: the cause of each, and its
        number of coordinates.
        """
        with self._lock:
            first = self._reserved
            for cause, count in errors:
                self._causes.append((self._reserved, cause))
                self._reserved += count
            return first

    def causes(self, estimate: Estimate) -> Causes:
        """The shares of the causes in the variances of estimates, the largest first; none where there is no error."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.nan_to_num(estimate.influence.reshape(-1, estimate.influence.shape[-1]), posinf=0.0) ** 2
        squares = squares.sum(axis=0)
        total, shares = squares.sum(), dict.fromkeys((cause for _, cause in self._causes), 0.0)
        if not np.isfinite(total) or total <= 0:
            return ()
        ends = [*(start for start, _ in self._causes[1:]), len(squares)]
        for (start, cause), end in zip(self._causes, ends, strict=True):
            shares[cause] += float(squares[start:end].sum() / total)
        return tuple(sorted(((cause, share) for cause, share in shares.items() if share), key=lambda each: -each[1]))

    def place(self, part: ReleasedPart, gradient: Floats, first: int = 0) -> Floats:
        """Influence of a gradient with respect to sums first, first+1, … of a part: one row an estimate.

        For a table of counters the gradient has one entry, with respect to the total of its sums.
        """
        influence = np.zeros((*gradient.shape[:-1], self.coordinates))
        start = self._starts[self.parts.index(part)] + first
        variance = self.variance(part) * (part.map.size if part.map.counter_table else 1)
        influence[..., start : start + gradient.shape[-1]] = gradient * np.sqrt(variance)
        return influence

    def place_total(self, column: str, gradient: Floats) -> Floats:
        """The same with respect to the sum of a column's codes, wherever it is known best."""
        total = self.totals[column]
        return self.place(self.parts[total.part], gradient, total.place)

    @cached_property
    def totals(self) -> NoisyTotals:
        return released_totals(self._released)

    def variance(self, part: ReleasedPart) -> float:
        """Variance of each sum: that of the noise and, if the map is subsampled, that of the masks, as if each feature
        had its own: rate·(1 − rate) a record times the largest mean square of a record's features. A group counts as
        if it had all records.
        """
        rate, core = part.map.rate, part.map.core
        if rate == 1.0:
            return part.noise_variance
        square = core.record_sensitivity(Relation.ADD_REMOVE).l2_squared / core.size
        return part.noise_variance + float(self.rows().value) * rate * (1 - rate) * square

    @property
    def of_a_count(self) -> float:
        """About the least standard deviation of a number of records that the budget allows, were all of it spent on
        this one number; of one record at least.
        """
        budgets = [release.budget for release in self._released.releases]
        return max(1.0, sqrt(sum(2 / budget.strength**2 for budget in budgets)))

    def table_rows(self, least: float = 1.0) -> Estimate:
        """The number of rows of the table, at least `least`: that of the records or, if they are a sample, that
        divided by the rate, with the variance c·(1 − rate)/rate² of the sampling, times the rows that may come and go
        with a unit. A fixed count says nothing of it: the declared number.
        """
        if self.sampling is None:
            return self.rows(least)
        if self.sampling.count is not None:
            return Estimate(np.array(float(declared_rows(self._schema))), np.zeros(self.coordinates))
        rate = float(self.sampling.exact_rate)
        estimate = self.rows(least).scaled(1 / rate)
        together = 1 if self._schema.unit_column is None else self._schema.max_rows_per_unit
        estimate.influence[-1] = np.sqrt(float(self.rows().value) * together * (1 - rate)) / rate
        return estimate

    @cached_property
    def counted_rows(self) -> Estimate | None:
        """The noisy number of records from the count, if there is one."""
        return None if self._count is None else _at_least(1.0, self._count)

    @cached_property
    def _count(self) -> Estimate | None:
        for part in self.parts:
            if part.map.only_counts:
                return self._number(part, RecordCount(1, 1))
        return None

    def rows(self, least: float = 1.0) -> Estimate:
        """The noisy number of records in the sums, at least `least`, from the count or, without one, from the first
        histogram's or marginals' first table, or else from the first table of counters that counts every record once a
        row.
        """
        return _at_least(least, self._rows)

    @cached_property
    def _rows(self) -> Estimate:
        if self._count is not None:
            return self._count
        for hashed in (False, True):
            for part in self.parts:
                count = part.map.record_count
                if count is not None and part.map.counter_table is hashed:
                    return self._number(part, count)
        raise QueryError("this release does not hold the number of rows", "add Part(Count(), share=0.03) to the recipe")

    def _number(self, part: ReleasedPart, count: RecordCount) -> Estimate:
        """Hashed counters have one coordinate, the noise of their total. Each of R rows sums to the number of records
        plus the noise of its W counters. The noise of all R·W counters is independent, of variance v each, so the
        total has variance v·R·W and the mean of the rows v·W/R.
        """
        coordinates = 1 if part.map.counter_table else count.sums
        number = blockwise_total(part.sums[: count.sums]) / count.times
        return Estimate(np.array(number), self.place(part, np.full(coordinates, 1 / count.times)))


def _at_least(least: float, number: Estimate) -> Estimate:
    return replace(number, value=np.maximum(number.value, least))


def _cause_of(part: ReleasedPart) -> str:
    return COUNTED if part.map.only_counts else NOISE if part.map.rate == 1.0 else MASKED


def released_totals(released: ReleasedSketch) -> NoisyTotals:
    """Sums of columns, each where it is known best."""
    return noisy_totals(released.maps, released.sums, [part.noise_variance for part in released.parts])


def blockwise_total(sums: Sums) -> int:
    """Exact, and without a copy of sums that are mapped from a file."""
    return sum(int(sums[start : start + _BLOCK].sum(dtype=np.int64)) for start in range(0, sums.size, _BLOCK))
