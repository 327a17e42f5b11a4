"""A chi-squared test of integers against an exact distribution, in cells of equal probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import chisquare

ALPHA = 1e-6  # of each test
CELLS = 64
SCALES = [float(scale) for scale in np.geomspace(0.5, 1e8, 10)]
DRAWS = 600_000  # scales off by two percent move the statistic by at least 5 of its standard deviations past ALPHA


@dataclass(frozen=True)
class Cells:
    """`ends` are the last integers of all cells but the last, quantiles of k/CELLS, as equal as atoms allow."""

    ends: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, quantile: Callable[[np.ndarray], np.ndarray], at_most: Callable[[np.ndarray], np.ndarray]) -> Cells:
        """From the quantiles of a distribution and its P(Z <= integer)."""
        ends = np.unique(np.rint(quantile(np.arange(1, CELLS) / CELLS)).astype(np.int64))
        return cls(ends, np.diff(np.concatenate([[0.0], at_most(ends), [1.0]])))

    def count(self, draws: np.ndarray) -> np.ndarray:
        return np.bincount(np.searchsorted(self.ends, draws, side="left"), minlength=len(self.shares))

    def p_value(self, draws: np.ndarray) -> float:
        expected = self.shares * len(draws)
        assert expected.min() >= 100
        return float(chisquare(self.count(draws), expected).pvalue)
