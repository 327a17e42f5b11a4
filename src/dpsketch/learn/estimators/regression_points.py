"""Points of a regression on sums with the effects that it allows for, and the fit on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.block_moments import MomentsAtPoints
from dpsketch.learn.estimators.density_prior import ColumnEffects, Effects, Scales
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import UNRECORDED

FEW: Annotated[int, UNRECORDED] = 32  # points in a bin, below which its effect is not estimated

Distribution = tuple[Cells, Floats]  # cells of a column and their shares among the points


@dataclass(frozen=True)
class RegressionPoints:
    """Points and moments, the points' distributions, their bins, the group of each bin of each marginal, the groups'
    indicators, and the effects of columns.
    """

    at: MomentsAtPoints
    distributions: Mapping[str, Distribution]
    bins: Mapping[str, NDArray[np.int64]]
    groups: Mapping[str, NDArray[np.int64]]
    groups_at_points: Any  # a sparse matrix
    effects_of: Mapping[str, ColumnEffects]
    last: Scales | None = None

    @property
    def count(self) -> int:
        return self.at.features.shape[1]

    def only_single_values(self, functions: Floats) -> NDArray[np.bool_]:
        """Which functions are zero unless some column without a marginal is at a bound, or missing as well."""
        some, alone = functions.any(axis=1), np.zeros(len(functions), bool)
        for name, own in self.effects_of.items():
            if name not in self.groups:
                single, missing = own.alone[self.bins[name]], self.bins[name] == len(own.alone) - 1
                alone |= ~functions[:, ~single].any(axis=1) & functions[:, single & ~missing].any(axis=1)
        return some & alone

    def moved(self, names: Sequence[str], start: Mapping[str, Floats]) -> Floats:
        """What the smooth effects of these columns are already part of the points, as a function at the points."""
        total = np.zeros(self.count)
        for name in names:
            total += self.effects_of[name].moved(start[name], self.distributions[name][1])[self.bins[name]]
        return total - total.mean()

    def main_effects(self, functions: Floats) -> Floats:
        """E[f | group] − E[f] for every group of bins of every marginal."""
        count = np.asarray(self.groups_at_points.sum(axis=0)).ravel()
        mean = functions.mean(axis=1, keepdims=True) * (count > 0)
        return np.asarray((functions @ self.groups_at_points) / np.maximum(count, 1.0) - mean)

    def interactions(self, functions: Floats) -> Floats:
        """The residual of each function after its mean and the effects of single columns."""
        centred = functions - functions.mean(axis=1, keepdims=True)
        return centred - (self.groups_at_points @ self.main_effects(functions).T).T if self.groups else centred


@dataclass(frozen=True)
class Fit:
    """Points, features there, less what marginals explain, and the factored system.

    Of the effects: their covariances with the features at the points, scales of their groups, variances and means
    before the sums, means after them, and the standard deviations that errors are computed with. `white` is the
    variance of white noise, and `moved` what the points already have of the effects, as a function at the points.
    """

    points: RegressionPoints
    features: Floats
    factor: tuple[Floats, bool]
    effects: Effects
    covariance: Floats
    scales: Scales
    white: float
    variances: Floats
    prior: Floats
    posterior: Floats
    deviations: Floats
    moved: Floats


def drawn_codes(
    distributions: Mapping[str, Distribution], count: int
) -> tuple[dict[str, Codes], dict[str, NDArray[np.int64]]]:
    """Codes of points from the product of distributions, and the cells that they are in: a Sobol' sequence."""
    from scipy.stats import qmc

    codes, every = {}, {}
    uniforms = qmc.Sobol(len(distributions), seed=0).random(count)
    for (name, (cells, shares)), uniform in zip(distributions.items(), uniforms.T, strict=True):
        upper = np.cumsum(shares)
        bins = np.minimum(np.searchsorted(upper, uniform * upper[-1], side="right"), cells.count - 1)
        position = (uniform * upper[-1] - upper[bins] + shares[bins]) / np.maximum(shares[bins], 1e-300)
        codes[name], every[name] = codes_in_cells(cells, bins, np.clip(position, 0, 1)), bins
    return codes, every


def bin_groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A group of its own for each bin with enough points to estimate its effect, one group for all others."""
    enough = counts >= FEW
    return np.where(enough, np.cumsum(enough) - 1, enough.sum())
