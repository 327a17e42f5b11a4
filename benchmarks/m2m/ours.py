"""The library, through its public interface: one pass, one release, every answer from it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.m2m.models import WORST_R2, auc
from benchmarks.m2m.questions import Question, where
from benchmarks.m2m.tables import Column, Table, load
from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Floats

REFUSED = 0.5


@lru_cache(3)
def accumulated(name: str, recipe: dps.Recipe) -> tuple[dps.RawSketch, float]:
    """The exact sums of a table's training rows, read from a Parquet file, and the seconds of the pass."""
    table = load(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(table.source, path)
        dps.accumulate(table.source.slice(0, 100), table.schema, recipe)  # loads the compiled kernels
        start = time.process_time()
        raw = dps.accumulate(path, table.schema, recipe)
        return raw, time.process_time() - start


def released_by(table: Table, recipe: dps.Recipe, budget: dps.Budget) -> tuple[dps.ReleasedSketch, float]:
    """A fresh release, and the seconds that the pass and the release take."""
    raw, seconds = accumulated(table.name, recipe)
    start = time.process_time()
    if not budget.private:
        return dps.release(raw, budget), seconds
    with tempfile.TemporaryDirectory() as folder:
        ledger = dps.Ledger(Path(folder) / "ledger.db")
        released = dps.release(raw, budget, ledger, table.name)
    return released, seconds + time.process_time() - start


class Ours:
    """Answers from one release of the general recipe."""

    def __init__(self, table: Table, budget: dps.Budget) -> None:
        self.table = table
        recipe = dps.Recipe.general(table.schema, rows=table.declared_rows, budget=budget)
        release, before = released_by(table, recipe, budget)
        start = time.process_time()
        self._view = dps.View(release)
        self._view.fraction(" and ".join(f"{column.name} is null" for column in table.columns[:3]))  # fits all
        self.seconds = time.process_time() - start
        self.total_seconds = before + self.seconds
        self._numeric = [table.columns[j] for j in table.numeric]
        self.asked = self.not_known = 0  # numbers that answers about distributions and conjunctions have

    def means(self) -> Floats:
        return np.array([self._expected((column, 0.0)) for column in self._numeric])

    def covariance(self) -> Floats:
        centred = list(zip(self._numeric, self.means(), strict=True))
        return np.array([[self._expected(one, two) for one in centred] for two in centred])

    def _expected(self, *centred: tuple[Column, float]) -> float:
        """Expectation of the product of columns on the scale of their bounds, each minus a centre, where all are
        present.
        """
        values = [_scaled(column, centre) for column, centre in centred]
        present = [_present(column) for column, _ in centred]
        result = self._view.best(present, lambda chosen: chosen.expectation(*values) / chosen.share())
        return float(result.estimate.value[0])

    def cdf(self, points: Floats) -> Floats:
        answers = [self._view.cdf(c.name, [c.unscale(point) for point in points]) for c in self._numeric]
        return np.array([self._counted(answer) for answer in answers])

    def conjunctions(self, questions: Sequence[Question]) -> tuple[Floats, Floats]:
        answers = [self._view.fraction(where(question)) for question in questions]
        values = [float(self._counted(answer)) for answer in answers]
        return np.array(values), np.array([answer.stderr for answer in answers])

    def _counted(self, answer: dps.Answer) -> Floats:
        """The value of a share; where it is not known, the estimate before limits or, without one, ½."""
        value, raw = np.asarray(answer.value, float), np.asarray(answer.raw, float)
        self.asked, self.not_known = self.asked + value.size, self.not_known + int(np.isnan(value).sum())
        instead = np.where(np.isnan(raw), 0.5, np.clip(raw, 0.0, 1.0))
        return np.where(np.isnan(value), instead, value)

    def training(self) -> None:
        return None

    def model(self) -> float | None:
        """The score of the library's own regression on real held-out rows; where it refuses, that of chance."""
        if self.table.label is None:
            return None
        target, test = self.table.columns[self.table.label], self.table.test_source
        if target.ordered:
            return max(
                WORST_R2,
                dps.LinearRegression(target.name).fit(self._view, uncertainty=False).score(test, test[target.name]),
            )
        try:
            result = dps.LogisticRegression(target.name).fit(self._view, uncertainty=False)
        except QueryError:
            return REFUSED
        chances = result.decision_function(test)
        return auc(self.table.test[:, self.table.label], chances)


def _scaled(column: Column, centre: float) -> Factor:
    def at(frame: Frame) -> Floats:
        return np.nan_to_num(column.scale(frame.values(column.name)) - centre)[None, :]

    return Factor((column.name,), at)


def _present(column: Column) -> Factor:
    return Factor((column.name,), lambda frame: (~np.isnan(frame.values(column.name)))[None, :].astype(np.float64))
