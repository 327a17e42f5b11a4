"""The least ε at which all answers are predicted to be accurate enough: ask for accuracy, get a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10, sqrt

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.view import View
from dpsketch.planning.forecast import Forecast, plan
from dpsketch.planning.prediction import Prediction
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.columns import DAY, SECOND
from dpsketch.schema.schema import Schema

EPSILONS = (0.01, 0.1, 1.0, 10.0)  # tried first; the search is between two of these
_HALVINGS = 4  # of the ratio between two of them, on a logarithmic scale: the result is within 16 %
_DIGITS = 2  # significant digits of the result, rounded up


@dataclass(frozen=True)
class LeastBudget:
    """The least budget that was found and the forecast for it; for the largest that was tried if none is enough."""

    within: float
    budget: Budget | None
    forecast: Forecast

    @property
    def worst(self) -> float:
        """The largest predicted error of an answer, in its units, in days for dates."""
        return max(_error(each) for each in self.forecast.predictions)


def least_budget(
    schema: Schema,
    queries: Sequence[str],
    within: float,
    delta: float = 0.0,
    rows: int | None = None,
    recipe: Recipe | None = None,
    simulations: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    like: View | None = None,
    important: Sequence[Sequence[str]] | None = None,
) -> LeastBudget:
    """Search for the least ε at which the predicted standard error of every answer is at most `within`.

    The other arguments are those of `plan`. Errors are predicted for a few ε first, then between the largest that is
    not enough and the next one, so that a lucky forecast for a small ε does not win. The same seed gives the same
    result. Nothing is read, nothing is spent.
    """
    if isinstance(within, bool) or not isinstance(within, int | float) or not (isfinite(within) and within > 0):
        raise QueryError(f"the wanted accuracy must be a number above 0, got {within!r} instead", "write --within 0.5")
    steps, done = len(EPSILONS) + _HALVINGS + 1, 0

    def forecast(epsilon: float) -> Forecast:
        nonlocal done
        found = plan(schema, queries, [Budget(epsilon, delta)], rows, recipe, simulations, seed, None, like, important)
        done += 1
        if progress is not None:
            progress(min(done / steps, 1.0))
        return found

    high = None
    for epsilon in reversed(EPSILONS):
        found = forecast(epsilon)
        if not _enough(found, within):
            break
        high = (epsilon, found)
    else:
        return LeastBudget(within, Budget(EPSILONS[0], delta), found)
    if high is None:
        return LeastBudget(within, None, found)
    low = epsilon
    for _ in range(_HALVINGS):
        middle = _rounded_up(sqrt(low * high[0]))
        found = forecast(middle)
        if _enough(found, within):
            high = (middle, found)
        else:
            low = middle
    return LeastBudget(within, Budget(high[0], delta), high[1])


def _enough(forecast: Forecast, within: float) -> bool:
    return all(_error(each) <= within for each in forecast.predictions)


def _error(prediction: Prediction) -> float:
    """The predicted error; infinite where the simulated tables have no such rows."""
    if np.isnan(prediction.error):
        return float("inf")
    dates = isinstance(prediction.typical, np.datetime64)
    return prediction.error * SECOND / DAY if dates else prediction.error


def _rounded_up(number: float) -> float:
    places = _DIGITS - 1 - floor(log10(number))
    return round(ceil(number * 10**places - 1e-9) / 10**places, places)
