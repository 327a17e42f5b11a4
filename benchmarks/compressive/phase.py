"""Figures 4, 5 and 8 of the paper: the error of clusters over the noise-to-signal ratio and the sketch size.

The library's decoder on log-uniform radii is beside the paper's, CL-OMPR on the sums of Gaussian frequencies. The ratio
is set through ε, chosen so that the planner predicts it. Errors are relative to those of Lloyd's algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from benchmarks.compressive.sketches import fitted
from dpsketch.encoding.rows import encode
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.noise_to_signal import SumsNoise
from dpsketch.recipe.recipe import Part, Recipe
from dpsketch.schema.schema import Schema

K, COLUMNS = 4, 8
BOUND = 8.0
RADII = (5.0, 80.0)
WIDTH = sqrt(COLUMNS) / (2 * BOUND)  # of the Gaussian law whose radii suit clusters of deviation 1: see laws.py
SIZES = (0.5, 1, 1.5, 2, 3, 5, 10)  # frequencies over k·d
RATIOS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
GOOD = 1.1
FIGURE_8_SIZES = (1, 2, 4, 10, 30)  # frequencies over k·d
DELTAS = (0.0, 1e-8)
ROWS = (10**4, 10**5, 10**6)
FigureErrors = dict[tuple[int, float, float, str], list[float]]  # by rows, δ, ε and decoder, over the sizes


@dataclass(frozen=True)
class Decoder:
    """A way to find the centres of clusters, and the sums that it is made for."""

    name: str
    fourier: Callable[[int], dps.Fourier]  # of a number of frequencies
    model: Callable[[], dps.KMeans]

    def recipe(self, size: int) -> Recipe:
        return Recipe([Part(dps.Count(), 0.02), Part(self.fourier(size), 0.98)])

    def centres(self, view: dps.View) -> Floats:
        """In the table's units."""
        return np.asarray(fitted(self.model(), view)[0].cluster_centers_)


OURS = Decoder("ours", lambda size: dps.Fourier(size=size, radii=RADII), lambda: dps.KMeans(K))
CLOMPR = Decoder(
    "CL-OMPR",
    lambda size: dps.Fourier(size=size, kernel="gaussian", width=WIDTH),
    lambda: dps.KMeans(K, method="clompr", n_init=10),
)
DECODERS = (OURS, CLOMPR)


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
        self._raw: dict[Recipe, dps.RawSketch] = {}

    def released(self, recipe: Recipe, budget: dps.Budget) -> dps.View:
        if recipe not in self._raw:
            self._raw[recipe] = dps.accumulate(self.table, self.schema, recipe)
        return dps.View(dps.release(self._raw[recipe], budget, dps.Ledger("sqlite://"), "clusters"))

    def epsilon(self, recipe: Recipe, ratio: float) -> float | None:
        """The ε at which the planner predicts this ratio, for the strength of this table's signal."""
        noise = SumsNoise(self.schema, recipe)
        size = noise.map.size // 2
        records = encode(self.schema, self.table.combine_chunks().to_batches()[0])
        clean = noise.map.features(records.take(np.arange(min(len(records), 20_000)))).mean(axis=0)
        return noise.epsilon_needed(0.0, len(self.points), ratio, min(float(clean @ clean) / size, 1.0))

    def error(self, centres: Floats) -> float:
        distances = ((self.points**2).sum(axis=1)[:, None] - 2 * self.points @ centres.T) + (centres**2).sum(axis=1)
        return float(distances.min(axis=1).sum() / self.best)


def lines(folder: Path, seed: int, runs: int = 3, rows: int = 10_000) -> Iterator[str]:
    """Errors by decoder, size and ratio, whether the phase transition at m = 2kd is visible, and the figures."""
    tables = [Clusters(rows, seed + each) for each in range(runs)]
    yield f"k-means k={K} d={COLUMNS} n={rows}: relative error over m/kd and the ratio, median of {runs}"
    errors = {}
    for decoder in DECODERS:
        yield f"{decoder.name}:"
        errors[decoder.name] = found = np.full((len(SIZES), len(RATIOS)), np.nan)
        for i, times in enumerate(SIZES):
            recipe = decoder.recipe(round(times * K * COLUMNS))
            for j, ratio in enumerate(RATIOS):
                run_errors = []
                for each in tables:
                    epsilon = each.epsilon(recipe, ratio)
                    if epsilon is not None:
                        run_errors.append(each.error(decoder.centres(each.released(recipe, dps.Budget(epsilon)))))
                found[i, j] = np.median(run_errors) if run_errors else np.nan
            yield f"  m={round(times * K * COLUMNS):4} ({times:g} kd): " + "  ".join(
                f"{ratio:g}: {error:.3f}" for ratio, error in zip(RATIOS, found[i], strict=True)
            )
        yield _transition(decoder.name, found)
    draw_figure_4(errors, folder / "figure4.png")
    draw_figure_5(errors, folder / "figure5.png")
    yield "figures 4 and 5: figure4.png, figure5.png"


def _transition(name: str, errors: Floats) -> str:
    """The line of the phase transition, with a verdict for ours."""
    quiet = np.nanmin(errors, axis=1)
    below, above = [quiet[i] for i, s in enumerate(SIZES) if s < 1], [quiet[i] for i, s in enumerate(SIZES) if s >= 2]
    text = (
        f"phase transition, {name}: with little noise {min(below):.3f} below kd, at most {max(above):.3f} from 2kd on"
    )
    if name != OURS.name:
        return text
    return f"{text}, goal ≤ {GOOD} only there: {'PASS' if max(above) <= GOOD < min(below) else 'SHORT'}"


def table_lines(rows: int, seed: int, runs: int = 3, epsilons: Sequence[float] = (0.01, 0.1, 1.0)) -> Iterator[str]:
    """Errors over the sketch size for a number of rows: the panels of figure 8 for δ = 0 (top) and 1e-8 (bottom)."""
    sizes = [round(times * K * COLUMNS) for times in FIGURE_8_SIZES]
    tables = [Clusters(rows, seed + each) for each in range(runs)]
    for delta in DELTAS:
        for epsilon in epsilons:
            budget = dps.Budget(epsilon, delta)
            for decoder in DECODERS:
                found = []
                for size in sizes:
                    recipe = decoder.recipe(size)
                    centres = [decoder.centres(each.released(recipe, budget)) for each in tables]
                    found.append(float(np.median([each.error(c) for each, c in zip(tables, centres, strict=True)])))
                shown = " ".join(f"m={size}: {error:.3f}" for size, error in zip(sizes, found, strict=True))
                yield f"  n={rows:g} δ={delta:g} ε={epsilon:g} {decoder.name:8}{shown}"


def kept_errors(folder: Path) -> FigureErrors:
    """The errors of `table_lines` in the files of all numbers of rows."""
    found: FigureErrors = {}
    for rows in ROWS:
        path = folder / f"tables-{rows}.txt"
        for line in path.read_text().splitlines() if path.exists() else []:
            if line.startswith("  n="):
                n, delta, epsilon, name, *points = line.split()
                key = int(float(n[2:])), float(delta[2:]), float(epsilon[2:]), name
                found[key] = [float(each) for each in points if not each.startswith("m=")]
    return found


def draw_figure_4(errors: dict[str, Floats], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(errors), figsize=(11, 4.2), sharey=True, layout="constrained")
    for axis, (name, found) in zip(axes, errors.items(), strict=True):
        for times, each in zip(SIZES, found, strict=True):
            axis.loglog(RATIOS, each, "o-", label=f"m = {times:g}·kd")
        axis.set(xlabel="noise-to-signal ratio", title=f"Figure 4: {name}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("relative error")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    _save(figure, path)


def draw_figure_5(errors: dict[str, Floats], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(errors), figsize=(10, 4.5), sharey=True, layout="constrained")
    for axis, (name, found) in zip(axes, errors.items(), strict=True):
        shown = np.log10(np.clip(found.T, 1, 10))
        drawn = axis.pcolormesh(_edges(SIZES), _edges(RATIOS), shown, cmap="viridis_r", vmin=0, vmax=1)
        axis.axvline(2, color="red", linestyle="--", label="m = 2kd")
        axis.plot(SIZES, np.array(SIZES) / 1000, "w--", label="m/(1000·kd)")
        axis.set(xscale="log", yscale="log", xlabel="m/kd", title=f"Figure 5: {name}")
    axes[0].set_ylabel("noise-to-signal ratio")
    lines, texts = axes[0].get_legend_handles_labels()
    figure.legend(lines, texts, loc="outside lower center", ncol=2, fontsize=9, facecolor="#bbbbbb")
    figure.colorbar(drawn, ax=axes, label="log10 of the relative error")
    _save(figure, path)


def _edges(places: Sequence[float]) -> Floats:
    """Geometric middles between places, and beyond both ends."""
    logs = np.log(np.asarray(places, np.float64))
    middles = 0.5 * (logs[1:] + logs[:-1])
    return np.exp(np.concatenate([[2 * logs[0] - middles[0]], middles, [2 * logs[-1] - middles[-1]]]))


def draw_figure_8(errors: FigureErrors, path: Path) -> None:
    import matplotlib.pyplot as plt

    sizes = [round(times * K * COLUMNS) for times in FIGURE_8_SIZES]
    every_rows = sorted({rows for rows, _, _, _ in errors})
    epsilons = sorted({epsilon for _, _, epsilon, _ in errors})
    figure, axes = plt.subplots(
        len(DELTAS),
        len(every_rows),
        figsize=(4.5 * len(every_rows), 7.5),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for (rows, delta, epsilon, name), found in errors.items():
        axis = axes[DELTAS.index(delta)][every_rows.index(rows)]
        style, colour = ("o-" if name == OURS.name else "s--"), f"C{epsilons.index(epsilon)}"
        axis.loglog(sizes, found, style, color=colour, markersize=4, label=f"ε = {epsilon:g}, {name}")
        axis.set(title=f"n = {rows:,}, δ = {delta:g}", ylim=(0.95, 50))
    for axis in axes.flat:
        axis.axvline(2 * K * COLUMNS, color="#b0413e", linestyle=":", linewidth=1)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("m")
    for axis in axes[:, 0]:
        axis.set_ylabel("relative error")
    handles = {text: line for axis in axes.flat for line, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncol=3, fontsize=9)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    if figure.get_layout_engine() is None:
        figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
