"""Any scikit-learn estimator, trained on the rows of a release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.models.design import Classes, Design, design, numbers_of
from dpsketch.learn.models.scaling import Scaling
from dpsketch.learn.population.weighted_rows import Population, known_columns, spread
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.selection import check_numeric
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Column

if TYPE_CHECKING:
    from dpsketch.learn.view import View

MOST_ROWS = 10**7


class FittedModel:
    """A fitted scikit-learn estimator, `estimator_`, that takes tables of columns in the user's units.

    `coef_stderr_` has the standard errors of `estimator_.coef_` over refits to new noise; None if it has none.
    """

    def __init__(self, estimator: Any, found: Design, means: Floats, coef_stderr: Floats | None) -> None:
        self.estimator_ = estimator
        self.feature_names_in_ = np.array(found.names, object)
        self.coef_stderr_ = coef_stderr
        self._design, self._means = found, means

    def features(self, X: Any) -> Floats:
        """The estimator's input for a table: `feature_names_in_`, without missing values."""
        features = self._design.features_of(X)
        return np.where(np.isnan(features), self._means, features)

    def predict(self, X: Any) -> Any:
        return self.estimator_.predict(self.features(X))

    def predict_proba(self, X: Any) -> Any:
        return self.estimator_.predict_proba(self.features(X))

    def decision_function(self, X: Any) -> Any:
        return self.estimator_.decision_function(self.features(X))

    def transform(self, X: Any) -> Any:
        return self.estimator_.transform(self.features(X))

    def score(self, X: Any, y: Any) -> float:
        return float(self.estimator_.score(self.features(X), y))


def fit_sklearn(
    view: View,
    estimator: Any,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    rows: int = 50_000,
    uncertainty: bool = True,
) -> FittedModel:
    """Train a copy of `estimator` on about `rows` synthetic rows; without a target if it needs none.

    Features are in the user's units: put a scaler before estimators that need one, as in scikit-learn. `coef_stderr_`
    trains the estimator again for every refit; `uncertainty=False` omits this.
    """
    from sklearn.base import is_classifier

    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        raise QueryError(f"{estimator!r} is not a scikit-learn estimator", "pass an instance, such as Ridge()")
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= MOST_ROWS:
        raise QueryError(f"rows must be a whole number from 1 to {MOST_ROWS}, got {rows!r} instead")
    population = view.population
    column = None if target is None else find_column(view.schema, target)
    if target is not None:
        known_columns(population, [target])
    found = design(view.schema, population, target, columns)
    classes = None
    if column is not None and is_classifier(estimator):
        classes = Classes(column, population)
    elif column is not None:
        check_numeric(column)
    points = population.points(0, rows)
    scaling = Scaling.of(found.features(points.frame), points.weights)
    fitted = _trained(estimator, found, scaling, points, column, classes)
    stderr = None
    if uncertainty and hasattr(fitted, "coef_"):
        refits = _refits(estimator, found, scaling, population, rows, column, classes)
        same = [coef for coef in refits if coef.shape == np.shape(fitted.coef_)]
        stderr = spread(np.asarray(fitted.coef_), same)
    return FittedModel(fitted, found, scaling.mean, stderr)


def _refits(
    estimator: Any,
    found: Design,
    scaling: Scaling,
    population: Population,
    rows: int,
    column: Column | None,
    classes: Classes | None,
) -> list[Floats]:
    """Coefficients from refits. A refit may lack a class that is lost in the noise."""
    return [
        np.asarray(_trained(estimator, found, scaling, population.points(model, rows), column, classes).coef_)
        for model in range(1, population.refits + 1)
    ]


def _trained(
    estimator: Any,
    found: Design,
    scaling: Scaling,
    points: WeightedPoints,
    column: Column | None,
    classes: Classes | None,
) -> Any:
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    features, weights = scaling.filled(found.features(points.frame)), points.weights
    chosen = clone(estimator)
    arguments: list[Any] = [features]
    if column is not None:
        place = None if classes is None else classes.of(points.frame)
        target = numbers_of(column, points.frame)
        known = ~np.isnan(target) if place is None else place >= 0
        arguments = [features[known], (target if place is None or classes is None else classes.labels[place])[known]]
        weights = weights[known]
    if np.ptp(weights) <= 1e-12 * weights.max():
        return chosen.fit(*arguments)
    if not has_fit_parameter(chosen, "sample_weight"):
        raise QueryError(
            f"{type(chosen).__name__} takes no weights, and this release's rows have some",
            "choose an estimator whose fit has sample_weight",
        )
    return chosen.fit(*arguments, sample_weight=weights * len(weights) / weights.sum())
