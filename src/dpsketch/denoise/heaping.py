"""Whether the records of a column sit on few values: rounded numbers, whole ones, or shares of small totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

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
# Of `Lumps.together`, in standard errors: values are not equally spaced, nor bins alike.
CERTAIN: Annotated[float, _ORIGIN] = 0.3


@dataclass(frozen=True)
class Lumps:
    """How far records sit on few values of their cells. `likely`: from 0 where they spread over them to 1 where most
    cells have them on one or two, the best guess. `together`: the part of a cell's records that have the same value as
    one of them, 1 over the number of values; no more of it than noise can hardly explain.
    """

    likely: float
    together: float

    def likely_in(self, shares: Floats, rows: float) -> Floats:
        """`likely` for each cell."""
        return np.full(len(shares), self.likely)

    def together_in(self, shares: Floats, rows: float) -> Floats:
        """`together` for each cell."""
        return np.full(len(shares), self.together)


@dataclass(frozen=True)
class SharedValues(Lumps):
    """The same from a number of records that share a value: the part of a cell's records that this is."""

    records: float = 1.0

    def likely_in(self, shares: Floats, rows: float) -> Floats:
        return np.minimum(self.records / np.maximum(rows * shares, 1e-9), 1.0)

    def together_in(self, shares: Floats, rows: float) -> Floats:
        return self.likely_in(shares, rows)


def lumpiness(summary: ColumnSummary) -> Lumps:
    """Mean positions in bins tell: of m values at equal distances, wherever the first of them is, they have a variance
    of 1/(12·m²) in squared widths of a bin.

    A density that rises or falls moves them as well. As long as it is nearly straight over three bins, by a 24th of
    what the next bin has more than the one before; where it changes by more than a bin holds, nothing is concluded. Few
    bins that hold nearly all records, as between wide bounds, may be bent all the same. Finer cells hold fewer values.
    """
    if summary.positions is None or summary.widths is None:
        return Lumps(0.0, 0.0)
    bins = np.flatnonzero(summary.widths > 0)[1:-1]
    counts, steps = summary.counts[bins], summary.counts[bins + 1] - summary.counts[bins - 1]
    told = (counts > STANDS_OUT * summary.count_sd) & (np.abs(steps) <= counts)
    counts, left = counts[told], (summary.positions[bins] - steps / 24)[told]
    noise = summary.position_sd**2 + 2 * (summary.count_sd / 24) ** 2
    squares = np.maximum(counts**2 - summary.count_sd**2, 0.0)
    largest = float(squares.sum()) / 12
    if largest == 0:
        return Lumps(LUMPY * USUAL, 0.0)
    ratio, variance = float((left**2 - noise).sum()) / largest, 2 * noise**2 * len(left) / largest**2
    guess = (USUAL_SD**2 * ratio + variance * USUAL) / (USUAL_SD**2 + variance)
    chances = _chances(squares)
    likely = LUMPY * (chances * guess + FEW_BINS * USUAL) / (chances + FEW_BINS)
    least = max(ratio - SURE * np.sqrt(variance) - BENT / chances, 0.0)
    finer = 1.0 if summary.finer is None else len(summary.finer.parent) / len(summary.counts)
    return Lumps(float(np.clip(likely, 0.0, 1.0)), float(min(finer * np.sqrt(least), 1.0)))


def _chances(weights: Floats) -> float:
    """How many equal weights tell as much as these."""
    return float(weights.sum() ** 2 / (weights**2).sum())
