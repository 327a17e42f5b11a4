"""`python -m benchmarks.truth.wide`: shares under three conditions on tables of up to 129 columns, beside independence.

Independence takes the exact shares of the three conditions and multiplies them: no release, but what a release of
exact marginals would answer. For each table and budget it prints the mean error of several releases, that of
independence, the coverage of 68 and 95 % intervals, seconds of processor time up to the first answer about three
columns, and the peak memory of the process. Goals are those of the truth study's experiments.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.truth.measure import LEVELS, Task, released_view
from benchmarks.truth.questions import Condition, Maker, Mask
from benchmarks.truth.tables import WIDE, load

BUDGETS = ((0.1, 0.0), (1.0, 0.0), (1.0, 1e-6), (10.0, 0.0))
TABLES = (*WIDE, "nomao", "gas_drift_partial", "covtype")
ONE, ONE_AND_DELTA = (1.0, 0.0), (1.0, 1e-6)
GOALS = {
    ("wide100", ONE): 0.005,
    ("wide100", ONE_AND_DELTA): 0.002,
    ("nomao", ONE_AND_DELTA): 0.016,
    ("gas_drift_partial", ONE_AND_DELTA): 0.02,
    ("covtype", ONE_AND_DELTA): 0.0019,
}
MOST_SECONDS, MOST_BYTES = 60.0, 2 << 30  # of 100 columns


@dataclass(frozen=True)
class Asked:
    sql: str
    truth: float
    independent: float


@dataclass(frozen=True)
class Found:
    """Errors as shares of the rows, those of independence, and whether intervals hold."""

    table: str
    budget: tuple[float, float]
    errors: tuple[float, ...]
    independent: tuple[float, ...]
    inside: tuple[tuple[bool, ...], ...]
    seconds: float
    peak: int


def asked(name: str, seed: int, count: int) -> list[Asked]:
    """Conditions on three columns that are not the target."""
    table = load(name)
    maker = Maker(table, np.random.default_rng([seed, len(table.train)]))
    names = [column.name for column in table.schema.columns if column.name != "label"]
    chosen = [maker.conditions(names, 3) for _ in range(count)]
    return [_asked(conditions) for conditions in chosen]


def _asked(conditions: list[Condition]) -> Asked:
    text = " and ".join(condition.text for condition in conditions)
    masks: list[Mask] = [condition.holds for condition in conditions]
    independent = float(np.prod([mask.mean() for mask in masks]))
    return Asked(
        f"select count(*) as v from sketch where {text}", float(np.logical_and.reduce(masks).mean()), independent
    )


def measure(name: str, budget: tuple[float, float], release: int, seed: int, count: int) -> Found:
    questions = asked(name, seed, count)
    view, _, _ = released_view(Task(name, *budget, release, seed))
    start = time.process_time()
    view.sql(questions[0].sql)
    seconds = time.process_time() - start
    rows = len(load(name).train)
    errors, inside = [], []
    for question in questions:
        answer = view.sql(question.sql).rows[0][0]
        errors.append(abs(float(answer.value) / rows - question.truth))
        ends = [answer.interval(level) for level in LEVELS]
        inside.append(tuple(bool(low <= question.truth * rows <= high) for low, high in ends))
    independent = tuple(abs(question.independent - question.truth) for question in questions)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Found(name, budget, tuple(errors), independent, tuple(inside), seconds, peak)


def lines(found: list[Found]) -> Iterator[str]:
    yield f"{'':18} {'':12} {'error':>8} {'independence':>12} {'68 %':>6} {'95 %':>6} {'seconds':>8} {'GiB':>5}"
    for key in dict.fromkeys((each.table, each.budget) for each in found):
        own = [each for each in found if (each.table, each.budget) == key]
        means = [float(np.mean(each.errors)) for each in own]
        error, alone = float(np.mean(means)), float(np.mean([each.independent for each in own]))
        doubt = 2 * float(np.std(means, ddof=1)) / np.sqrt(len(means)) if len(means) > 1 else 0.0
        shares = np.mean([each.inside for each in own], axis=(0, 1))
        seconds, peak = max(each.seconds for each in own), max(each.peak for each in own)
        verdict = "PASS" if error <= alone + doubt else "SHORT: above independence"
        if key in GOALS:
            verdict += f", goal {GOALS[key]:g} {'PASS' if error <= GOALS[key] + doubt else 'SHORT'}"
        if key[0] == "wide100":
            verdict += f", fit {'PASS' if seconds < MOST_SECONDS and peak < MOST_BYTES else 'SHORT'}"
        epsilon, delta = key[1]
        budget = f"ε={epsilon:g}" + (f", δ={delta:g}" if delta else "")
        figures = f"{error:8.5f} {alone:12.5f} {shares[0]:6.1%} {shares[1]:6.1%} {seconds:8.1f} {peak / 2**30:5.2f}"
        yield f"{key[0]:18} {budget:12} {figures}  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.wide", description=__doc__)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--seed", type=int, default=5, help="of the questions")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    # A process for each release: its peak memory is its own.
    with ProcessPoolExecutor(options.workers, context, max_tasks_per_child=1) as executor:
        running = [
            executor.submit(measure, name, budget, release, options.seed, options.questions)
            for name in options.tables
            for budget in BUDGETS
            for release in range(options.releases)
        ]
        for text in lines([each.result() for each in running]):
            print(text, flush=True)


if __name__ == "__main__":
    main()
