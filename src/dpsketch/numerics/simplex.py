"""Projection on nonnegative numbers with given totals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats


def project_groups(values: Floats, groups: NDArray[np.int64], totals: Floats) -> Floats:
    """The nearest nonnegative numbers whose sum in every group is the group's total, which is at least 0.

    `groups` holds the group index of each value. In each group, all values are lowered by the same amount and cut off
    at 0 (Held, Wolfe and Crowder 1974), for all groups at once.
    """
    order = np.lexsort((-values, groups))
    ordered, own = values[order], groups[order]
    sizes = np.bincount(groups, minlength=len(totals))
    before = np.cumsum(sizes) - sizes
    sums = np.cumsum(ordered)
    sums -= (sums - ordered)[before[own]]
    rank = np.arange(len(own)) - before[own] + 1
    lowered = (sums - totals[own]) / rank
    last = np.zeros(len(totals), np.int64)
    np.maximum.at(last, own[ordered > lowered], np.flatnonzero(ordered > lowered))
    threshold = np.zeros(len(totals))
    filled = sizes > 0
    threshold[filled] = lowered[np.maximum(last, before)[filled]]
    projected = np.maximum(values - threshold[groups], 0.0)
    projected[totals[groups] <= 0] = 0.0
    return projected
