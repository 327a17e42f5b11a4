"""Faults that were found in earlier versions, each looked for again in real releases: a line says PASS or SHORT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.compressive.goals import verdict
from benchmarks.compressive.options import Options, Say
from benchmarks.data import DATA
from benchmarks.density import kde, ours
from benchmarks.density.baselines import bins_of
from benchmarks.density.kernel_sums import exact_sums
from benchmarks.density.runs import DELTA
from benchmarks.density.tables import schema_of, table_of, unit_features
from dpsketch.engines.graph import graph_schema, neighbour_sets
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema

COLOURS = ("blue", "green", "red")
FACEBOOK_NODES, FACEBOOK_ROWS = 4039, 200
POINTS, DRAWN = 300, 20_000
SIGMAS = 3.0
MOST_BIAS, MOST_RMS, MOST_MISSING, MOST_AWAY = 0.02, 1.5, 0.001, 0.03
RACE_ROWS, SEEDS = 100, 12  # of the tables of one column


def run(options: Options, say: Say) -> None:
    say("== faults of earlier versions")
    for fault in (
        graph_count,
        grid_densities,
        missing_values,
        correlations,
        two_bandwidths,
        one_column,
        peaked,
        labels,
    ):
        for line in fault(options.runs):
            say(line)


def released(table: Any, schema: Schema, recipe: dps.Recipe, budget: dps.Budget, runs: int) -> Iterator[dps.View]:
    """Fresh releases of one pass."""
    raw = dps.accumulate(table, schema, recipe)
    for _ in range(runs):
        yield dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "faults"))


def line(name: str, met: bool, text: str) -> str:
    return f"  {name}: {text}: {verdict(met)}"


def graph_count(runs: int) -> Iterator[str]:
    """The number of lists of a small graph; it had an error of a third."""
    edges = pq.read_table(DATA / "graph_facebook_combined.parquet")
    schema = Schema.from_dict(graph_schema(FACEBOOK_NODES, undirected=True))
    for budget in (dps.Budget(1.0), dps.Budget(1.0, DELTA)):
        recipe = dps.Recipe.graph(schema, budget=budget)
        parts = [
            replace(part, map=replace(part.map, rows=min(part.map.rows, FACEBOOK_ROWS)))
            if isinstance(part.map, dps.Race)
            else part
            for part in recipe.parts
        ]
        lists = pa.Table.from_batches(list(neighbour_sets(edges, FACEBOOK_NODES, undirected=True)))
        counts = [view.count() for view in released(lists, schema, dps.Recipe(parts), budget, runs)]
        errors = np.array([(float(each.value) - FACEBOOK_NODES) / float(each.stderr) for each in counts])
        shown = ", ".join(f"{float(each.value):.0f}" for each in counts)
        text = (
            f"{shown} ± {float(counts[0].stderr):.0f} lists of {FACEBOOK_NODES}, all within {SIGMAS:g} standard errors"
        )
        yield line(
            f"number of lists of a graph, {budget}",
            bool((np.abs(errors) <= SIGMAS).all()),
            text,
        )


def grid_densities(runs: int) -> Iterator[str]:
    """Densities of a grid of one level; they were biased by up to 28 %."""
    table, schema = table_of("skin").select(list(COLOURS)), schema_of("skin", COLOURS)
    bins = bins_of(unit_features(schema, COLOURS, table))
    keys = np.ravel_multi_index(tuple(bins.T), (32,) * len(COLOURS))
    asked = np.random.default_rng(1).choice(len(table), POINTS, replace=False)
    counts = np.bincount(keys)[keys[asked]]
    points = ours.mapping_of(table.take(asked))
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.02), dps.Part(dps.Grid(COLOURS, 5, 65536, (5,)), 0.98)])
    found: dict[str, list[tuple[Floats, Floats]]] = {}
    for view in released(table, schema, recipe, dps.Budget(1.0), runs):
        for method in ("sketch", "normalised", "heap", "cells"):
            answer = dps.GridDensity(method).fit(view).density(points)
            found.setdefault(method, []).append((np.asarray(answer.value), np.asarray(answer.stderr)))
    exact = counts / len(table) * _one_volume(schema)
    for method, releases in found.items():
        bias = float(np.mean([value.sum() / exact.sum() - 1 for value, _ in releases]))
        rms = float(np.sqrt(np.mean([((value - exact) / stderr) ** 2 for value, stderr in releases])))
        met = abs(bias) <= MOST_BIAS
        yield line(
            f"density of a grid, {method}", met, f"bias {bias:+.1%}, goal ≤ {MOST_BIAS:.0%}; rms error/± {rms:.2f}"
        )


def _one_volume(schema: Schema) -> float:
    """One over the volume of a cell."""
    sides = np.ptp(np.array(kde.bounds_of(schema, COLOURS, False)), axis=0) / 32
    return float(1 / np.prod(sides))


def missing_values(runs: int) -> Iterator[str]:
    """Rows drawn from the same grid; up to one in a hundred had a missing value, which the table does not have."""
    table, schema = table_of("skin").select(list(COLOURS)), schema_of("skin", COLOURS)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.02), dps.Part(dps.Grid(COLOURS, 5, 65536, (5,)), 0.98)])
    shares: dict[str, list[float]] = {"auto": [], "heap": []}
    for view in released(table, schema, recipe, dps.Budget(1.0), runs):
        for method, found in shares.items():
            found.append(float(view.sample(DRAWN, 0, method=method).to_pandas().isna().any(axis=1).mean()))
    for method, found in shares.items():
        text = f"{np.mean(found):.3%} of rows with a missing value, goal ≤ {MOST_MISSING:.1%}"
        yield line(f"rows drawn from a grid, {method}", float(np.mean(found)) <= MOST_MISSING, text)


def correlations(runs: int) -> Iterator[str]:
    """A correlation from a release with a grid; it was 0.48 for 0.855."""
    table, schema = table_of("skin").select(list(COLOURS)), schema_of("skin", COLOURS)
    budget = dps.Budget(1.0)
    recipe = dps.Recipe.synthetic(schema, rows=schema.rows, budget=budget, columns=COLOURS)
    truth = float(np.corrcoef(table["blue"].to_numpy(), table["green"].to_numpy())[0, 1])
    values = []
    for view in released(table, schema, recipe, budget, runs):
        answer = view.corr(["blue", "green"])
        values.append(float(np.asarray(answer.value)[0, 1]))
    away = float(np.max(np.abs(np.array(values) - truth)))
    text = f"{', '.join(f'{each:.3f}' for each in values)} for {truth:.3f}, goal within {MOST_AWAY:g}"
    yield line("correlation of blue and green from a grid", away <= MOST_AWAY, text)


def two_bandwidths(runs: int) -> Iterator[str]:
    """Kernel densities of both of two bandwidths in one release; the second was refused."""
    table, schema = table_of("skin").select(list(COLOURS)), schema_of("skin", COLOURS)
    kernels = [dps.Euclidean(width, scaled=False) for width in (5.0, 20.0)]
    races = [dps.Race(COLOURS, 200, 1000, seed=seed, hash=each) for seed, each in enumerate(kernels)]
    recipe = dps.Recipe([dps.Part(each, 0.5) for each in races])
    points = np.stack([table[name].to_numpy().astype(np.float64) for name in COLOURS], axis=1)
    asked = points[np.random.default_rng(2).choice(len(points), POINTS, replace=False)]
    queries = {name: asked[:, place] for place, name in enumerate(COLOURS)}
    views = list(released(table, schema, recipe, dps.Budget(1.0, DELTA), min(runs, 3)))
    for kernel in kernels:
        exact = exact_sums(points, asked, kernel.bandwidth) / len(points)
        answers = [dps.KernelDensity(kernel).fit(view).density(queries) for view in views]
        scores = [(np.asarray(each.value) - exact) / np.asarray(each.stderr) for each in answers]
        rms = float(np.sqrt(np.mean(np.square(scores))))
        text = f"rms error/± {rms:.2f}, goal ≤ {MOST_RMS:g}"
        yield line(f"bandwidth {kernel.bandwidth:g} of two in one release", rms <= MOST_RMS, text)


def one_column(runs: int) -> Iterator[str]:
    """Standard errors of few rows of counters of one column; errors were 3.2 times as large."""
    problem = kde.problems_of(kde.CASES[0], 0, 1)[0]
    points = problem.plain.queries
    scores = []
    for seed in range(SEEDS):
        race = dps.Race(("pay",), RACE_ROWS, 1000, seed=seed, hash=dps.Euclidean(5000.0, scaled=False))
        for view in released(problem.train, problem.schema, dps.Recipe([dps.Part(race, 1.0)]), dps.Budget(1.0), 1):
            answer = view.kernel_sum(points)
            scores.append((np.asarray(answer.value) - problem.exact) / np.asarray(answer.stderr))
    rms = float(np.sqrt(np.mean(np.square(scores))))
    text = f"rms error/± {rms:.2f} over {SEEDS} sets of hashes, goal ≤ {MOST_RMS:g}"
    yield line(f"{RACE_ROWS} rows of counters of sf_salaries", rms <= MOST_RMS, text)


def peaked(runs: int) -> Iterator[str]:
    """The density of a column with few distinct values; its error was 3.5 times the predicted one."""
    (problem,) = kde.problems_of(kde.CASES[1], 0, 1)
    kernel, budget = dps.Euclidean(5000.0, scaled=False), dps.Budget(1.0)
    plan = dps.density_plan(problem.schema, rows=problem.schema.rows, budget=budget, hash=kernel)
    assert plan.table_error is not None
    passes = ours.Passes(problem.train, problem.schema)
    errors = []
    for _ in range(runs):
        scored = ours.kernel_sums(passes, problem.schema, budget, 5000.0, False, problem.queries)
        errors.append(kde.error_of("nyc_payroll", scored.values, problem.exact))
    fine = dps.Recipe([dps.Part(dps.Count(), 0.03), dps.Part(dps.Histogram(bins=4000), 0.97)])
    finer = []
    for view in released(problem.train, problem.schema, fine, budget, runs):
        answer = dps.KernelDensity(kernel).fit(view).density(ours.mapping_of(problem.queries))
        finer.append(kde.error_of("nyc_payroll", np.asarray(answer.value) * passes.rows, problem.exact))
    text = (
        f"relative L2 error {np.mean(errors):.4f}, predicted {plan.table_error:.4f} (4,000 bins {np.mean(finer):.4f})"
    )
    yield line("peaked column (nyc_payroll)", float(np.mean(errors)) <= plan.table_error, text)


def labels(runs: int) -> Iterator[str]:
    """Kernel sums with a label among the columns; they depended on the order in which labels are listed."""
    generator = np.random.default_rng(3)
    table = pa.table({"kind": generator.choice(list("abcd"), 20_000), "x": generator.random(20_000)})
    answers = []
    for values in ("abcd", "adbc"):
        columns = {
            "kind": {"kind": "category", "values": list(values)},
            "x": {"kind": "number", "lower": 0, "upper": 1},
        }
        schema = Schema.from_dict({"privacy": {"rows": 20_000}, "columns": columns})
        recipe = dps.Recipe([dps.Part(dps.Race(("kind", "x"), 1000, 1000, hash=dps.Euclidean(0.3)), 1.0)])
        (view,) = released(table, schema, recipe, dps.Budget(1.0, DELTA), 1)
        answers.append(view.kernel_sum({"kind": list("abcd"), "x": [0.5] * 4}))
    first, second = (np.asarray(each.value) for each in answers)
    errors = np.hypot(*(np.asarray(each.stderr) for each in answers))
    worst = float(np.max(np.abs(first - second) / errors))
    text = f"sums differ by at most {worst:.1f} standard errors, goal ≤ {SIGMAS:g}"
    yield line("order of the labels of a category", worst <= SIGMAS, text)
