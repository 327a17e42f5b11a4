"""Minimise any loss over the joint distribution of a release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.population.weighted_rows import known_columns, spread
from dpsketch.numerics.arrays import Floats

if TYPE_CHECKING:
    from dpsketch.learn.view import View

Rows = dict[str, NDArray[Any]]
PerRow = Callable[[Floats, Rows], Any]
_NO_DESCENT = 2  # of BFGS: no step along the slope makes the loss smaller


@dataclass(frozen=True)
class LossFit:
    """The minimiser `x`, its standard error over refits to new noise, the mean loss there, and the solver's message."""

    x: Floats
    stderr: Floats
    fun: float
    success: bool
    message: str


def fit_loss(
    view: View, loss: PerRow, theta0: Any, columns: Sequence[str] | None = None, gradient: PerRow | None = None
) -> LossFit:
    """Minimise the mean of `loss(theta, rows)`, an array of one number per row.

    `rows` is a dict of arrays in the user's units: numbers, integers and booleans as float64 with NaN where missing,
    categories as text with None, dates as datetime64. `gradient(theta, rows)` has one matrix row per row and one column
    per parameter; without it, derivatives are approximated by differences.
    """
    start = np.array(theta0, np.float64, ndmin=1)
    if start.ndim != 1 or not start.size or not np.isfinite(start).all():
        raise QueryError("theta0 must be a list of finite numbers", "give one starting value per parameter")
    population = view.population
    names = known_columns(population, population.columns if columns is None else columns)
    fit = _minimised(loss, gradient, start, rows_of(names, population.points(0)), population.points(0))
    refits = []
    for model in range(1, population.refits + 1):
        points = population.points(model)
        refits.append(_minimised(loss, gradient, fit.x, rows_of(names, points), points).x)
    found = np.asarray(fit.x, np.float64)
    return LossFit(found, spread(found, refits), float(fit.fun), bool(fit.success), str(fit.message))


def rows_of(names: Sequence[str], points: WeightedPoints) -> Rows:
    """Columns of points as users see them."""
    return {name: points.frame.cells(name) for name in names}


def _minimised(loss: PerRow, gradient: PerRow | None, start: Floats, rows: Rows, points: WeightedPoints) -> Any:
    from scipy.optimize import minimize

    count = len(points.weights)

    def mean(theta: Floats) -> float:
        each = _called("loss", loss, theta, rows, (count,))
        found = float(points.weights @ each)
        return found if np.isfinite(found) else np.inf

    def slope(theta: Floats) -> Floats:
        assert gradient is not None
        return points.weights @ _called("gradient", gradient, theta, rows, (count, len(start)))

    if not np.isfinite(mean(start)):
        raise QueryError(
            "the loss is not finite where the search starts",
            "start from other values of theta0, and handle missing values in the loss: np.nan_to_num, or a weight of 0",
        )
    with np.errstate(all="ignore"):
        found = minimize(mean, start, method="BFGS", jac="3-point" if gradient is None else slope)
        if found.status == _NO_DESCENT:  # at a kink, such as that of an absolute value, the gradient does not vanish
            found = minimize(mean, found.x, method="Nelder-Mead")
        return found


def _called(name: str, function: PerRow, theta: Floats, rows: Rows, shape: tuple[int, ...]) -> Floats:
    try:
        found = np.asarray(function(theta, dict(rows)), np.float64)
    except Exception as error:  # the user's own code may raise anything
        raise QueryError(
            f"the {name} raised {type(error).__name__}: {error}", f"try it by itself: {name}(theta0, rows)"
        ) from error
    if found.shape != shape:
        raise QueryError(
            f"the {name} must return an array of shape {shape}, got {found.shape} instead",
            "return one number per row and leave the mean to fit_loss" if len(shape) == 1 else "return one row per row",
        )
    return found
