"""`make papers-m2m`: every figure of the m2m study beside its goal and its baselines.

`python -m benchmarks.m2m --quick` runs a small part. Figures are mean (worst) over runs with fresh noise and fresh
questions: *means* mean relative error, *cov* relative Frobenius error, both over numeric columns on the [0, 1] scale;
*cdf* mean error at 20 points; *3-way* mean error of 300 conjunctions at data quantiles, *3-way-u* at thresholds uniform
in the bounds; *coverage* share of 3-way answers within one standard error; *not known* share of cdf and 3-way answers
that say so, counted with their raw estimate or, without one, as ½; *model* AUC or, for california_housing, R²
(cod_rna's is not in the definitions, and has no goal); *seconds* of processor time of the fit, *total* with the pass
and the release. "own bounds": the data's, as when the goals were set; no curator could declare them.

Results are kept beside the text in results.json, one entry for each table, method and budget; `--keep mst aim` takes
those methods from there, with the date of their measurement, and measures the others.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import multiprocessing
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.m2m import environments, figures, goals, kept
from benchmarks.m2m.methods import METHODS, PATIENCE, Limits, Task, measure
from benchmarks.m2m.study import FIGURES
from benchmarks.m2m.tables import HELD_OUT, LABELS, TIGHT, TUNED

DELTA = 1e-6
RESULTS = Path(__file__).resolve().parents[1] / "results" / "m2m"
BINARY = tuple(name for name in LABELS if name != "california_housing")


def main() -> None:
    options = parsed()
    start = time.perf_counter()
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "results.txt").open("w") as file:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        say(f"m2m study, seed {options.seed}, {options.seeds} runs, {options.workers} processes")
        if "mbi" not in options.skip:
            say(
                f"MST: {options.mst_seeds} runs, 1000 steps; AIM: {options.aim_seeds} runs, budget for "
                f"{options.aim_rounds} rounds a column, {options.aim_steps} warm steps a round; after "
                f"{options.aim_seconds:g} s of processor time (0: never) the rest goes into one last round; both are "
                f"ended after {PATIENCE:g} times that"
            )
        results: dict[goals.Key, dict[str, list[float]]] = {}
        entries = kept.read(RESULTS / "results.json")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, context) as executor:
            submitted = [
                (task, None if task.method in options.keep and task.key in entries else executor.submit(measure, task))
                for task in tasks(options)
            ]
            for task, future in submitted:
                if future is not None:
                    entries[task.key] = kept.entry(task, future.result())
                    kept.write(RESULTS / "results.json", entries)
                found = entries[task.key]
                if found.figures:
                    results[task.key] = found.figures
                say(line(task, found.figures) + (f"  [{found.date}]" if future is None else ""))
            for each in goals.lines(results):
                say(each)
            say(f"tables took {time.perf_counter() - start:.0f} s")
            if "figures" not in options.skip:
                epsilons = figures.EPSILONS[::4] if options.quick else figures.EPSILONS
                runs_of_figures = 1 if options.quick else min(options.seeds, 3)
                figures.draw(RESULTS, executor, runs_of_figures, options.seed, say, epsilons)
        say(f"all took {time.perf_counter() - start:.0f} s")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.m2m", description="The m2m study.")
    parser.add_argument("--quick", action="store_true", help="one run of two tables at ε = 1, AIM for 30 s")
    parser.add_argument("--tables", nargs="*", choices=(*TUNED, *HELD_OUT))
    parser.add_argument("--epsilon", nargs="*", type=float)
    parser.add_argument("--methods", nargs="*", help="only these")
    parser.add_argument(
        "--keep", nargs="*", default=[], help="methods whose earlier results to take where there are any"
    )
    parser.add_argument("--seeds", type=int, help="runs of every method but MST and AIM")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of questions and baselines' noise")
    parser.add_argument("--skip", nargs="*", default=[], choices=("mbi", "diffprivlib", "figures"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mst-seeds", type=int)
    parser.add_argument("--aim-seeds", type=int, default=1)
    parser.add_argument("--aim-seconds", type=float)
    parser.add_argument("--aim-rounds", type=int, default=16)
    parser.add_argument("--aim-steps", type=int, default=500)
    options = parser.parse_args()
    full = not options.quick
    options.tables = options.tables or ([*TUNED, *HELD_OUT] if full else ["lifesci", "occupancy"])
    options.epsilon = options.epsilon or ([10.0, 1.0, 0.1] if full else [1.0])
    options.seeds = options.seeds or (5 if full else 1)
    options.mst_seeds = options.mst_seeds or (2 if full else 1)
    options.aim_seconds = (180.0 if full else 30.0) if options.aim_seconds is None else options.aim_seconds
    for name in ("mbi", "diffprivlib"):
        if name not in options.skip and not environments.installed(name):
            print(f"{name} is left out: its environment is not there (make papers-m2m creates it)")
            options.skip.append(name)
    return options


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Ours and its baselines table by table; MST and AIM last, they take longest."""
    wanted = set(options.methods or [*METHODS, "not private", "diffprivlib", "mst", "aim"])
    limits = Limits(options.aim_rounds, options.aim_steps, options.aim_seconds)
    for table in options.tables:
        if "not private" in wanted and table in LABELS:
            yield Task(table, "not private", float("inf"), 0.0, 1, options.seed)
        for delta in (0.0, DELTA):
            for epsilon in options.epsilon:
                for method in METHODS:
                    if method in wanted:
                        yield Task(table, method, epsilon, delta, options.seeds, options.seed)
        if "ours" in wanted and table in TUNED:
            yield from (
                Task(table + TIGHT, "ours", epsilon, 0.0, options.seeds, options.seed) for epsilon in options.epsilon
            )
        if "diffprivlib" in wanted and "diffprivlib" not in options.skip and table in BINARY:
            for epsilon in options.epsilon:
                yield Task(table, "diffprivlib", epsilon, 0.0, options.seeds, options.seed)
    if "mbi" in options.skip:
        return
    for method, runs in (("mst", options.mst_seeds), ("aim", options.aim_seeds)):
        for table in options.tables:
            for epsilon in options.epsilon:
                if method in wanted and table in TUNED and (method == "mst" or epsilon >= 1):
                    yield Task(table, method, epsilon, DELTA, runs, options.seed, limits)


def line(task: Task, found: dict[str, list[float]]) -> str:
    parts = ["over its time, no figures"] if not found else []
    parts += [f"{key} {goals.shown(key, values)}" for key, values in found.items() if key in FIGURES]
    if "rounds" in found and task.method == "aim":
        parts.append(f"rounds {'/'.join(f'{each:.0f}' for each in found['rounds'])}")
        parts.append("cut by time" if any(found["cut"]) else "ran to its end")
    return f"{task.table:24} {goals.budget_text(task.epsilon, task.delta):14} {task.method:11} {'  '.join(parts)}"


if __name__ == "__main__":
    main()
