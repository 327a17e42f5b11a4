"""The results of every method of the study, and the three forms that most of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.m2m.questions import Condition, Question, shares
from benchmarks.m2m.tables import Column, Table
from dpsketch.denoise.column_fit import Marginal
from dpsketch.numerics.arrays import Floats


@dataclass(frozen=True)
class Weighted:
    """Rows for training a model; weights may be negative. NaN or a code past the labels means missing."""

    rows: Floats
    weights: Floats


class Answers(Protocol):
    """All results on the table's scale; those about numbers are over its numeric columns."""

    seconds: float

    def means(self) -> Floats: ...

    def covariance(self) -> Floats: ...

    def cdf(self, points: Floats) -> Floats: ...

    def conjunctions(self, questions: Sequence[Question]) -> tuple[Floats, Floats]:
        """Values and standard errors."""
        ...

    def training(self) -> Weighted | None: ...


class Points:
    """Weighted points: every answer is Σ weight · f(point), which equals the paper's ⟨a, ẑ⟩."""

    def __init__(self, table: Table, rows: Floats, weights: Floats, seconds: float) -> None:
        self.table, self.rows, self.weights, self.seconds = table, rows, weights, seconds

    def means(self) -> Floats:
        return self.weights @ self.rows[:, self.table.numeric]

    def covariance(self) -> Floats:
        centred = self.rows[:, self.table.numeric] - self.means()
        return (centred * self.weights[:, None]).T @ centred

    def cdf(self, points: Floats) -> Floats:
        return np.array(
            [[self.weights[self.rows[:, j] <= point].sum() for point in points] for j in self.table.numeric]
        )

    def conjunctions(self, questions: Sequence[Question]) -> tuple[Floats, Floats]:
        values = shares(self.rows, questions, self.weights)
        return values, np.full(len(values), np.nan)

    def training(self) -> Weighted | None:
        return None if self.table.label is None else Weighted(self.rows, self.weights)


def event(marginal: Marginal, column: Column, condition: Condition) -> Floats:
    """The fraction of each cell in which a condition holds; a whole number extends half a step to both sides."""
    value, half = condition.value, 0.0
    if condition.operator == "=":
        return (np.arange(len(marginal.shares)) == value).astype(float)
    below = condition.operator == "<="
    if column.levels:
        level = value * (column.levels - 1)
        level = np.floor(level + 1e-9) if below else np.ceil(level - 1e-9)
        value, half = level / (column.levels - 1), 0.5 / (column.levels - 1)
    if below:
        return marginal.below(value + half)
    above = 1 - marginal.below(value - half if half else np.nextafter(value, -1))
    above[-1] = 0.0
    return above


def place_in_cells(marginal: Marginal, cells: np.ndarray, generator: np.random.Generator) -> Floats:
    """Values on the table's scale for drawn cells of a column."""
    if marginal.centres is None or marginal.widths is None:
        return np.asarray(cells, float)
    reach = marginal.widths * (1 - 2 * np.abs(marginal.offsets))
    return marginal.means()[cells] + reach[cells] * (generator.random(len(cells)) - 0.5)


class Independent:
    """A product of columns."""

    def __init__(self, table: Table, marginals: Sequence[Marginal], seconds: float) -> None:
        self.table, self.marginals, self.seconds = table, marginals, seconds
        self._numeric = [marginals[j] for j in table.numeric]

    def means(self) -> Floats:
        return np.array([marginal.shares @ marginal.means() for marginal in self._numeric])

    def covariance(self) -> Floats:
        squares = np.array([marginal.shares @ marginal.squares() for marginal in self._numeric])
        return np.diag(squares - self.means() ** 2)

    def cdf(self, points: Floats) -> Floats:
        return np.array([[marginal.shares @ marginal.below(point) for point in points] for marginal in self._numeric])

    def conjunctions(self, questions: Sequence[Question]) -> tuple[Floats, Floats]:
        values = np.array(
            [
                np.prod(
                    [
                        self.marginals[each.column].shares
                        @ event(self.marginals[each.column], self.table.columns[each.column], each)
                        for each in question
                    ]
                )
                for question in questions
            ]
        )
        return values, np.full(len(values), np.nan)

    def training(self) -> Weighted | None:
        return None

    def draw(self, count: int, generator: np.random.Generator) -> Floats:
        columns = [
            place_in_cells(marginal, generator.choice(len(marginal.shares), count, p=marginal.shares), generator)
            for marginal in self.marginals
        ]
        return np.column_stack(columns)
