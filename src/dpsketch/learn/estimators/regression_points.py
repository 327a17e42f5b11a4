"""Points of a regression on sums with their features, and the fit on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.density_prior import ColumnEffects, Effects, Scales
from dpsketch.learn.estimators.reduction import Reduction
from dpsketch.learn.points import Frame
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

FEW: Annotated[int, UNRECORDED] = 32  # points in a bin, below which its effect is not estimated

Distribution = tuple[Cells, Floats]  # cells of a column and their shares among the points


@dataclass(frozen=True)
class RegressionPoints:
    """Points, their distributions, their bins, the group of each bin of each marginal, the groups' indicators, the
    features at the points (one row a feature) and their noisy means over the records.
    """

    frame: Frame
    distributions: dict[str, Distribution]
    bins: dict[str, NDArray[np.int64]]
    groups: dict[str, NDArray[np.int64]]
    groups_at_points: Any  # a sparse matrix
    reduction: Reduction | None
    features: Floats
    moments: Floats
    effects_of: dict[str, ColumnEffects]
    last: Scales | None = None

    def only_single_values(self, functions: Floats) -> NDArray[np.bool_]:
        """Which functions are zero wherever some column without a marginal is neither missing nor at a bound."""
        some, alone = functions.any(axis=1), np.zeros(len(functions), bool)
        for name, own in self.effects_of.items():
            if name not in self.groups:
                inside = ~own.alone[self.bins[name]]
                alone |= ~functions[:, inside].any(axis=1)
        return some & alone

    def moved(self, names: Sequence[str], start: Mapping[str, Floats]) -> Floats:
        """What the smooth effects of these columns are already part of the points, as a function at the points."""
        total = np.zeros(self.features.shape[1])
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
class FittedPrior:
    """Effects, their covariances with the features at the points, the scales of their groups and the variance of white
    noise; variances and means of the effects before and their means after the sums; and as a function at the points,
    what the points already have of them.
    """

    effects: Effects
    covariance: Floats
    scales: Scales
    white: float
    variances: Floats
    means: Floats
    fitted: Floats
    moved: Floats


@dataclass(frozen=True)
class Fit:
    """Points, features there, less what marginals explain, the factored system, and the prior; the paper has none."""

    points: RegressionPoints
    features: Floats
    factor: tuple[Floats, bool]
    prior: FittedPrior | None


def bin_groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A group of its own for each bin with enough points to estimate its effect, one group for all others."""
    enough = counts >= FEW
    return np.where(enough, np.cumsum(enough) - 1, enough.sum())
