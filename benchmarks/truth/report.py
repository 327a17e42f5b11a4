"""The study's figures: coverage by kind and by table, and how errors fall with the budget, each beside its goal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks.truth.measure import Measured, Outcome, Task
from benchmarks.truth.questions import KINDS
from benchmarks.truth.tables import APART, CHOSEN_ON, JUDGED_ON
from dpsketch.numerics.arrays import Floats

POOLED = ((0.62, 0.76), (0.92, 0.98))  # of the intervals of 68 and 95 %
BY_TABLE = ((0.50, 0.90), (0.85, 1.00))
BEYOND = ((3.0, 0.015), (8.0, 0.0002))  # standard errors, and the share of answers that may be farther off
ENOUGH = 100  # different questions of a kind
ONE, ONE_AND_DELTA = (1.0, 0.0), (1.0, 1e-6)
# Mean errors by table, kind and budget.
GOALS = {
    ("kdd", "3-way", ONE): 0.001,
    ("payroll", "3-way", ONE): 0.004,
    ("flights", "3-way", ONE): 0.00025,
    ("fare", "3-way", ONE): 0.0035,
    ("occupancy", "3-way", ONE): 0.0055,
    ("nomao", "1-way", ONE_AND_DELTA): 0.01,
}
SLACK = 1.05  # by which errors may rise with the budget
Budget = tuple[float, float]


def lines(measured: Sequence[Measured]) -> Iterator[str]:
    full = [each for each in measured if each.task.rows is None]
    few = [each for each in measured if each.task.rows is not None]
    together = [each for each in full if each.task.table not in APART]
    for title, some in (("all tables", together), ("2,000 rows of each", few)):
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


def _doubt(clusters: Sequence[Floats], goal: float) -> float:
    """Two standard errors of a share: at least those of as many independent questions at the goal. The shares of few
    questions that are all inside have none of their own.
    """
    return 2 * max(_mean(clusters)[1], float(np.sqrt(goal * (1 - goal) / max(len(clusters), 1))))


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
            clusters = _by_question(outcomes, partial(_inside, level=level))
            share = _mean(clusters)[0]
            shown.append(f"{share:5.1%}")
            if low - share > _doubt(clusters, low) or share - high > _doubt(clusters, high):
                verdict = "SHORT"
        for times, most in BEYOND:
            clusters = _by_question(outcomes, partial(_beyond, times=times))
            share = _mean(clusters)[0]
            shown.append(f"{share:7.3%}")
            if wanted is POOLED and share - most > _doubt(clusters, most):
                verdict = "SHORT"
        unknown = np.mean([each.inside is None for each in outcomes])
        yield f"{title:20} {kind:14} {'  '.join(shown)}  {unknown:5.1%}  {asked:6}  {verdict}"


def _inside(outcome: Outcome, level: int) -> float | None:
    return None if outcome.inside is None else float(outcome.inside[level])


def _beyond(outcome: Outcome, times: float) -> float | None:
    return None if outcome.inside is None else float(abs(outcome.off) > times * outcome.stderr + 1e-12)


def _strength(task: Task) -> Budget:
    return task.epsilon, task.delta


def _weaker(budgets: Sequence[Budget]) -> list[tuple[Budget, Budget]]:
    """Pairs of a budget and the next larger one in both ε and δ. Neither of (1, δ) and (10, 0) is larger: both are
    compared with (1, 0).
    """
    pairs = [(one, two) for one in budgets for two in budgets if one != two and one[0] <= two[0] and one[1] <= two[1]]
    return [(one, two) for one, two in pairs if not any((one, mid) in pairs and (mid, two) in pairs for mid in budgets)]


def _rises(now: dict[str, Floats], then: dict[str, Floats]) -> bool:
    """Whether errors of the questions that both budgets answer rise by more than SLACK and two standard errors."""
    both = [question for question in now if question in then]
    if not both:
        return False
    means = np.array([[now[each].mean(), then[each].mean()] for each in both])
    before, after = means.mean(axis=0)
    changes = means[:, 1] - means[:, 0]
    error = float(changes.std(ddof=1)) / np.sqrt(len(both)) if len(both) > 1 else np.inf
    return bool(after > SLACK * before and after - before > 2 * error)


def _falling(measured: Sequence[Measured]) -> Iterator[str]:
    budgets = sorted({_strength(each.task) for each in measured})
    header = "  ".join(f"{_budget_text(*budget):>11}" for budget in budgets)
    yield f"{'':20} {'':14} {header}"
    for name in dict.fromkeys(each.task.table for each in measured):
        for kind in KINDS:
            found = {budget: _errors(measured, name, kind, budget) for budget in budgets}
            if not any(found.values()):
                continue
            rising = any(_rises(found[one], found[two]) for one, two in _weaker(budgets))
            verdict = "SHORT: rises" if rising else "PASS"
            for budget in budgets:
                goal = GOALS.get((name, kind, budget))
                if goal is not None and found[budget]:
                    mean, error = _mean(list(found[budget].values()))
                    met = "PASS" if mean <= goal + 2 * error else "SHORT"
                    verdict += f", goal {goal:g} at {_budget_text(*budget)} {met}"
            shown = "  ".join(f"{_mean(list(found[budget].values()))[0]:11.5f}" for budget in budgets)
            yield f"{name:20} {kind:14} {shown}  {verdict}"


def _errors(measured: Sequence[Measured], name: str, kind: str, budget: Budget) -> dict[str, Floats]:
    """Absolute errors of each question that is answered."""
    found = defaultdict(list)
    for each in measured:
        if each.task.table == name and _strength(each.task) == budget:
            for outcome in each.outcomes:
                if outcome.kind == kind and np.isfinite(outcome.off):
                    found[outcome.question].append(abs(outcome.off))
    return {question: np.array(errors) for question, errors in found.items()}


def _costs(measured: Sequence[Measured]) -> Iterator[str]:
    for name in dict.fromkeys(each.task.table for each in measured):
        own = [each for each in measured if each.task.table == name]
        keys = own[0].seconds
        shown = "  ".join(f"{key} {np.mean([each.seconds[key] for each in own]):.2f}" for key in keys)
        yield f"{name:20} {shown}  file {np.mean([each.file_bytes for each in own]):.0f}"


def _budget_text(epsilon: float, delta: float) -> str:
    return f"ε={epsilon:g}" + (f", δ={delta:g}" if delta else "")
