"""The width of Gaussian frequencies from a small first release, against widths around it: k-means by CL-OMPR."""

from __future__ import annotations

import warnings
from collections import defaultdict
from math import sqrt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.compressive.goals import at_most
from benchmarks.compressive.options import Options, Say
from benchmarks.compressive.real import TABLES
from benchmarks.compressive.sketches import Sketches, best_error, error_of, fitted, number_schema, table_of
from benchmarks.compressive.tables import simulated_mixture
from benchmarks.data import DATA
from dpsketch.learn.models.clusters.places import Places
from dpsketch.recipe.count_share import count_share

FIRST, SECOND = dps.Budget(0.1), dps.Budget(0.9)
AROUND = (1 / 4, 1 / 2, 1.0, 2.0, 4.0)
PLANTED, DIMENSION, ROWS, MOST_ROWS = 4, 8, 100_000, 250_000


def run(options: Options, say: Say) -> None:
    say("== SSE relative to scikit-learn's k-means, of CL-OMPR (best of three) on 10·k·d Gaussian frequencies:")
    say("   the suggested width (ε = 0.1) times a factor, at ε = 0.9; and clusters of Recipe.clusters at ε = 1")
    generator = np.random.default_rng([options.seed, 7])
    mixture = simulated_mixture("isotropic", PLANTED, DIMENSION, generator)
    points = np.clip(mixture.drawn(ROWS, generator), mixture.low, mixture.high)
    schema = number_schema(DIMENSION, ROWS, mixture.low, mixture.high)
    _table("planted clusters", table_of(points), schema, schema_names(schema), PLANTED, options, say)
    for name in ("skin", "covtype"):
        real = TABLES[name]
        schema = dps.Schema.load(DATA / "schemas" / f"{real.name}.toml")
        names = real.columns or tuple(column.name for column in schema.scalars if column.numeric)[:10]
        table = pq.read_table(DATA / f"{real.name}.parquet", columns=list(names))
        only = dps.Schema(tuple(schema.column(column) for column in names), schema.rows)
        _table(name, table.slice(0, MOST_ROWS) if options.quick else table, only, names, real.clusters, options, say)


def schema_names(schema: dps.Schema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns)


def _table(
    name: str, table: pa.Table, schema: dps.Schema, names: tuple[str, ...], clusters: int, options: Options, say: Say
) -> None:
    points = Places(schema, names).of(table)
    least = best_error(points, clusters, options.seed)
    sketches, rows, size = Sketches(table, schema), int(schema.rows or len(table)), 10 * clusters * len(names)
    share = count_share(schema, rows, FIRST, size)
    log_uniform = dps.Fourier(names, size, radii=(5, 50))
    first = dps.Recipe([dps.Part(dps.Count(), share), dps.Part(log_uniform, round(1 - share, 4))])
    found: dict[float, list[float]] = defaultdict(list)
    widths, atoms = [], []
    for _ in range(options.runs):
        view = sketches.view(first, FIRST)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dps.FitWarning)
            width = dps.suggest_width(view, clusters)
        widths.append(width)
        for factor in AROUND:
            fourier = dps.Fourier(names, size, kernel="gaussian", width=width * factor)
            second = dps.Recipe([dps.Part(dps.Count(), share), dps.Part(fourier, round(1 - share, 4))])
            model, _ = fitted(dps.KMeans(clusters, "clompr", n_init=3), sketches.view(second, SECOND))
            found[factor].append(error_of(points, model._centres) / least)
        recipe = dps.Recipe([dps.Part(dps.Count(), share), dps.Part(log_uniform, round(1 - share, 4))])
        model, _ = fitted(dps.KMeans(clusters), sketches.view(recipe, dps.Budget(1.0)))
        atoms.append(error_of(points, model._centres) / least)
    shown = ", ".join(f"{width:.3f}" for width in widths)
    say(f"{name}: {len(points)} rows, {len(names)} columns, k={clusters}, m={size}; suggested {shown}")
    say(f"  deviation of k-means' clusters times √d: {sqrt(least / len(points)):.3f}")
    for factor, errors in found.items():
        say(at_most(f"  times {factor:g}", errors))
    say(at_most("  Gaussian atoms, radii 5 to 50, ε = 1", atoms))
