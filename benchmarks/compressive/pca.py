"""Principal components: variance captured by private components, relative to that of exact ones.

The components are of uncentred second moments of rows clipped to the declared ball, as EXPERIMENTS defines it; and,
without a goal, of covariances, and with the map that the recipe did not choose.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.data import DATA
from dpsketch.encoding.rows import encode
from dpsketch.maps.moments.ball import clipped
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.recipe import Part, Recipe
from dpsketch.schema.columns import HIGHEST
from dpsketch.schema.schema import Schema

DELTA = 1e-6
COMPONENTS = 5
RELEASES = 5  # for each run on a real table: medians of five releases of mnist-20 differ by 0.004
EPSILONS = (1.0, 0.1, 0.01)
GOALS = {
    ("synthetic", 0.1, 0.0): 0.999,
    ("mnist-20", 0.1, 0.0): 0.98,
    ("mnist-20", 1.0, DELTA): 0.98,
    ("mnist-20, ball 2", 0.1, 0.0): 0.98,
    ("gas-128", 1.0, DELTA): 0.95,
}
TABLES = ("synthetic", "mnist-20", "mnist-20, ball 2", "gas-128")


@dataclass(frozen=True, eq=False)
class Data:
    """A table, its public facts, and the radius of the declared ball in half-widths (None: nothing is clipped)."""

    name: str
    schema: Schema
    table: pa.Table
    columns: tuple[str, ...]
    radius: float | None

    @lru_cache(maxsize=20)  # noqa: B019
    def accumulated(self, recipe: Recipe) -> dps.RawSketch:
        return dps.accumulate(self.table, self.schema, recipe)

    @lru_cache(maxsize=20)  # noqa: B019
    def moments(self, of: str) -> Floats:
        """The exact matrix, on the scale of `PCA(of=…)`."""
        if of == "covariance":
            columns = self.table.select(list(self.columns)).columns
            return np.cov(np.stack([column.to_numpy().astype(float) for column in columns]), bias=True)
        ball = int(HIGHEST * (self.radius or len(self.columns) ** 0.5))
        rows = np.array([self.schema.index(name) for name in self.columns])
        total = np.zeros((len(rows), len(rows)))
        for batch in self.table.to_batches(max_chunksize=50_000):
            numbers = clipped(encode(self.schema, batch).codes, rows, ball) / HIGHEST
            total += numbers @ numbers.T
        return total / len(self.table)


def synthetic(seed: int, rows: int = 10**6) -> Data:
    """Eigenvalues 1/j in 20 columns, bounds ±4, ball of the same radius."""
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(random.normal(size=(20, 20)))[0]
    numbers = (random.normal(size=(rows, 20)) / np.sqrt(np.arange(1, 21))) @ axes.T
    return Data("synthetic", _schema(20, 4.0, rows), _table(numbers), _names(20), 1.0)


@lru_cache(maxsize=1)
def mnist() -> Data:
    """Training images, pixels/255, projected to 20 numbers by a fixed public Gaussian matrix; bounds ±1, ball 1.5."""
    table = pq.read_table(DATA / "mnist.parquet")
    train = table.filter(pa.compute.equal(table["split"], "train"))
    pixels = train["pixels"].combine_chunks().flatten().to_numpy().reshape(-1, 784) / 255.0
    matrix = np.random.default_rng(0).normal(size=(784, 20)) / 28
    return Data("mnist-20", _schema(20, 1.0, 60_000), _table(pixels @ matrix), _names(20), 1.5)


@lru_cache(maxsize=1)
def gas() -> Data:
    """All 128 features, bounds as declared, nothing clipped."""
    schema = Schema.load(DATA / "schemas" / "gas_drift_partial.toml")
    table = pq.read_table(DATA / "gas_drift_partial.parquet")
    return Data("gas-128", schema, table, tuple(f"f{place}" for place in range(1, 129)), None)


def captured(data: Data, exact: Floats, components: Floats) -> float:
    best = np.linalg.eigvalsh(exact)[-len(components) :].sum()
    return float(np.einsum("ij,jk,ik->", components, exact, components) / best)


@dataclass
class Found:
    """Runs of one recipe on one table."""

    how: str
    shares: list[float]
    within: list[float]
    seconds: list[float]


def run(data: Data, epsilon: float, delta: float, runs: int, of: str = "second_moments", other: bool = False) -> Found:
    """Release and fit. `other` takes the map that the recipe did not choose."""
    budget = dps.Budget(epsilon, delta)
    rows = data.schema.rows
    recipe = Recipe.pca(
        data.schema, rows=rows, budget=budget, n_components=COMPONENTS, columns=data.columns, radius=data.radius, of=of
    )
    if other:
        recipe = _other(recipe)
    exact = data.moments(of)
    raw = data.accumulated(recipe)
    found = Found("", [], [], [])
    for _ in range(runs):
        view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), data.name))
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = dps.PCA(COMPONENTS, data.columns, of).fit(view)
        found.seconds.append(time.process_time() - start)
        along = np.einsum("ij,jk,ik->i", model.components_, exact, model.components_)
        off = np.abs(model.explained_variance_ - along) - 2 * model.explained_variance_stderr_
        found.shares.append(captured(data, exact, model.components_))
        found.within.append(float(np.mean(off <= 0)))
        part = view.released.parts[1]
        found.how = f"{part.map.description.name}, {part.map.size} sums, {part.noises[0].mechanism}"
    return found


def lines(folder: Path, seed: int, runs: int = 5) -> Iterator[str]:
    """Every figure, with PASS or SHORT by the median where it has a goal; also draws the plot."""
    yield (
        f"PCA, {COMPONENTS} components, captured variance median (worst) of {runs} runs: of fresh rows (synthetic), or "
        f"of {RELEASES} releases (the map not chosen: of one)"
    )
    curves: dict[tuple[str, float, str], list[float]] = {}
    for name in TABLES:
        for delta in (0.0, DELTA):
            for epsilon in EPSILONS:
                found = _fresh(name, epsilon, delta, runs, seed, "second_moments", False)
                curves.setdefault((name, delta, "chosen"), []).append(float(np.median(found.shares)))
                goal = GOALS.get((name, epsilon, delta))
                yield "  " + _line(name, epsilon, delta, found) + _verdict(goal, found.shares)
                try:
                    other = _fresh(name, epsilon, delta, runs, seed, "second_moments", True)
                    yield "    not chosen: " + _line(name, epsilon, delta, other)
                except dps.DpsketchError as error:
                    other = Found("", [np.nan], [], [])
                    yield f"    not chosen: refused: {error.fact}"
                curves.setdefault((name, delta, "other"), []).append(float(np.median(other.shares)))
                centred = _fresh(name, epsilon, delta, runs, seed, "covariance", False)
                yield "    covariance: " + _line(name, epsilon, delta, centred)
    _draw(curves, folder / "pca.png")
    yield "plot: pca.png"


def _fresh(name: str, epsilon: float, delta: float, runs: int, seed: int, of: str, other: bool) -> Found:
    if name != "synthetic":
        return run(_real(name), epsilon, delta, runs if other else RELEASES * runs, of, other)
    every = [run(_drawn(seed + each), epsilon, delta, 1, of, other) for each in range(runs)]
    joined = Found(every[0].how, [], [], [])
    for each in every:
        joined.shares += each.shares
        joined.within += each.within
        joined.seconds += each.seconds
    return joined


@lru_cache(maxsize=3)
def _real(name: str) -> Data:
    if name == "gas-128":
        return gas()
    return mnist() if name == "mnist-20" else replace(mnist(), name=name, radius=2.0)


@lru_cache(maxsize=10)
def _drawn(seed: int) -> Data:
    return synthetic(seed)


def _line(name: str, epsilon: float, delta: float, found: Found) -> str:
    shares = f"{np.median(found.shares):.4f} ({min(found.shares):.4f})"
    return (
        f"{name} ε={epsilon:g} δ={delta:g} {shares} by {found.how}; {np.mean(found.within):.0%} of variances within "
        f"two standard errors, {np.mean(found.seconds):.2f} CPU s a fit"
    )


def _verdict(goal: float | None, shares: Sequence[float]) -> str:
    return "" if goal is None else f", goal ≥ {goal:g}: {'PASS' if np.median(shares) >= goal else 'SHORT'}"


def _other(recipe: Recipe) -> Recipe:
    """The recipe with squares of projections in place of second moments, or the reverse."""
    place = next(i for i, part in enumerate(recipe.parts) if not isinstance(part.map, dps.Count))
    part = recipe.parts[place]
    found: Any = part.map
    count = len(found.columns)
    if isinstance(found, dps.SecondMoments):
        basis = 1 << (count - 1).bit_length()
        found = dps.Quadratic(found.columns, basis * (2 * COMPONENTS + 2), radius=found.radius, directions="hadamard3")
    else:
        found = dps.SecondMoments(found.columns, found.radius)
    parts = list(recipe.parts)
    parts[place] = Part(found, part.share)
    return Recipe(parts, recipe.rows)


def _draw(curves: dict[tuple[str, float, str], list[float]], path: Path) -> None:
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, _, _ in curves))
    figure, axes = plt.subplots(1, len(names), figsize=(4.5 * len(names), 4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for (each, delta, which), shares in curves.items():
            if each == name:
                style, colour = ("o-" if which == "chosen" else "s:"), ("#b0413e" if delta == 0 else "#31688e")
                label = f"{'pure' if delta == 0 else f'δ = {delta:g}'}, {which} map"
                axis.semilogx(EPSILONS, shares, style, color=colour, label=label)
        axis.set(title=name, xlabel="ε", ylabel="captured variance, relative", ylim=(0, 1.02))
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"x{index}" for index in range(count))


def _schema(count: int, bound: float, rows: int) -> Schema:
    columns = {name: {"kind": "number", "lower": -bound, "upper": bound} for name in _names(count)}
    return Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})


def _table(numbers: Floats) -> pa.Table:
    return pa.table({name: numbers[:, index] for index, name in enumerate(_names(numbers.shape[1]))})
