"""Shares of cells whose logarithms are smooth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

RIDGE: Annotated[float, Tuned("lifesci, htru2", by=BY_HAND, decision=10)] = 1e-5  # more leaves mass in empty tails
# Standard deviation of the change of a log density across a counted cell, where its parts are not counted themselves.
ACROSS: Annotated[
    float, Tuned("adult, california_housing, fare, payroll, htru2 and airfoil", by=BY_HAND, decision=39)
] = 1.0
SHORTEST = 1e-6  # distance of parts, in widths of their cell
NEWTON_STEPS = 30
GAIN = 1e-2  # in χ²/2, below which Newton steps stop


@dataclass(frozen=True)
class SquaredErrors:
    """½·pᵀHp − fᵀp for shares p, with H = `near` + `far`ᵀ·`far` and f = `linear`: `near` has entries near its diagonal
    alone, and `far` few rows. What cells or their neighbours must explain is near, what many cells must explain
    together is far.
    """

    near: Floats
    far: Floats
    linear: Floats

    @property
    def hessian(self) -> Floats:
        return np.asarray(self.near + self.far.T @ self.far)

    def only(self, cells: NDArray[np.bool_]) -> SquaredErrors:
        """For some cells, where others hold nothing."""
        return SquaredErrors(self.near[np.ix_(cells, cells)], self.far[:, cells], self.linear[cells])


def changes_inside(parent: NDArray[np.int64], places: Floats, smooth: NDArray[np.bool_]) -> Floats:
    """The quadratic form of changes of the log density between parts of one counted cell, `parent`, at these places in
    widths of it.

    It changes as a random walk does, by about ACROSS from end to end: parts that lie close together, as those beside a
    bound, have nearly the same density. Second differences alone let it grow by the same factor from part to part,
    however narrow they are.
    """
    found = np.zeros((len(parent), len(parent)))
    one = np.flatnonzero((parent[1:] == parent[:-1]) & smooth[1:] & smooth[:-1])
    strength = 1 / (ACROSS**2 * np.maximum(places[one + 1] - places[one], SHORTEST))
    for first, second, sign in ((one, one, 1), (one + 1, one + 1, 1), (one, one + 1, -1), (one + 1, one, -1)):
        np.add.at(found, (first, second), sign * strength)
    return found


def smooth_minimum(errors: SquaredErrors, penalty: Floats, theta: Floats, even: Floats) -> Floats:
    """Log shares θ, exp(θ) of sum one, that minimise `errors` of exp(θ) plus ½·(θ−e)ᵀQ(θ−e), where Q is `penalty` and
    e, `even`, are those of an even density: Levenberg–Marquardt. Steps are solved in bands.
    """
    width = max(_bandwidth(errors.near), _bandwidth(penalty))
    near, rough = _bands(errors.near, width), _bands(penalty, width)
    rough[0] += RIDGE
    damping = 1e-3

    def of_roughness(away: Floats) -> Floats:
        return _times(rough, away) - RIDGE * away.mean()

    def cost(theta: Floats) -> float:
        shares, away = np.exp(theta), theta - even
        squares = shares @ _times(near, shares) + ((errors.far @ shares) ** 2).sum()
        return float(0.5 * squares - errors.linear @ shares + 0.5 * away @ of_roughness(away))

    now = cost(theta)
    for _ in range(NEWTON_STEPS):
        shares = np.exp(theta)
        pull = _times(near, shares) + errors.far.T @ (errors.far @ shares)
        slope = pull - errors.linear
        gradient = shares * (slope - shares @ slope) + of_roughness(theta - even)
        banded, others, middle = _curvature(near, errors.far, rough, shares, pull)
        diagonal = banded[0] + (others * (middle @ others)).sum(0)
        while damping < 1e8:
            damped = banded.copy()
            damped[0] += damping * (diagonal + 1e-3)
            moved = theta + np.clip(_solved(damped, others, middle, -gradient), -3.0, 3.0)
            moved = moved - np.logaddexp.reduce(moved)
            then = cost(moved)
            if then <= now:
                break
            damping = max(4 * damping, 1e-4)
        else:
            break
        theta, gained, now = moved, now - then, then
        damping = max(0.3 * damping, 1e-8)
        if gained < GAIN:
            break
    return theta


def freedom(errors: SquaredErrors, penalty: Floats, shares: Floats, seen: Floats) -> float:
    """How many of the values that were fitted the fit follows: the trace of the derivative of what it says of
    `seen` · shares by their noisy values. `seen` are slopes in units of their errors, some of those in `errors`.

    Source: Ye, JASA 93 (1998) 120 (generalised degrees of freedom).
    """
    width = max(_bandwidth(errors.near), _bandwidth(penalty))
    near, rough = _bands(errors.near, width), _bands(penalty, width)
    rough[0] += RIDGE
    pull = _times(near, shares) + errors.far.T @ (errors.far @ shares)
    moved = shares * (seen - (seen @ shares)[:, None])
    reached = _solved(*_curvature(near, errors.far, rough, shares, pull), moved.T)
    return float((moved.T * reached).sum())


def _curvature(near: Floats, far: Floats, rough: Floats, shares: Floats, pull: Floats) -> tuple[Floats, Floats, Floats]:
    """B, O and M, with T·H·T + Q = B + OᵀMO for the change T = diag(p) − ppᵀ of shares p by θ, and `pull` = H·p; adding
    a constant to θ changes nothing.
    """
    banded = rough + near * shares * _shifted(shares, len(rough) - 1)
    others = np.vstack([far * shares, shares, shares * pull, np.ones(len(shares))])
    middle = np.eye(len(others))
    middle[-3:, -3:] = np.diag([shares @ pull, 0.0, (1 - RIDGE) / len(shares)])
    middle[-3, -2] = middle[-2, -3] = -1.0
    return banded, others, middle


def _solved(banded: Floats, others: Floats, middle: Floats, aims: Floats) -> Floats:
    """The solution of (B + OᵀMO)x = a for a matrix B in bands, by the Woodbury identity, for one or several a."""
    from scipy.linalg import solveh_banded

    found = solveh_banded(banded, np.column_stack([others.T, aims]), lower=True, check_finite=False)
    spread, alone = found[:, : len(others)], found[:, len(others) :].reshape(aims.shape)
    inner = np.eye(len(middle)) + middle @ (others @ spread)
    return np.asarray(alone - spread @ np.linalg.solve(inner, middle @ (others @ alone)))


def _bandwidth(matrix: Floats) -> int:
    """The number of diagonals beside the main one that a symmetric matrix has."""
    rows, first = np.arange(len(matrix)), (matrix != 0).argmax(1)
    return int(np.where(matrix[rows, first] != 0, rows - first, 0).max(initial=0))


def _bands(matrix: Floats, width: int) -> Floats:
    """The diagonal of a symmetric matrix and `width` diagonals below it: entry [k, j] is from row j + k, column j."""
    bands = np.zeros((width + 1, len(matrix)))
    for below in range(width + 1):
        bands[below, : len(matrix) - below] = np.diagonal(matrix, -below)
    return bands


def _shifted(values: Floats, width: int) -> Floats:
    """In row k the values k places on, and zeros beyond the last."""
    return np.stack([np.append(values[below:], np.zeros(below)) for below in range(width + 1)])


def _times(bands: Floats, values: Floats) -> Floats:
    """The product of a matrix in bands and a vector."""
    found = bands[0] * values
    for below in range(1, len(bands)):
        part = bands[below, :-below]
        found[below:] += part * values[:-below]
        found[:-below] += part * values[below:]
    return found
