"""The library through its public interface: passes, releases and fits, with their processor time."""

from __future__ import annotations

import time
import warnings
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

import dpsketch as dps
from dpsketch.learn.models.clusters.lloyd import nearest
from dpsketch.numerics.arrays import Floats

Model = TypeVar("Model", dps.KMeans, dps.GaussianMixture)


def number_schema(dimension: int, rows: int, low: float, high: float) -> dps.Schema:
    column = {"kind": "number", "lower": low, "upper": high}
    return dps.Schema.from_dict(
        {"privacy": {"rows": rows}, "columns": {f"c{j}": dict(column) for j in range(dimension)}}
    )


def table_of(points: Floats) -> pa.Table:
    return pa.table({f"c{j}": points[:, j] for j in range(points.shape[1])})


class Sketches:
    """Raw sketches of one table by recipe, each made once, and fresh releases of them."""

    def __init__(self, table: pa.Table, schema: dps.Schema) -> None:
        self.table, self.schema = table, schema
        self._raw: dict[dps.Recipe, dps.RawSketch] = {}

    def view(self, recipe: dps.Recipe, budget: dps.Budget) -> dps.View:
        if recipe not in self._raw:
            self._raw[recipe] = dps.accumulate(self.table, self.schema, recipe)
        if not budget.private:
            return dps.View(dps.release(self._raw[recipe], budget))
        return dps.View(dps.release(self._raw[recipe], budget, dps.Ledger("sqlite://"), "benchmark"))


def fitted(model: Model, view: dps.View) -> tuple[Model, float]:
    """The fit and its seconds of processor time; warnings are replaced by `goodness_of_fit_`."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        model.fit(view)
    return model, time.process_time() - start


def recipe_text(recipe: dps.Recipe, view: dps.View) -> str:
    """Sketch size, frequency distribution and mechanism, as the library chose them."""
    sketch: Any = recipe.parts[1].map
    noises = view.released.parts[1].noises
    mechanism = noises[0].mechanism.value if noises else "no noise"
    if isinstance(sketch, dps.Histogram):
        bins = [str(part.map.bins) for part in recipe.parts if isinstance(part.map, dps.Histogram)]
        return f"tables of {' and '.join(bins)} bins, {mechanism}"
    return f"m={sketch.size}, radii {sketch.radii[0]:g}-{sketch.radii[1]:g}, {mechanism}"


def error_of(points: Floats, centres: Floats) -> float:
    """Sum of squared distances to the nearest centres."""
    return float(nearest(points, centres)[1].sum())


def best_error(points: Floats, count: int, seed: int, starts: Floats | None = None, most: int = 50_000) -> float:
    """Error of scikit-learn's k-means: ten starts, on `most` of the rows if there are more, then all rows from the
    best.
    """
    from sklearn.cluster import KMeans

    some = points if len(points) <= most else np.random.default_rng(seed).permutation(points)[:most]
    fits = [KMeans(count, n_init=10, random_state=seed).fit(some)]
    if starts is not None:
        fits.append(KMeans(count, init=starts, n_init=1).fit(some))
    best = min(fits, key=lambda each: each.inertia_)
    if len(some) < len(points):
        best = KMeans(count, init=best.cluster_centers_, n_init=1).fit(points)
    return float(best.inertia_)


def mini_batch_error(points: Floats, count: int, seed: int) -> float:
    from sklearn.cluster import MiniBatchKMeans

    fit = MiniBatchKMeans(count, n_init=3, random_state=seed).fit(points)
    return error_of(points, fit.cluster_centers_)
