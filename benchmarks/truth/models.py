"""Models of a table's target fitted to a release, beside the same models fitted to the rows that were released."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge

import dpsketch as dps
from benchmarks.truth.tables import Table
from dpsketch.errors import QueryError
from dpsketch.learn.models.design import Design
from dpsketch.learn.models.regression import LEAST_LOGISTIC_PENALTY
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Boolean, Category, Integer

LEAST_PENALTY = 1e-8  # that of the product's linear models, where a release has no noise
MOST_STEPS = 1000


@dataclass(frozen=True)
class FittedModel:
    """Coefficients as the product answers them, their truths, and scales that turn errors into deviations: of the
    target (1 for log odds) for each deviation of the feature.
    """

    kind: str
    names: tuple[str, ...]
    answer: dps.Answer
    truths: Floats
    scales: Floats


def models(table: Table, view: dps.View) -> Iterator[FittedModel]:
    """A model of all columns, if the table has a target and the release shows two of its classes."""
    if table.target is None:
        return
    column = table.schema.column(table.target)
    classes = isinstance(column, Category | Boolean) or (isinstance(column, Integer) and column.levels == 2)
    model = (dps.LogisticRegression if classes else dps.LinearRegression)(table.target)
    try:
        model.fit(view)
    except QueryError:  # the noise hides the classes
        return
    names = [each.name for each in table.schema.columns if each.name != table.target]
    features = Design(table.schema, names).features_of(table.train[names])
    means, deviations = np.nanmean(features, axis=0), np.nanstd(features, axis=0)
    scaled = (np.where(np.isnan(features), means, features) - means) / np.where(deviations > 0, deviations, np.inf)
    penalty = max(view.population.noise, LEAST_LOGISTIC_PENALTY if classes else LEAST_PENALTY)
    target, unit = table.train[table.target], 1.0
    if isinstance(model, dps.LogisticRegression):
        cells, shown = target.astype(str), [str(each) for each in model.classes_]
        if cells[cells.isin(shown)].nunique() < 2:  # few rows: noise invents a class
            return
        found = logistic(scaled, cells.to_numpy(), shown, penalty)
    else:
        numbers = target.to_numpy(float)
        found, unit = linear(scaled, numbers, penalty), float(np.nanstd(numbers))
    lines = found.size // len(deviations)
    spread = np.tile(np.where(deviations > 0, deviations, np.inf), lines)
    labels = tuple(f"{name}, line {line}" for line in range(lines) for name in model.feature_names_in_)
    scales = unit / np.where(np.isfinite(spread), spread, 1.0)
    kind = "logistic model" if classes else "linear model"
    yield FittedModel(kind, labels, model.coefficients, np.ravel(found) / spread, scales)


def linear(scaled: Floats, target: Floats, penalty: float) -> Floats:
    """Half the mean squared error and penalty / 2 times the squared coefficients of scaled features are least."""
    known = ~np.isnan(target)
    solver = Ridge(alpha=penalty * known.sum()).fit(scaled[known], target[known])
    return np.asarray(solver.coef_, np.float64)


def logistic(scaled: Floats, target: NDArray[np.str_], classes: list[str], penalty: float) -> Floats:
    known = np.isin(target, classes)
    places = np.searchsorted(np.array(classes)[np.argsort(classes)], target[known])
    numbers = np.argsort(classes)[places]
    solver = LogisticRegression(C=1 / (penalty * known.sum()), max_iter=MOST_STEPS).fit(scaled[known], numbers)
    return np.asarray(solver.coef_, np.float64)
