"""Whether the records of a column sit on few values: rounded numbers, whole ones, or shares of small totals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, STUDY_TABLES, Tuned

_ORIGIN = Tuned("cod_rna, covtype, " + STUDY_TABLES, by=BY_HAND, decision=11)
# Scale of var(mean positions)/var(single values), so that it is 1 where bins have one or two values.
LUMPY: Annotated[float, _ORIGIN] = 6.0
USUAL: Annotated[float, _ORIGIN] = 0.01  # prior mean of that ratio
USUAL_SD: Annotated[float, _ORIGIN] = 0.1  # its prior standard deviation
FEW_BINS: Annotated[float, _ORIGIN] = 4.0  # bins with records, at which the ratio gets half of its weight
STANDS_OUT: Annotated[float, _ORIGIN] = 3.0  # standard deviations at which a count is significant
SURE: Annotated[float, _ORIGIN] = 3.0  # standard deviations at which the ratio is significant
# Largest ratio that the curvature of a density explains where a single bin holds all records.
BENT: Annotated[float, _ORIGIN] = 0.7
# Of `FewValues.together`, in standard errors: values are not equally spaced, nor bins alike.
CERTAIN: Annotated[float, _ORIGIN] = 0.3


class Lumps(ABC):
    """How far records sit on few values of their cells, which hold given shares of `rows` records."""

    positions_known: ClassVar[bool]  # mean positions in cells, from the release

    @abstractmethod
    def likely_in(self, shares: Floats, rows: float) -> Floats:
        """Best guess for each cell: 0 where records spread over it, 1 where they sit on one or two values."""

    @abstractmethod
    def together_in(self, shares: Floats, rows: float) -> Floats:
        """The part of each cell's records that have the same value as one of them."""


@dataclass(frozen=True)
class FewValues(Lumps):
    """The same in all cells, from mean positions: what sums of `Marginals` show. `together` is 1 over the number of
    values in a cell, and no more of it than noise can hardly explain.
    """

    likely: float
    together: float

    positions_known = True

    def likely_in(self, shares: Floats, rows: float) -> Floats:
        return np.full(len(shares), self.likely)

    def together_in(self, shares: Floats, rows: float) -> Floats:
        return np.full(len(shares), self.together)


@dataclass(frozen=True)
class SharedValues(Lumps):
    """A number of records that share a value, estimated from noisy levels, as a part of each cell's records."""

    records: float

    positions_known = False

    def likely_in(self, shares: Floats, rows: float) -> Floats:
        return np.minimum(self.records / np.maximum(rows * shares, 1e-9), 1.0)

    def together_in(self, shares: Floats, rows: float) -> Floats:
        return self.likely_in(shares, rows)


def lumpiness(summary: ColumnSummary) -> FewValues:
    """Mean positions in bins tell: of m values at equal distances, wherever the first of them is, they have a variance
    of 1/(12·m²) in squared widths of a bin.

    A density that rises or falls moves them as well. As long as it is nearly straight over three bins, by a 24th of
    what the next bin has more than the one before; where it changes by more than a bin holds, nothing is concluded. Few
    bins that hold nearly all records, as between wide bounds, may be bent all the same. Finer cells hold fewer values.
    """
    if summary.positions is None or summary.widths is None:
        return FewValues(0.0, 0.0)
    bins = np.flatnonzero(summary.widths > 0)[1:-1]
    counts, steps = summary.counts[bins], summary.counts[bins + 1] - summary.counts[bins - 1]
    told = (counts > STANDS_OUT * summary.count_sd) & (np.abs(steps) <= counts)
    counts, left = counts[told], (summary.positions[bins] - steps / 24)[told]
    noise = summary.position_sd**2 + 2 * (summary.count_sd / 24) ** 2
    squares = np.maximum(counts**2 - summary.count_sd**2, 0.0)
    largest = float(squares.sum()) / 12
    if largest == 0:
        return FewValues(LUMPY * USUAL, 0.0)
    ratio, variance = float((left**2 - noise).sum()) / largest, 2 * noise**2 * len(left) / largest**2
    guess = (USUAL_SD**2 * ratio + variance * USUAL) / (USUAL_SD**2 + variance)
    chances = _chances(squares)
    likely = LUMPY * (chances * guess + FEW_BINS * USUAL) / (chances + FEW_BINS)
    least = max(ratio - SURE * np.sqrt(variance) - BENT / chances, 0.0)
    finer = 1.0 if summary.finer is None else len(summary.finer.parent) / len(summary.counts)
    return FewValues(float(np.clip(likely, 0.0, 1.0)), float(min(finer * np.sqrt(least), 1.0)))


def _chances(weights: Floats) -> float:
    """How many equal weights tell as much as these."""
    return float(weights.sum() ** 2 / (weights**2).sum())
