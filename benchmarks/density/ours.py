"""Our side of every part, through the public interface alone: a ready-made recipe, a release with fresh noise, a model.

A part that needs a public name which this version lacks reports it, and the others still run.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from benchmarks.density.tables import Anomalies, Split, labels_of
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema

RACE_WIDTH = 100  # counters in a row of the paper's classifiers


class NotThere(Exception):
    """A public name that this version of the library does not have."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A model's output for the test rows, its standard errors where it has them, and the time it took."""

    values: Any
    stderr: Floats | None
    how: str
    seconds: dict[str, float]


def needs(name: str) -> None:
    if not hasattr(dps, name):
        raise NotThere(f"dps.{name} is not in this version of the library")


def _ready(name: str, schema: Schema, **options: Any) -> dps.Recipe:
    """A ready-made recipe by its public rule."""
    if not hasattr(dps.Recipe, name):
        raise NotThere(f"dps.Recipe.{name} is not in this version of the library")
    recipe: dps.Recipe = getattr(dps.Recipe, name)(schema, **options)
    return recipe


class Passes:
    """Raw sketches of one table by recipe, each made once, and fresh releases of them; with processor time."""

    def __init__(self, table: pa.Table, schema: Schema) -> None:
        self._table, self._schema, self.rows = table, schema, len(table)
        self._raw: dict[dps.Recipe, dps.RawSketch] = {}
        self.seconds: dict[str, float] = {}

    def view(self, recipe: dps.Recipe, budget: dps.Budget) -> dps.View:
        start = time.process_time()
        if recipe not in self._raw:
            self._raw = {recipe: dps.accumulate(self._table, self._schema, recipe)}
        passed = time.process_time()
        view = dps.View(dps.release(self._raw[recipe], budget, dps.Ledger("sqlite://"), "benchmark"))
        self.seconds = {"pass": passed - start, "release": time.process_time() - passed}
        return view


def kernel_sums(
    passes: Passes, schema: Schema, budget: dps.Budget, width: float, scaled: bool, queries: pa.Table
) -> Scored:
    """Kernel sums at the queries, from hashed counters or a table, whichever the recipe takes."""
    needs("KernelDensity")
    columns, kernel = schema_columns(schema), dps.Euclidean(width, scaled=scaled)
    recipe = _ready("density", schema, rows=schema.rows, budget=budget, columns=columns, hash=kernel)
    view = passes.view(recipe, budget)
    model, seconds = _fitted(dps.KernelDensity(kernel), view)
    points, start = mapping_of(queries), time.process_time()
    answer = model.density(points)
    took = passes.seconds | {"fit": seconds, "query": (time.process_time() - start) / len(queries)}
    rows = passes.rows  # a density is a mean over the records
    return Scored(np.asarray(answer.value) * rows, np.asarray(answer.stderr) * rows, recipe_text(view), took)


def hashed_sums(
    passes: Passes, schema: Schema, budget: dps.Budget, width: float, scaled: bool, queries: pa.Table, rows: int
) -> Scored:
    """The paper's sketch alone, with a given number of rows of counters, for comparison."""
    columns = schema_columns(schema)
    race = dps.Race(columns, rows=rows, width=1000, hash=dps.Euclidean(width, scaled=scaled))
    view = passes.view(dps.Recipe([dps.Part(race, 1.0)]), budget)
    matrix = np.stack([queries[name].to_numpy().astype(np.float64) for name in columns], axis=1)
    start = time.process_time()
    answer = view.kernel_sum(matrix)
    took = passes.seconds | {"query": (time.process_time() - start) / len(queries)}
    return Scored(np.asarray(answer.value), np.asarray(answer.stderr), recipe_text(view), took)


def class_scores(passes: Passes, split: Split, budget: dps.Budget) -> Scored:
    """The score of the second of two classes, else the labels."""
    needs("DensityClassifier")
    recipe = _ready("classify", split.schema, target=split.target, rows=split.schema.rows, budget=budget)
    view = passes.view(recipe, budget)
    model, seconds = _fitted(dps.DensityClassifier(target=split.target), view)
    features, start = mapping_of(split.test.select(list(split.columns))), time.process_time()
    values = model.decision_function(features) if len(model.classes_) == 2 else model.predict(features)
    took = passes.seconds | {"fit": seconds, "query": (time.process_time() - start) / len(split.test)}
    return Scored(values, None, recipe_text(view), took)


def race_likelihoods(passes: Passes, split: Split, budget: dps.Budget, rows: int, bandwidth: float) -> Scored:
    """The race paper's classifier: likelihoods from hashed counters of each class."""
    race = dps.Race(split.columns, rows, RACE_WIDTH, hash=dps.Euclidean(bandwidth))
    parts = [dps.Part(dps.Grouped(dps.Count(), split.target), 0.03), dps.Part(dps.Grouped(race, split.target), 0.97)]
    view = passes.view(dps.Recipe(parts), budget)
    model, seconds = _fitted(dps.DensityClassifier(split.target, prior="ml", method="likelihood"), view)
    values = model.decision_function(mapping_of(split.test.select(list(split.columns))))
    return Scored(values, None, recipe_text(view), passes.seconds | {"fit": seconds})


def predictions(passes: Passes, split: Split, budget: dps.Budget) -> Scored:
    """Linear regression from second moments of the features and the target."""
    recipe = _ready(
        "linear", split.schema, target=split.target, rows=split.schema.rows, budget=budget, columns=split.columns
    )
    view = passes.view(recipe, budget)
    model, seconds = _fitted(dps.LinearRegression(split.target), view)
    values = model.predict(split.test.select(list(split.columns)))
    return Scored(np.asarray(values), None, recipe_text(view), passes.seconds | {"fit": seconds})


def tightened_predictions(split: Split, first: dps.Budget, second: dps.Budget) -> Scored:
    """The same predictions in two releases: marginals for tighter bounds, then second moments within these."""
    recipe = _ready("bounds", split.schema, columns=(*split.columns, split.target))
    schema = dps.tighten(Passes(split.train, split.schema).view(recipe, first))
    return predictions(Passes(split.train, schema), replace(split, schema=schema), second)


def hashed_predictions(passes: Passes, split: Split, budget: dps.Budget) -> Scored:
    """The race paper's linear model, for comparison: the score of the second of two classes, else the predictions."""
    recipe = _ready("hashed_linear", split.schema, target=split.target, rows=split.schema.rows, budget=budget)
    view = passes.view(recipe, budget)
    loss = "squared" if split.schema.column(split.target).numeric else "hinge"
    model, seconds = _fitted(dps.HashedLinear(split.target, loss), view)
    features = split.test.select(list(split.columns))
    values = model.predict(features) if loss == "squared" else model.decision_function(features)
    return Scored(np.asarray(values), None, recipe_text(view), passes.seconds | {"fit": seconds})


def anomaly_scores(passes: Passes, task: Anomalies, budget: dps.Budget) -> Scored:
    """Scores that are higher for rows less similar to the training rows."""
    needs("AnomalyScorer")
    recipe = _ready("anomaly", task.schema, rows=task.schema.rows, budget=budget, columns=task.columns)
    view = passes.view(recipe, budget)
    model, seconds = _fitted(dps.AnomalyScorer(), view)
    start = time.process_time()
    values = -model.score_samples(mapping_of(task.test))
    took = passes.seconds | {"fit": seconds, "query": (time.process_time() - start) / len(task.test)}
    return Scored(values, None, recipe_text(view), took)


def synthetic_rows(
    passes: Passes, schema: Schema, budget: dps.Budget, count: int, seed: int, flat: bool = False
) -> Scored:
    """Rows drawn from the release; if `flat`, by the density paper's flat heap, from one level of 32
    cells per column.
    """
    columns = schema_columns(schema)
    if flat:
        recipe = dps.Recipe([dps.Part(dps.Count(), 0.02), dps.Part(dps.Grid(columns), 0.98)])
    else:
        recipe = _ready("synthetic", schema, rows=schema.rows, budget=budget, columns=columns)
    view = passes.view(recipe, budget)
    start = time.process_time()
    drawn = view.sample(count, seed, method="heap" if flat else "auto")
    took = passes.seconds | {"draw": time.process_time() - start}
    return Scored(drawn, None, recipe_text(view), took)


def mapping_of(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def schema_columns(schema: Schema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.scalars)


def recipe_text(view: dps.View) -> str:
    """Maps, sizes and noise, as the library chose them."""
    parts = []
    for part in view.released.parts:
        noise = part.noises[0].mechanism.value if part.noises else "no noise"
        parts.append(f"{part.map.description.name} of {part.map.size} sums, {noise}")
    return "; ".join(parts)


def right_labels(split: Split, predicted: Any) -> Floats:
    """Which test rows got the right label, whatever type the labels have."""
    return np.asarray([str(a) == str(b) for a, b in zip(predicted, labels_of(split.test, split.target), strict=True)])


def _fitted(model: Any, view: dps.View) -> tuple[Any, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        model.fit(view)
    return model, time.process_time() - start
