"""`make papers-compressive`: every figure of the compressive study beside its goal and its baselines.

`python -m benchmarks.compressive --quick` runs a small part. Figures are the median (worst) of runs with fresh tables
and fresh noise, with public bounds only; sketch sizes, laws and mechanisms are those of `Recipe.clusters`, and printed.
Every part keeps its text in a file of its own, so that one can be run again alone: benchmarks/results/compressive.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import secrets
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

import matplotlib

from benchmarks.compressive import faults, laws, nsr, pca, phase, real, speed, synthetic, widths
from benchmarks.compressive.options import Options, Say
from benchmarks.m2m import environments


def components(options: Options, say: Say) -> None:
    for line in pca.lines(options.results, options.seed, options.runs):
        say(line)


def ratios(options: Options, say: Say) -> None:
    for line in nsr.lines(options.results, options.seed, 20 if options.quick else 100):
        say(line)


def sizes(options: Options, say: Say) -> None:
    for line in phase.lines(options.results, options.seed, min(options.runs, 3)):
        say(line)


def tables_of(rows: int, options: Options, say: Say) -> None:
    for line in phase.table_lines(rows, options.seed, min(options.runs, 3)):
        say(line)
    phase.draw_figure_8(phase.kept_errors(options.results), options.results / "figure8.png")
    say("figure 8, with what other numbers of rows have left: figure8.png")


PARTS: dict[str, Callable[[Options, Say], None]] = {
    "speed": speed.run,
    **{f"mixtures-{clusters}": partial(synthetic.run, clusters) for clusters in synthetic.SIZES},
    **{name: partial(real.run, name) for name in real.TABLES},
    "laws": laws.run,
    "faults": faults.run,
    "widths": widths.run,
    "components": components,
    "ratios": ratios,
    "sizes": sizes,
    **{f"tables-{rows}": partial(tables_of, rows) for rows in phase.ROWS},
}
QUICK = ("speed", "mixtures-4", "skin", "components", "ratios", "sizes")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "compressive"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compressive", description="The compressive study.")
    parser.add_argument("--quick", action="store_true", help="one run of a few cases")
    parser.add_argument("--parts", nargs="*", choices=tuple(PARTS))
    parser.add_argument("--runs", type=int, help="with fresh noise, of every case")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of simulated tables and baselines")
    parser.add_argument("--skip", nargs="*", default=[], choices=("diffprivlib",))
    given = parser.parse_args()
    if "diffprivlib" not in given.skip and not environments.installed("diffprivlib"):
        print("diffprivlib is left out: its environment is not there (make papers-compressive creates it)")
        given.skip.append("diffprivlib")
    matplotlib.use("Agg")
    RESULTS.mkdir(parents=True, exist_ok=True)
    options = Options(given.runs or (1 if given.quick else 5), given.seed, given.quick, RESULTS, tuple(given.skip))
    for name in given.parts or (QUICK if given.quick else PARTS):
        _run(name, options)


def _run(name: str, options: Options) -> None:
    start = time.perf_counter()
    with (options.results / f"{name}.txt").open("w") as file:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        quick = " --quick" if options.quick else ""
        asked = f"--parts {name} --runs {options.runs} --seed {options.seed}{quick}"
        say(f"python -m benchmarks.compressive {asked}, {date.today()}")
        PARTS[name](options, say)
        say(f"{name} took {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
