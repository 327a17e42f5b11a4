"""k-means and Gaussian mixtures of made-up tables: every kind of mixture, several budgets."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

import dpsketch as dps
from benchmarks.compressive.goals import at_most, budget_text
from benchmarks.compressive.options import Options, Say
from benchmarks.compressive.sketches import (
    Sketches,
    best_error,
    error_of,
    fitted,
    mini_batch_error,
    number_schema,
    recipe_text,
    table_of,
)
from benchmarks.compressive.tables import ROWS, Mixture, made_up

BUDGETS = ((1.0, 0.0), (0.1, 0.0), (0.01, 0.0), (0.01, 1e-6))
SIZES = ((10, 10), (4, 8))
KINDS = ("isotropic", "diagonal", "unbalanced", "0.01", "0.03", "0.1")
# Relative errors: median, and worst where one is asked for.
ERRORS = {
    (10, 1.0, 0.0): (1.002, None),
    (10, 0.1, 0.0): (1.002, None),
    (10, 0.01, 0.0): (1.07, 1.12),
    (10, 0.01, 1e-6): (1.006, None),
    (4, 1.0, 0.0): (1.001, None),
    (4, 0.1, 0.0): (1.001, None),
    (4, 0.01, 0.0): (1.005, None),
}
GAPS = {1.0: 0.002, 0.1: 0.006}  # nats, isotropic, by pure ε
SECONDS = {4: 0.5, 10: 4.0}  # of processor time, isotropic, by number of clusters
SHAPES = {"isotropic": ("spherical", "diag", "full"), "diagonal": ("diag", "full"), "unbalanced": ("spherical",)}
HELD_OUT = 100_000


def run(options: Options, say: Say) -> None:
    say("== made-up mixtures, 1e6 rows: SSE relative to scikit-learn's k-means; gap in nats; median (worst)")
    sizes, kinds = (SIZES[1:], KINDS[:1]) if options.quick else (SIZES, KINDS)
    for clusters, dimension in sizes:
        for kind in kinds:
            _study(kind, clusters, dimension, options, say)


def _study(kind: str, clusters: int, dimension: int, options: Options, say: Say) -> None:
    found: dict[tuple[float, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    texts: dict[tuple[float, float], str] = {}
    mini: list[float] = []
    for run_ in range(options.runs):
        generator = np.random.default_rng([options.seed, run_, clusters])
        mixture = made_up(kind, clusters, dimension, generator)
        points = np.clip(mixture.drawn(ROWS, generator), mixture.low, mixture.high)
        least = best_error(points, clusters, options.seed + run_, mixture.centres)
        mini.append(mini_batch_error(points, clusters, options.seed + run_) / least)
        held_out = np.clip(mixture.drawn(HELD_OUT, generator), mixture.low, mixture.high)
        sketches = Sketches(table_of(points), number_schema(dimension, ROWS, mixture.low, mixture.high))
        for epsilon, delta in BUDGETS:
            budget = dps.Budget(epsilon, delta)
            recipe = dps.Recipe.clusters(sketches.schema, ROWS, budget, clusters)
            view = sketches.view(recipe, budget)
            texts[epsilon, delta] = recipe_text(recipe, view)
            figures = found[epsilon, delta]
            model, seconds = fitted(dps.KMeans(clusters), view)
            figures["error"].append(error_of(points, model.cluster_centers_) / least)
            figures["seconds"].append(seconds)
            figures["quality"].append(model.goodness_of_fit_)
            for shape in SHAPES.get(kind, ()):
                figures[shape].append(_gap(mixture, held_out, view, clusters, shape))
    start = f"{kind} k={clusters} d={dimension}"
    say(at_most(f"{start} MiniBatchKMeans, not private", mini))
    for (epsilon, delta), figures in found.items():
        goal = ERRORS.get((clusters, epsilon, delta), (None, None)) if kind == "isotropic" else (None, None)
        say(at_most(f"{start} {budget_text(epsilon, delta)} SSE", figures["error"], *goal))
        most = SECONDS[clusters] if kind == "isotropic" else None
        say("  " + at_most("solve seconds", figures["seconds"], most))
        say(f"  {texts[epsilon, delta]}, goodness of fit {np.median(figures['quality']):.2f}")
        for shape in SHAPES.get(kind, ()):
            goal_gap = GAPS.get(epsilon) if (kind, shape, delta) == ("isotropic", "spherical", 0.0) else None
            say("  " + at_most(f"mixture {shape}, gap", figures[shape], goal_gap))


def _gap(mixture: Mixture, points: np.ndarray, view: dps.View, clusters: int, shape: str) -> float:
    model, _ = fitted(dps.GaussianMixture(clusters, shape), view)
    return mixture.score(points) - model.score(points)
