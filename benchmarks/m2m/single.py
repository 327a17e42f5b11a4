"""`python -m benchmarks.m2m.single`: answers from releases that hold the sums of one map and a count.

For each table, map and ε: the root mean square of error/standard error; how many 68 % and 95 % intervals hold the
truth; how many errors are beyond three standard errors; how many answers are not known, which do not count in the
others; and the root mean square error, in parts of the bounds, beside that of the paper's own regression on the same
release.

Questions are the mean of every column of numbers, and shares at data quantiles and of labels, of one and of two
columns; a grid has the first three columns.

GOALS must have a root mean square between 0.6 and 1.4; on all tables it may not exceed 1.4, 2 % of the errors may be
beyond three standard errors, and errors may be a tenth larger than the paper's. `single_tables` lists the tables.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import math
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas.api.types import is_numeric_dtype

import dpsketch as dps
from benchmarks.m2m.single_tables import CHOSEN, JUDGES, table
from dpsketch.maps.base import FeatureMap
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Integer, Number
from dpsketch.sketch.released import ReleasedSketch

LEAST, MOST, WORSE, BEYOND = 0.6, 1.4, 1.1, 0.02
GOALS = ("random10", "beta", "lifesci")
EPSILONS = (math.inf, 10.0, 1.0)
FIRST_SEED = 1000  # of maps and questions
MAPS: dict[str, Callable[[tuple[str, ...], int], FeatureMap]] = {
    "fourier": lambda names, seed: dps.Fourier(names, size=100, seed=seed),
    "one-bit": lambda names, seed: dps.OneBitFourier(names, size=100, seed=seed),
    "race": lambda names, seed: dps.Race(names, rows=80, width=80, hash=dps.Euclidean(bandwidth=1.0), seed=seed),
    "grid": lambda names, seed: dps.Grid(names[:3], rows=5, width=4096, levels=(3,), seed=seed),
}


@dataclass(frozen=True)
class Case:
    table: str
    kind: str
    epsilon: float
    seed: int
    declared: bool  # whether the schema says that no cell is missing


def questions(frame: Any, rng: np.random.Generator) -> list[tuple[str, Floats]]:
    """A condition, or a column whose mean is asked for, and the rows that the truth is the mean of."""
    averaged = [name for name in frame if is_numeric_dtype(frame[name])]

    def condition(name: str) -> tuple[str, Floats]:
        if name not in averaged:
            label = str(rng.choice(frame[name].unique()))
            return f"{name} = '{label}'", np.asarray(frame[name] == label, np.float64)
        at, below = float(frame[name].quantile(rng.uniform(0.05, 0.95))), bool(rng.integers(2))
        text = f"{name} {'<=' if below else '>='} {at!r}"
        return text, np.asarray(frame[name] <= at if below else frame[name] >= at, np.float64)

    asked = [(name, frame[name].dropna().to_numpy(np.float64)) for name in averaged]
    for _ in range(20):
        asked.append(condition(str(rng.choice(frame.columns))))
    for _ in range(20 if len(frame.columns) > 1 else 0):
        one, two = (condition(str(name)) for name in rng.choice(frame.columns, 2, replace=False))
        asked.append((f"{one[0]} and {two[0]}", one[1] * two[1]))
    return asked


def released(case: Case) -> ReleasedSketch:
    frame, schema = table(case.table, case.declared)
    feature_map = MAPS[case.kind](tuple(frame.columns), case.seed)
    raw = dps.accumulate(frame, schema, dps.Recipe([dps.Part(dps.Count(), 0.02), dps.Part(feature_map, 0.98)]))
    private = () if case.epsilon == math.inf else (dps.Ledger("sqlite://"), "table")
    return dps.release(raw, dps.Budget(case.epsilon), *private)


def measure(case: Case) -> Floats:
    return measured(case, released(case))


def measured(case: Case, release: ReleasedSketch) -> Floats:
    """For each question the error over the standard error, whether 68 % and 95 % intervals hold, the error, and that of
    the paper's regression, in parts of the bounds; not numbers where the answer is not known.
    """
    frame, schema = table(case.table, case.declared)
    asked = questions(frame.iloc[:, :3] if case.kind == "grid" else frame, np.random.default_rng(case.seed))
    views = dps.View(release), dps.View(release, method="ridge-paper")
    found = []
    for text, values in asked:
        mean = text in frame
        column = schema.column(text) if mean else None
        width = float(column.upper - column.lower) if isinstance(column, Number | Integer) else 1.0
        ours, paper = (view.mean(text) if mean else view.fraction(text) for view in views)
        if not ours.known or not paper.known:
            found.append((math.nan,) * 5)
            continue
        truth, intervals = values.mean(), [ours.interval(level) for level in (0.6827, 0.95)]
        relative = (ours.raw - truth) / ours.stderr if ours.raw != truth else 0.0
        held = [low <= truth <= high for low, high in intervals]
        found.append((relative, *held, (ours.raw - truth) / width, (paper.raw - truth) / width))
    return np.array(found, np.float64)


def line(case: Case, runs: Sequence[Floats]) -> str:
    """A line of the print, which ends with PASS or with what was missed."""
    every = np.concatenate(runs)
    known = every[np.isfinite(every[:, 0])]
    goal = case.table in GOALS
    tag = f"{'goal' if goal else 'chosen' if case.table in CHOSEN else 'judge':6} {case.table}"
    tag = f"{tag + (', none missing' if case.declared else ''):45} {case.kind:8} ε {case.epsilon:<4g}"
    if not len(known):
        return f"{tag} nothing known"
    relative, ours, paper = np.sqrt(np.mean(known[:, [0, 3, 4]] ** 2, axis=0))
    beyond = float(np.mean(np.abs(known[:, 0]) > 3))
    missed = ["wrong"] if relative > MOST or beyond > BEYOND else []
    missed += ["wide"] if goal and relative < LEAST else []
    missed += ["worse than the paper"] if ours > WORSE * paper else []
    return (
        f"{tag} rms {relative:5.2f}   68 % held {known[:, 1].mean():4.0%}   95 % {known[:, 2].mean():4.0%}   "
        f"beyond 3 {beyond:5.1%}   not known {1 - len(known) / len(every):4.0%}   "
        f"error {ours:.1e}   of the paper's {ours / paper:5.2f}   {', '.join(missed).upper() or 'PASS'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.m2m.single", description="Releases of one map.")
    parser.add_argument("--seeds", type=int, default=20, help="map seeds")
    parser.add_argument("--tables", nargs="*", default=[*CHOSEN, *JUDGES])
    parser.add_argument("--maps", nargs="*", default=[*MAPS], choices=[*MAPS])
    parser.add_argument("--epsilon", nargs="*", type=float, default=EPSILONS)
    parser.add_argument(
        "--declared", nargs="*", default=["yes", "no"], choices=["yes", "no"], help="no cell is missing"
    )
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"map and question seeds {FIRST_SEED} to {FIRST_SEED + options.seeds - 1}", flush=True)
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as executor:
        for name in options.tables:
            for declared in (answer == "yes" for answer in options.declared):
                if declared and "+missing" in name:
                    continue
                for kind in options.maps:
                    for epsilon in options.epsilon:
                        seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
                        cases = [Case(name, kind, epsilon, seed, declared) for seed in seeds]
                        print(line(cases[0], list(executor.map(measure, cases))), flush=True)


if __name__ == "__main__":
    main()
