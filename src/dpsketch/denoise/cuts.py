"""Where to cut a column into cells: chosen from noisy counts of its levels, so that cells are small where records are,
and values that many records share have a cell of their own.

A release spends a small share of its budget on noisy counts of all levels, chooses cells from them, and then counts the
records of these cells anew. False alarms therefore cost little: a cell that turns out to be empty. Records of a cell
may still share values, too few to be noticed one by one; `shared_values` estimates how many do on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import Tuned

_TRIED = Tuned("fare, payroll, kdd and flights of the truth study, one column at a time", by="hand", decision=24)
# Cells for each level that is expected to get one by chance.
FALSE_ALARMS: Annotated[int, _TRIED] = 16
# Standard deviations of its noise above zero from which a cell's count is clear, so that the cell may be halved.
CLEAR: Annotated[float, _TRIED] = 4.0
MOST_CELLS = 1024  # of a column: bounds the size of a file and the time of a fit
UNKNOWN = 1e9  # standard deviation of an average of which nothing is known
STEPS = 200  # of a grid of averages
TINY = 1e-12  # variance of exact counts: divided by


@dataclass(frozen=True)
class NoisyLevels:
    """Noisy counts of the levels between a column's bounds, or of near-equal runs of them. The noise has standard
    deviation `sd`; it is Laplace noise or Gaussian.
    """

    counts: Floats
    sd: float
    laplace: bool

    def exceeded_with(self, probability: float) -> float:
        """What noise exceeds with this probability."""
        if self.laplace:
            return self.sd / sqrt(2) * log(max(0.5 / probability, 1.0))
        from scipy.special import ndtri

        return -self.sd * float(ndtri(min(probability, 0.5)))

    @property
    def variance_of_squares(self) -> float:
        """The variance of squared noise."""
        return (5.0 if self.laplace else 2.0) * self.sd**4


def choose_cut(
    levels: NoisyLevels, bins: int, wanted: float, rows: float, runs: NoisyLevels | None = None
) -> tuple[NDArray[np.int64], ...]:
    """The first level of each cell, counted from 0, and the levels that have a cell of their own.

    There are at least `bins` bins of near-equal length, and at most MOST_CELLS cells, or more where these bins and
    single levels alone are more. Levels whose counts are far above those of their bin stand alone. Bins are halved, and
    their halves again, while they hold more than a part 1/`wanted` of the rows, as far as noise lets one see it. What a
    bin of several runs holds is seen in the counts of `runs` too, with the noise of few counts.
    """
    length, wanted, bins = len(levels.counts), min(wanted, MOST_CELLS / 2), min(bins, len(levels.counts))
    alone = _far_above(levels, bins)[: MOST_CELLS // 4]
    most = max(MOST_CELLS, bins + 2 * len(alone))
    counted = [
        _Counted.without(each, length, alone, levels.counts[alone]) for each in (levels, runs) if each is not None
    ]
    firsts = [bin_firsts(length, bins), np.stack([alone, alone + 1], axis=1).ravel()]
    active = np.arange(bins)
    while len(active) and bins < length:
        edges = np.append(bin_firsts(length, bins), length)
        lengths = edges[active + 1] - edges[active]
        held, sd = _between(counted, edges[active], edges[active + 1])
        halved = (lengths > 1) & (held > np.maximum(rows / wanted, CLEAR * sd))
        bins *= 2
        active = (2 * active[halved][:, None] + np.arange(2)).ravel()
        firsts.append(bin_firsts(length, bins)[active])
    every, order = np.unique(np.concatenate(firsts), return_index=True)
    order, every = order[every < length], every[every < length]
    starts = np.sort(every[np.argsort(order)[:most]])
    return starts, np.sort(alone)


@dataclass(frozen=True)
class _Counted:
    """Noisy numbers of records below the first level of each run, and below the end."""

    edges: NDArray[np.int64]
    below: Floats
    sd: float  # of the count of a run

    @classmethod
    def without(cls, levels: NoisyLevels, length: int, alone: NDArray[np.int64], held: Floats) -> _Counted:
        """Leave out the records that single levels hold."""
        firsts, counts = bin_firsts(length, len(levels.counts)), levels.counts.copy()
        np.subtract.at(counts, np.searchsorted(firsts, alone, side="right") - 1, held)
        return cls(np.append(firsts, length), np.concatenate([[0.0], np.cumsum(counts)]), levels.sd)


def _between(counted: Sequence[_Counted], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Numbers of records between levels, and their standard deviations: means of all counts that end there, by the
    inverse of their variances.
    """
    sums, precisions = np.zeros(len(starts)), np.zeros(len(starts))
    for each in counted:
        first, last = np.searchsorted(each.edges, starts), np.searchsorted(each.edges, ends)
        fits = (each.edges[first] == starts) & (each.edges[last] == ends)
        precision = fits / np.maximum(each.sd**2 * (last - first), TINY)
        sums += precision * (each.below[last] - each.below[first])
        precisions += precision
    return sums / precisions, 1 / np.sqrt(precisions)


def _far_above(levels: NoisyLevels, bins: int) -> NDArray[np.int64]:
    """Levels whose noisy counts are above the mean of their bin by more than noise explains, the largest first."""
    firsts = bin_firsts(len(levels.counts), bins)
    lengths = np.diff(np.append(firsts, len(levels.counts)))
    mean = np.maximum(np.add.reduceat(levels.counts, firsts) / lengths, 0.0)
    above = levels.counts - np.repeat(mean, lengths)
    far = np.flatnonzero(above > _far(levels, bins))
    return far[np.argsort(-above[far], kind="stable")]


def _far(levels: NoisyLevels, bins: int) -> float:
    """How far above its bin's mean a level is noticed."""
    return levels.exceeded_with(min(bins, len(levels.counts)) / FALSE_ALARMS / len(levels.counts))


def bin_firsts(levels: int, bins: int) -> NDArray[np.int64]:
    """First level of each of `bins` near-equal bins; twice as many bins divide these. With more bins than levels some
    are empty, and share their first level with the next.
    """
    return -(-np.arange(bins, dtype=np.int64) * levels // bins)


@dataclass(frozen=True)
class Sharing:
    """With how many records, itself included, a record in a cell of several values shares its value on average.

    The estimate has standard deviation `sd`. A value of more than `most` records would have been noticed, and have a
    cell of its own.
    """

    average: float
    sd: float
    most: float

    @property
    def expected(self) -> float:
        """The posterior mean, where every order of magnitude from 1 to `most` is equally likely beforehand."""
        averages = np.geomspace(1.0, max(self.most, 1.0), STEPS)
        logarithms = -0.5 * ((averages - self.average) / max(self.sd, 1e-9)) ** 2
        weights = np.exp(logarithms - logarithms.max())
        return float(averages @ weights / weights.sum())


def shared_values(levels: NoisyLevels, bins: int, starts: NDArray[np.int64]) -> Sharing:
    """How many records share a value, over cells of several levels that hold records clearly.

    Squared deviations of the levels' noisy counts from their cell's mean add up to this average times the number of
    records, plus the variance of the noise for each level.
    """
    most = max(_far(levels, bins), 1.0)
    lengths = np.diff(np.append(starts, len(levels.counts)))
    held = np.add.reduceat(levels.counts, starts)
    clear = (lengths > 1) & (held > CLEAR * levels.sd * np.sqrt(lengths))
    records, inside = float(held[clear].sum()), np.repeat(clear, lengths)
    if records <= 0:
        return Sharing(1.0, UNKNOWN, most)
    away = (levels.counts - np.repeat(held / lengths, lengths))[inside]
    degrees = len(away) - int(clear.sum())  # a mean was taken out of each cell
    average = (float(away @ away) - degrees * levels.sd**2) / records
    return Sharing(max(average, 0.0), sqrt(len(away) * levels.variance_of_squares) / records, most)
