"""Weights of drawn rows under which groups of three columns have the shares that released tables show."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.joint.from_release import ReleasedTriples
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

_FARE = Tuned("fare of the truth study", by=BY_HAND, decision=40)
ROUNDS: Annotated[int, _FARE] = 10
MOST_CHANGE: Annotated[float, _FARE] = 20.0  # of a cell's share, as a ratio
MOST_WEIGHT: Annotated[float, _FARE] = 20.0  # of a row, where the mean is one
# Candidates for the variance of changes, over the first guess.
_SCALES = np.concatenate([[0.0], 2.0 ** np.arange(-8.0, 3.0)])


def third_order_weights(noisy: ReleasedTriples, cells: NDArray[np.int64], model: int) -> Floats:
    """Weights of rows drawn from a fit, given by their cells, one column a column: by iterative proportional fitting to
    denoised tables of three columns, and to the rows' own shares of every column's cells. Tables of a refit (model 1,
    2, …) get new noise.
    """
    generator = np.random.default_rng([model, 3])
    groups = {column: of_cells[cells[:, column]] for column, of_cells in noisy.groups.items()}
    tables: list[tuple[NDArray[np.int32], Floats]] = []
    for columns, table in noisy.tables.items():
        places = np.ravel_multi_index([groups[column] for column in columns], table.shape)
        own: Floats = np.bincount(places, minlength=table.size) / len(cells)
        noise = noisy.sd * generator.standard_normal(table.size) if model else 0.0
        change = denoised(table.ravel() - own + noise, own, noisy.sd)
        tables.append((places.astype(np.int32), np.clip(own + change, own / MOST_CHANGE, own * MOST_CHANGE)))
    for column in noisy.groups:
        tables.append((cells[:, column].astype(np.int32), np.bincount(cells[:, column]) / len(cells)))
    weights = np.ones(len(cells))
    for _ in range(ROUNDS):
        for at, goal in tables:
            held = np.bincount(at, weights, len(goal))
            step = np.ones(len(goal))
            np.divide(goal * (len(cells) / goal.sum()), held, out=step, where=held > 0)
            weights *= step[at]
        weights = np.minimum(weights, MOST_WEIGHT)
    return weights


def denoised(changes: Floats, shares: Floats, sd: float) -> Floats:
    """Posterior means of changes of shares, if these have variances in proportion to the shares: those under which the
    noisy changes are most likely.
    """
    scale = float(np.sum(changes**2)) / max(float(np.sum(shares)), 1e-300)
    variances = [scale * each * shares + sd**2 for each in _SCALES]
    likely = [-float(np.sum(np.log(each) + changes**2 / each)) for each in variances]
    return changes * (1 - sd**2 / variances[int(np.argmax(likely))])


def resampled(weights: Floats, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Places of `rows` draws in any order, each place as often as its weight says, up to one."""
    upper = np.cumsum(weights)
    steps = (np.arange(rows) + generator.random()) / rows * upper[-1]
    return generator.permutation(np.minimum(np.searchsorted(upper, steps, side="right"), len(weights) - 1))
