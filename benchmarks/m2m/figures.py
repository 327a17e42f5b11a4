"""Table 1 and Figures 3 and 4 of the paper, recomputed, with our answers beside its sketches'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.m2m import environments
from benchmarks.m2m.methods import Task, answers, measure
from benchmarks.m2m.study import relative, study
from benchmarks.m2m.tables import RANDOM10

EPSILONS = tuple(float(10**power) for power in np.arange(-2, 2.01, 0.5))
TABLES = (RANDOM10, "lifesci")
SKETCHES = ("m2m-rff", "m2m-race", "m2m-hist")
CURVES = (*SKETCHES, "marginals", "ours")
PANELS = ("mean (relative)", "second moment (relative)", "CDF (earth mover)", "covariance (Frobenius)", "3-way queries")
CDF_POINTS = 10
TABLE_1 = {
    (RANDOM10, "m2m-rff"): (6.25e-8, 9.55e-3),
    (RANDOM10, "m2m-hist"): (1.87e-5, 9.10e-4),
    ("lifesci", "m2m-rff"): (1.67e-6, 4.20e-2),
    ("lifesci", "m2m-hist"): (5.91e-5, 3.8e-3),
}
Say = Callable[[str], None]


def panels(task: Task) -> list[list[float]]:
    """The errors of Figure 3 for each run: queries have thresholds uniform in the bounds."""
    found = []
    for run in range(task.runs):
        known, (each, _) = study(task.table, (task.seed, run)), answers(task, run)
        mean, covariance = each.means(), each.covariance()
        points = np.linspace(0, 1, CDF_POINTS + 2)[1:-1]
        true_squares = np.diag(known.covariance) + known.mean**2
        found.append(
            [
                relative(mean, known.mean),
                relative(np.diag(covariance) + mean**2, true_squares),
                float(np.mean(np.abs(each.cdf(points) - known.cdf_at(points)))),
                float(np.linalg.norm(covariance - known.covariance)),
                float(np.mean(np.abs(each.conjunctions(known.in_bounds)[0] - known.bound_shares))),
            ]
        )
    return found


def draw(folder: Path, executor: Executor, runs: int, seed: int, say: Say, epsilons: Sequence[float]) -> None:
    """All three, into `folder`."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    _table_1(folder, executor, max(runs, 2), seed, say)
    _figure_3(folder, executor, runs, seed, say, epsilons)
    _figure_4(folder, executor, runs, seed, say, epsilons)


def _table_1(folder: Path, executor: Executor, runs: int, seed: int, say: Say) -> None:
    import matplotlib.pyplot as plt

    say(f"Table 1: mean relative error of E[X], {runs} runs; in brackets the paper's figure")
    methods = ("m2m-rff", "m2m-rff-n²", "m2m-hist", "m2m-hist-n²", "ours")
    futures = {
        (table, epsilon, method): executor.submit(panels, Task(table, method, epsilon, 0.0, runs, seed))
        for table in TABLES
        for epsilon in (np.inf, 1.0)
        for method in methods
    }
    cells = []
    for table in TABLES:
        for place, epsilon in enumerate((np.inf, 1.0)):
            row = [table, f"{epsilon:g}"]
            for method in methods:
                error = np.mean([each[0] for each in futures[table, epsilon, method].result()])
                printed = TABLE_1.get((table, method.removesuffix("-n²")))
                row.append(f"{error:.2e}" + (f" ({printed[place]:.2e})" if printed else ""))
            cells.append(row)
            say(f"  {table:10} ε={epsilon:<4g} " + "  ".join(map(" ".join, zip(methods, row[2:], strict=True))))
    figure, axes = plt.subplots(figsize=(12, 1.8))
    axes.axis("off")
    drawn = axes.table(cells, colLabels=["table", "ε", *methods], loc="center")
    drawn.set_fontsize(10)
    axes.set_title("Mean relative error of E[X], in brackets the paper's figure; n²: λ = σ²/n², else σ²/n", fontsize=10)
    _save(figure, folder / "table1.png")


def _figure_3(folder: Path, executor: Executor, runs: int, seed: int, say: Say, epsilons: Sequence[float]) -> None:
    import matplotlib.pyplot as plt

    say(f"Figure 3: errors over ε, {runs} runs: {', '.join(PANELS)}")
    futures = {
        (table, method, epsilon): executor.submit(panels, Task(table, method, epsilon, 0.0, runs, seed))
        for table in TABLES
        for method in CURVES
        for epsilon in epsilons
    }
    figure, axes = plt.subplots(len(TABLES), len(PANELS), figsize=(20, 7), squeeze=False)
    for row, table in zip(axes, TABLES, strict=True):
        for method in CURVES:
            errors = np.array([np.mean(futures[table, method, epsilon].result(), axis=0) for epsilon in epsilons])
            for epsilon, each in zip(epsilons, errors, strict=True):
                say(f"  {table:10} {method:10} ε={epsilon:<8.3g} " + "  ".join(f"{value:.2e}" for value in each))
            for panel, axis in enumerate(row):
                axis.loglog(epsilons, errors[:, panel], **_style(method))
        for axis, title in zip(row, PANELS, strict=True):
            axis.set_title(f"{table}: {title}", fontsize=10)
            axis.set_xlabel("ε")
            axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    _save(figure, folder / "figure3.png")


def _figure_4(folder: Path, executor: Executor, runs: int, seed: int, say: Say, epsilons: Sequence[float]) -> None:
    import matplotlib.pyplot as plt

    say(f"Figure 4: AUC of logistic regression on occupancy over ε, {runs} runs")
    methods = [*SKETCHES, "ours"] + (["diffprivlib"] if environments.installed("diffprivlib") else [])
    futures = {
        (method, epsilon): executor.submit(measure, Task("occupancy", method, epsilon, 0.0, runs, seed))
        for method in methods
        for epsilon in epsilons
    }
    best = executor.submit(measure, Task("occupancy", "not private", 1.0, 0.0, 1, seed)).result()[0]["model"]
    figure, axis = plt.subplots(figsize=(7, 5))
    for method in methods:
        scores = [np.mean([run["model"] for run in futures[method, epsilon].result()]) for epsilon in epsilons]
        for epsilon, value in zip(epsilons, scores, strict=True):
            say(f"  {method:12} ε={epsilon:<8.3g} {value:.4f}")
        axis.semilogx(epsilons, scores, **_style(method))
    axis.axhline(best, color="grey", linestyle=":", label="not private")
    axis.set_xlabel("ε")
    axis.set_ylabel("AUC")
    axis.set_title("Logistic regression on occupancy")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    _save(figure, folder / "figure4.png")


def _style(method: str) -> dict[str, Any]:
    return {"label": method, "marker": "o", "markersize": 3, "linewidth": 2.5 if method == "ours" else 1.2}


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
