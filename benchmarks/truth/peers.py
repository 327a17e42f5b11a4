"""`python -m benchmarks.truth.peers`: shares of three conditions, and boosted trees on rows, beside MST and AIM.

Peers are those of the package `dpmm`, in an environment of their own, with its defaults on 32 and 128 equal bins
between the declared bounds. Each method gets the same rows, bounds and (ε, δ); the peers answer from as many synthetic
rows as the table has. Errors are means over the same questions. A run beyond an hour of processor time, and one that
fails in the package, is printed as such.

All runs take days, so each is kept in peers.jsonl when it is done, and a later call measures only what that file lacks;
`--again` forgets the runs of a method. A method is better on a table where its mean error is below that of every peer.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from benchmarks.m2m.environments import OverTime, run_script
from benchmarks.truth.measure import Task, asked_of, released_view
from benchmarks.truth.questions import Question
from benchmarks.truth.tables import Table, load
from benchmarks.truth.trees import score
from dpsketch.schema.columns import Boolean, Category

_FIRST = ("adult", "occupancy", "lifesci", "htru2", "california_housing", "covtype", "cod_rna")
TABLES = (*_FIRST, "flights", "fare", "payroll", "kdd")
BUDGETS = ((1.0, 1e-6), (10.0, 1e-6))
BINS = (32, 128)
SECONDS = 3600.0
OURS, MOST_ROWS = "dpsketch", 100_000
PEERS = tuple(f"{name} {bins}" for name in ("MST", "AIM") for bins in BINS)
KEPT = Path(__file__).resolve().parents[1] / "results" / "truth" / "peers.jsonl"
WANTED = 9  # tables of eleven on which every peer should be worse


@dataclass(frozen=True)
class Run:
    """A release of a table by one method; what it reached follows from nothing else but its noise."""

    table: str
    epsilon: float
    delta: float
    method: str
    release: int
    seed: int
    questions: int

    @property
    def task(self) -> Task:
        return Task(self.table, self.epsilon, self.delta, self.release, self.seed, questions=self.questions)


@dataclass(frozen=True)
class Result:
    error: float
    trees: float
    seconds: float

    @property
    def text(self) -> str:
        return f"{self.error:.5f} {self.trees:6.3f} {self.seconds:7.0f} s"


def measured(run: Run) -> Result | str:
    """What a method reached, or why it did not finish."""
    table = load(run.table)
    if run.method == OURS:
        return ours(table, run.task)
    method, bins = run.method.split()
    return peer(table, run.task, method, int(bins))


def ours(table: Table, task: Task) -> Result:
    start = time.process_time()
    view, _, _ = released_view(task)
    asked = three_way(task)
    values = [float(view.sql(each.sql).rows[0][0].value) for each in asked]
    rows = view.sample(min(len(table.train), MOST_ROWS), task.release).to_pandas()
    return Result(mean_error(table, asked, values), score(table, rows), time.process_time() - start)


def peer(table: Table, task: Task, method: str, bins: int) -> Result | str:
    columns, domain = encoded(table)
    options = {"method": method, "bins": bins, "epsilon": task.epsilon, "delta": task.delta}
    options |= {"domain": domain, "rows": len(table.train)}
    try:
        output, report = run_script("dpmm", "benchmarks.truth.dpmm_script", columns, options, SECONDS)
    except OverTime:
        return "not finished in an hour"
    except RuntimeError as error:  # of the package itself
        return f"failed: {str(error).strip().splitlines()[-1]}"
    rows = decoded(table, output)
    with duckdb.connect() as database:
        database.register("sketch", rows)
        asked = three_way(task)
        values = [float(database.sql(each.sql).fetchall()[0][0]) for each in asked]
    return Result(mean_error(table, asked, values), score(table, rows), report["seconds"])


def three_way(task: Task) -> list[Question]:
    return [question for question in asked_of(task) if question.kind == "3-way"]


def mean_error(table: Table, asked: Sequence[Question], values: Sequence[float]) -> float:
    truths = [question.truths[None] for question in asked]
    return float(np.mean(np.abs(np.array(values) - truths))) / len(table.train)


def encoded(table: Table) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns as numbers, and what is declared of each. Labels are given by their places, missing cells the last."""
    columns: dict[str, Any] = {}
    domain: dict[str, Any] = {}
    for column in table.schema.columns:
        cells = table.train[column.name]
        if isinstance(column, Category | Boolean):
            places = _places(column)
            columns[column.name] = cells.astype("string").map(places).to_numpy(float, na_value=len(places)).astype(int)
            domain[column.name] = {"categories": list(range(len(places) + 1))}
        else:
            columns[column.name] = cells.to_numpy(float)
            low, high = column.values_of(column.codes_of(np.array([0, column.levels - 1]))).tolist()
            domain[column.name] = {"lower": low, "upper": high}
    return columns, domain


def decoded(table: Table, columns: dict[str, Any]) -> Any:
    found = {}
    for column in table.schema.columns:
        cells = columns[column.name]
        if isinstance(column, Category | Boolean):
            labels = [None if pd.isna(cell) else cell for cell in (*_places(column), None)]
            texts = np.array(labels, object)[np.nan_to_num(cells, nan=len(labels) - 1).astype(int)]
            found[column.name] = pd.Series(texts == "True") if isinstance(column, Boolean) else _labels(column, texts)
        else:
            found[column.name] = pd.Series(cells)
    return pd.DataFrame(found)


def _places(column: Category | Boolean) -> dict[str, float]:
    labels = ("False", "True") if isinstance(column, Boolean) else column.labels
    return {str(label): float(place) for place, label in enumerate(labels)}


def _labels(column: Category, texts: Any) -> Any:
    """Whole numbers where labels are declared as such, so that questions compare them as they do records."""
    if all(isinstance(value, int) for value in column.values):
        return pd.to_numeric(pd.Series(texts), errors="coerce").astype("Int64")
    return pd.Series(texts)


def kept() -> dict[Run, Result | str]:
    found: dict[Run, Result | str] = {}
    for line in KEPT.read_text().splitlines() if KEPT.exists() else []:
        entry = json.loads(line)
        reached = entry["reached"]
        found[Run(**entry["run"])] = reached if isinstance(reached, str) else Result(**reached)
    return found


def keep(results: dict[Run, Result | str]) -> None:
    """Replace the file atomically."""
    new = KEPT.with_suffix(".new")
    lines = []
    for run, reached in results.items():
        lines.append(
            json.dumps({"run": asdict(run), "reached": reached if isinstance(reached, str) else asdict(reached)})
        )
    new.write_text("".join(line + "\n" for line in lines))
    new.replace(KEPT)


def complete(results: dict[Run, Result | str], runs: Iterable[Run], workers: int) -> None:
    """Measure what is missing, and keep every run as soon as it is done."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as executor:
        running = {executor.submit(measured, run): run for run in runs if run not in results}
        try:
            for done in as_completed(running):
                results[running[done]] = done.result()
                keep(results)
        except BaseException:
            executor.shutdown(cancel_futures=True)  # otherwise all other runs would go on, and none would be kept
            raise


def lines(results: dict[Run, Result | str]) -> Iterator[str]:
    yield f"{'':18} {'':14} {'method':10} {'3-way error, trees, seconds'} (releases)"
    groups: dict[tuple[str, float, float], dict[str, list[Result | str]]] = {}
    for run, reached in results.items():
        groups.setdefault((run.table, run.epsilon, run.delta), {}).setdefault(run.method, []).append(reached)
    for (name, epsilon, delta), methods in sorted(groups.items(), key=lambda each: (TABLES.index(each[0][0]), each[0])):
        for method in (OURS, *PEERS):
            if method in methods:
                text = f"{_mean(methods[method])} ({len(methods[method])})"
                yield f"{name:18} ε={epsilon:g}, δ={delta:g}  {method:10} {text}"
    for epsilon, delta in BUDGETS:
        compared = [methods for key, methods in groups.items() if key[1:] == (epsilon, delta)]
        for title, better in (("3-way error", _less_error), ("trees", _better_trees)):
            won = [each for each in (_won(methods, better) for methods in compared) if each is not None]
            text = f"at least as good as every peer that finished on {sum(won)} of {len(won)} tables"
            yield f"ε={epsilon:g}, δ={delta:g}: {title} {text}, {'PASS' if sum(won) >= WANTED else 'SHORT'}"


def _won(methods: dict[str, list[Result | str]], better: Callable[[Result, Result], bool]) -> bool | None:
    """None where no peer finished: such a table is not won."""
    own = averaged(methods.get(OURS, []))
    others = [mean for name in PEERS if (mean := averaged(methods.get(name, []))) is not None]
    return all(better(own, each) for each in others) if own and others else None


def _less_error(own: Result, peer: Result) -> bool:
    return own.error <= peer.error


def _better_trees(own: Result, peer: Result) -> bool:
    return own.trees >= peer.trees


def averaged(results: Sequence[Result | str]) -> Result | None:
    """The means of a method that finished all its runs."""
    done = [each for each in results if isinstance(each, Result)]
    if not done or len(done) < len(results):
        return None
    return Result(*np.mean([(each.error, each.trees, each.seconds) for each in done], axis=0).tolist())


def _mean(results: Sequence[Result | str]) -> str:
    mean = averaged(results)
    return "; ".join(sorted({each for each in results if isinstance(each, str)})) if mean is None else mean.text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.peers", description=__doc__)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--methods", nargs="*", choices=(OURS, *PEERS), default=(OURS, *PEERS))
    parser.add_argument("--again", nargs="*", choices=(OURS, *PEERS), default=(), help="forget the runs of methods")
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=5, help="of the questions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    results = {run: reached for run, reached in kept().items() if run.method not in options.again}
    runs = [
        Run(name, epsilon, delta, method, release, options.seed, options.questions)
        for release in range(options.releases)
        for method in options.methods
        for name in options.tables
        for epsilon, delta in BUDGETS
    ]
    if not options.only_report:
        complete(results, runs, options.workers)
    for text in lines(results):
        print(text, flush=True)


if __name__ == "__main__":
    main()
