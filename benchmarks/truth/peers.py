"""`python -m benchmarks.truth.peers`: shares of three conditions, and boosted trees on rows, beside MST and AIM.

Peers are those of the package `dpmm`, in an environment of their own, with its defaults on 32 and 128 equal bins
between the declared bounds. Each method gets the same rows, bounds and (ε, δ); the peers answer from as many synthetic
rows as the table has. Errors are means over the same questions. A run beyond an hour of processor time, and one that
fails in the package, is printed as such.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True)
class Result:
    error: float
    trees: float
    seconds: float

    @property
    def text(self) -> str:
        return f"{self.error:.5f} {self.trees:6.3f} {self.seconds:7.0f} s"


def ours(table: Table, task: Task) -> Result:
    start = time.process_time()
    view, _, _ = released_view(task)
    asked = three_way(task)
    values = [float(view.sql(each.sql).rows[0][0].value) for each in asked]
    rows = view.sample(min(len(table.train), MOST_ROWS), task.release).to_pandas()
    return Result(mean_error(table, asked, values), score(table, rows), time.process_time() - start)


def peer(table: Table, task: Task, method: str, bins: int) -> Result | str:
    """What a peer reached, or why it did not finish."""
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


def lines(tables: Sequence[str], releases: int, count: int, seed: int, methods: Sequence[str]) -> Iterator[str]:
    yield f"{'':18} {'':14} {'method':10} {'3-way error, trees, seconds'}"
    for name in tables:
        table = load(name)
        for epsilon, delta in BUDGETS:
            tasks = [Task(name, epsilon, delta, release, seed, questions=count) for release in range(releases)]
            runs: list[tuple[str, Callable[[Task], Result | str]]] = [(OURS, partial(ours, table))]
            runs += [
                (f"{each} {bins}", partial(peer, table, method=each, bins=bins)) for each in methods for bins in BINS
            ]
            for method, run in runs:
                results = [run(task) for task in tasks]
                yield f"{name:18} ε={epsilon:g}, δ={delta:g}  {method:10} {_mean(results)}"


def _mean(results: Sequence[Result | str]) -> str:
    done = [each for each in results if isinstance(each, Result)]
    stopped = sorted({each for each in results if isinstance(each, str)})
    if stopped:
        return "; ".join(stopped)
    fields = [(each.error, each.trees, each.seconds) for each in done]
    return Result(*np.mean(fields, axis=0).tolist()).text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.peers", description=__doc__)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--methods", nargs="*", choices=("MST", "AIM"), default=("MST", "AIM"))
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=5, help="of the questions")
    options = parser.parse_args()
    for text in lines(options.tables, options.releases, options.questions, options.seed, options.methods):
        print(text, flush=True)


if __name__ == "__main__":
    main()
