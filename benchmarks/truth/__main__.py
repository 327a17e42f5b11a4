"""`make papers-truth`: whether ± holds, on tables and questions that nobody tuned on.

Every question of every kind is asked of fresh releases of every table; the truth is that of the rows released. Coverage
is of `Answer.interval(level)`. A line ends with PASS or SHORT against its goal, where SHORT means beyond two standard
errors of the figure itself, clustered by question. `--quick` runs a small part, `--resume` measures what outcomes.jsonl
lacks, and `--only-report` prints again what it holds. At the end, what a journalist asks of three million flights
(`benchmarks.truth.flights`).
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import multiprocessing
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks.truth.flights import lines as journalist
from benchmarks.truth.measure import Measured, Outcome, Task, measure
from benchmarks.truth.report import lines
from benchmarks.truth.tables import APART, CHOSEN_ON, JUDGED_ON, TABLES

RESULTS = Path(__file__).resolve().parents[1] / "results" / "truth"
OUTCOMES = RESULTS / "outcomes.jsonl"
BUDGETS = ((0.1, 0.0), (1.0, 0.0), (1.0, 1e-6), (10.0, 0.0))
FEW_ROWS, FEW_BUDGETS = 2_000, ((0.1, 0.0), (1.0, 0.0))


def main() -> None:
    options = parsed()
    RESULTS.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    if not options.only_report:
        run(options)
    with (RESULTS / "results.txt").open("w") as file:
        for line in report(options, start):
            print(line, flush=True)
            print(line, file=file, flush=True)


def report(options: argparse.Namespace, start: float) -> Iterator[str]:
    yield header(options, start)
    yield from lines(list(read()))
    if options.flights:
        yield from journalist()


def header(options: argparse.Namespace, start: float) -> str:
    chosen, judged = ", ".join(CHOSEN_ON), ", ".join(JUDGED_ON)
    return (
        f"truth study, {time.strftime('%Y-%m-%d')}, seed {options.seed}, {options.releases} releases, "
        f"{time.perf_counter() - start:.0f} s\nconstants chosen on: {chosen}\njudged on: {judged}"
    )


def run(options: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    kept = {each.task for each in read()} if options.resume else set()
    missing = [task for task in tasks(options) if task not in kept]
    with OUTCOMES.open("a" if kept else "w") as file, ProcessPoolExecutor(options.workers, context) as executor:
        for done in executor.map(measure, missing):
            print(json.dumps(asdict(done)), file=file, flush=True)
            spent = " ".join(f"{key} {seconds:.1f}" for key, seconds in done.seconds.items())
            task = done.task
            print(f"{task.table} {task.rows or ''} ε={task.epsilon:g} δ={task.delta:g}: {spent}", flush=True)


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    for name in options.tables:
        few = FEW_BUDGETS if options.few and name not in APART else ()
        for rows, budgets in ((None, APART.get(name, options.budgets)), (FEW_ROWS, few)):
            for epsilon, delta in budgets:
                for release in range(options.releases):
                    yield Task(name, epsilon, delta, release, options.seed, rows, options.questions)


def read() -> Iterator[Measured]:
    for line in OUTCOMES.read_text().splitlines():
        entry = json.loads(line)
        outcomes = [
            Outcome(**(each | {"inside": None if each["inside"] is None else tuple(each["inside"])}))
            for each in entry["outcomes"]
        ]
        yield Measured(Task(**entry["task"]), outcomes, entry["seconds"], entry["file_bytes"])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description="The truth study.")
    parser.add_argument("--quick", action="store_true", help="one release of three tables at ε = 1, 40 questions")
    parser.add_argument("--only-report", action="store_true")
    parser.add_argument("--resume", action="store_true", help="keep what outcomes.jsonl holds; needs its --seed")
    parser.add_argument("--tables", nargs="*", choices=TABLES)
    parser.add_argument("--budgets", nargs="*", help="as 1 or 1,1e-6")
    parser.add_argument("--releases", type=int)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--no-few", dest="few", action="store_false", help="leave out the tables of 2,000 rows")
    parser.add_argument("--no-flights", dest="flights", action="store_false", help="leave out the whole of flights")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the questions")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.tables = options.tables or (["adult", "fare", "payroll"] if options.quick else TABLES)
    default = ((1.0, 0.0),) if options.quick else BUDGETS
    options.budgets = [_budget(text) for text in options.budgets or ()] or default
    options.releases = options.releases or (1 if options.quick else 5)
    options.questions = options.questions or (40 if options.quick else 200)
    options.few = options.few and not options.quick
    options.flights = options.flights and not options.quick and not options.only_report
    return options


def _budget(text: str) -> tuple[float, float]:
    epsilon, _, delta = text.partition(",")
    return float(epsilon), float(delta or 0)


if __name__ == "__main__":
    main()
