"""Figures 4 and 5 of the paper with our decoder: relative SSE against the noise-to-signal ratio and the sketch size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.compressive.sketches import best_error, error_of, number_schema, table_of
from benchmarks.compressive.tables import BOUND, made_up
from dpsketch.learn.clusters.decoder import Decoder
from dpsketch.learn.clusters.sums import FourierSums, fourier_sums
from dpsketch.schema import Floats

CLUSTERS = DIMENSION = 10
SMALL = 4, 4  # clusters and columns of figure 5, which needs many fits
RATIOS = np.logspace(-4, 1, 11)
FACTORS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
ROWS = 10_000


def run(options: Options, say: Say) -> None:
    say("== figures 4 and 5: relative SSE by noise-to-signal ratio and sketch size")
    _figure_4(options, say)
    _figure_5(options, say)


def clean_sums(points: Floats, frequencies: int, seed: int) -> FourierSums:
    """Sums without noise, for noise of a chosen size."""
    schema = number_schema(points.shape[1], len(points), -BOUND, BOUND)
    radii = dps.Recipe.clusters(schema, len(points), dps.Budget(1.0), 2).parts[1].map.radii  # type: ignore[attr-defined]
    fourier = dps.Fourier(size=frequencies, radii=radii, seed=seed)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.01), dps.Part(fourier, 0.99)])
    raw = dps.accumulate(table_of(points), schema, recipe)
    return fourier_sums(dps.release(raw, dps.Budget(float("inf"))))


def with_noise(sums: FourierSums, ratio: float, generator: np.random.Generator) -> FourierSums:
    """Isotropic noise with E‖noise‖² = ratio · ‖sums‖²."""
    variance = ratio * float(np.mean(np.abs(sums.values) ** 2)) / 2
    noise = np.sqrt(variance) * (generator.normal(size=sums.size) + 1j * generator.normal(size=sums.size))
    return replace(sums, values=sums.values + noise, deviations=np.sqrt(sums.deviations**2 + variance))


def relative_error(points: Floats, clusters: int, least: float, sums: FourierSums, restarts: int = 3) -> float:
    found = Decoder(sums, clusters, np.random.default_rng(0)).run(restarts=restarts)
    return error_of(points, found.atoms.centres * 2 * BOUND) / least


def _figure_4(options: Options, say: Say) -> None:
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4.5))
    clusters, dimension = SMALL if options.quick else (CLUSTERS, DIMENSION)
    ratios = RATIOS[::5] if options.quick else RATIOS
    for rows in (1_000, 10_000, 100_000):
        errors = []
        for run_ in range(1 if options.quick else 2):
            generator = np.random.default_rng([options.seed, run_, rows])
            points = made_up("isotropic", clusters, dimension, generator).drawn(rows, generator)
            points = np.clip(points, -BOUND, BOUND)
            least = best_error(points, clusters, options.seed)
            sums = clean_sums(points, 10 * clusters * dimension, run_)
            errors.append(
                [relative_error(points, clusters, least, with_noise(sums, ratio, generator)) for ratio in ratios]
            )
        median = np.median(errors, axis=0)
        axis.plot(ratios, median, "o-", label=f"n = {rows:,}")
        say(f"figure 4, n={rows}: " + ", ".join(f"{r:.0e} {e:.3f}" for r, e in zip(ratios, median, strict=True)))
    axis.set(xscale="log", yscale="log", xlabel="noise-to-signal ratio", ylabel="relative SSE")
    axis.set_title(f"k = {clusters}, d = {dimension}, m = 10kd")
    axis.legend()
    _save(figure, options, "figure_4.png", say)


def _figure_5(options: Options, say: Say) -> None:
    from matplotlib import pyplot as plt

    clusters, dimension = SMALL
    ratios = RATIOS[::5] if options.quick else RATIOS
    factors = FACTORS[::3] if options.quick else FACTORS
    table = np.empty((options.runs, len(factors), len(ratios)))
    for run_ in range(options.runs):
        generator = np.random.default_rng([options.seed, run_])
        points = made_up("isotropic", clusters, dimension, generator).drawn(ROWS, generator)
        points = np.clip(points, -BOUND, BOUND)
        least = best_error(points, clusters, options.seed)
        for i, factor in enumerate(factors):
            sums = clean_sums(points, max(2, round(factor * clusters * dimension)), run_)
            for j, ratio in enumerate(ratios):
                noisy = with_noise(sums, ratio, generator)
                table[run_, i, j] = relative_error(points, clusters, least, noisy, 2)
    median = np.median(table, axis=0)
    figure, axis = plt.subplots(figsize=(6, 4.5))
    shown = axis.pcolormesh(ratios, factors, np.log10(np.minimum(median, 10)), shading="nearest", cmap="viridis_r")
    axis.axhline(2, color="red", linestyle="--", label="m = 2kd")
    limit = np.array(factors) / 1e3
    axis.plot(limit, factors, color="orange", label="NSR = m / (10³·kd), the paper's bound")
    axis.set(xscale="log", yscale="log", xlabel="noise-to-signal ratio", ylabel="m / kd")
    axis.set_xlim(ratios[0], ratios[-1])
    axis.set_title(f"log₁₀ relative SSE, k = {clusters}, d = {dimension}, n = {ROWS:,}")
    axis.legend(fontsize=8)
    figure.colorbar(shown)
    for factor, line in zip(factors, median, strict=True):
        say(f"figure 5, m={factor:g}kd: " + ", ".join(f"{r:.0e} {e:.3f}" for r, e in zip(ratios, line, strict=True)))
    _save(figure, options, "figure_5.png", say)


def _save(figure: object, options: Options, name: str, say: Say) -> None:
    figure.tight_layout()  # type: ignore[attr-defined]
    figure.savefig(options.results / name, dpi=110)  # type: ignore[attr-defined]
    say(f"{name} is drawn")
