"""The distribution of one column by itself, as smooth as its noise allows: no pair table is needed for it."""

from __future__ import annotations

import numpy as np

from dpsketch.fitting.columns import ColumnSummary, fit_marginal
from dpsketch.learn.products.bootstrap import REFITS, SEED, redrawn
from dpsketch.learn.products.fit import NoisySums, Products
from dpsketch.learn.products.mixture import Mixture
from dpsketch.learn.products.released import ReleasedProducts
from dpsketch.learn.release_noise import ReleaseNoise
from dpsketch.maps.marginals import BoundMarginals
from dpsketch.sketch.pooling import column_summaries
from dpsketch.sketch.released import ReleasedPart


def fit_column(noise: ReleaseNoise, part: ReleasedPart, place: int) -> ReleasedProducts:
    """A joint distribution of one column, given by its place among those of a marginals part."""
    from threadpoolctl import threadpool_limits

    bound = part.map
    assert isinstance(bound, BoundMarginals)
    summary = column_summaries(bound, part.sums, part.noise_variance)[place]
    rows = noise.rows()
    one_group = [np.zeros(len(summary.counts), np.int64)]
    sums = NoisySums([summary], float(rows.value), float(rows.stderr), one_group, {}, 1.0)
    with threadpool_limits(1):  # matrices are small: threads would wait for each other
        fitted = _fitted(summary, sums.rows)
        again = [redrawn(sums, fitted, np.random.default_rng([SEED, number])) for number in range(REFITS)]
        models = (fitted, *(_fitted(each.summaries[0], each.rows) for each in again))
    return ReleasedProducts((bound.columns[place],), (bound.cells[place],), 0, models, summary.count_sd / sums.rows)


def _fitted(summary: ColumnSummary, rows: float) -> Products:
    marginal = fit_marginal(summary, rows)
    groups = np.zeros(len(marginal.shares), np.int64)
    return Products(Mixture(np.ones(1), (np.ones((1, 1)),), (groups,), (marginal.shares,)), (marginal,))
