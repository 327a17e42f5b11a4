"""Raking: weights for simulated records that reproduce the released hashed counters."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

_ROUNDS: Annotated[int, UNRECORDED] = 10
_CLEAR: Annotated[float, UNRECORDED] = 3.0  # standard deviations at which a group of counters is significant


def raked(places: NDArray[np.int64], counters: Floats, deviation: float, total: float) -> Floats:
    """Weights of points whose counters in each row of the table are `places`, one row per point.

    `counters` are the released ones, with noise of this standard deviation, and `total` is their number of records. In
    each round a weight is multiplied by the geometric mean, over the rows of the table, of the ratio of records to
    points: first in all counters with about equal numbers of points, where noise averages out, then in the counter
    itself, with the noise's standard deviation added to both.
    """
    points, rows = places.shape
    floor = 1.0 + deviation
    logs = np.log(np.maximum(counters, 0.0) + floor)
    weights = np.ones(points)
    for _ in range(_ROUNDS):
        each = np.repeat(weights * (total / weights.sum()), rows)
        own: Floats = np.bincount(places.ravel(), each, len(counters)).astype(np.float64)
        ratios = _pooled_ratios(own, counters, deviation)
        change = np.log(ratios) + logs - np.log(ratios * own + floor)
        weights = weights * np.exp(change[places].mean(axis=1))
        weights /= weights.mean()
    return weights


def _pooled_ratios(own: Floats, counters: Floats, deviation: float) -> Floats:
    """Records per point, in groups of counters with equal numbers of points within a factor of two.

    Groups are larger where the noise requires it. A ratio dominated by noise is 1.
    """
    found = np.ones(len(own))
    order = np.argsort(own, kind="stable")
    order = order[own[order] > 0]
    levels = np.floor(np.log2(own[order]))
    start = 0
    for end in (np.flatnonzero(np.diff(levels, append=np.inf)) + 1).tolist():
        group = order[start:end]
        mass, noise = own[group].sum(), deviation * np.sqrt(len(group))
        if mass > _CLEAR * noise:
            found[group] = max(counters[group].sum(), noise / 2, 1.0) / mass
            start = end
    return found
