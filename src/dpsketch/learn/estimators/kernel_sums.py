"""Kernel sums from hashed counters: the number of records near a point, weighted by the kernel of the hash.

Each row of the table gives an estimate: the point's counter c, corrected for the N/W records that collide with it
by accident, (c − N/W)/(1 − 1/W). The answer is the mean over the rows or the median of means; for a single
column of numbers it is a weighted mean (`row_weights`). Source: race §3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from math import ceil, log
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dpsketch.encoding.frames import check_lengths, column_names, named_columns, read_column, read_sets
from dpsketch.encoding.levels import number_levels
from dpsketch.encoding.records import Records
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.release_noise import blockwise_total
from dpsketch.learn.estimators.row_weights import RowWeights, can_weigh
from dpsketch.maps.base import Sums
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import LOWEST, MISSING, IdSet, Number
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.estimators.control_variate import Control

METHODS = MEAN, MEDIAN = "mean", "median"
GROUPS: Annotated[int, UNRECORDED] = 8  # in the median of means
_AT_ONCE = 1 << 22  # counters
_ERRORS_OF_ROWS: Annotated[float, UNRECORDED] = 4.0  # standard errors added to the number of records in a bound


class KernelSums:
    """Kernel sums from one table of counters. Points are a table of the hashed columns in the users' units."""

    def __init__(
        self, schema: Schema, race: BoundRace, sums: Sums, noise_variance: float, control: Control | None = None
    ) -> None:
        self._schema, self._race, self._sums, self._noise_variance = schema, race, sums, noise_variance
        self._control = control
        self._counters = sums if control is None else sums - control.counters
        self.columns = tuple(dict.fromkeys(name for factor in race.factors for name in factor.columns))
        self._sets = [name for name in self.columns if isinstance(schema.column(name), IdSet)]
        self._numbers = _Numbers(schema, [name for name in self.columns if name not in self._sets])

    def at(self, points: Any, method: str = MEAN) -> Answer:
        """Σ k(x, point) over the records x, with its standard error from the spread between rows.

        The standard error covers the privacy noise, which it never falls below, and the randomness of the hashes. Rows
        of a single column of numbers are weighted by the slopes of their hashes.
        """
        if method not in METHODS:
            raise QueryError(f"method must be one of {', '.join(METHODS)}, got {method!r} instead")
        race = self._race
        rows, groups = race.rows, 1 if method == MEAN else min(GROUPS, race.rows)
        records = self.records(points)
        scale = 1.0 / race.grid if race.direct else race.width / (race.width - 1) / race.grid
        accident = 0.0 if race.direct else self._counted / race.width
        known = 0.0 if self._control is None else self._control.at(records)
        how = (
            f"{rows} rows of hashed counters" if rows > 1 else "one row of hashed counters, whose own error is unknown"
        )
        how += "" if self._control is None else self._control.how
        weighted = None if self._weights is None else self._weighted(self._weights, records, accident, scale)
        if method == MEAN and weighted is not None:
            value, stderr = weighted[0] + known, weighted[1]
            return Answer(value, stderr, f"weighted mean of {how}", bounds=self._bounds(records, value))
        totals, squares = race.totals(records, self._counters, groups)
        mean = (totals[0] if groups == 1 else totals.sum(axis=0)) / rows
        spread = (squares / rows - mean * mean) * (rows / max(rows - 1, 1))
        stderr = scale * np.sqrt(np.maximum(spread, self._noise_variance) / rows)
        if method == MEAN:
            value = (mean - accident) * scale + known
            return Answer(value, stderr, f"mean of {how}", bounds=self._bounds(records, value))
        sizes = np.bincount(np.arange(rows) * groups // rows)
        median = (np.median(totals / sizes[:, None], axis=0) - accident) * scale
        # The median of means has up to π/2 times the variance of the mean.
        stderr = stderr * np.sqrt(np.pi / 2)
        if weighted is not None:
            stderr = np.maximum(stderr, np.hypot(weighted[1], median - weighted[0]))
        value, how = median + known, f"median of {groups} means of {how}"
        return Answer(value, stderr, how, bounds=self._bounds(records, value))

    def _weighted(self, weights: RowWeights, records: Records, accident: float, scale: float) -> tuple[Floats, Floats]:
        """Sums over the counters by the weights of their rows, with standard errors."""
        found = []
        step = max(1, _AT_ONCE // self._race.rows)
        for start in range(0, len(records), step):
            part = records.take(np.arange(start, min(start + step, len(records))))
            index, _ = self._race.entries(part, self._race.rows)
            counters: Floats = np.asarray((self._counters[index] - accident) * scale, np.float64)
            found.append(weights.sums(counters, self._counted))
        value, stderr = (np.concatenate(each) for each in zip(*found, strict=True)) if found else (np.empty(0),) * 2
        return value, stderr

    @cached_property
    def _weights(self) -> RowWeights | None:
        """Weights of the rows, for one column of numbers."""
        if not can_weigh(self._schema, self._race):
            return None
        return RowWeights(self._schema, self._race, self._noise_variance, self.total)

    def _bounds(self, records: Records, value: Floats) -> Callable[[float], Floats] | None:
        """The function behind `Answer.bound`, for counters to which every record adds one."""
        return (lambda delta: self._bound(records, value, delta)) if self._race.unit_increments else None

    def _bound(self, records: Records, value: Floats, delta: float) -> Floats:
        """A high-probability bound on the error of `value`.

        A counter c has mean g and, by Cauchy and Schwarz, E c² ≤ (Σ√k)² ≤ N·g; its noise adds the variance v. So the
        error of an estimate of g is at most √(C·(N·g + v)) with probability 1 − δ: with C = 4/m for the median of
        ⌈8·ln(1/δ)⌉ means of m rows each, with C = 1/(R·δ) for the mean of all R (Chebyshev); the smaller C counts. As g
        is at most its estimate plus this error, the bound solves a quadratic equation. The distance of `value` to the
        estimate, and the error of N in what collides by accident, add up.

        Source: race Thm 3.4 with Lemma 3.3, for whole groups, counters that collide and a variance that the release
        itself bounds (Σ√k is not known).
        """
        race, rows = self._race, self._race.rows
        groups = ceil(8 * log(1 / delta))
        factor = 1 / (rows * delta)
        if groups <= rows and 4 / (rows // groups) < factor:
            factor = 4 / (rows // groups)
            sizes = np.bincount(np.arange(rows) * groups // rows)
            centre = np.median(race.totals(records, self._sums, groups)[0] / sizes[:, None], axis=0)
        else:
            centre = race.totals(records, self._sums, 1)[0][0] / rows
        slack = _ERRORS_OF_ROWS * float(np.sqrt(self._noise_variance * race.width / rows))
        most = self.total + slack
        inside = factor * most * np.maximum(centre, 0.0) + factor * self._noise_variance
        bound = factor * most / 2 + np.sqrt((factor * most / 2) ** 2 + inside)
        if race.direct:
            return bound + np.abs(value - centre)
        scale = race.width / (race.width - 1)
        return scale * (bound + slack / race.width) + np.abs(value - scale * (centre - self.total / race.width))

    @cached_property
    def _counted(self) -> float:
        """The mean of the rows' totals, minus those of simulated records."""
        return blockwise_total(self._counters) / self._race.rows

    @cached_property
    def total(self) -> float:
        """The mean of the rows' totals: the number of records, or the sum of their integer weights."""
        return blockwise_total(self._sums) / self._race.rows

    def records(self, points: Any) -> Records:
        """Encode points by the rules for cells of the table; a matrix of numbers takes a faster path."""
        if column_names(points) is None:
            if not self._sets:
                return Records(self._codes(self._numbers.codes(self._matrix(points))))
            if len(self.columns) > 1:
                raise QueryError(
                    "points with sets and numbers need names", f"pass a mapping of {', '.join(self.columns)}"
                )
            rows = list(points)
            points = {self._sets[0]: [rows] if rows and np.isscalar(rows[0]) else rows}
        cells = {name: _listed(each) for name, each in named_columns(self.columns, points).items()}
        sets = {name: read_sets(column, cells[name]) for name, column in self._id_sets()}
        codes = [read_column(self._schema.column(name), cells[name]) for name in self._numbers.names]
        lengths = {len(column) for column in codes} | {len(column.offsets) - 1 for column in sets.values()}
        check_lengths(lengths)
        own = np.array(codes, np.int16).reshape(len(codes), lengths.pop())
        return Records(self._codes(own), sets)

    def _id_sets(self) -> Iterator[tuple[str, IdSet]]:
        for name in self._sets:
            column = self._schema.column(name)
            assert isinstance(column, IdSet)
            yield name, column

    def _codes(self, own: Codes) -> Codes:
        """Codes of all columns, with those of the hashed columns at their positions in the schema."""
        codes = np.full((len(self._schema.scalars), own.shape[1]), MISSING, np.int16)
        if len(own):
            codes[self._numbers.rows] = own
        return codes

    def _matrix(self, points: Any) -> Floats:
        try:
            table = np.atleast_2d(np.asarray(points, np.float64)).T
        except (TypeError, ValueError):
            raise QueryError("the points are not numbers", "pass a mapping of columns for labels") from None
        if table.ndim != 2 or len(table) != len(self._numbers.names):
            raise QueryError(
                f"a point has {len(self._numbers.names)} numbers: {', '.join(self._numbers.names)}",
                "pass a matrix with one row a point",
            )
        return table


class _Numbers:
    """Encodes the numbers of several columns at once."""

    def __init__(self, schema: Schema, names: list[str]) -> None:
        self.names = names
        self.rows = np.array([schema.index(name) for name in names], np.int64)
        columns = [schema.column(name) for name in names]
        self._transformed = {
            index: column
            for index, column in enumerate(columns)
            if isinstance(column, Number) and column.scale is not None
        }
        replaced = [getattr(column, "missing", None) for column in columns]
        self._missing = np.array([np.nan if number is None else float(number) for number in replaced])
        bounds = np.array([column.values_of(np.array([LOWEST, -LOWEST])) for column in columns]).reshape(-1, 2)
        self._low, self._high = (np.ascontiguousarray(side) for side in bounds.T)
        self._steps = np.array([max(column.levels - 1, 1) for column in columns], np.int64)

    def codes(self, numbers: Floats) -> Codes:
        from dpsketch.maps.hashed.race_kernels import number_codes

        codes = np.empty(numbers.shape, np.int16)
        number_codes(numbers, self._low, self._high, self._missing, self._steps, codes)
        for index, column in self._transformed.items():
            finite = np.where(np.isfinite(numbers[index]), numbers[index], self._missing[index])
            codes[index] = column.codes_of(number_levels(column, finite))
        return codes


def _listed(cells: Any) -> Any:
    """One cell as a column of length one."""
    return cells if isinstance(cells, Iterable) and not isinstance(cells, str | bytes) else [cells]
