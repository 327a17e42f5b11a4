"""Kernel sums from hashed counters: how many records are near a point, as the hash's kernel counts them.

Each row of the table gives an estimate: the point's counter c, corrected for the N/W records that share it by
accident, (c − N/W)/(1 − 1/W). The answer is the mean over the rows or the median of means. Source: race §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.levels import number_levels
from dpsketch.maps.race import BoundRace
from dpsketch.records import IdSets, Records
from dpsketch.schema import LOWEST, MISSING, SPAN, Codes, Datetime, Floats, IdSet, Number, Schema
from dpsketch.sketch.released import ReleasedPart

GROUPS = 8  # of the median of means
_BLOCK = 1 << 22


class KernelSums:
    """Answers of one RACE part. Points are a table of the hashed columns in the users' units."""

    def __init__(self, schema: Schema, part: ReleasedPart) -> None:
        assert isinstance(part.map, BoundRace)
        self._schema, self._part, self._race = schema, part, part.map
        names = [name for factor in part.map.factors for name in factor.columns]
        self.columns = tuple(dict.fromkeys(names))
        self._sets = [name for name in self.columns if isinstance(schema.column(name), IdSet)]
        self._numbers = _Numbers(schema, [name for name in self.columns if name not in self._sets])
        self.how = f"mean of {part.map.rows} rows of hashed counters"

    def at(self, points: Any, method: str = "mean") -> Answer:
        """Σ k(x, point) over the records x, with its standard error from the spread between rows.

        The standard error covers the privacy noise and the randomness of the hashes.
        """
        if method not in ("mean", "median"):
            raise QueryError(f"method must be 'mean' or 'median', got {method!r} instead")
        race = self._race
        rows, groups = race.rows, 1 if method == "mean" else min(GROUPS, race.rows)
        totals, squares = race.totals(self._records(points), self._part.sums, groups)
        mean = totals.sum(axis=0) / rows
        scale = 1.0 / race.grid if race.direct else race.width / (race.width - 1) / race.grid
        stderr = scale * np.sqrt(np.maximum(squares / rows - mean * mean, 0.0) / max(rows - 1, 1))
        accident = 0.0 if race.direct else self._total / race.width
        if method == "mean":
            return Answer((mean - accident) * scale, stderr, self.how)
        sizes = np.bincount(np.arange(rows) * groups // rows)
        median = np.median(totals / sizes[:, None], axis=0)
        # The median of means has up to π/2 times the variance of the mean.
        how = f"median of {groups} means of {rows} rows of hashed counters"
        return Answer((median - accident) * scale, stderr * np.sqrt(np.pi / 2), how)

    @cached_property
    def _total(self) -> float:
        """The mean of the rows' totals: the number of records, or the sum of their integer weights."""
        sums = self._part.sums
        total = sum(int(sums[start : start + _BLOCK].sum(dtype=np.int64)) for start in range(0, len(sums), _BLOCK))
        return total / self._race.rows

    def _records(self, points: Any) -> Records:
        if hasattr(points, "columns") and hasattr(points, "__getitem__"):  # a data frame
            points = {name: points[name] for name in self.columns if name in points.columns}
        if isinstance(points, Mapping):
            for name in self.columns:
                if name not in points:
                    raise QueryError(f"the points lack column '{name}'", f"give {', '.join(self.columns)}")
            sets = {name: _id_sets(self._schema.column(name), points[name]) for name in self._sets}
            numbers = [_column_numbers(self._schema, name, points[name]) for name in self._numbers.names]
            lengths = {len(column) for column in numbers} | {len(column.offsets) - 1 for column in sets.values()}
            if len(lengths) > 1:
                raise QueryError("the columns of the points have different lengths")
            table = np.array(numbers).reshape(len(numbers), lengths.pop())
        elif self._sets:
            if len(self.columns) > 1:
                raise QueryError(
                    "points with sets and numbers need names", f"pass a mapping of {', '.join(self.columns)}"
                )
            sets = {self._sets[0]: _id_sets(self._schema.column(self._sets[0]), points)}
            table = np.empty((0, len(sets[self._sets[0]].offsets) - 1))
        else:
            sets = {}
            try:
                table = np.atleast_2d(np.asarray(points, np.float64)).T
            except (TypeError, ValueError):
                raise QueryError("the points are not numbers", "pass a mapping of columns for labels") from None
            if table.ndim != 2 or len(table) != len(self._numbers.names):
                raise QueryError(
                    f"a point has {len(self._numbers.names)} numbers: {', '.join(self._numbers.names)}",
                    "pass a matrix with one row a point",
                )
        codes = np.full((len(self._schema.scalars), table.shape[1]), MISSING, np.int16)
        if len(table):
            codes[self._numbers.rows] = self._numbers.codes(table)
        return Records(codes, sets)


class _Numbers:
    """Codes of numbers of several columns at once: the rule of `levels.spread` and `Column.codes_of`, on matrices."""

    def __init__(self, schema: Schema, names: list[str]) -> None:
        self.names = names
        self.rows = np.array([schema.index(name) for name in names], np.int64)
        columns = [schema.column(name) for name in names]
        self._transformed = {
            place: column
            for place, column in enumerate(columns)
            if isinstance(column, Number) and column.transform is not None
        }
        bounds = np.array([column.values_of(np.array([LOWEST, -LOWEST])) for column in columns]).reshape(-1, 2)
        self._low, self._high = bounds[:, :1], bounds[:, 1:]
        self._steps = np.array([[max(column.levels - 1, 1)] for column in columns], np.int64).reshape(-1, 1)

    def codes(self, numbers: Floats) -> Codes:
        missing = np.isnan(numbers)
        clamped = np.minimum(np.maximum(np.where(missing, self._low, numbers), self._low), self._high)
        levels = np.rint((clamped - self._low) / (self._high - self._low) * self._steps).astype(np.int64)
        for place, column in self._transformed.items():
            levels[place] = number_levels(column, numbers[place])
        codes = (2 * SPAN * levels + self._steps) // (2 * self._steps) + LOWEST
        codes[missing] = MISSING
        return codes.astype(np.int16)


def _column_numbers(schema: Schema, name: str, cells: Any) -> Floats:
    """A column of a question as numbers: labels become their level, dates microseconds."""
    column = schema.column(name)
    cells = list(cells) if isinstance(cells, Iterable) and not isinstance(cells, str) else [cells]
    labels = getattr(column, "labels", None)
    if labels is not None:
        places = {label: float(level) for level, label in enumerate(labels)}
        fallback = places.get("other", np.nan)
        return np.array([np.nan if cell is None else places.get(_label(cell), fallback) for cell in cells])
    if isinstance(column, Datetime):
        return np.array(cells, "datetime64[us]").astype(np.int64).astype(np.float64)
    try:
        return np.array([np.nan if cell is None else cell for cell in cells], np.float64)
    except (TypeError, ValueError):
        raise QueryError(f"column '{name}' of the points does not hold numbers") from None


def _label(cell: Any) -> str:
    return str(bool(cell)).lower() if isinstance(cell, bool | np.bool_) else str(cell)


def _id_sets(column: Any, sets: Any) -> IdSets:
    """Lists of ids as sorted distinct ones; ids outside the universe are the overflow id, as in the table."""
    if isinstance(sets, IdSets):
        return sets
    rows = [sets] if len(sets) and np.isscalar(sets[0]) else sets
    try:
        each = [np.asarray(row, np.int64).ravel() for row in rows]
    except (TypeError, ValueError, OverflowError):
        raise QueryError(f"column '{column.name}' of the points does not hold lists of ids") from None
    each = [np.unique(np.where((row >= 0) & (row < column.universe), row, column.universe)) for row in each]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in each])]).astype(np.int64)
    return IdSets(offsets, np.concatenate([*each, np.empty(0, np.int64)]).astype(np.int32))
