"""`python -m benchmarks.m2m.single`: answers from releases that hold the sums of one map and a count.

For each table, map and ε: the root mean square of error/standard error, over all questions and map seeds, that must be
between 0.6 and 1.4; how many 95 % intervals hold the truth; and the root mean square error beside that of the paper's
own regression on the same release, which it must not exceed by more than a tenth. Questions are the mean of every
column, and shares at data quantiles of one and of two columns; a grid has the first three columns.

The constants of the prior were chosen on TUNED; SEEN showed that a rule was missing; JUDGES were asked only afterwards.
Of SEEN and JUDGES, intervals must hold 93 %.
`NAME+missing` has a quarter of the cells of its first columns missing, `NAME+bounds` a quarter of them at a bound.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import math
import multiprocessing
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

import dpsketch as dps
from benchmarks.data import DATA
from dpsketch.maps.base import FeatureMap
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Integer, Number

LEAST, MOST, WORSE, HELD = 0.6, 1.4, 1.1, 0.93
ROWS, SPOILED = 26_733, 3  # columns with missing cells, or with values at a bound
EPSILONS = (math.inf, 10.0, 1.0)
TUNED = ("random10", "beta", "lifesci", "california_housing", "california_housing+missing", "beta+bounds")
SEEN = ("airfoil", "sf_salaries")  # when the error of numbers that many records share was added
JUDGES = ("htru2", "cod_rna", "skin", "occupancy", "naval", "htru2+missing", "cod_rna+bounds", "lifesci+missing")
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


@lru_cache(1)
def table(name: str, declared: bool) -> tuple[Any, dps.Schema]:
    """Numeric columns and their schema."""
    name, _, spoiled = name.partition("+")
    frame, facts, rows = simulated(name) if name in ("random10", "beta") else real(name)
    if spoiled:
        rng = np.random.default_rng(11)
        for column in list(frame)[:SPOILED]:
            chosen = rng.random(len(frame)) < 0.25
            frame.loc[chosen, column] = np.nan if spoiled == "missing" else float(facts[column]["lower"])
    if declared and not frame.isna().any(axis=None):
        facts = {column: {**each, "missing": each["lower"]} for column, each in facts.items()}
    return frame, dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": facts})


def simulated(name: str) -> tuple[Any, dict[str, Any], int]:
    rng = np.random.default_rng(10)
    rows = rng.random((ROWS, 10)) if name == "random10" else rng.beta(2, 8, (ROWS, 10))
    frame = pd.DataFrame(rows, columns=[f"x{j}" for j in range(10)])
    return frame, {column: {"kind": "number", "lower": 0, "upper": 1} for column in frame}, 27_000


def real(name: str) -> tuple[Any, dict[str, Any], int]:
    """The numbers of a table, as floats, clipped to their bounds."""
    declared = tomllib.loads((DATA / "schemas" / f"{name}.toml").read_text())
    facts = {key: each for key, each in declared["columns"].items() if each["kind"] in ("number", "integer")}
    frame = pd.read_parquet(DATA / f"{name}.parquet", columns=list(facts)).astype(float)
    for key, each in facts.items():
        frame[key] = frame[key].clip(each["lower"], each["upper"])
    return frame, facts, declared["privacy"]["rows"]


def questions(frame: Any, rng: np.random.Generator) -> list[tuple[str, Floats]]:
    """A condition, or a column whose mean is asked for, and the rows that the truth is the mean of."""

    def condition(name: str) -> tuple[str, Floats]:
        at, below = float(frame[name].quantile(rng.uniform(0.05, 0.95))), bool(rng.integers(2))
        text = f"{name} {'<=' if below else '>='} {at!r}"
        return text, np.asarray(frame[name] <= at if below else frame[name] >= at, np.float64)

    asked = [(name, frame[name].dropna().to_numpy(np.float64)) for name in frame]
    for _ in range(20):
        asked.append(condition(str(rng.choice(frame.columns))))
    for _ in range(20 if len(frame.columns) > 1 else 0):
        one, two = (condition(str(name)) for name in rng.choice(frame.columns, 2, replace=False))
        asked.append((f"{one[0]} and {two[0]}", one[1] * two[1]))
    return asked


def measure(case: Case) -> Floats:
    """Errors over standard errors, whether 95 % intervals hold, errors, and errors of the paper's regression, in parts
    of the bounds; without answers that are not known.
    """
    frame, schema = table(case.table, case.declared)
    feature_map = MAPS[case.kind](tuple(frame.columns), case.seed)
    asked = questions(frame.iloc[:, :3] if case.kind == "grid" else frame, np.random.default_rng(case.seed))
    raw = dps.accumulate(frame, schema, dps.Recipe([dps.Part(dps.Count(), 0.02), dps.Part(feature_map, 0.98)]))
    private = () if case.epsilon == math.inf else (dps.Ledger("sqlite://"), "table")
    released = dps.release(raw, dps.Budget(case.epsilon), *private)
    views = dps.View(released), dps.View(released, method="ridge-paper")
    found = []
    for text, values in asked:
        mean = text in frame
        column = schema.column(text) if mean else None
        width = float(column.upper - column.lower) if isinstance(column, Number | Integer) else 1.0
        ours, paper = (view.mean(text) if mean else view.fraction(text) for view in views)
        if not ours.known or not paper.known:
            continue
        truth, (low, high) = values.mean(), ours.interval()
        found.append(
            (
                (ours.raw - truth) / ours.stderr if ours.raw != truth else 0.0,
                low <= truth <= high,
                (ours.raw - truth) / width,
                (paper.raw - truth) / width,
            )
        )
    return np.array(found).reshape(-1, 4)


def line(tag: str, judge: bool, kind: str, epsilon: float, runs: Sequence[Floats]) -> str:
    every = np.concatenate(runs)
    held, (relative, ours, paper) = every[:, 1].mean(), np.sqrt(np.mean(every[:, [0, 2, 3]] ** 2, axis=0))
    right = held >= HELD if judge else LEAST <= relative <= MOST
    return (
        f"{tag:36} {kind:8} ε {epsilon:<4g} rms error/stderr {relative:5.2f}   95 % held {100 * held:3.0f} %   "
        f"error {ours:.1e}   of the paper's {ours / paper:5.2f}   "
        f"{'PASS' if right and ours <= WORSE * paper else 'SHORT'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.m2m.single", description="Releases of one map.")
    parser.add_argument("--seeds", type=int, default=20, help="map seeds")
    parser.add_argument("--tables", nargs="*", default=[*TUNED, *SEEN, *JUDGES], choices=(*TUNED, *SEEN, *JUDGES))
    parser.add_argument("--maps", nargs="*", default=[*MAPS], choices=[*MAPS])
    parser.add_argument("--epsilon", nargs="*", type=float, default=EPSILONS)
    parser.add_argument(
        "--declared", nargs="*", default=["yes", "no"], choices=["yes", "no"], help="no cell is missing"
    )
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as executor:
        for name in options.tables:
            for declared in options.declared:
                if declared == "yes" and name.endswith("+missing"):
                    continue
                judge = name not in TUNED
                role = "tuned on" if name in TUNED else "seen" if name in SEEN else "judge"
                tag = f"{name} ({role}{', none missing' if declared == 'yes' else ''})"
                for kind in options.maps:
                    for epsilon in options.epsilon:
                        cases = [Case(name, kind, epsilon, 1000 + s, declared == "yes") for s in range(options.seeds)]
                        print(line(tag, judge, kind, epsilon, list(executor.map(measure, cases))), flush=True)


if __name__ == "__main__":
    main()
