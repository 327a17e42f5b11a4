"""`python -m benchmarks.truth.plans`: how near `plan` comes to the standard errors that releases state.

A plan knows the schema, the declared rows, the budget and the text of one question, nothing else. For every table and
budget, and for every kind of question, it prints the share of questions whose planned standard error is within a factor
of 1.5 of the released one, the share for which another release of the same table is (no plan can do better), the share
of released errors inside the planned range, and the median, 5th and 95th percentile of planned/released. With groups,
errors are medians over the groups. The goal is 90 % within 1.5. With `--like`, a plan also knows an earlier release.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import dpsketch as dps
from benchmarks.truth.measure import Task, asked_of, released_view
from benchmarks.truth.questions import KINDS, Question
from benchmarks.truth.tables import CHOSEN_ON, JUDGED_ON, TABLES, load

FACTOR = 1.5
EARLIER = (1.0, 0.0)  # budget of the earlier release that --like draws from
BUDGETS = ((0.1, 0.0), (1.0, 0.0), (1.0, 1e-6), (10.0, 0.0))
TINY = 1e-9  # of a question's scale: below, errors count as equal


@dataclass(frozen=True)
class Compared:
    """The planned and the released standard error of one question, over the question's scale, and the plan's range."""

    table: str
    budget: tuple[float, float]
    kind: str
    planned: float
    low: float
    high: float
    released: float
    again: float  # by another release of the same table

    @property
    def ratio(self) -> float:
        return _ratio(self.planned, self.released)

    @property
    def near(self) -> bool:
        return 1 / FACTOR <= self.ratio <= FACTOR

    @property
    def near_again(self) -> bool:
        return 1 / FACTOR <= _ratio(self.again, self.released) <= FACTOR

    @property
    def in_range(self) -> bool:
        return self.low / 1.05 <= self.released + TINY and self.released <= self.high * 1.05 + TINY


def _ratio(one: float, other: float) -> float:
    return 1.0 if np.isinf(one) and np.isinf(other) else float((one + TINY) / (other + TINY))


def some(questions: Sequence[Question], each: int) -> list[Question]:
    """The first questions of every kind."""
    return [question for kind in KINDS for question in [asked for asked in questions if asked.kind == kind][:each]]


def stated(view: dps.View, question: Question) -> float:
    """The standard error of an answer, infinite where nothing is known; the middle one of those of all groups."""
    answers = {row[0] if question.group else None: row[-1] for row in view.sql(question.sql).rows}
    errors = [answers[label] for label in question.truths if label in answers]
    known = np.sort([float(each.stderr) if np.isfinite(float(each.value)) else np.inf for each in errors])
    return float(known[len(known) // 2]) if len(known) else np.nan


def compare(table: str, budgets: Sequence[tuple[float, float]], each: int, seed: int, like: bool) -> Iterator[Compared]:
    tasks = {budget: Task(table, *budget, release=0, seed=seed, questions=8 * each) for budget in budgets}
    views = {budget: [released_view(task)[0] for _ in range(2)] for budget, task in tasks.items()}
    earlier = released_view(Task(table, *EARLIER, release=0, seed=seed))[0] if like else None
    for question in some(asked_of(tasks[budgets[0]]), each):
        spends = [dps.Budget(*budget) for budget in budgets]
        plan = dps.plan(load(table).schema, [question.sql], spends, like=earlier)
        for found in plan.predictions:
            spent = next(budget for budget in budgets if dps.Budget(*budget) == found.budget)
            released = [stated(view, question) for view in views[spent]]
            if not np.isnan(released).any():
                numbers = np.array([found.error, found.low, found.high, *released]) / question.scale
                yield Compared(table, spent, question.kind, *np.where(np.isnan(numbers), np.inf, numbers).tolist())


def line(title: str, kind: str, found: Sequence[Compared]) -> str:
    ratios = np.array([each.ratio for each in found])
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95], method="nearest")
    near, again, inside = (
        np.mean([getattr(each, name) for each in found]) for name in ("near", "near_again", "in_range")
    )
    shares = f"{near:6.0%}  {again:6.0%}  {inside:6.0%}"
    return f"{title:38} {kind:14} {shares}  {middle:8.3g}  {low:8.3g}  {high:8.3g}  {len(found):5}"


def lines(found: Sequence[Compared]) -> Iterator[str]:
    heads = f"{'in 1.5':>6}  {'again':>6}  {'range':>6}  {'median':>8}  {'5 %':>8}  {'95 %':>8}  questions"
    yield f"{'':38} {'kind':14} {heads}"
    groups: dict[str, list[Compared]] = {}
    for each in found:
        budget = f"ε={each.budget[0]:g}" + (f", δ={each.budget[1]:g}" if each.budget[1] else "")
        group = "chosen on" if each.table in CHOSEN_ON else "judged on"
        for title in (f"{each.table} {budget}", group, f"{group} {budget}"):
            groups.setdefault(title, []).append(each)
    for title in sorted(groups, key=lambda title: title.startswith(("chosen on", "judged on"))):
        own = groups[title]
        yield line(title, "all", own)
        for kind in KINDS:
            if of_kind := [each for each in own if each.kind == kind]:
                yield line(title, kind, of_kind)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.plans", description=__doc__)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=(*CHOSEN_ON, *JUDGED_ON))
    parser.add_argument("--budgets", nargs="*", default=(), help="as 1 or 1,1e-6")
    parser.add_argument("--like", action="store_true", help="draw simulated rows from an earlier release at ε = 1")
    parser.add_argument("--questions", type=int, default=8, help="of each kind")
    parser.add_argument("--seed", type=int, default=5, help="of the questions")
    options = parser.parse_args()
    budgets = [_budget(text) for text in options.budgets] or BUDGETS
    found = [
        each
        for name in options.tables
        for each in compare(name, budgets, options.questions, options.seed, options.like)
    ]
    for text in lines(found):
        print(text, flush=True)


def _budget(text: str) -> tuple[float, float]:
    epsilon, _, delta = text.partition(",")
    return float(epsilon), float(delta or 0)


if __name__ == "__main__":
    main()
