"""Conjunctions of conditions on three different columns, and their true answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.m2m.tables import Table
from dpsketch.numerics.arrays import Floats

QUESTIONS = 300
WAYS = 3


@dataclass(frozen=True)
class Condition:
    """`value` is on the table's scale (a category's: its code), `written` the condition in the schema's units."""

    column: int
    operator: str
    value: float
    written: str


Question = tuple[Condition, ...]


def draw_questions(table: Table, generator: np.random.Generator, at_quantiles: bool) -> list[Question]:
    """≤ or ≥ at a data quantile from U(.05, .95) or, for the second set, at a point uniform in the bounds.

    Categories have = with a value drawn by frequency.
    """
    return [
        tuple(
            _draw(table, int(column), generator, at_quantiles)
            for column in generator.choice(len(table.columns), WAYS, replace=False)
        )
        for _ in range(QUESTIONS)
    ]


def _draw(table: Table, index: int, generator: np.random.Generator, at_quantiles: bool) -> Condition:
    column, known = table.columns[index], table.known[index]
    if not column.ordered:
        value = float(known[generator.integers(len(known))])
        label = column.labels[int(value)].replace("'", "''")
        return Condition(index, "=", value, f"{column.name} = '{label}'")
    operator = "<=" if generator.integers(2) else ">="
    value = _quantile(known, generator.uniform(0.05, 0.95)) if at_quantiles else float(generator.random())
    return Condition(index, operator, value, f"{column.name} {operator} {column.unscale(value)!r}")


def _quantile(known: Floats, share: float) -> float:
    """Quantile of sorted values, with the usual interpolation; equal neighbours give their value exactly."""
    position = share * (len(known) - 1)
    below, above = known[int(position)], known[min(int(position) + 1, len(known) - 1)]
    return float(below + (position - int(position)) * (above - below))


def where(question: Question) -> str:
    """The question as a condition for a view."""
    return " AND ".join(condition.written for condition in question)


def shares(rows: Floats, questions: Sequence[Question], weights: Floats | None = None) -> Floats:
    """The fraction of the rows, or the sum of their weights, that satisfies each conjunction."""
    columns = np.ascontiguousarray(rows.T)
    met = np.empty(len(questions))
    for index, question in enumerate(questions):
        holds = np.ones(len(rows), bool)
        for condition in question:
            holds &= _holds(columns[condition.column], condition)
        met[index] = holds.mean() if weights is None else weights[holds].sum()
    return met


def _holds(values: Floats, condition: Condition) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if condition.operator == "=":
        return np.asarray(values == condition.value)
    return np.asarray(values <= condition.value if condition.operator == "<=" else values >= condition.value)
