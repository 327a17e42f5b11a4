"""What the counters of each class say of a record: log-odds by cell, and how far to trust their sum over tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, CLASSIFIER_TABLES, Tuned

_ORIGIN = Tuned(CLASSIFIER_TABLES, by=BY_HAND)
# Of a class's density in a cell to that of all classes, in any single table.
_LEAST_RATIO: Annotated[float, _ORIGIN] = 0.02
_LEAST_SPREAD = 1e-4
_SURE: Annotated[float, _ORIGIN] = 3.0  # standard errors above zero
# Of the variance of log-odds within a class that two tables share; used where it is unknown.
MOST_SHARED: Annotated[float, _ORIGIN] = 0.25


@dataclass(frozen=True)
class LogOdds:
    """Of each class against all together: one number for class, table and cell, and its standard error by noise."""

    value: Floats
    deviation: Floats
    shares: Floats  # of each class's records in the cells, without noise as far as possible: sum to one over cells


def log_odds(counters: Floats, totals: Floats, variance: float) -> LogOdds:
    """Ratios of densities, r = p_class(cell)/p_all(cell), shrunk towards 1 by the noise, and their logarithms.

    A counter has mean e·r, where e is the class's total times the share of all records in the cell, and variance
    v = noise + e. Ratios of a class spread around 1 with a variance τ² that the counters themselves show, so the best
    linear estimate of r is 1 + s·(c/e − 1) with s = τ²e²/(τ²e² + v). Adding a constant to counters instead, as RESEARCH
    does, favours classes of few records wherever noise prevails.
    """
    classes = len(totals)
    every = np.maximum(counters.sum(axis=0), 0.0) + np.sqrt(classes * variance) + 1.0
    shared = every / every.sum(axis=1, keepdims=True)
    value, deviation, shares = (np.empty_like(counters) for _ in range(3))
    for place, total in enumerate(totals):
        expected = total * shared
        excess, spread = counters[place] - expected, variance + expected
        weight = shared * expected**2 / spread
        varies = float((weight * (excess**2 - spread) / expected**2).sum() / weight.sum())
        varies -= float(np.sqrt(2 * ((weight * spread / expected**2) ** 2).sum()) / weight.sum())  # its own noise
        kept = expected**2 * max(varies, _LEAST_SPREAD)
        kept /= kept + spread
        ratio = np.maximum(1 + kept * excess / expected, _LEAST_RATIO)
        step = kept * np.sqrt(variance) / expected
        value[place], deviation[place] = np.log(ratio), step / np.maximum(ratio, step)
        shares[place] = ratio * shared
    return LogOdds(value, deviation, shares / shares.sum(axis=2, keepdims=True))


def slope(odds: LogOdds, totals: Floats, covariance: float | None) -> float:
    """What the sum of log-odds over R tables must be multiplied by to be log-odds itself.

    Tables see the same record, so their sum counts the same evidence many times. If scores within a class are about
    normal, log-odds are (difference of the means between class and others)/(variance within a class) times the score;
    R tables have R times the difference and a variance of R·v + R·(R−1)·c. Difference and v follow from the cells.
    `covariance` is c as a part of v; unknown, it is taken as MOST_SHARED.
    """
    tables = odds.value.shape[1]
    difference, within = separation(odds, totals)
    part = MOST_SHARED if covariance is None else covariance
    return float(min(1.0, difference / max(within * (1 + (tables - 1) * part), 1e-300)))


def separation(odds: LogOdds, totals: Floats) -> tuple[float, float]:
    """Of one table: difference of the means of a class's score between its records and others, variance within."""
    prior = totals / totals.sum()
    difference = within = 0.0
    for place, share in enumerate(prior):
        weights, score = share * (1 - share), against_others(odds.value[place], share)
        means = (odds.shares * score).sum(axis=2)  # for records of each class
        squares = (odds.shares * score**2).sum(axis=2)
        others = prior * (np.arange(len(prior)) != place) / max(1 - share, 1e-300)
        difference += weights * float((means[place] - others @ means).mean())
        within += weights * float((prior @ (squares - means**2)).mean())
    return difference, within


def against_others(value: Floats, share: float) -> Floats:
    """Log-odds of a class against the others, from those against all together."""
    others = (1 - share * np.exp(value)) / (1 - share)
    return np.asarray(value - np.log(np.maximum(others, _LEAST_RATIO)))


def shared_evidence(counters: Floats, totals: Floats, variance: float) -> float | None:
    """How strongly the log-odds of two tables vary together within a class, as a part of how they vary: from tables of
    2^b counters, each of which is the joint table of two hashes of b/2 bits. None if the noise hides it, or if it is
    MOST_SHARED or more, where halves say little of whole tables.

    c of whole tables is taken to be that of the halves times the ratio of their separations, so that many tables of
    either kind have the same slope: measured, not proven. Scores move with the noise of the counters they are averaged
    over, which is taken off to first order.
    """
    classes, tables, width = counters.shape
    bits = int(width).bit_length() - 1
    if bits < 2 or tables < 2:
        return None
    joint = counters.reshape(classes, tables, 1 << bits - bits // 2, 1 << bits // 2)
    halves = [log_odds(joint.sum(axis=axis), totals, variance * joint.shape[axis]) for axis in (3, 2)]
    prior = totals / totals.sum()
    each = np.zeros(tables)
    for place, share in enumerate(prior):
        for label, other in enumerate(prior):
            one, two = (against_others(half.value[place], share) for half in halves)
            one = one - (halves[0].shares[label] * one).sum(axis=1, keepdims=True)
            two = two - (halves[1].shares[label] * two).sum(axis=1, keepdims=True)
            product = np.einsum("rij,ri,rj->r", joint[label], one, two)
            if place == label:  # the noise of a cell is also in the log-odds of its own halves
                steps = [
                    np.sqrt(variance / n) * h.deviation[place] for h, n in zip(halves, joint.shape[:1:-1], strict=True)
                ]
                product = product - steps[0].sum(axis=1) * two.sum(axis=1) - steps[1].sum(axis=1) * one.sum(axis=1)
            each += share * (1 - share) * other * product / totals[label]
    whole = separation(log_odds(counters, totals, variance), totals)
    parts = np.mean([separation(half, totals)[0] for half in halves])
    together = float(each.mean())
    if together <= _SURE * each.std() / np.sqrt(tables) or parts <= 0 or whole[1] <= 0:
        return None
    found = float(together * (whole[0] / parts) / whole[1])
    return found if found < MOST_SHARED else None
