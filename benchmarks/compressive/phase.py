"""Figures 4, 5 and 8 of the paper: the error of clusters over the noise-to-signal ratio and the sketch size.

The ratio is set through ε, chosen so that the planner predicts it. Errors are relative to those of Lloyd's algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from dpsketch.encoding.rows import encode
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.noise_to_signal import SumsNoise
from dpsketch.recipe.recipe import Part, Recipe
from dpsketch.schema.schema import Schema

K, COLUMNS = 4, 8
BOUND = 8.0
RADII = (5.0, 80.0)
SIZES = (0.5, 1, 1.5, 2, 3, 5, 10)  # frequencies over k·d
RATIOS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
GOOD = 1.1
Fit = Callable[[dps.View, int], Floats]  # centres in the table's units


class Clusters:
    """Rows of an isotropic mixture, raw sketches of several sizes, and the best error."""

    def __init__(self, rows: int, seed: int) -> None:
        from sklearn.cluster import KMeans

        random = np.random.default_rng(seed)
        centres = random.normal(size=(K, COLUMNS)) * np.sqrt(1.5 * K ** (1 / COLUMNS))
        self.points = centres[random.integers(0, K, rows)] + random.normal(size=(rows, COLUMNS))
        self.points = np.clip(self.points, -BOUND, BOUND)
        column = {"kind": "number", "lower": -BOUND, "upper": BOUND}
        facts = {"privacy": {"rows": rows}, "columns": {f"c{j}": dict(column) for j in range(COLUMNS)}}
        self.schema = Schema.from_dict(facts)
        self.table = pa.table({f"c{j}": self.points[:, j] for j in range(COLUMNS)})
        self.best = min(
            float(KMeans(K, init=start, n_init=count, random_state=0).fit(self.points).inertia_)
            for start, count in (("k-means++", 3), (centres, 1))
        )
        self._raw: dict[int, dps.RawSketch] = {}

    def recipe(self, size: int) -> Recipe:
        return Recipe([Part(dps.Count(), 0.02), Part(dps.Fourier(size=size, radii=RADII), 0.98)])

    def released(self, size: int, budget: dps.Budget) -> dps.View:
        if size not in self._raw:
            self._raw[size] = dps.accumulate(self.table, self.schema, self.recipe(size))
        return dps.View(dps.release(self._raw[size], budget, dps.Ledger("sqlite://"), "clusters"))

    def epsilon(self, size: int, ratio: float) -> float | None:
        """The ε at which the planner predicts this ratio, for the strength of this table's signal."""
        noise = SumsNoise(self.schema, self.recipe(size))
        records = encode(self.schema, self.table.combine_chunks().to_batches()[0])
        clean = noise.map.features(records.take(np.arange(min(len(records), 20_000)))).mean(axis=0)
        return noise.epsilon_needed(0.0, len(self.points), ratio, min(float(clean @ clean) / size, 1.0))

    def error(self, centres: Floats) -> float:
        distances = ((self.points**2).sum(axis=1)[:, None] - 2 * self.points @ centres.T) + (centres**2).sum(axis=1)
        return float(distances.min(axis=1).sum() / self.best)


def lines(folder: Path, seed: int, fit: Fit, runs: int = 3, rows: int = 10_000) -> Iterator[str]:
    """Errors by size and ratio, whether the phase transition at m = 2kd is visible, and the figures."""
    tables = [Clusters(rows, seed + each) for each in range(runs)]
    yield f"k-means k={K} d={COLUMNS} n={rows}: relative error over m/kd and the ratio, median of {runs}"
    errors = np.full((len(SIZES), len(RATIOS)), np.nan)
    for i, times in enumerate(SIZES):
        size = round(times * K * COLUMNS)
        for j, ratio in enumerate(RATIOS):
            run_errors = []
            for each in tables:
                epsilon = each.epsilon(size, ratio)
                if epsilon is not None:
                    run_errors.append(each.error(fit(each.released(size, dps.Budget(epsilon)), K)))
            errors[i, j] = np.median(run_errors) if run_errors else np.nan
        yield f"  m={size:4} ({times:g} kd): " + "  ".join(
            f"{ratio:g}: {error:.3f}" for ratio, error in zip(RATIOS, errors[i], strict=True)
        )
    quiet = np.nanmin(errors, axis=1)
    below, above = [quiet[i] for i, s in enumerate(SIZES) if s < 1], [quiet[i] for i, s in enumerate(SIZES) if s >= 2]
    met = max(above) <= GOOD < min(below)
    yield (
        f"phase transition: with little noise {min(below):.3f} below kd, at most {max(above):.3f} from 2kd on, goal "
        f"≤ {GOOD} only there: {'PASS' if met else 'SHORT'}"
    )
    _figure_4(errors, folder / "figure4.png")
    _figure_5(errors, folder / "figure5.png")
    yield "figures 4 and 5: figure4.png, figure5.png"


def figure_8(
    folder: Path,
    seed: int,
    fit: Fit,
    runs: int = 3,
    every_rows: Sequence[int] = (10**4, 10**5, 10**6),
    epsilons: Sequence[float] = (0.01, 0.1, 1.0),
) -> Iterator[str]:
    """Errors over the sketch size, for rows, ε and δ = 0 (top) or 1e-8 (bottom)."""
    import matplotlib.pyplot as plt

    sizes = [round(times * K * COLUMNS) for times in (1, 2, 4, 10, 30)]
    figure, axes = plt.subplots(2, len(every_rows), figsize=(4.5 * len(every_rows), 7), squeeze=False, sharey=True)
    for column, rows in enumerate(every_rows):
        tables = [Clusters(rows, seed + each) for each in range(runs)]
        for row, delta in enumerate((0.0, 1e-8)):
            axis = axes[row][column]
            for epsilon in epsilons:
                budget = dps.Budget(epsilon, delta)
                errors = [
                    float(np.median([each.error(fit(each.released(size, budget), K)) for each in tables]))
                    for size in sizes
                ]
                shown = " ".join(f"m={size}: {error:.3f}" for size, error in zip(sizes, errors, strict=True))
                yield f"  n={rows:g} δ={delta:g} ε={epsilon:g} {shown}"
                axis.loglog(sizes, errors, "o-", label=f"ε = {epsilon:g}")
            axis.axvline(2 * K * COLUMNS, color="#b0413e", linestyle="--", linewidth=1)
            axis.set(title=f"n = {rows:,}, δ = {delta:g}", xlabel="m", ylabel="relative error", ylim=(0.95, 10))
            axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    _save(figure, folder / "figure8.png")
    yield "figure 8: figure8.png"


def _figure_4(errors: Floats, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4.2))
    for times, each in zip(SIZES, errors, strict=True):
        axis.loglog(RATIOS, each, "o-", label=f"m = {times:g}·kd")
    axis.set(xlabel="noise-to-signal ratio", ylabel="relative error", title="Figure 4")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    _save(figure, path)


def _figure_5(errors: Floats, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4.5))
    drawn = axis.pcolormesh(SIZES, RATIOS, np.log10(np.clip(errors.T, 1, 10)), shading="nearest", cmap="viridis_r")
    figure.colorbar(drawn, label="log10 of the relative error")
    axis.axvline(2, color="red", linestyle="--", label="m = 2kd")
    axis.plot(SIZES, np.array(SIZES) / 1000, "w--", label="m/(1000·kd)")
    axis.set(xscale="log", yscale="log", xlabel="m/kd", ylabel="noise-to-signal ratio", title="Figure 5")
    axis.legend(fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
