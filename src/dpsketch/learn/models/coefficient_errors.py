"""Standard errors of coefficients of linear and logistic models that were fitted to a joint distribution.

Coefficients are off because of noise and because the fitted distribution smooths: both change second moments. Where
columns nearly determine each other, small changes of these change coefficients by any amount, and refits, which are
smoothed as the fit is, do not show it. So errors of moments are drawn on both sides of the fit and the model is solved
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.models.design import Design
from dpsketch.learn.models.scaling import Scaling
from dpsketch.learn.points import Frame
from dpsketch.learn.population.missed_moments import Missed, missed_moments
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

if TYPE_CHECKING:
    from dpsketch.learn.view import View

# Factor of what refits change: they start from a smooth distribution.
REFITTED: Annotated[float, Tuned("adult, occupancy, california_housing, kdd", by=BY_HAND)] = 1.3
_DRAWS, _SEED = 64, 29
_ONE_DEVIATION = 0.6827


@dataclass(frozen=True)
class Working:
    """The weighted least squares that a model solves at its coefficients, one step of Newton's method, on some points.

    `score` is the product of `features`, on the model's scale, with the coefficients, `curvature` the derivative of the
    prediction by the score, and `residual` the target less the prediction.
    """

    weights: Floats
    features: Floats
    score: Floats
    curvature: Floats
    residual: Floats

    def moments(self) -> Floats:
        """Second moments of the features and, last, of the response, about their means."""
        held = self.weights * self.curvature
        total = max(float(held.sum()), 1e-300)
        features = self.features - held @ self.features / total
        score = self.score - held @ self.score / total
        left = self.weights * (self.residual - self.weights @ self.residual / self.weights.sum())
        found = np.empty((features.shape[1] + 1,) * 2)
        found[:-1, :-1] = features.T @ (features * held[:, None])
        found[:-1, -1] = found[-1, :-1] = features.T @ (held * score + left)
        # The rest has the variance of a target in deviations, or of a class in terms of its curvature.
        found[-1, -1] = float(held @ score**2 + 2 * score @ left) + 1.0
        return found


@dataclass(frozen=True)
class Line:
    """A vector of coefficients, in the user's units: the target (NaN where missing) and its deviation in terms of
    `unit`, and predictions with their derivatives by the score, from features without missing values.
    """

    coefficients: Floats
    target: Callable[[Frame], Floats]
    predicted: Callable[[Floats], tuple[Floats, Floats]]
    unit: float


def coefficient_errors(view: View, design: Design, target: str, penalty: float, line: Line) -> tuple[Floats, Floats]:
    """Standard errors of the coefficients and of their product with the features' means.

    NaN for a feature that is constant in the fitted distribution: nothing is known of it.
    """
    population = view.population
    points = population.points(0)
    features = design.features(points.frame)
    scaling = Scaling.of(features, points.weights)
    fit, *refits = (_working(design, scaling, line, population.points(each)) for each in range(population.refits + 1))
    known = line.target(points.frame)
    own = Scaling.of(known[:, None], points.weights)
    scaled = {
        name: Scaling.of(part := Design(design.schema, [name]).features(points.frame), points.weights).scaled(part)
        for name in design.columns
    }
    missed = missed_moments(view.released, population, points, scaled | {target: own.scaled(known[:, None])})
    deviation = float(own.deviation[0]) / line.unit
    changes = _changes(fit, refits, penalty, list(missed), deviation) * line.unit / scaling.deviation
    errors = _one_deviation(changes)
    return np.where(np.isfinite(scaling.deviation), errors, np.nan), _one_deviation(changes @ scaling.mean)


def _working(design: Design, scaling: Scaling, line: Line, points: WeightedPoints) -> Working:
    features, known = design.features(points.frame), line.target(points.frame)
    present = ~np.isnan(known)
    weights = np.where(present, points.weights, 0.0) / max(float(points.weights[present].sum()), 1e-300)
    scaled = scaling.scaled(features)
    coefficients = np.where(np.isfinite(scaling.deviation), scaling.deviation, 0.0) * line.coefficients / line.unit
    predicted, slope = line.predicted(scaling.filled(features))
    residual = np.where(present, known - predicted, 0.0) / line.unit
    return Working(weights, scaled, scaled @ coefficients, slope, residual)


def _changes(
    fit: Working, refits: Sequence[Working], penalty: float, missed: Sequence[Missed], deviation: float
) -> Floats:
    """Changes of the coefficients in draws of what may be wrong with the moments: one row a draw. The last feature of
    `missed` is the target, whose deviation is `deviation` in terms of the residual.
    """
    base, generator = fit.moments(), np.random.default_rng(_SEED)
    other = np.array([refit.moments() - base for refit in refits]) * (REFITTED / np.sqrt(len(refits)))
    scale = np.full_like(base, float(fit.weights @ fit.curvature))
    scale[-1] = scale[:, -1] = deviation
    start, found = _solved(base, penalty), []
    for _ in range(_DRAWS):
        change = np.zeros_like(base)
        for each in missed:
            part = generator.normal() * each.moments
            change[np.ix_(each.one, each.two)] += part
            change[np.ix_(each.two, each.one)] += part.T
        moved = base + change * scale + np.tensordot(generator.normal(size=len(other)), other, 1)
        found.append(_solved(moved, penalty) - start)
    return np.array(found)


def _one_deviation(changes: Floats) -> Floats:
    """The size that 68 % of draws stay below: draws have long tails."""
    return np.asarray(np.quantile(np.abs(changes), _ONE_DEVIATION, axis=0))


def _solved(moments: Floats, penalty: float) -> Floats:
    """Coefficients from moments without their negative eigenvalues."""
    values, vectors = np.linalg.eigh((moments + moments.T) / 2)
    possible = (vectors * np.maximum(values, 0.0)) @ vectors.T
    inner = possible[:-1, :-1] + penalty * np.eye(len(possible) - 1)
    return np.asarray(np.linalg.solve(inner, possible[:-1, -1]))
