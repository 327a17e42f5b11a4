"""The study's figures: coverage by kind and by table, and how errors fall with the budget, each beside its goal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from benchmarks.truth.measure import Measured, Outcome, Task
from benchmarks.truth.questions import KINDS
from benchmarks.truth.tables import CHOSEN_ON, JUDGED_ON
from dpsketch.numerics.arrays import Floats

POOLED = ((0.62, 0.76), (0.92, 0.98))  # of the intervals of 68 and 95 %
BY_TABLE = ((0.50, 0.90), (0.85, 1.00))
BEYOND = ((3.0, 0.015), (8.0, 0.0002))  # standard errors, and the share of answers that may be farther off
ENOUGH = 100  # different questions of a kind
THREE_WAY = {"kdd": 0.001, "payroll": 0.004, "flights": 0.00025, "fare": 0.0035, "occupancy": 0.0055}
SLACK = 1.05  # by which errors may rise with the budget


def lines(measured: Sequence[Measured]) -> Iterator[str]:
    full = [each for each in measured if each.task.rows is None]
    few = [each for each in measured if each.task.rows is not None]
    for title, some in (("all tables", full), ("2,000 rows of each", few)):
        if not some:
            continue
        yield f"\nCoverage, {title}: of 68 %, of 95 %, beyond 3 and 8 standard errors, not known, questions"
        yield from _coverage("all", some)
        yield from _coverage("chosen on", [each for each in some if each.task.table in CHOSEN_ON])
        yield from _coverage("judged on", [each for each in some if each.task.table in JUDGED_ON])
    yield "\nCoverage by table"
    for name in dict.fromkeys(each.task.table for each in full):
        yield from _coverage(name, [each for each in full if each.task.table == name], BY_TABLE, ENOUGH)
    yield "\nMean absolute errors by budget: shares of the rows, or in deviations of the column"
    yield from _falling(full)
    yield "\nSeconds of processor time and bytes, means"
    yield from _costs(full)


def _by_question(outcomes: Iterable[Outcome], value: Callable[[Outcome], float | None]) -> list[Floats]:
    """The values of each question, those of several releases together."""
    found = defaultdict(list)
    for outcome in outcomes:
        number = value(outcome)
        if number is not None:
            found[outcome.question].append(number)
    return [np.array(each, float) for each in found.values()]


def _mean(clusters: Sequence[Floats]) -> tuple[float, float]:
    """The mean of all values and its standard error, with values of one question as one cluster."""
    every = np.concatenate(clusters) if clusters else np.zeros(0)
    if not len(every):
        return np.nan, np.nan
    mean = float(every.mean())
    sums = np.array([float((each - mean).sum()) for each in clusters])
    return mean, float(np.sqrt((sums**2).sum())) / len(every)


def _coverage(
    title: str,
    measured: Sequence[Measured],
    wanted: Sequence[tuple[float, float]] = POOLED,
    fewest: int = 1,
) -> Iterator[str]:
    """Values are clustered by table and question: a budget asks the same ones."""
    for kind in KINDS:
        outcomes = [
            Outcome(**(vars(each) | {"question": f"{own.task.table}: {each.question}"}))
            for own in measured
            for each in own.outcomes
            if each.kind == kind
        ]
        asked = len({each.question for each in outcomes})
        if asked < fewest:
            continue
        verdict, shown = "PASS", []
        for level, (low, high) in enumerate(wanted):
            share, error = _mean(_by_question(outcomes, partial(_inside, level=level)))
            shown.append(f"{share:5.1%}")
            if share < low - 2 * error or share > high + 2 * error:
                verdict = "SHORT"
        for times, most in BEYOND:
            share, error = _mean(_by_question(outcomes, partial(_beyond, times=times)))
            shown.append(f"{share:7.3%}")
            if wanted is POOLED and share > most + 2 * error:
                verdict = "SHORT"
        unknown = np.mean([each.inside is None for each in outcomes])
        yield f"{title:20} {kind:14} {'  '.join(shown)}  {unknown:5.1%}  {asked:6}  {verdict}"


def _inside(outcome: Outcome, level: int) -> float | None:
    return None if outcome.inside is None else float(outcome.inside[level])


def _beyond(outcome: Outcome, times: float) -> float | None:
    return None if outcome.inside is None else float(abs(outcome.off) > times * outcome.stderr + 1e-12)


def _strength(task: Task) -> tuple[float, float]:
    return task.epsilon, task.delta


def _falling(measured: Sequence[Measured]) -> Iterator[str]:
    budgets = sorted({_strength(each.task) for each in measured})
    header = "  ".join(f"{_budget_text(*budget):>11}" for budget in budgets)
    yield f"{'':20} {'':14} {header}"
    for name in dict.fromkeys(each.task.table for each in measured):
        for kind in KINDS:
            found = []
            for budget in budgets:
                outcomes = [
                    outcome
                    for each in measured
                    if each.task.table == name and _strength(each.task) == budget
                    for outcome in each.outcomes
                    if outcome.kind == kind and np.isfinite(outcome.off)
                ]
                found.append(_mean(_by_question(outcomes, lambda each: abs(each.off))))
            if all(np.isnan(mean) for mean, _ in found):
                continue
            rising = any(
                then > SLACK * now + 2 * np.hypot(now_error, then_error)
                for (now, now_error), (then, then_error) in pairwise(found)
            )
            verdict = "SHORT: rises" if rising else "PASS"
            if kind == "3-way" and name in THREE_WAY and (1.0, 0.0) in budgets:
                mean, error = found[budgets.index((1.0, 0.0))]
                met = mean <= THREE_WAY[name] + 2 * error
                verdict += f", goal {THREE_WAY[name]:g} at ε = 1 {'PASS' if met else 'SHORT'}"
            shown = "  ".join(f"{mean:11.5f}" for mean, _ in found)
            yield f"{name:20} {kind:14} {shown}  {verdict}"


def _costs(measured: Sequence[Measured]) -> Iterator[str]:
    for name in dict.fromkeys(each.task.table for each in measured):
        own = [each for each in measured if each.task.table == name]
        keys = own[0].seconds
        shown = "  ".join(f"{key} {np.mean([each.seconds[key] for each in own]):.2f}" for key in keys)
        yield f"{name:20} {shown}  file {np.mean([each.file_bytes for each in own]):.0f}"


def _budget_text(epsilon: float, delta: float) -> str:
    return f"ε={epsilon:g}" + (f", δ={delta:g}" if delta else "")
