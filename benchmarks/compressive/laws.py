"""The paper's decoder to points over laws of the frequencies: k-means by CL-OMPR, one run and the best of ten."""

from __future__ import annotations

from collections import defaultdict
from math import sqrt

import numpy as np

import dpsketch as dps
from benchmarks.compressive.goals import at_most, budget_text
from benchmarks.compressive.options import Options, Say
from benchmarks.compressive.sketches import Sketches, best_error, error_of, fitted, number_schema, table_of
from benchmarks.compressive.tables import BOUND, simulated_mixture
from dpsketch.recipe.count_share import count_share

ROWS, CLUSTERS, DIMENSION = 100_000, 4, 8
FREQUENCIES = 10 * CLUSTERS * DIMENSION
EPSILONS = (1.0, 0.1)
DEVIATION = 1 / (2 * BOUND)  # of a cluster, in widths of the bounds
BAND = (0.75 / DEVIATION, 1.25 / DEVIATION)
# Radii of the Gaussian law of width √d·DEVIATION are about 1/DEVIATION.
WIDTH = sqrt(DIMENSION) * DEVIATION
NAMES = tuple(f"c{j}" for j in range(DIMENSION))
LAWS = {
    "log-uniform radii 5-50": dps.Fourier(NAMES, FREQUENCIES, radii=(5, 50)),
    f"radii {BAND[0]:g}-{BAND[1]:g}": dps.Fourier(NAMES, FREQUENCIES, radii=BAND),
    f"Gaussian, width {WIDTH:.3f}": dps.Fourier(NAMES, FREQUENCIES, kernel="gaussian", width=WIDTH),
    f"adapted, width {DEVIATION:.4f}": dps.Fourier(NAMES, FREQUENCIES, kernel="adapted", width=DEVIATION),
    f"Gaussian, width {WIDTH:.3f}, one bit": dps.OneBitFourier(NAMES, FREQUENCIES, kernel="gaussian", width=WIDTH),
}
MODELS = {
    "CL-OMPR, one run": dps.KMeans(CLUSTERS, "clompr", n_init=1),
    "CL-OMPR, best of ten": dps.KMeans(CLUSTERS, "clompr", n_init=10),
    "atoms": dps.KMeans(CLUSTERS),
}


def run(options: Options, say: Say) -> None:
    say(f"== k-means of k={CLUSTERS} d={DIMENSION} n={ROWS}, clusters of deviation {DEVIATION} of the bounds,")
    say(f"   m={FREQUENCIES}: SSE relative to scikit-learn's k-means; median (worst) of fresh tables and noise")
    found: dict[tuple[str, float, str], list[float]] = defaultdict(list)
    for run_ in range(options.runs):
        generator = np.random.default_rng([options.seed, run_, 3])
        mixture = simulated_mixture("isotropic", CLUSTERS, DIMENSION, generator)
        points = np.clip(mixture.drawn(ROWS, generator), mixture.low, mixture.high)
        least = best_error(points, CLUSTERS, options.seed + run_, mixture.centres)
        sketches = Sketches(table_of(points), number_schema(DIMENSION, ROWS, mixture.low, mixture.high))
        for epsilon in EPSILONS:
            budget = dps.Budget(epsilon)
            share = count_share(sketches.schema, ROWS, budget, FREQUENCIES)
            for law, fourier in LAWS.items():
                recipe = dps.Recipe([dps.Part(dps.Count(), share), dps.Part(fourier, round(1 - share, 4))])
                view = sketches.view(recipe, budget)
                for name, model in MODELS.items():
                    centres = fitted(model, view)[0].cluster_centers_
                    found[law, epsilon, name].append(error_of(points, centres) / least)
    for (law, epsilon, name), errors in found.items():
        say(at_most(f"{law}, {budget_text(epsilon, 0.0)}, {name}", errors))
