"""Tails of ordered columns in which no records can be told from noise: what is expected there.

A column whose bounds are far beyond its records has many empty cells, and a function that is large there, such as a sum
of bytes up to 10⁹, multiplies their noise.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats

# Standard deviations that the sum of k cells of Laplace noise exceeds once in 10,000 times: FAR + MORE_ALONE / √k.
FAR = 3.7
MORE_ALONE = 2.3
EMPTY = log(2)  # expected records: a Poisson number is then as likely zero as not


def unseen_tails(counts: Floats, sd: float) -> NDArray[np.int64]:
    """Whether a cell, of cells in their order, lies in the lower tail (−1), the upper (1) or neither (0): no run of 1,
    2, 4, … neighbours in a tail has a noisy count that is significantly above zero. Where none has, there are no tails.
    """
    tails, upper, lower = np.zeros(len(counts), np.int64), _after_last(counts, sd), _after_last(counts[::-1], sd)
    if upper:
        tails[upper:], tails[: len(counts) - lower] = 1, -1
    return tails


def _after_last(counts: Floats, sd: float) -> int:
    """The cell after the start of the last significant run."""
    below, found, run = np.concatenate([[0.0], np.cumsum(counts)]), 0, 1
    while run <= len(counts):
        held = below[run:] - below[:-run]
        significant = np.flatnonzero(held > (FAR * np.sqrt(run) + MORE_ALONE) * sd)
        found, run = max(found, significant[-1] + 1 if len(significant) else 0), 2 * run
    return found


def falling(records: Floats, widths: Floats, tails: NDArray[np.int64]) -> Floats:
    """Expected records of cells, in the tails so that their density never rises outwards. Single values, and cells that
    are more likely empty than not, have none there.
    """
    found, sized = np.where(tails, 0.0, records), widths if widths.any() else np.ones(len(records))
    for side in (-1, 1):
        outwards = np.flatnonzero((tails == side) & (sized > 0))[::side]
        found[outwards] = np.minimum.accumulate(records[outwards] / sized[outwards]) * sized[outwards]
    return np.where((tails != 0) & (found < EMPTY), 0.0, found)
