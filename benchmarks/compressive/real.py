"""k-means of real tables, with the bounds of their schema files, compared with diffprivlib and MiniBatchKMeans."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.compressive.goals import at_most, budget_text
from benchmarks.compressive.options import Options, Say
from benchmarks.compressive.sketches import Sketches, best_error, error_of, fitted, mini_batch_error, recipe_text
from benchmarks.data import DATA
from benchmarks.m2m import environments
from dpsketch.learn.models.clusters.places import Places
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.tasks.task import MOST_TABLE_COLUMNS

BUDGETS = ((1.0, 0.0), (0.1, 0.0), (0.1, 1e-6))


@dataclass(frozen=True)
class Real:
    name: str
    columns: tuple[str, ...] | None  # None: all numbers of the schema
    clusters: int
    goals: dict[float, float]  # goals for relative errors at pure ε


TABLES = {
    "skin": Real("skin", ("blue", "green", "red"), 4, {1.0: 1.01, 0.1: 1.01}),
    "cabs": Real("sf_cabs_2p8m", ("lat_e5", "lon_e5"), 10, {1.0: 1.02, 0.1: 1.02}),
    "covtype": Real("covtype", None, 4, {1.0: 1.03}),
    "california": Real("california_housing", None, 4, {1.0: 1.03}),
    "htru2": Real("htru2", None, 4, {}),
}


def run(name: str, options: Options, say: Say) -> None:
    say("== a real table: SSE relative to scikit-learn's k-means, median (worst)")
    _table(TABLES[name], options, say)


def _table(real: Real, options: Options, say: Say) -> None:
    schema = dps.Schema.load(DATA / "schemas" / f"{real.name}.toml")
    table = pq.read_table(DATA / f"{real.name}.parquet")
    names = real.columns or tuple(column.name for column in schema.scalars if column.numeric)[:10]
    points = Places(schema, names).of(table)
    least = best_error(points, real.clusters, options.seed, most=200_000)
    trivial = float(((points - points.mean(0)) ** 2).sum()) / least
    mini = [mini_batch_error(points, real.clusters, options.seed + run) / least for run in range(options.runs)]
    say(f"{real.name}: {len(points)} rows, {len(names)} columns, k={real.clusters}; one cluster {trivial:.2f}")
    say(at_most("  MiniBatchKMeans, not private", mini))
    sketches = Sketches(table, schema)
    for epsilon, delta in BUDGETS:
        budget = dps.Budget(epsilon, delta)
        recipe = dps.Recipe.clusters(schema, rows=schema.rows, budget=budget, n_clusters=real.clusters, columns=names)
        errors, seconds, qualities = [], [], []
        for _ in range(options.runs):
            view = sketches.view(recipe, budget)
            model, spent = fitted(dps.KMeans(real.clusters), view)
            errors.append(error_of(points, model._centres) / least)
            seconds.append(spent)
            qualities.append(model.goodness_of_fit_)
        goal = None if delta else real.goals.get(epsilon)
        say(at_most(f"  ours {budget_text(epsilon, delta)}", errors, goal))
        fit = f"{model._atoms.count} atoms, goodness of fit {np.median(qualities):.2f}, "
        if np.isnan(qualities).all():  # no sums were fitted
            fit = ""
        say(f"    {recipe_text(recipe, view)}, {fit}{np.median(seconds):.1f} s")
        if len(names) > MOST_TABLE_COLUMNS:
            only = replace(schema, columns=tuple(schema.column(name) for name in names))
            general = dps.Recipe.general(only, rows=schema.rows, budget=budget)
            views = [Sketches(table, only).view(general, budget) for _ in range(options.runs)]
            errors = [error_of(points, fitted(dps.KMeans(real.clusters), view)[0]._centres) / least for view in views]
            say(at_most(f"  ours {budget_text(epsilon, delta)}, of a general release", errors, goal))
    if "diffprivlib" not in options.skip:
        for epsilon in (1.0, 0.1):
            say(
                at_most(
                    f"  diffprivlib {budget_text(epsilon, 0)}",
                    _diffprivlib(points, real.clusters, epsilon, options, least),
                )
            )


def _diffprivlib(points: Floats, clusters: int, epsilon: float, options: Options, least: float) -> list[float]:
    settings = {"epsilon": epsilon, "clusters": clusters, "seeds": [options.seed + run for run in range(options.runs)]}
    script = "benchmarks.compressive.diffprivlib_script"
    output, _ = environments.run_script("diffprivlib", script, {"points": points}, settings)
    return [error_of(points, centres) / least for centres in output["centres"]]
