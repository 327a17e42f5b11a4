"""Baseline: the whole budget on marginals, with columns assumed independent."""

from __future__ import annotations

import time

import dpsketch as dps
from benchmarks.m2m.answers import Independent
from benchmarks.m2m.ours import released_by
from benchmarks.m2m.tables import Table
from dpsketch.denoise.column_fit import fit_marginal
from dpsketch.learn.estimators.release_noise import ReleaseNoise, released_totals
from dpsketch.maps.tables.column_summaries import column_summaries
from dpsketch.maps.tables.marginals import BoundMarginals
from dpsketch.recipe.tasks.task import marginal_bins

SHARE_ROWS = 0.03


def marginals_only(table: Table, budget: dps.Budget) -> Independent:
    share = 1 - SHARE_ROWS
    bins = marginal_bins(table.declared_rows * share * budget.strength / len(table.columns))
    recipe = dps.Recipe([dps.Part(dps.Count(), SHARE_ROWS), dps.Part(dps.Marginals(bins=bins), share)])
    released, _ = released_by(table, recipe, budget)
    start = time.process_time()
    part = released.parts[1]
    assert isinstance(part.map, BoundMarginals)
    rows = max(float(ReleaseNoise(released).rows().value), 1.0)
    totals = released_totals(released)
    summaries = column_summaries(part.map, part.sums, part.noise_variance, totals)
    fits = [fit_marginal(each, rows) for each in summaries]
    return Independent(table, fits, time.process_time() - start)
