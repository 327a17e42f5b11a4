"""The distribution of one column by itself, as smooth as its noise allows: the joint fit is not needed for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpsketch.fitting.columns import ColumnSummary, GroupTotals, Marginal, fit_marginal, lumpiness
from dpsketch.fitting.threads import one_thread
from dpsketch.learn.products.bootstrap import REFITS, SEED, redrawn_summary
from dpsketch.learn.products.fit import Products
from dpsketch.learn.products.mixture import Mixture
from dpsketch.learn.products.released import ReleasedProducts
from dpsketch.learn.release_noise import ReleaseNoise
from dpsketch.maps.marginals import BoundMarginals
from dpsketch.sketch.pooling import column_summaries
from dpsketch.sketch.released import ReleasedPart


def fit_column(noise: ReleaseNoise, part: ReleasedPart, place: int, totals: GroupTotals | None) -> ReleasedProducts:
    """A joint distribution of one column, given by its place among those of a marginals part; `totals` are what pair
    tables say about it.
    """
    bound = part.map
    assert isinstance(bound, BoundMarginals)
    summary = column_summaries(bound, part.sums, part.noise_variance)[place]
    counted = noise.rows()
    rows, rows_sd = float(counted.value), float(counted.stderr)
    with one_thread():
        fitted = _fitted(summary, rows, totals)
        models: list[Products] = []
        for number in range(REFITS):
            generator = np.random.default_rng([SEED, number])
            again = redrawn_summary(summary, fitted.marginals[0], rows, generator)
            totals_again = None if totals is None else _redrawn_totals(totals, fitted, generator)
            models.append(_fitted(again, max(rows + rows_sd * generator.normal(), 1.0), totals_again))
    column, cells, sd = (bound.columns[place],), (bound.cells[place],), summary.count_sd / rows
    return ReleasedProducts(column, cells, frozenset(), fitted, lambda: tuple(models), sd, (lumpiness(summary),))


def _fitted(summary: ColumnSummary, rows: float, totals: GroupTotals | None) -> Products:
    return independent((fit_marginal(summary, rows, totals),))


def independent(marginals: tuple[Marginal, ...]) -> Products:
    """A joint distribution of columns that do not depend on each other."""
    shares = tuple(marginal.shares for marginal in marginals)
    groups = tuple(np.zeros(len(share), np.int64) for share in shares)
    return Products(Mixture(np.ones(1), (np.ones((1, 1)),) * len(shares), groups, shares), marginals)


def _redrawn_totals(totals: GroupTotals, fitted: Products, generator: np.random.Generator) -> GroupTotals:
    exact = np.bincount(totals.groups, fitted.marginals[0].shares, len(totals.sd))
    return replace(totals, shares=exact + totals.sd * generator.normal(size=len(exact)))
