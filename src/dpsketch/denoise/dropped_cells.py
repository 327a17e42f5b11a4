"""What cells may hold although a fit left them empty: labels, bounds and single values whose noisy counts are small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, smooth_cells
from dpsketch.numerics.arrays import Floats


def dropped_shares(summary: ColumnSummary, rows: float, shares: Floats) -> Floats:
    """Root mean square of the difference between the true and the fitted share, for each cell that the fit dropped; 0
    for other cells.

    A fit without negative shares drops a cell whose noisy count is small, and fits to sums of that fit with new noise
    drop it again: their spread hides what the cell may hold. Of a count that is positive, the share itself is the best
    guess; otherwise its error is that of the noise, as Laplace noise has no memory: the truth exceeds zero by an
    exponential variable, whose root mean square is the standard deviation of the noise.
    """
    parent = np.arange(len(summary.counts)) if summary.finer is None else summary.finer.parent
    noise, measured = summary.count_sd / rows, np.maximum(summary.counts[parent], 0.0) / rows
    dropped = _may_drop(summary) & (shares < noise)
    return np.where(dropped, np.minimum(np.hypot(noise, measured - shares), 1.0), 0.0)


def _may_drop(summary: ColumnSummary) -> NDArray[np.bool_]:
    widths = summary.widths if summary.finer is None else summary.finer.widths
    if widths is None:
        return np.ones(len(summary.counts), bool)
    alone = ~smooth_cells(widths)
    alone[[0, len(widths) - 2]] = True
    return alone
