"""Every method of the study by name, and the results of one of its runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.m2m import environments
from benchmarks.m2m.answers import Answers, Points, Weighted
from benchmarks.m2m.cells import cut
from benchmarks.m2m.marginals import marginals_only
from benchmarks.m2m.models import auc, encode, score
from benchmarks.m2m.ours import Ours
from benchmarks.m2m.paper import Fourier, Hist, Race, moment_to_moment, ridge_on_marginals
from benchmarks.m2m.study import study
from benchmarks.m2m.tables import Table, load

Method = Callable[[Table, dps.Budget, np.random.Generator], Answers]

METHODS: dict[str, Method] = {
    "ours": lambda table, budget, _: Ours(table, budget),
    "marginals": lambda table, budget, _: marginals_only(table, budget),
    "ridge": lambda table, budget, rng: ridge_on_marginals(table, budget, rng),
    "m2m-rff": lambda table, budget, rng: moment_to_moment(table, Fourier(len(table.columns), rng), budget, rng),
    "m2m-race": lambda table, budget, rng: moment_to_moment(table, Race(len(table.columns), rng), budget, rng),
    "m2m-hist": lambda table, budget, rng: moment_to_moment(table, Hist(len(table.columns)), budget, rng),
}
# λ = σ²/n², for Table 1 alone: its HIST figures cannot come from λ = σ²/n, which shrinks a mean by 7 %.
BY_THEOREM: dict[str, Method] = {
    "m2m-rff-n²": lambda table, budget, rng: moment_to_moment(
        table, Fourier(len(table.columns), rng), budget, rng, by_theorem=True
    ),
    "m2m-hist-n²": lambda table, budget, rng: moment_to_moment(
        table, Hist(len(table.columns)), budget, rng, by_theorem=True
    ),
}
PATIENCE = 3.0  # a run of MST or AIM ends after this multiple of AIM's cap, which it checks only between rounds
SYNTHETIC_ROWS = 100_000
MEGABYTES = 80


@dataclass(frozen=True)
class Limits:
    """Limits that keep AIM from running for hours.

    They are the rounds per column over which its budget is planned (the paper's default: 16), steps of each estimate,
    and seconds of processor time after which one round spends the rest (0: never).
    """

    rounds: int = 16
    steps: int = 500
    seconds: float = 180.0


@dataclass(frozen=True)
class Task:
    """One method on one table with one budget: runs `first` to `first + runs`."""

    table: str
    method: str
    epsilon: float
    delta: float
    runs: int
    seed: int
    limits: Limits = Limits()

    @property
    def key(self) -> tuple[str, str, float, float]:
        return self.table, self.method, self.epsilon, self.delta

    @property
    def budget(self) -> dps.Budget:
        return dps.Budget(self.epsilon, self.delta)

    def entropy(self, run: int) -> tuple[int, ...]:
        """Public randomness of the study; the library's noise comes from the operating system."""
        name = int.from_bytes(self.method.encode(), "little") % 2**31
        return (
            self.seed,
            run,
            name,
            round(self.epsilon * 1000) if math.isfinite(self.epsilon) else 0,
            int(self.delta > 0),
        )


def measure(task: Task) -> list[dict[str, float]]:
    """The figures of each run; none at all if one of them exceeded its time."""
    try:
        return [_run(task, run) for run in range(task.runs)]
    except environments.OverTime:
        return []


def answers(task: Task, run: int) -> tuple[Answers, dict[str, float]]:
    """A method's answers, and other figures of the run."""
    table, rng = load(task.table), np.random.default_rng(task.entropy(run))
    if task.method in ("mst", "aim"):
        return graphical(task, table, rng)
    return (METHODS | BY_THEOREM)[task.method](table, task.budget, rng), {}


def _run(task: Task, run: int) -> dict[str, float]:
    table = load(task.table)
    if task.method == "not private":
        return {"model": score(table, Weighted(table.rows, np.full(len(table.rows), 1 / len(table.rows))))}
    if task.method == "diffprivlib":
        return {"model": diffprivlib(table, task.epsilon, np.random.default_rng(task.entropy(run)))}
    found, extra = answers(task, run)
    return study(task.table, (task.seed, run)).figures(found) | extra


def graphical(task: Task, table: Table, rng: np.random.Generator) -> tuple[Answers, dict[str, float]]:
    """MST or AIM; synthetic rows of cells become values, uniform in their bins."""
    cells = cut(table)
    options: dict[str, Any] = {
        "mechanism": task.method,
        "epsilon": task.epsilon,
        "delta": task.delta,
        "seed": int(rng.integers(2**31)),
        "rows": SYNTHETIC_ROWS,
        "megabytes": MEGABYTES,
        "seconds": task.limits.seconds,
        "steps": task.limits.steps,
        "rounds": task.limits.rounds,
    }
    arrays = {"cells": cells.cells(table.rows), "sizes": np.array(cells.sizes)}
    limit = PATIENCE * task.limits.seconds
    output, report = environments.run_script("mbi", "benchmarks.m2m.mbi_script", arrays, options, limit)
    rows = cells.values(output["cells"], rng)
    points = Points(table, rows, np.full(len(rows), 1 / len(rows)), report["seconds"])
    return points, {"rounds": report["rounds"], "cut": float(report.get("cut", False)), "total": report["seconds"]}


def diffprivlib(table: Table, epsilon: float, rng: np.random.Generator) -> float:
    """AUC of its logistic regression on features in [0, 1]; a row's norm is at most √(numbers and categories)."""
    assert table.label is not None
    known = ~np.isnan(table.rows[:, table.label])
    arrays = {
        "features": encode(table, table.rows[known]),
        "target": table.rows[known, table.label].astype(int),
        "test": encode(table, table.test),
    }
    options = {"epsilon": epsilon, "norm": math.sqrt(len(table.columns) - 1), "seed": int(rng.integers(2**31))}
    output, _ = environments.run_script("diffprivlib", "benchmarks.m2m.diffprivlib_script", arrays, options)
    return auc(table.test[:, table.label], output["scores"])
