"""How far off a joint distribution is where released sums do not say: parts of standard errors that no noise explains.

`python -m benchmarks.m2m.errors` prints the constants that real tables suggest, and the coverage of these on others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import Annotated

import numpy as np

from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, STUDY_TABLES, Tuned

_ORIGIN = Tuned(STUDY_TABLES + ", skin, naval", by="python -m benchmarks.m2m.errors")
# Factor of the refits' spread for answers about several columns: refits start from a smooth distribution, so that they
# show only a part of the bias.
SMOOTH: Annotated[float, _ORIGIN] = 1.6
# Unexplained part of a dependence on two columns, and on three or more, relative to its standard deviation under
# independence. Groups of cells hide a part of the first, and pair tables all of the second.
PAIRS: Annotated[float, _ORIGIN] = 0.01
HALVES: Annotated[float, Tuned(STUDY_TABLES, by=BY_HAND)] = 0.02  # as PAIRS, where a release has contrasts of halves
MORE: Annotated[float, _ORIGIN] = 0.03
LEAST = 1e-9  # share of a cell


def together(means: Sequence[Floats], variances: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Variances of the parts of a product of functions of independent columns that depend on two columns, and on three
    or more, and not on fewer: from each function's mean and variance.

    Source: Efron & Stein, Annals of Statistics 9 (1981) 586 (decomposition of variance).
    """
    orders = [np.ones(1), np.zeros(1), np.zeros(1)]
    whole = np.ones(1)
    for mean, variance in zip(means, variances, strict=True):
        square = mean**2
        orders = [
            orders[0] * square,
            orders[1] * square + orders[0] * variance,
            orders[2] * square + orders[1] * variance,
        ]
        whole = whole * (square + variance)
    return orders[2], np.maximum(whole - sum(orders), 0.0)


def unmeasured(means: Sequence[Floats], variances: Sequence[Floats], pairs: Iterable[tuple[int, int]]) -> Floats:
    """As the first of `together`, of these pairs of functions alone."""
    found = np.zeros(1)
    for pair in pairs:
        rest = [mean**2 for place, mean in enumerate(means) if place not in pair]
        found = found + reduce(np.multiply, rest, variances[pair[0]] * variances[pair[1]])
    return found


def usual_dependence(mixture: Mixture, pairs: Collection[tuple[int, int]]) -> float:
    """What two functions of different columns usually correlate beyond what other pairs tell of them, on average over
    pairs that have tables: a pair without one may depend as they do.

    The square is taken as a quarter of the sum of squared canonical correlations: half for functions that are not the
    best ones, half for what the fit finds anyhow (both held on made-up tables of 50 columns with five hidden causes).
    """
    squares = []
    for i, j in pairs:
        joint = mixture.grouped_pair(i, j)
        alone = np.outer(joint.sum(1), joint.sum(0))
        squares.append(float(((joint - alone) ** 2 / np.maximum(alone, LEAST)).sum()) / 4)
    return min(float(np.sqrt(np.mean(squares))), 1.0) if squares else 1.0
