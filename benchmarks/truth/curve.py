"""`python -m benchmarks.truth.curve`: the error of answers about three columns against ε, with and without tables of
three columns, as a picture and as lines.

An error levels off where it is more than noise explains. The noise's own error is that of answers about their mean over
releases of the same rows: half the squared difference of two releases, on average. Beside it stands the error of the
answers about the truth.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import multiprocessing
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

import dpsketch as dps
from benchmarks.truth.questions import Question, questions
from benchmarks.truth.tables import load

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
TABLES = ("flights", "adult", "occupancy")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "truth"
WITH, WITHOUT = "tables of three columns where the recipe has them", "pair tables alone"
_LINE = re.compile(
    r"(?P<table>\S+) +ε=(?P<epsilon>\S+) +(?P<error>\S+) noise (?P<noise>\S+) +\S+  "
    rf"(?P<recipe>{WITH}|{WITHOUT}) (?P<verdict>PASS|SHORT|)"
)
MOST_RATIO = 1.5  # of the error over that of the noise, where tables of three columns are released


@dataclass(frozen=True)
class Point:
    """Root mean squared errors, as shares of the rows."""

    table: str
    epsilon: float
    recipe: str
    triples: bool
    error: float
    noise: float


@lru_cache(1)
def _asked(name: str, seed: int, count: int) -> list[Question]:
    return [each for each in questions(load(name), seed, count) if each.kind == "3-way"]


def without_triples(recipe: dps.Recipe) -> dps.Recipe:
    """The recipe whose pair tables have the share of the tables of three columns too."""
    lost = sum(part.share for part in recipe.parts if isinstance(part.map, dps.Triples))
    kept = [part for part in recipe.parts if not isinstance(part.map, dps.Triples)]
    return dps.Recipe(
        [dps.Part(each.map, round(each.share + lost * isinstance(each.map, dps.AdaptivePairs), 6)) for each in kept],
        rows=recipe.rows,
    )


def measured(name: str, epsilon: float, kind: str, releases: int, seed: int, count: int) -> Point | None:
    """None of a recipe that has no tables of three columns anyway: it is the one without them."""
    table, budget = load(name), dps.Budget(epsilon)
    recipe = dps.Recipe.general(table.schema, rows=table.schema.rows, budget=budget)
    triples = kind == WITH
    if triples and not any(isinstance(part.map, dps.Triples) for part in recipe.parts):
        return None
    asked = _asked(name, seed, count)
    raw = dps.accumulate(table.arrow, table.schema, recipe if triples else without_triples(recipe))
    answers = []
    for _ in range(releases):
        view = dps.View(dps.release(raw, budget, ledger=dps.Ledger("sqlite://"), dataset=name))
        answers.append([float(view.sql(each.sql).rows[0][0].value) for each in asked])
    found = np.array(answers) / len(table.train)
    truths = np.array([each.truths[None] for each in asked]) / len(table.train)
    noise = float(np.sqrt(found.var(axis=0, ddof=1).mean()))
    return Point(name, epsilon, kind, triples, float(np.sqrt(((found - truths) ** 2).mean())), noise)


def lines(points: Sequence[Point]) -> Iterator[str]:
    for each in points:
        verdict = ""
        if each.triples:
            verdict = "PASS" if each.error <= MOST_RATIO * each.noise else "SHORT"
        ratio = f"{each.error / each.noise:5.2f}"
        figures = f"{each.error:.6f} noise {each.noise:.6f} {ratio}"
        yield f"{each.table:10} ε={each.epsilon:<5g} {figures}  {each.recipe} {verdict}"


def kept(file: Path, measured_now: Sequence[Point]) -> list[Point]:
    """Points of an earlier run, except those that are measured now and those of recipes that were measured twice."""
    found = [_LINE.fullmatch(text) for text in file.read_text().splitlines()]
    lines = [each.groupdict() for each in found if each is not None]
    points = [
        Point(each["table"], float(each["epsilon"]), each["recipe"], each["recipe"] == WITH, *_both(each))
        for each in lines
        if each["recipe"] == WITHOUT or each["verdict"]
    ]
    new = {(each.table, each.epsilon, each.recipe) for each in measured_now}
    return [each for each in points if (each.table, each.epsilon, each.recipe) not in new]


def _both(line: dict[str, str]) -> tuple[float, float]:
    return float(line["error"]), float(line["noise"])


def draw(points: Sequence[Point], path: Path) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(each.table for each in points))
    figure = Figure(figsize=(4.2 * len(names), 4.2), layout="constrained")
    for axes, name in zip(np.ravel(figure.subplots(1, len(names), sharey=True)), names, strict=True):
        for kind, style in ((WITHOUT, "s--"), (WITH, "o-")):
            own = sorted((each for each in points if (each.table, each.recipe) == (name, kind)), key=_by_epsilon)
            budgets = [each.epsilon for each in own]
            axes.loglog(budgets, [each.error for each in own], style, label=kind)
            axes.loglog(budgets, [each.noise for each in own], ":", color="grey", label=f"noise, {kind}")
        axes.set_title(name)
        axes.set_xlabel("ε")
    figure.axes[0].set_ylabel("rms error of shares under three conditions")
    figure.axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=130)


def _by_epsilon(point: Point) -> float:
    return point.epsilon


def _in_order(point: Point) -> tuple[int, str, float, bool]:
    place = TABLES.index(point.table) if point.table in TABLES else len(TABLES)
    return place, point.table, point.epsilon, point.triples


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.curve", description=__doc__)
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--seed", type=int, default=5, help="of the questions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--recipes", nargs="*", choices=(WITH, WITHOUT), default=(WITHOUT, WITH))
    parser.add_argument("--keep", action="store_true", help="all other points of the last run")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as executor:
        running = [
            executor.submit(measured, name, epsilon, kind, options.releases, options.seed, options.questions)
            for name in options.tables
            for epsilon in options.epsilons
            for kind in options.recipes
        ]
        points = [point for each in running if (point := each.result()) is not None]
    if options.keep:
        points = sorted([*points, *kept(RESULTS / "curve.txt", points)], key=_in_order)
    draw(points, RESULTS / "curve.png")
    with (RESULTS / "curve.txt").open("w") as file:
        for text in lines(points):
            print(text, flush=True)
            print(text, file=file)


if __name__ == "__main__":
    main()
