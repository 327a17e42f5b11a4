"""One release of one table, and every question of the study asked of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.truth.models import models
from benchmarks.truth.questions import Question, questions
from benchmarks.truth.tables import Table, load

LEVELS = (0.68, 0.95)


@dataclass(frozen=True)
class Task:
    """A release: of `rows` rows, or of all where it is None."""

    table: str
    epsilon: float
    delta: float
    release: int
    seed: int
    rows: int | None = None
    questions: int = 200

    @property
    def budget(self) -> dps.Budget:
        return dps.Budget(self.epsilon, self.delta)


@dataclass(frozen=True)
class Outcome:
    """An answer beside its truth. `off` is their difference over the question's scale, `stderr` likewise; `inside` says
    for each of LEVELS whether the interval holds the truth, and is None where the answer says that nothing is known.
    """

    kind: str
    question: str
    off: float
    stderr: float
    inside: tuple[bool, ...] | None
    truth: float
    value: float


@dataclass(frozen=True)
class Measured:
    task: Task
    outcomes: list[Outcome]
    seconds: dict[str, float]
    file_bytes: int


@lru_cache(2)
def _accumulated(name: str, rows: int | None, seed: int, recipe: dps.Recipe) -> tuple[dps.RawSketch, float]:
    table = load(name, rows, seed)
    start = time.process_time()
    return dps.accumulate(table.arrow, table.schema, recipe), time.process_time() - start


@lru_cache(2)
def _questions(name: str, rows: int | None, seed: int, each: int) -> list[Question]:
    return questions(load(name, rows, seed if rows else 0), seed, each)


def released_view(task: Task) -> tuple[dps.View, dict[str, float], int]:
    """The view of a fresh release, processor seconds, and the bytes of its file."""
    drawn = task.seed if task.rows else 0
    table = load(task.table, task.rows, drawn)
    recipe = dps.Recipe.general(table.schema, rows=table.schema.rows, budget=task.budget)
    raw, seconds = _accumulated(task.table, task.rows, drawn, recipe)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        released = dps.release(raw, task.budget, ledger=dps.Ledger(Path(folder) / "ledger.db"), dataset=task.table)
        times = {"pass": seconds, "release": time.process_time() - start}
        path = Path(folder) / "a.sketch"
        released.save(path)
        return dps.View(released), times, path.stat().st_size


def asked_of(task: Task) -> list[Question]:
    return _questions(task.table, task.rows, task.seed, task.questions)


def measure(task: Task) -> Measured:
    view, times, size = released_view(task)
    asked = asked_of(task)
    start = time.process_time()
    first = next((question for question in asked if question.kind == "2-way"), asked[0])
    view.sql(first.sql)
    times["first answer"] = time.process_time() - start
    outcomes = [outcome for question in asked for outcome in _asked(view, question)]
    times["all answers"] = time.process_time() - start
    outcomes += coefficients(load(task.table, task.rows, task.seed if task.rows else 0), view)
    return Measured(task, outcomes, times, size)


def coefficients(table: Table, view: dps.View) -> Iterator[Outcome]:
    """Coefficients of a model of the table's target, in deviations of the feature and of the target."""
    for fitted in models(table, view):
        low_high = [fitted.answer.interval(level) for level in LEVELS]
        for place, name in enumerate(fitted.names):
            truth, scale = float(fitted.truths[place]), float(fitted.scales[place])
            value, stderr = float(fitted.answer.value[place]), float(fitted.answer.stderr[place])
            known = np.isfinite(stderr)
            inside = tuple(bool(low[place] <= truth <= high[place]) for low, high in low_high) if known else None
            off = (value - truth) / scale
            yield Outcome(fitted.kind, f"{table.target} by {name}", off, stderr / scale, inside, truth, value)


def _asked(view: dps.View, question: Question) -> Iterator[Outcome]:
    table = view.sql(question.sql)
    answers = {row[0] if question.group else None: row[-1] for row in table.rows}
    for label, truth in question.truths.items():
        answer = answers.get(label)
        if answer is not None:
            name = question.sql if label is None else f"{question.sql} [{label}]"
            yield _outcome(question, name, answer, truth)


def _outcome(question: Question, name: str, answer: Any, truth: float) -> Outcome:
    value, stderr = float(answer.value), float(answer.stderr)
    inside: tuple[bool, ...] | None = None
    if np.isfinite(value) and np.isfinite(stderr):
        slack = 1e-9 * max(abs(truth), 1e-9)
        ends = [answer.interval(level) for level in LEVELS]
        inside = tuple(bool(low - slack <= truth <= high + slack) for low, high in ends)
    off = (value - truth) / question.scale
    return Outcome(question.kind, name, off, stderr / question.scale, inside, truth, value)
