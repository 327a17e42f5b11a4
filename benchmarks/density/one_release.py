"""`python -m benchmarks.density.one_release`: models from one general release beside those from releases made for them.

For each table and budget: kernel densities (relative error at held-out rows, and the share of 95 % intervals that hold
the density of the records), modes, anomaly scores, classes and mixtures. Each release has the whole budget. Tables of
CHOSEN were looked at when constants were chosen; the others judge them.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture

import dpsketch as dps
from benchmarks.density.goals import budget_text
from benchmarks.density.runs import DELTA
from benchmarks.density.tables import anomalies, classification, labels_of, random_split, schema_of, table_of
from dpsketch.learn.estimators import radial_kernels
from dpsketch.learn.estimators.radial_kernels import Radial
from dpsketch.learn.models.clusters.places import frame_places
from dpsketch.learn.models.row_kernel import RowKernel
from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.tasks.density_task import default_bandwidth
from dpsketch.schema.schema import Schema

CHOSEN = ("california_housing", "adult", "occupancy")
JUDGED = ("skin", "cod_rna", "htru2", "sf_salaries", "covtype")
CLASSES = ("occupancy", "htru2", "skin", "cod_rna", "covtype")
ANOMALIES = ("htru2",)
BUDGETS = ((1.0, 0.0), (1.0, DELTA))
QUERIES, MOST_FITTED, SCORED = 100, 50_000, 1500
SIZES = (1, 2, 3, 5, 8)
COMPONENTS = 3
RESULT = Path(__file__).resolve().parents[1] / "results" / "density" / "one_release.txt"
Say = Callable[[str], None]


def released(table: pa.Table, schema: Schema, recipe: dps.Recipe, budget: dps.Budget) -> dps.View:
    return dps.View(dps.release(dps.accumulate(table, schema, recipe), budget, dps.Ledger("sqlite://"), "study"))


def _exact(schema: Schema, columns: tuple[str, ...], kernel: Radial, train: pa.Table, queries: pa.Table) -> Floats:
    """Mean kernel values over the records, by brute force."""
    own = RowKernel(schema, columns, kernel)
    rows, points = (own.located(Frame.read(schema, columns, each)) for each in (train, queries))
    return own.means(rows, np.full((len(rows), 1), 1 / len(rows)), points)[0][:, 0]


def _column_sets(columns: tuple[str, ...], seed: int) -> list[tuple[str, ...]]:
    """A set of columns of each size, and all of them."""
    generator = np.random.default_rng([seed, 6])
    sizes = [size for size in SIZES if size < len(columns)]
    return [*(tuple(generator.choice(columns, size, replace=False).tolist()) for size in sizes), columns]


def densities(name: str, budgets: tuple[tuple[float, float], ...], seed: int, say: Say) -> None:
    """Densities of a general release, and of releases made for them where the kernel is theirs."""
    columns = tuple(column.name for column in schema_of(name).scalars)
    train, test = random_split(table_of(name).select(list(columns)), seed)
    schema = schema_of(name, columns, len(train))
    queries = test.slice(0, QUERIES)
    for epsilon, delta in budgets:
        budget = dps.Budget(epsilon, delta)
        view = released(train, schema, dps.Recipe.general(schema, rows=schema.rows, budget=budget), budget)
        held: dict[str, list[bool]] = {}
        for own in _column_sets(columns, seed):
            numeric = all(schema.column(each).numeric for each in own)
            for kernel in ("euclidean", "gaussian") if numeric else ("euclidean",):
                width = default_bandwidth(len(own))
                exact = _exact(schema, own, _radial(kernel, len(own), width), train, queries)
                model = dps.KernelDensity(
                    dps.Euclidean(width) if kernel == "euclidean" else kernel,
                    None if kernel == "euclidean" else width,
                    own,
                ).fit(view)
                unit = getattr(model, "_integral", 1.0)
                found = model.density(queries.select(list(own)))
                value, stderr = np.asarray(found.value) * unit, np.asarray(found.stderr) * unit
                known = ~np.isnan(value)
                within = (np.abs(value - exact) <= 1.96 * stderr)[known]
                held.setdefault(kernel, []).extend(within.tolist())
                error = float(np.mean(np.abs(value - exact)[known]) / np.mean(exact[known]))
                stated = float(np.mean(stderr[known]) / np.mean(value[known]))
                made = ""
                if kernel == "euclidean":
                    recipe = dps.Recipe.density(schema, rows=schema.rows, budget=budget, columns=own)
                    purpose = dps.KernelDensity(columns=own).fit(released(train, schema, recipe, budget))
                    values = np.asarray(purpose.density(queries.select(list(own))).value)
                    made = f"; --for density {np.mean(np.abs(values - exact)[known]) / np.mean(exact[known]):.3f}"
                say(
                    f"  {name} {budget_text(epsilon, delta)} density, {kernel}, {len(own)} columns: "
                    f"error {error:.3f} ± {stated:.3f}, {np.mean(within):.0%} within{made}"
                )
        for kernel, every in held.items():
            say(f"{name} {budget_text(epsilon, delta)}: {np.mean(every):.1%} of {len(every)} intervals held, {kernel}")


def _radial(name: str, columns: int, width: float) -> Radial:
    return Radial(radial_kernels.EUCLIDEAN if name == "euclidean" else name, 1, (1 / width,) * columns)


def modes(name: str, budgets: tuple[tuple[float, float], ...], seed: int, say: Say) -> None:
    """The records' density at the densest mode of two columns, relative to the highest at a thousand records."""
    columns = tuple(column.name for column in schema_of(name).scalars if column.numeric)[:2]
    table, schema = table_of(name).select(list(columns)), schema_of(name, columns)
    kernel = _radial("euclidean", len(columns), default_bandwidth(len(columns)))
    candidates = table.take(np.random.default_rng([seed, 9]).permutation(len(table))[:1000])
    best = float(_exact(schema, columns, kernel, table, candidates).max())
    for epsilon, delta in budgets:
        budget = dps.Budget(epsilon, delta)
        figures = []
        for title, recipe in {
            "general": dps.Recipe.general(schema, rows=schema.rows, budget=budget),
            "--for density": dps.Recipe.density(schema, rows=schema.rows, budget=budget),
        }.items():
            [mode] = dps.find_modes(released(table, schema, recipe, budget), 1, columns).to_dicts()
            exact = _exact(schema, columns, kernel, table, pa.table({each: [mode[each]] for each in columns}))[0]
            figures.append(
                f"{title} {exact / best:.3f} (stated {mode['density'] / best:.3f} ± {mode['stderr'] / best:.3f})"
            )
        say(f"{name} {budget_text(epsilon, delta)} mode of {', '.join(columns)}: {', '.join(figures)}")


def classes(name: str, budgets: tuple[tuple[float, float], ...], seed: int, say: Say) -> None:
    split = classification(name, seed)
    test = split.test.take(np.random.default_rng([seed, 8]).permutation(len(split.test))[:SCORED])
    known = labels_of(test, split.target)
    for epsilon, delta in budgets:
        budget = dps.Budget(epsilon, delta)
        recipes = {
            "general": dps.Recipe.general(split.schema, rows=split.schema.rows, budget=budget),
            "--for classify": dps.Recipe.classify(
                split.schema, target=split.target, rows=split.schema.rows, budget=budget
            ),
        }
        figures = []
        for title, recipe in recipes.items():
            view = released(split.train, split.schema, recipe, budget)
            figures.append(f"{title} {_scored(dps.DensityClassifier(split.target).fit(view), test, known):.3f}")
            if title == "general" and len(np.unique(known)) == 2:
                logistic = dps.LogisticRegression(split.target).fit(view, uncertainty=False)
                figures.append(f"general, LogisticRegression {_scored(logistic, test, known):.3f}")
        say(f"{name} {budget_text(epsilon, delta)} classes: {', '.join(figures)}")


def _scored(model: Any, test: pa.Table, known: np.ndarray) -> float:
    """AUC of two classes, accuracy of more."""
    if len(model.classes_) != 2:
        return float(np.mean(model.predict(test) == known))
    return float(roc_auc_score(known == model.classes_[1], model.decision_function(test)))


def outliers(name: str, budgets: tuple[tuple[float, float], ...], seed: int, say: Say) -> None:
    task = anomalies(name, seed)
    for epsilon, delta in budgets:
        budget = dps.Budget(epsilon, delta)
        figures = []
        for title, recipe in {
            "general": dps.Recipe.general(task.schema, rows=task.schema.rows, budget=budget),
            "--for anomaly": dps.Recipe.anomaly(task.schema, rows=task.schema.rows, budget=budget),
        }.items():
            model = dps.AnomalyScorer(0.05).fit(released(task.train, task.schema, recipe, budget))
            scores = model.score_samples({each: task.test[each].to_numpy() for each in task.columns})
            flagged = float(np.mean(scores[~task.anomalous] < (model.offset_ or 0.0)))
            auc = roc_auc_score(task.anomalous, -scores)
            figures.append(f"{title} AUC {auc:.3f}, {flagged:.1%} of normal rows below the threshold of 5 %")
        say(f"{name} {budget_text(epsilon, delta)} anomalies: {'; '.join(figures)}")


def mixtures(name: str, budgets: tuple[tuple[float, float], ...], seed: int, say: Say) -> None:
    """Mean log-likelihood of held-out rows, and errors of means over their standard errors: relative to the mixture of
    the records to which expectation maximisation goes on from the released one.
    """
    columns = tuple(column.name for column in schema_of(name).scalars if column.numeric)[:5]
    train, test = random_split(table_of(name).select(list(columns)), seed)
    schema = schema_of(name, columns, len(train))
    some = train.take(np.random.default_rng([seed, 7]).permutation(len(train))[:MOST_FITTED])
    rows = frame_places(Frame.read(schema, columns, some), columns)
    for epsilon, delta in budgets:
        budget = dps.Budget(epsilon, delta)
        for title, recipe in {
            "general": dps.Recipe.general(schema, rows=schema.rows, budget=budget),
            "--for clusters": dps.Recipe.clusters(schema, n_clusters=COMPONENTS, rows=schema.rows, budget=budget),
        }.items():
            model = dps.GaussianMixture(COMPONENTS, "diag").fit(released(train, schema, recipe, budget))
            atoms = model._atoms
            precisions = 1 / np.diagonal(atoms.covariances, axis1=1, axis2=2)
            on = GaussianMixture(
                COMPONENTS,
                covariance_type="diag",
                weights_init=atoms.weights / atoms.weights.sum(),
                means_init=atoms.centres,
                precisions_init=precisions,
                max_iter=300,
                reg_covar=1e-7,
            ).fit(rows)
            errors = (atoms.centres - on.means_) * model._places.widths / model.means_stderr_
            exact = on.score(frame_places(Frame.read(schema, columns, test), columns))
            exact -= float(np.log(model._places.widths).sum())
            say(
                f"{name} {budget_text(epsilon, delta)} mixture, {title}: log-likelihood {model.score(test):.2f}, the "
                f"records' {exact:.2f}; {np.mean(np.abs(errors) <= 1.96):.0%} of means within their intervals"
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.density.one_release")
    parser.add_argument("--tables", nargs="*", default=[*CHOSEN, *JUDGED], choices=[*CHOSEN, *JUDGED])
    parser.add_argument("--parts", nargs="*", default=["densities", "modes", "classes", "outliers", "mixtures"])
    parser.add_argument("--epsilon", type=float, help="of one budget without delta, instead of all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    budgets = BUDGETS if given.epsilon is None else ((given.epsilon, 0.0),)
    warnings.simplefilter("ignore", dps.FitWarning)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    with RESULT.open("a") as file:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        say(f"one release: {date.today()}, seed {given.seed}, {' '.join(given.parts)} of {' '.join(given.tables)}")
        for name in given.tables:
            if "densities" in given.parts:
                densities(name, budgets, given.seed, say)
            if "modes" in given.parts and name != "sf_salaries":
                modes(name, budgets, given.seed, say)
            if "classes" in given.parts and name in CLASSES:
                classes(name, budgets, given.seed, say)
            if "outliers" in given.parts and name in ANOMALIES:
                outliers(name, budgets, given.seed, say)
            if "mixtures" in given.parts and name not in ("sf_salaries",):
                mixtures(name, budgets, given.seed, say)


if __name__ == "__main__":
    main()
