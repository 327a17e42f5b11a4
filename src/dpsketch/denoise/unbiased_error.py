"""How far off a column's noisy sums are by themselves, without the smoothness that a fit assumes."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, Marginal
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

# The unbiased error from which noise hides what is asked, in parts of the error of someone who knows the bounds alone;
# and the part of the unbiased error below which the claim of a smooth fit is not believed there.
SWAMPED: Annotated[float, Tuned("simulated tables of 500 rows at epsilon 0.1", by=BY_HAND, decision=25)] = 4.0


@dataclass(frozen=True)
class CellNoise:
    """Standard deviations of the noisy shares of a column's counted cells, and of the sum of the column over the rows
    where it is released. `parents` are the counted cells that cells are parts of.
    """

    parents: NDArray[np.int64]
    sd: float
    centred_sd: float = np.inf

    @classmethod
    def of(cls, summary: ColumnSummary, rows: float) -> CellNoise:
        parents = np.arange(len(summary.counts)) if summary.finer is None else summary.finer.parent
        return cls(parents, summary.count_sd / rows, np.inf if summary.centred is None else summary.centred_sd / rows)

    def error(self, means: Floats, marginal: Marginal) -> Floats:
        """The standard error of the expectations of functions, given by their means in cells, from the sums alone: what
        is linear in the column from its sum, where that is better, and the rest from the cells.
        """
        gained = means - (means @ marginal.shares)[:, None]
        found = self.sd**2 * self._squares(gained)
        if np.isfinite(self.centred_sd):
            codes = marginal.means() - 0.5
            codes -= marginal.shares @ codes
            slope = gained @ (marginal.shares * codes) / max(float(marginal.shares @ codes**2), 1e-12)
            by_sum = self.sd**2 * self._squares(gained - slope[:, None] * codes) + (slope * self.centred_sd) ** 2
            found = np.minimum(found, by_sum)
        return np.sqrt(found)

    def _squares(self, values: Floats) -> Floats:
        """Sums of squares over counted cells of the means over their parts."""
        first = np.searchsorted(self.parents, np.arange(self.parents[-1] + 1))
        inside = np.add.reduceat(values, first, axis=1) / np.bincount(self.parents)
        return np.asarray((inside**2).sum(1))


def believed(claimed: Floats, unbiased: Floats, sizes: Floats) -> Floats:
    """Standard errors that a smooth fit claims for functions whose values spread over `sizes`. Noise that hides a
    column leaves a smooth fit at the middle of the bounds, and so do its refits. Where noise hides what is asked, a
    claim far below the unbiased error is therefore raised to it, or to what someone would be off who knows the bounds
    alone.
    """
    alone = sizes / sqrt(12)
    hidden = (unbiased * SWAMPED >= alone) & (claimed * SWAMPED < unbiased)
    return np.where(hidden, np.minimum(unbiased, alone), claimed)
