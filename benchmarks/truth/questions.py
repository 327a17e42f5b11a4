"""Questions as people ask them, at values that records have, with their true answers on the rows that were released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.truth.tables import ASKED, Table
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Boolean, Category, Datetime, Integer

Mask = NDArray[np.bool_]
Truths = dict[Any, float]  # by group; None where there are no groups
KINDS = (
    *("1-way", "2-way", "3-way", "group average", "median", "quantile .05", "quantile .95"),
    *("deviation", "sum", "ratio", "slope", "correlation", "single day"),
    *("linear model", "logistic model"),
)


@dataclass(frozen=True)
class Question:
    """`scale` turns errors of one kind into comparable numbers: 1 for shares, the column's deviation for others."""

    kind: str
    sql: str
    truths: Truths
    scale: float = 1.0
    group: str | None = None


@dataclass(frozen=True)
class Condition:
    text: str
    holds: Mask


def questions(table: Table, seed: int, each: int = 200) -> list[Question]:
    """`each` questions of every kind where the table allows it."""
    maker = Maker(table, np.random.default_rng([seed, len(table.train)]))
    kinds: dict[str, Callable[[int], Iterator[Question]]] = {
        "1-way": lambda count: maker.shares(1, count),
        "2-way": lambda count: maker.shares(2, count),
        "3-way": lambda count: maker.shares(3, count),
        "group average": maker.group_averages,
        "median": lambda count: maker.quantiles("median", 0.5, count),
        "quantile .05": lambda count: maker.quantiles("quantile .05", 0.05, count),
        "quantile .95": lambda count: maker.quantiles("quantile .95", 0.95, count),
        "deviation": maker.deviations,
        "sum": maker.sums,
        "ratio": maker.ratios,
        "slope": maker.slopes,
        "correlation": maker.correlations,
        "single day": maker.days,
    }
    asked = ASKED.get(table.name, tuple(kinds))
    found = [question for kind, make in kinds.items() if kind in asked for question in make(each)]
    return list({question.sql: question for question in found}.values())


class Maker:
    def __init__(self, table: Table, generator: np.random.Generator) -> None:
        self._table, self._generator = table, generator
        self._names = [column.name for column in table.schema.columns]
        self._numbers = table.named(numeric=True)
        self._classes = table.named(numeric=False)
        self._every = np.ones(len(table.train), bool)

    def _values(self, name: str) -> Floats:
        return self._table.train[name].to_numpy(float)

    def _pick(self, names: list[str]) -> str:
        return names[int(self._generator.integers(len(names)))]

    def _condition(self, name: str) -> Condition:
        """A class by its frequency, or a number at most or at least that of a record."""
        column, cells = self._table.schema.column(name), self._table.train[name].to_numpy()
        if isinstance(column, Category | Boolean):
            while True:
                cell = cells[self._generator.integers(len(cells))]
                if isinstance(column, Boolean):
                    return Condition(name if cell else f"not {name}", cells == cell)
                if _listed(cell):
                    return Condition(f"{name} = {_literal(cell)}", cells == cell)
        known = np.sort(cells.astype(float)[~np.isnan(cells.astype(float))])
        number = float(known[int(self._generator.uniform(0.05, 0.95) * (len(known) - 1))])
        text = str(int(number)) if isinstance(column, Integer) else repr(number)
        if self._generator.integers(2):
            return Condition(f"{name} <= {text}", cells.astype(float) <= number)
        return Condition(f"{name} >= {text}", cells.astype(float) >= number)

    def _perhaps(self, *without: str, often: float = 0.6) -> Condition:
        """No condition, or one on a column that the question is not about."""
        others = [name for name in self._names if name not in without]
        if not others or self._generator.random() > often:
            return Condition("", self._every)
        found = self._condition(self._pick(others))
        return Condition(f" where {found.text}", found.holds)

    def conditions(self, names: list[str], ways: int) -> list[Condition]:
        """One on each of some of these columns."""
        return [self._condition(str(name)) for name in self._generator.choice(names, ways, replace=False)]

    def shares(self, ways: int, count: int) -> Iterator[Question]:
        if len(self._names) < ways:
            return
        for _ in range(count):
            conditions = self.conditions(self._names, ways)
            text = " and ".join(condition.text for condition in conditions)
            holds = np.logical_and.reduce([condition.holds for condition in conditions])
            rows = len(self._every)
            yield Question(
                f"{ways}-way", f"select count(*) as v from sketch where {text}", {None: float(holds.sum())}, rows
            )

    def group_averages(self, count: int) -> Iterator[Question]:
        for _ in range(count // 8 if self._classes and self._numbers else 0):
            name, group = self._pick(self._numbers), self._pick(self._classes)
            where = self._perhaps(name, group)
            cells = self._table.train[group].to_numpy()[where.holds]
            values = self._values(name)[where.holds]
            truths = {}
            for label in dict.fromkeys(cells.tolist()):
                own = values[cells == label]
                own = own[~np.isnan(own)]
                if _listed(label) and len(own):
                    truths[label] = float(own.mean())
            sql = f"select {group}, avg({name}) as v from sketch{where.text} group by {group}"
            yield Question("group average", sql, truths, self._scale(name), group)

    def quantiles(self, kind: str, share: float, count: int) -> Iterator[Question]:
        for _ in range(count // 4 if self._numbers else 0):
            name = self._pick(self._numbers)
            where = self._perhaps(name)
            own = self._present(name, where)
            if not len(own):
                continue
            what = f"median({name})" if share == 0.5 else f"quantile({name}, {share})"
            truth = float(np.quantile(own, share, method="inverted_cdf"))
            yield Question(kind, f"select {what} as v from sketch{where.text}", {None: truth}, self._scale(name))

    def deviations(self, count: int) -> Iterator[Question]:
        for _ in range(count // 4 if self._numbers else 0):
            name = self._pick(self._numbers)
            where = self._perhaps(name, often=0.4)
            own = self._present(name, where)
            if len(own):
                sql = f"select stddev_pop({name}) as v from sketch{where.text}"
                yield Question("deviation", sql, {None: float(own.std())}, self._scale(name))

    def sums(self, count: int) -> Iterator[Question]:
        for _ in range(count // 4 if self._numbers else 0):
            name = self._pick(self._numbers)
            where = self._perhaps(name)
            total = float(self._present(name, where).sum())
            scale = float(np.sqrt(np.nanmean(self._values(name) ** 2))) * len(self._every) or 1.0
            yield Question("sum", f"select sum({name}) as v from sketch{where.text}", {None: total}, scale)

    def ratios(self, count: int) -> Iterator[Question]:
        for _ in range(count // 4 if len(self._numbers) > 1 else 0):
            above, below = self._generator.choice(self._numbers, 2, replace=False)
            where = self._perhaps(above, below)
            bottom = float(self._present(below, where).sum())
            if bottom <= 0:
                continue
            ratio = float(self._present(above, where).sum()) / bottom
            sql = f"select sum({above}) / sum({below}) as v from sketch{where.text}"
            yield Question("ratio", sql, {None: ratio}, abs(ratio) or 1.0)

    def slopes(self, count: int) -> Iterator[Question]:
        for y, x in self._pairs(count):
            value, other = self._both(y, x)
            if len(value) > 1 and other.std() > 0:
                slope = float(np.cov(value, other, ddof=0)[0, 1] / other.var())
                sql = f"select regr_slope({y}, {x}) as v from sketch"
                yield Question("slope", sql, {None: slope}, self._scale(y) / self._scale(x))

    def correlations(self, count: int) -> Iterator[Question]:
        for one, two in self._pairs(count):
            value, other = self._both(one, two)
            if len(value) > 1 and value.std() > 0 and other.std() > 0:
                truth = float(np.corrcoef(value, other)[0, 1])
                yield Question("correlation", f"select corr({one}, {two}) as v from sketch", {None: truth})

    def days(self, count: int) -> Iterator[Question]:
        """Records of single days, each day as often as records have it."""
        for column in self._table.schema.columns:
            if not isinstance(column, Datetime):
                continue
            dates = self._table.train[column.name].dt.normalize()
            numbers = dates.value_counts()
            for start in dates.sample(count, random_state=self._generator.integers(2**31)).unique():
                end = start + pd.Timedelta(days=1)
                where = f"{column.name} >= '{start.date()}' and {column.name} < '{end.date()}'"
                sql = f"select count(*) as v from sketch where {where}"
                yield Question("single day", sql, {None: float(numbers[start])}, len(dates))

    def _pairs(self, count: int) -> list[tuple[str, str]]:
        every = list(combinations(self._numbers, 2))
        return [every[place] for place in self._generator.permutation(len(every))[: count // 4]]

    def _present(self, name: str, where: Condition) -> Floats:
        own = self._values(name)[where.holds]
        return own[~np.isnan(own)]

    def _both(self, one: str, two: str) -> tuple[Floats, Floats]:
        first, second = self._values(one), self._values(two)
        known = ~np.isnan(first) & ~np.isnan(second)
        return first[known], second[known]

    def _scale(self, name: str) -> float:
        return float(np.nanstd(self._values(name))) or 1.0


def _listed(cell: Any) -> bool:
    """Whether a class is neither missing nor unlisted."""
    return cell is not None and not isinstance(cell, float) and cell != "other"


def _literal(cell: Any) -> str:
    return "'" + cell.replace("'", "''") + "'" if isinstance(cell, str) else repr(cell)
