"""Minimise a loss made of kernel sums of a release, without derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.models.smoothed_descent import Loss, descended
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned

if TYPE_CHECKING:
    from dpsketch.learn.view import View

MOST_PARAMETERS = 1000
_CANDIDATES: Annotated[int, UNRECORDED] = 500  # of which the best are starts
# Widths of the smoothing in half-widths of the bounds, one descent each.
_SMOOTHING: Annotated[tuple[float, ...], Tuned("simulated peaks", by=BY_HAND, decision=47)] = (0.2, 0.05)


class KernelSum(Protocol):
    """Kernel sums at points, as plain numbers; the arguments are those of `View.kernel_sum`."""

    def __call__(self, points: Any, *, part: int | None = None, group: Any = None) -> Floats: ...


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best parameters, their loss, and the mean loss around them, which depends less on single counters."""

    parameters: Floats
    loss: float
    loss_around: float


def minimise(
    view: View,
    loss: Callable[[KernelSum, Floats], Any],
    bounds: Sequence[tuple[float, float]],
    starts: int = 4,
    random_state: int = 0,
) -> Minimum:
    """Parameters between `bounds` that minimise a loss made of kernel sums of a release.

    `loss(kernel_sum, parameters)` gets a matrix with one candidate per row and returns one number for each. It calls
    `kernel_sum(points, part=…, group=…)` at points that follow from the candidates; `points` may hold several for each.

    Counters are discontinuous, so the search descends on the loss smoothed over random points around: from the best of
    some random candidates, first widely smoothed, then narrowly. It finds a local minimum, whose loss is biased
    downwards: the smallest of many noisy numbers. Nothing is spent. Source: race §4 (empirical risk minimisation).
    """
    low, high = _checked(bounds)
    if isinstance(starts, bool) or not isinstance(starts, int) or not 1 <= starts <= _CANDIDATES:
        raise QueryError(f"starts must be a whole number from 1 to {_CANDIDATES}, got {starts!r} instead")
    middle, half = (low + high) / 2, (high - low) / 2

    def kernel_sum(points: Any, *, part: int | None = None, group: Any = None) -> Floats:
        return np.asarray(view.kernel_sum(points, part=part, group=group).value)

    def scaled(places: Floats) -> Floats:
        values = np.asarray(loss(kernel_sum, middle + half * places), np.float64)
        if values.shape != (len(places),) or not np.isfinite(values).all():
            raise QueryError(
                "the loss must return one finite number for each row of parameters",
                "compute it from kernel_sum(points) and parameters[:, j]",
            )
        return values

    return _least(scaled, middle, half, starts, np.random.default_rng(random_state))


def _least(loss: Loss, middle: Floats, half: Floats, starts: int, random: np.random.Generator) -> Minimum:
    """The best of the descents, compared by their smoothed losses."""
    inside = lambda places: np.clip(places, -1.0, 1.0)  # noqa: E731
    candidates = np.concatenate([np.zeros((1, len(middle))), random.uniform(-1, 1, (_CANDIDATES, len(middle)))])
    first = candidates[np.argsort(loss(candidates), kind="stable")[:starts]]
    ends = []
    for place in first:
        for radius in _SMOOTHING:
            place, around = descended(loss, place, inside, radius, random)
        ends.append((around, place))
    around, place = min(ends, key=lambda end: end[0])
    return Minimum(middle + half * place, float(loss(place[None])[0]), around)


def _checked(bounds: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    try:
        table = np.asarray(bounds, np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.ndim != 2 or table.shape[1] != 2 or not 1 <= len(table) <= MOST_PARAMETERS:
        raise QueryError(f"bounds must be a list of 1 to {MOST_PARAMETERS} pairs of numbers", "write [(0, 1), (-5, 5)]")
    if not np.isfinite(table).all() or (table[:, 0] >= table[:, 1]).any():
        raise QueryError("each bound must be a finite number below the next", "write [(lower, upper), …]")
    return table[:, 0], table[:, 1]
