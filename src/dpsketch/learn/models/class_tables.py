"""Evidence for each class from its counters: log-odds by cell, and the calibration of their sum over tables."""

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
    """Log-odds of each class against all classes together, and their standard errors from noise: by class, table and
    cell.
    """

    value: Floats
    deviation: Floats
    shares: Floats  # share of each class's records in the cells, largely without noise: sums to one over cells


def expected_counts(counts: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Means and standard deviations of numbers of records that are at least zero, given noisy ones."""
    from scipy.special import log_ndtr

    if not errors.all():
        return counts, errors
    scores = counts / errors
    ratios = np.exp(-(scores**2) / 2 - log_ndtr(scores)) / np.sqrt(2 * np.pi)  # of the normal density and distribution
    means = np.maximum(counts + errors * ratios, 1e-3 * errors)
    return means, errors * np.sqrt(np.clip(1 - ratios * (ratios + scores), 0.0, 1.0))


def log_odds(counters: Floats, totals: Floats, variance: float) -> LogOdds:
    """Log ratios of densities, r = p_class(cell)/p_all(cell), shrunk towards 1 according to the noise.

    A counter has mean e·r, where e is the class's total times the share of all records in the cell, and variance v =
    noise + e. The ratios of a class vary around 1 with a variance τ², estimated from the counters themselves, so the
    best linear estimate of r is 1 + s·(c/e − 1) with s = τ²e²/(τ²e² + v). Adding a constant to counters instead, as
    RESEARCH does, favours classes of few records wherever noise dominates.
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
        # minus one standard error
        varies -= float(np.sqrt(2 * ((weight * spread / expected**2) ** 2).sum()) / weight.sum())
        kept = expected**2 * max(varies, _LEAST_SPREAD)
        kept /= kept + spread
        ratio = np.maximum(1 + kept * excess / expected, _LEAST_RATIO)
        step = kept * np.sqrt(variance) / expected
        value[place], deviation[place] = np.log(ratio), step / np.maximum(ratio, step)
        shares[place] = ratio * shared
    return LogOdds(value, deviation, shares / shares.sum(axis=2, keepdims=True))


def slope(odds: LogOdds, totals: Floats, covariance: float | None) -> float:
    """The factor that turns the sum of log-odds over R tables into log-odds.

    Tables see the same record, so their sum counts the same evidence many times. If scores within a class are about
    normal, log-odds are (difference of the means between class and others)/(variance within a class) times the score. R
    tables have R times the difference and a variance of R·v + R·(R−1)·c. Difference and v follow from the cells.
    `covariance` is c relative to v; if None, MOST_SHARED is assumed.
    """
    tables = odds.value.shape[1]
    difference, within = separation(odds, totals)
    part = MOST_SHARED if covariance is None else covariance
    return float(min(1.0, difference / max(within * (1 + (tables - 1) * part), 1e-300)))


def separation(odds: LogOdds, totals: Floats) -> tuple[float, float]:
    """Difference of a class's mean score between its records and others, and the variance within classes, for one
    table.
    """
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
    """Log-odds of a class against the others, from those against all classes together."""
    others = (1 - share * np.exp(value)) / (1 - share)
    return np.asarray(value - np.log(np.maximum(others, _LEAST_RATIO)))


def shared_evidence(counters: Floats, totals: Floats, variance: float) -> float | None:
    """Correlation of the log-odds of two tables within a class; None if noise hides it or it is at least MOST_SHARED.

    A table of 2^b counters is the joint table of two hashes of b/2 bits, and the correlation is estimated between these
    halves. At MOST_SHARED or more, halves are not informative about whole tables. The covariance c of whole tables is
    taken as that of the halves times the ratio of their separations, so that many tables of either kind have the same
    slope: measured, not proven. The bias from noise in the counters over which scores are averaged is removed to first
    order.
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
