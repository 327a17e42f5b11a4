"""The distribution of one column by itself, as smooth as its noise allows: the joint fit is not needed for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary, GroupTotals, Marginal, fit_marginal
from dpsketch.denoise.dropped_cells import dropped_shares
from dpsketch.denoise.heaping import Lumps
from dpsketch.learn.estimators.joint.bootstrap import REFITS, SEED, redrawn_summary
from dpsketch.learn.estimators.joint.from_release import ReleasedProducts, parents_in
from dpsketch.learn.estimators.joint.joint_fit import Products
from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.threads import one_thread


def fit_column(
    noise: ReleaseNoise, summary: ColumnSummary, cells: Cells, lumps: Lumps, totals: GroupTotals | None = None
) -> ReleasedProducts:
    """A joint distribution of one column over `cells`, from what a release's marginals say about it; `totals` are what
    its pair tables say.
    """
    counted = noise.rows()
    rows, rows_sd = float(counted.value), float(counted.stderr)
    with one_thread():
        fitted = independent((fit_marginal(summary, rows, totals),))
        models: list[Products] = []
        for number in range(REFITS):
            generator = np.random.default_rng([SEED, number])
            again = redrawn_summary(summary, fitted.marginals[0], rows, generator)
            totals_again = None if totals is None else _redrawn_totals(totals, fitted, generator)
            rows_again = max(rows + rows_sd * generator.normal(), 1.0)
            models.append(independent((fit_marginal(again, rows_again, totals_again, fitted.marginals[0]),)))
    column, parents = (cells.column.name,), (parents_in(summary),)
    dropped = (dropped_shares(summary, rows, fitted.marginals[0].shares),)
    return ReleasedProducts(column, (cells,), frozenset(), fitted, lambda: tuple(models), dropped, (lumps,), parents)


def independent(marginals: tuple[Marginal, ...]) -> Products:
    """A joint distribution of columns that do not depend on each other."""
    shares = tuple(marginal.shares for marginal in marginals)
    groups = tuple(np.zeros(len(share), np.int64) for share in shares)
    mixture = Mixture(np.ones(1), (np.ones((1, 1)),) * len(shares), groups, shares)
    return Products(marginals, groups, shares, given=mixture)


def _redrawn_totals(totals: GroupTotals, fitted: Products, generator: np.random.Generator) -> GroupTotals:
    exact = np.bincount(totals.groups, fitted.marginals[0].shares, len(totals.sd))
    return replace(totals, shares=exact + totals.sd * generator.normal(size=len(exact)))
