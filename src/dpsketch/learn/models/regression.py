"""Linear and logistic regression on the joint distribution of a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.models.against_reference import AgainstReference, against_references, references
from dpsketch.learn.models.corrected_coefficients import OF_LABEL, OF_LABEL_ODDS, Line, corrected
from dpsketch.learn.models.design import (
    STANDS_OUT,
    Classes,
    Design,
    accuracy,
    design,
    label_texts,
    labels_array,
    numbers_of,
    r_squared,
)
from dpsketch.learn.models.linear_moments import fit_moments, moments_of
from dpsketch.learn.models.model import Columns, Labels, Model
from dpsketch.learn.models.scaling import Scaling
from dpsketch.learn.points import Frame
from dpsketch.learn.population.weighted_rows import Population, known_columns, spread
from dpsketch.learn.saved import Arrays, Facts, Saved, finite, floats
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.selection import check_arithmetic
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.columns import Column
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_LEAST_PENALTY = 1e-8
# Least default of a logistic model: with less, errors of steep coefficients grow and predictions do not improve.
LEAST_LOGISTIC_PENALTY: Annotated[float, Tuned("adult, kdd, occupancy, htru2, cod_rna", by=BY_HAND, decision=29)] = 3e-3
_MOST_STEPS = 1000
_INTERCEPT_STEPS = 30
_ARRAYS = ("coef", "coef_stderr", "intercept", "intercept_stderr")
_JOINT, _MOMENTS = "joint distribution", "second moments"
Coefficients = tuple[Floats, Floats]


class _Regression(Model):
    """Base of linear and logistic regression.

    `penalty` is λ in mean loss + λ/2 · ‖coefficients of standardised features‖². The default is the standard deviation
    of the noise in a cell of the pair tables, as a share of the rows; for logistic regression at least 0.003.
    """

    coef_: Floats
    intercept_: Floats
    _column: Column
    _least_penalty = _LEAST_PENALTY
    _covariance: Floats | None = None  # of intercept and coefficients, one matrix for each vector

    def __init__(self, target: str, columns: Sequence[str] | None = None, penalty: float | None = None) -> None:
        self.target, self.columns, self.penalty = target, columns, penalty

    def _check(self, view: View) -> None:
        self._check_view(view)
        if self.penalty is not None and not 0 <= self.penalty < np.inf:
            raise QueryError(f"penalty must be a number of at least 0, got {self.penalty!r} instead", "leave it out")

    def _start(self, view: View) -> tuple[Column, Population, Design, float]:
        """Check everything that can be checked before fitting."""
        self._check(view)
        column = find_column(view.schema, self.target)
        self.statement_ = view.statement
        population = view.population
        known_columns(population, [self.target])
        found = design(view.schema, population, self.target, self.columns)
        penalty = max(population.noise, self._least_penalty) if self.penalty is None else self.penalty
        return column, population, found, max(penalty, _LEAST_PENALTY)

    def _finish(self, found: Design, means: Floats, fit: Coefficients) -> None:
        self._design, self._means, self._covariance = found, means, None
        self.coef_, self.intercept_ = fit
        self.coef_stderr_ = np.full_like(self.coef_, np.nan)
        self.intercept_stderr_ = np.full_like(self.intercept_, np.nan)
        self._set_features(found.schema, found.columns, found.names)

    def _correct(self, population: Population, penalty: float, lines: Sequence[Line]) -> None:
        """Correct a model that was fitted to the joint distribution by what its pair tables hold beyond it."""
        found = corrected(population, self._design, penalty, lines)
        before, shape = self.coef_, np.shape(self.intercept_)
        self.coef_ = np.reshape([each.coefficients for each in found], before.shape)
        self._covariance = np.array([each.covariance for each in found])
        stderr = np.sqrt(np.diagonal(self._covariance, axis1=1, axis2=2))
        self.coef_stderr_ = np.reshape(stderr[:, 1:], before.shape)
        self.intercept_ = self.intercept_ + np.reshape((before - self.coef_) @ self._means, shape)
        self.intercept_stderr_ = np.reshape(stderr[:, 0], shape)

    @property
    def coefficients(self) -> Answer:
        """Coefficients in the order of `feature_names_in_`, for several classes one vector after the other, with
        `interval(level)`. Not known where the release shows no more than one value of a feature.
        """
        self._check_fitted()
        value, stderr = np.ravel(self.coef_), np.ravel(self.coef_stderr_)
        known = np.isfinite(stderr)
        names = tuple(map(str, self.feature_names_in_)) * (len(value) // len(self.feature_names_in_))
        reason = "" if known.all() else "as far as the release shows, all records have one value of the feature"
        if not known.any():
            reason = "the model was fitted without standard errors"
        shown = np.where(known, value, np.nan)
        return Answer(shown, stderr, "coefficients", names, raw=value, reason=reason, laplace=self._roughly_known)

    def against(self, reference: Mapping[str, object] | None = None) -> AgainstReference:
        """Coefficients of labels minus that of a reference label: `reference` maps columns to theirs; of other columns
        it is the most common label. Errors follow from the covariance of both, which saved models do not keep.
        """
        self._check_fitted()
        count = np.size(self.intercept_)
        lines, levels = np.reshape(self.coef_, (count, -1)), np.reshape(self.intercept_, (count, 1))
        covariance = self._covariance
        if covariance is None:
            errors = np.column_stack([np.ravel(self.intercept_stderr_), np.reshape(self.coef_stderr_, (count, -1))])
            covariance = np.array([np.diag(each**2) for each in errors])
            if references(self._design, self._means):
                covariance = np.full_like(covariance, np.nan)
        values = np.hstack([levels, lines])
        return against_references(self._design, self._means, values, covariance, reference or {}, self._roughly_known)

    @property
    def _roughly_known(self) -> bool:
        """Whether the size of errors is itself an estimate."""
        return True

    def _scores(self, X: Any) -> Floats:
        frame = self._frame(X)
        features = self._design.features(frame)
        return np.where(np.isnan(features), self._means, features) @ self.coef_.T + self.intercept_

    def to_saved(self) -> Saved:
        self._check_fitted()
        facts = {
            "target": self.target,
            "schema": self._design.schema.to_dict(),
            "columns": list(self._design.columns),
            "named": self.columns is not None,
            "penalty": None if self.penalty is None else float(self.penalty),
        }
        arrays: Arrays = {name: np.asarray(getattr(self, f"{name}_"), np.float64) for name in _ARRAYS}
        return facts, arrays | {"means": self._means}

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> Self:
        schema, columns, penalty = Schema.from_dict(facts["schema"]), facts["columns"], facts["penalty"]
        model = cls(facts["target"], tuple(columns) if facts["named"] else None, penalty)
        model._column, model._design = find_column(schema, model.target), Design(schema, columns)
        lines, width = model._restored_lines(facts), len(model._design.names)
        model._means = finite(arrays, "means", width)
        model.coef_ = finite(arrays, "coef", *lines, width)
        model.coef_stderr_ = floats(arrays, "coef_stderr", *lines, width)
        model.intercept_ = finite(arrays, "intercept", *lines)[()]
        model.intercept_stderr_ = floats(arrays, "intercept_stderr", *lines)[()]
        model._set_features(schema, columns, model._design.names)
        return model

    def _restored_lines(self, facts: Facts) -> tuple[int, ...]:
        """Number of coefficient vectors, if not just one."""
        return ()


class LinearRegression(_Regression):
    """Ridge regression of a numeric column on others, with scikit-learn's interface, fitted to a release: `fit(view)`.

    `coef_` and `intercept_` are in the user's units (of the logarithm or asinh where the schema transforms a column;
    dates in days). Coefficients of the joint distribution are corrected by what its pair tables hold beyond it. This,
    `coef_stderr_` and `intercept_stderr_` need refits to new noise (docs/models.md), which take most of the time:
    `fit(view, uncertainty=False)` omits all of it. The loss is half the mean squared error.

    A release with second moments of the target (`Recipe.linear`) is fitted from these, any other from its joint
    distribution. Second moments are of the logarithm or asinh of a transformed target: so are the coefficients then,
    and `predict` transforms its values back. `how_` names the method.
    """

    _estimator_type = "regressor"

    def fit(self, view: View, uncertainty: bool = True) -> LinearRegression:
        self._check(view)
        column = find_column(view.schema, self.target)
        if isinstance(self.columns, str):
            raise QueryError("columns must be a list of names", f"write columns=['{self.columns}']")
        chosen = moments_of(view, self.target, self.columns)
        if chosen is not None:
            return self._fit_moments(view, column, chosen, uncertainty)
        column, population, found, penalty = self._start(view)
        check_arithmetic(column, "regression")
        _check_present(column, population)
        if not view.std(self.target).known:
            raise QueryError(
                f"noise hides how far the values of column '{column.name}' differ",
                "choose another target, or release with a larger epsilon",
            )
        means = Scaling.of(found.features(population.points(0).frame), population.points(0).weights).mean
        self._column, self.how_ = column, _JOINT
        self._finish(found, means, _least_squares(column, found, population.points(0), penalty))
        if uncertainty and population.refits:
            self._correct(population, penalty, [self._line(population.points(0))])
        return self

    def _line(self, points: WeightedPoints) -> Line:
        target = numbers_of(self._column, points.frame)
        deviation = float(Scaling.of(target[:, None], points.weights).deviation[0])
        return Line(
            self.coef_,
            self.target,
            lambda frame: numbers_of(self._column, frame),
            lambda features: (features @ self.coef_ + self.intercept_, np.ones(len(features))),
            deviation if np.isfinite(deviation) else 1.0,
            OF_LABEL,
        )

    def _fit_moments(self, view: View, column: Column, chosen: tuple[str, ...], uncertainty: bool) -> LinearRegression:
        check_arithmetic(column, "regression")
        fit = fit_moments(view, self.target, chosen, self.penalty, uncertainty)
        self._column, self.how_ = column, _MOMENTS
        self.statement_ = view.statement
        self._finish(fit.design, fit.means, (fit.coefficients, fit.intercept))
        self.coef_stderr_, self.intercept_stderr_ = fit.coefficients_stderr, fit.intercept_stderr
        return self

    @property
    def _roughly_known(self) -> bool:
        return self.how_ == _JOINT

    def to_saved(self) -> Saved:
        facts, arrays = super().to_saved()
        return facts | {"how": self.how_}, arrays

    def _restored_lines(self, facts: Facts) -> tuple[int, ...]:
        if facts["how"] not in (_JOINT, _MOMENTS):
            raise ValueError("how")
        self.how_ = facts["how"]
        return ()

    def predict(self, X: Any) -> Floats:
        """Expected values for the rows of a mapping or table of columns in the user's units."""
        scores = self._scores(X)
        return self._column.unscaled(scores) if self.how_ == _MOMENTS else scores

    def score(self, X: Any, y: Any) -> float:
        """R² of the predictions on known values."""
        return r_squared(self._schema, self.target, self.predict(X), y)

    def scores(self, X: Any) -> Columns:
        return {"prediction": self.predict(X)}


class LogisticRegression(_Regression):
    """Logistic regression of a category, boolean or two-valued integer on other columns: `fit(view)`.

    `classes_` are the values with significant shares. With two of them `coef_` has one row, otherwise one per class.
    Units and standard errors are as in `LinearRegression`.
    """

    _estimator_type = "classifier"
    _least_penalty = LEAST_LOGISTIC_PENALTY

    def fit(self, view: View, uncertainty: bool = True) -> LogisticRegression:
        column, population, found, penalty = self._start(view)
        classes = Classes(column, population)
        means = Scaling.of(found.features(population.points(0).frame), population.points(0).weights).mean
        self.classes_ = classes.labels
        self._finish(found, means, _logistic(classes, found, population.points(0), penalty))
        if uncertainty and population.refits:
            self._correct(population, penalty, [self._line(classes, each) for each in range(len(self.coef_))])
            self._set_intercepts(classes, population.points(0))
        return self

    def _set_intercepts(self, classes: Classes, points: WeightedPoints) -> None:
        """Intercepts with which classes are predicted as often as the points have them."""
        target = classes.of(points.frame)
        known, count = target >= 0, len(classes.labels)
        weights = points.weights[known] / points.weights[known].sum()
        shares = np.bincount(target[known], weights, count)
        features = self._design.features(points.frame)[known]
        scores = np.where(np.isnan(features), self._means, features) @ self.coef_.T
        for _ in range(_INTERCEPT_STEPS):
            ratio = np.log(shares / (weights @ self._shares(scores + self.intercept_)))
            self.intercept_ = self.intercept_ + (ratio[1:] - ratio[0] if count == 2 else ratio)

    def _line(self, classes: Classes, number: int) -> Line:
        """One of the coefficient vectors; that of two classes is of the second one."""
        count = len(classes.labels)
        own = number if count > 2 else 1
        # Of several classes every vector moves: along such changes the curvature is larger, by this for equal shares.
        together = count / (count - 1) if count > 2 else 1.0

        def target(frame: Frame) -> Floats:
            found = classes.of(frame)
            return np.where(found < 0, np.nan, found == own)

        def predicted(features: Floats) -> tuple[Floats, Floats]:
            share = self._shares(features @ self.coef_.T + self.intercept_)[:, own]
            return share, together * share * (1 - share)

        return Line(self.coef_[number], self.target, target, predicted, 1.0, OF_LABEL_ODDS)

    def to_saved(self) -> Saved:
        facts, arrays = super().to_saved()
        return facts | {"classes": self.classes_.tolist()}, arrays

    def _restored_lines(self, facts: Facts) -> tuple[int, ...]:
        classes = facts["classes"]
        if len(classes) < 2 or not all(isinstance(label, str | int) for label in classes):
            raise ValueError("classes")
        self.classes_ = labels_array(classes)
        return (1 if len(classes) == 2 else len(classes),)

    def decision_function(self, X: Any) -> Floats:
        """Log odds of the second of two classes, or one column per class."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes, one column each."""
        return self._shares(self._scores(X))

    def _shares(self, scores: Floats) -> Floats:
        if len(self.classes_) == 2:
            scores = np.hstack([np.zeros_like(scores), scores])
        raised = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(raised / raised.sum(1, keepdims=True))

    def predict(self, X: Any) -> Labels:
        """The most probable classes."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(1)]

    def score(self, X: Any, y: Any) -> float:
        """Fraction of the known classes that are predicted. Rows without one do not count."""
        return accuracy(self._schema, self.target, self.predict(X), y)

    def scores(self, X: Any) -> Columns:
        shares = self.predict_proba(X)
        each = {f"probability_{label}": share for label, share in zip(self.classes_, shares.T, strict=True)}
        return {"prediction": label_texts(self.classes_[shares.argmax(1)])} | each


def _check_present(column: Column, population: Population) -> None:
    points = [population.points(model) for model in range(population.refits + 1)]
    shares = [np.array(each.weights @ ~np.isnan(each.frame.values(column.name)), np.float64) for each in points]
    error = float(spread(shares[0], shares[1:])) if population.refits else population.noise
    if not shares[0] > STANDS_OUT * error:
        raise QueryError(
            f"column '{column.name}' has no values with a significant share: as far as the release shows, all are "
            "missing",
            "choose another target, or release with a larger epsilon",
        )


def _least_squares(column: Column, found: Design, points: WeightedPoints, penalty: float) -> Coefficients:
    target = numbers_of(column, points.frame)
    known = ~np.isnan(target)
    weights = points.weights[known] / points.weights[known].sum()
    features = found.features(points.frame)[known]
    scaling = Scaling.of(features, weights)
    scaled, centre = scaling.scaled(features), weights @ target[known]
    moments = scaled.T @ (scaled * weights[:, None]) + penalty * np.eye(scaled.shape[1])
    return scaling.in_units(np.linalg.solve(moments, scaled.T @ (weights * (target[known] - centre))), centre)


def _logistic(classes: Classes, found: Design, points: WeightedPoints, penalty: float) -> Coefficients:
    from sklearn.linear_model import LogisticRegression as Solver

    target = classes.of(points.frame)
    known = target >= 0
    weights = points.weights[known] / points.weights[known].sum()
    features = found.features(points.frame)[known]
    scaling = Scaling.of(features, weights)
    solver = Solver(C=1 / (penalty * known.sum()), max_iter=_MOST_STEPS)
    solver.fit(scaling.scaled(features), target[known], weights * known.sum())
    return scaling.in_units(solver.coef_, solver.intercept_)
