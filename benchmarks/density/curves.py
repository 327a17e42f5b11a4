"""Figures of the race paper: errors over ε, method by method, and a density with and without noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density.tables import schema_of, table_of

Curves = dict[str, dict[float, float]]  # a figure of every ε, by method
OURS, RACE = "dpsketch", "RACE"
FIGURES = {  # part, and tables, from left to right
    "figure3": ("kde", ("sf_salaries, σ = 5000", "nyc_payroll, σ = 5000", "skin, σ = 5", "cod_rna, σ = 0.06")),
    "figure4": ("classifiers", ("occupancy", "htru2", "nomao")),
    "figure5": ("regression", ("california", "airfoil", "gas", "naval")),
    "figure7": ("kde", ("covtype, σ = 20",)),
}
LABELS = {"kde": "relative error", "classifiers": "AUC (0.5: refused)", "regression": "error over variance"}
_MARKS = "sD^vP*Xh<>p8"
_COLOURS = ("C0", "C1", "C2", "C4", "C5", "C6", "C8", "C9")  # without the reds and greys of RACE and models


def run(options: Options, say: Say) -> None:
    """Draw every figure from the lines that the other parts have kept."""
    say("== figures, from the files of the other parts")
    for name, (part, tables) in FIGURES.items():
        kept = kept_curves(options.results, part)
        panels = [(table, kept[table]) for table in tables if table in kept]
        if panels:
            draw(panels, options.results / f"{name}.png", LABELS[part], log=part != "classifiers")
        missing = [table for table in tables if table not in kept]
        say(f"  {name}: {len(panels)} tables" + (f"; without {', '.join(missing)}" if missing else ""))
    figure_2(options.results / "figure2.png")
    say("  figure2: a density of skin")


def line_of(table: str, method: str, curve: dict[float, float]) -> str:
    """A curve in words, which `kept_curves` reads."""
    return f"  over ε; {table}; {method}; " + "  ".join(f"{each:g}: {curve[each]:.4g}" for each in sorted(curve))


def kept_curves(folder: Path, part: str) -> dict[str, Curves]:
    """Curves of a part by table; a table that was run alone replaces its curves of a whole run."""
    found: dict[str, Curves] = {}
    for path in sorted(folder.glob(f"{part}*.txt"), key=lambda each: (each.stem != part, each.stem)):
        own: dict[str, Curves] = {}
        for each in path.read_text().splitlines():
            if each.startswith("  over ε; "):
                _, table, method, points = each.split("; ")
                pairs = (point.split(": ") for point in points.split("  "))
                own.setdefault(table, {})[method] = {float(epsilon): float(value) for epsilon, value in pairs}
        found |= own
    return found


def draw(panels: Sequence[tuple[str, Curves]], path: Path, label: str, log: bool = True) -> None:
    """Draw one panel for each table, with one legend beside them."""
    import matplotlib.pyplot as plt

    found = dict.fromkeys(method for _, curves in panels for method in curves)
    methods = sorted(found, key=lambda each: (each != OURS, each != RACE, "not private" in each))
    columns = min(len(panels), 3) if len(panels) != 4 else 2
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.4 * columns + 2.2, 3.6 * rows), squeeze=False, layout="constrained"
    )
    for axis, (title, curves) in zip(axes.flat, panels, strict=False):
        for method, curve in curves.items():
            places = sorted(curve)
            axis.plot(places, [curve[each] for each in places], label=method, **style(method, methods))
        axis.set(title=title, xscale="log", xlabel="ε")
        if log:
            axis.set_yscale("log")
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel(label)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    shown = {text: line for axis in axes.flat for line, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend([shown[method] for method in methods], methods, loc="outside right center", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def style(method: str, methods: Sequence[str]) -> dict[str, object]:
    """Ours and RACE stand out; a model without privacy is a dashed line."""
    if method == OURS:
        return {"color": "black", "marker": "o", "linewidth": 2.2, "zorder": 5}
    if method == RACE:
        return {"color": "#b0413e", "marker": "o", "linewidth": 2.2, "zorder": 4}
    if "not private" in method:
        return {"color": "#777777", "linestyle": "--", "linewidth": 1.2}
    others = [each for each in methods if each not in (OURS, RACE) and "not private" not in each]
    place = others.index(method)
    return {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKS[place], "markersize": 5, "linewidth": 1.2}


def figure_2(path: Path, rows: int = 100, epsilon: float = 0.02) -> None:
    """A density of two columns of skin from RACE without and with noise, and from a table of the same budget."""
    import matplotlib.pyplot as plt

    columns, width = ("green", "red"), 10.0
    table, schema = table_of("skin").select(list(columns)), schema_of("skin", columns)
    sides = np.linspace(0, 255, 128)
    points = np.stack([each.ravel() for each in np.meshgrid(sides, sides)], axis=1)
    kernel = dps.Euclidean(width, scaled=False)
    budget = dps.Budget(epsilon)
    race = dps.Recipe([dps.Part(dps.Race(columns, rows=rows, width=1000, hash=kernel), 1.0)])
    ready = dps.Recipe.density(schema, rows=schema.rows, budget=budget, columns=columns, hash=kernel)
    raw = dps.accumulate(table, schema, race)
    noisy = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "figure"))
    ours = dps.View(dps.release(dps.accumulate(table, schema, ready), budget, dps.Ledger("sqlite://"), "figure"))
    images = {
        f"RACE, R = {rows}, no noise": np.asarray(
            dps.View(dps.release(raw, dps.Budget(float("inf")))).kernel_sum(points).value
        ),
        f"RACE, R = {rows}, ε = {epsilon:g}": np.asarray(noisy.kernel_sum(points).value),
        f"dpsketch, ε = {epsilon:g}": np.asarray(
            dps.KernelDensity(kernel).fit(ours).density({"green": points[:, 0], "red": points[:, 1]}).value
        )
        * len(table),
    }
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), sharey=True, layout="constrained")
    most = max(float(np.quantile(image, 0.999)) for image in images.values())
    for axis, (title, image) in zip(axes, images.items(), strict=True):
        drawn = axis.imshow(
            image.reshape(len(sides), -1), origin="lower", extent=(0, 255, 0, 255), vmin=0, vmax=most, aspect="auto"
        )
        axis.set(title=title, xlabel="green")
    axes[0].set_ylabel("red")
    figure.colorbar(drawn, ax=axes, label="kernel sum")
    figure.savefig(path, dpi=110)
    plt.close(figure)
