"""`make papers-density`: every figure of the race and density papers beside its goal and its baselines.

`python -m benchmarks.density --quick` runs a small part, `--parts kde` one of them. Figures are the mean (worst) of
runs with fresh splits, fresh queries and fresh noise; sizes and mechanisms are the ready-made recipes', and printed.
Every part keeps its text in a file of its own, so that one can be run again alone: benchmarks/results/density. So does
a table of kernel densities, classifiers or regressions that `--tables` names; figures are drawn from these texts. The
large graph is not run unless it is named.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import secrets
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import matplotlib

from benchmarks.compressive.options import Options, Say
from benchmarks.density import anomaly, classifiers, curves, faults, graphs, kde, regression, sampling, times
from benchmarks.m2m import environments

PARTS: dict[str, Callable[[Options, Say], None]] = {
    "times": times.run,
    "kde": kde.run,
    "classifiers": classifiers.run,
    "regression": regression.run,
    "anomaly": anomaly.run,
    "sampling": sampling.run,
    "graphs": graphs.run,
    "faults": faults.run,
    "large": graphs.run_large,
    "figures": curves.run,
}
RESULTS = Path(__file__).resolve().parents[1] / "results" / "density"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.density", description="The density study.")
    parser.add_argument("--quick", action="store_true", help="one run of a few cases")
    parser.add_argument(
        "--parts", nargs="*", choices=tuple(PARTS), default=tuple(name for name in PARTS if name != "large")
    )
    parser.add_argument("--runs", type=int, help="with fresh noise, of every case")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of splits, queries and baselines")
    parser.add_argument("--queries", type=int, default=Options.queries, help="held-out rows of kernel densities")
    parser.add_argument("--tables", nargs="*", default=(), help="of kde, classifiers and regression; in files apart")
    parser.add_argument("--skip", nargs="*", default=[], choices=("diffprivlib",))
    given = parser.parse_args()
    if "diffprivlib" not in given.skip and not environments.installed("diffprivlib"):
        print("diffprivlib is left out: its environment is not there (make papers-density creates it)")
        given.skip.append("diffprivlib")
    matplotlib.use("Agg")
    RESULTS.mkdir(parents=True, exist_ok=True)
    runs, skip, tables = given.runs or (1 if given.quick else 5), tuple(given.skip), tuple(given.tables)
    options = Options(runs, given.seed, given.quick, RESULTS, skip, given.queries, tables)
    for name in given.parts:
        _run(name, options)


def _run(name: str, options: Options) -> None:
    start = time.perf_counter()
    with (options.results / f"{'-'.join((name, *options.tables))}.txt").open("w") as file:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        quick = " --quick" if options.quick else ""
        queries = f" --queries {options.queries}" if options.queries != Options.queries else ""
        tables = f" --tables {' '.join(options.tables)}" if options.tables else ""
        asked = f"--parts {name}{tables} --runs {options.runs} --seed {options.seed}{queries}{quick}"
        say(f"python -m benchmarks.density {asked}, {date.today()}")
        PARTS[name](options, say)
        say(f"{name} took {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
