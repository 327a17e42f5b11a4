"""Parametric bootstrap: sums that the fitted distribution, and what noise may hide of it, would release with new noise,
to refit and measure errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, Marginal, places_in_parents
from dpsketch.learn.estimators.joint.denoised_pairs import Missed, contrast_of, find_missed
from dpsketch.learn.estimators.joint.joint_fit import Groups, NoisySums, Products, group_shares
from dpsketch.learn.estimators.joint.refine import shares_inside
from dpsketch.learn.estimators.joint.table_matrix import Blocks
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

REFITS: Annotated[int, UNRECORDED] = 8
SEED = 7


def refits(sums: NoisySums, fitted: Products, count: int = REFITS) -> tuple[Products, ...]:
    """Fits to redrawn sums, each less what `missed` tables added to them, on all cores. Generators are seeded: the same
    file gives the same answers everywhere.
    """
    missed = None if sums.halved or not sums.tables else what_is_missed(sums, fitted)

    def refit(number: int) -> Products:
        generator = np.random.default_rng([SEED, number])
        again = redrawn(sums, fitted, generator)
        if missed is None:
            return again.fit(fitted)
        drawn = missed.draw(generator)
        blocks = Blocks([int(group.max()) + 1 for group in sums.groups])
        added = {(i, j): drawn[blocks.of(i), blocks.of(j)] for i, j in sums.tables}
        tables = {pair: table + sums.rows * added[pair] for pair, table in again.tables.items()}
        return _less(replace(again, tables=tables).fit(fitted), added, sums.groups)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(pool.map(refit, range(count)))


def redrawn(sums: NoisySums, fitted: Products, generator: np.random.Generator) -> NoisySums:
    """What would be released of `fitted`, were it the truth."""
    summaries = [
        redrawn_summary(summary, marginal, sums.rows, generator)
        for summary, marginal in zip(sums.summaries, fitted.marginals, strict=True)
    ]
    columns = list(zip(fitted.groups, sums.groups, strict=True))
    tables = {}
    for (i, j), table in sums.tables.items():
        pair = fitted.mixture.grouped_pair(i, j) if sums.halved else fitted.pairs[i, j]
        exact = released_groups(released_groups(pair, *columns[j]).T, *columns[i]).T
        if sums.halved:
            exact = contrast_of(exact)
        tables[i, j] = sums.rows * exact + sums.sd_of((i, j)) * generator.normal(size=table.shape)
    rows = max(sums.rows + sums.rows_sd * generator.normal(), 1.0)
    return replace(sums, summaries=summaries, rows=rows, tables=tables)


def what_is_missed(sums: NoisySums, fitted: Products) -> Missed:
    """Joint shares that the fit may have missed because noise hides them, in the release's groups.

    A fit that shrinks what noise hides finds a weaker dependence than there is, and refits of its own sums find the
    same again: where noise dominates, their spread is far below the error.
    """
    shares, ordered = group_shares(fitted.marginals, sums.groups), [summary.ordered for summary in sums.summaries]
    tables = {pair: table / sums.rows for pair, table in sums.tables.items()}
    return find_missed(tables, sums.share_sds(), shares, ordered)


def _less(refit: Products, missed: Mapping[tuple[int, int], Floats], groups: Groups) -> Products:
    """A refit less what was added to the fit's tables, so that its change from the fit is its error."""
    inside = []
    for parts, shares, group in zip(refit.groups, refit.shares, groups, strict=True):
        parent, size = group[np.unique(parts, return_index=True)[1]], int(group.max()) + 1
        inside.append(np.eye(size)[parent] * shares_inside(shares, parent, size)[:, None])
    pairs = {(i, j): table - inside[i] @ missed[i, j] @ inside[j].T for (i, j), table in refit.pairs.items()}
    return replace(refit, pairs=pairs)


def released_groups(shares: Floats, fine: NDArray[np.int64], groups: NDArray[np.int64]) -> Floats:
    """Shares of the release's groups, a row for each row of shares of the mixture's groups, which are parts of them."""
    coarse = np.empty(shares.shape[1], np.int64)
    coarse[fine] = groups
    found = np.zeros((int(groups.max()) + 1, len(shares)))
    np.add.at(found, coarse, shares.T)
    return found.T


def redrawn_summary(
    summary: ColumnSummary, marginal: Marginal, rows: float, generator: np.random.Generator
) -> ColumnSummary:
    exact = rows * marginal.shares
    counts, positions, centred = exact, None, None
    if summary.finer is not None:
        counts = np.bincount(summary.finer.parent, exact, len(summary.counts)).astype(np.float64)
    if summary.positions is not None and summary.widths is not None:
        held = exact * marginal.offsets
        if summary.finer is not None:
            parent = summary.finer.parent
            held = np.bincount(parent, exact * places_in_parents(summary), len(counts)).astype(np.float64)
        noise = np.where(summary.widths > 0, summary.position_sd, 0.0) * generator.normal(size=len(counts))
        positions = held + noise
    if summary.centred is not None:
        centred = float(exact[:-1] @ (marginal.means()[:-1] - 0.5)) + summary.centred_sd * generator.normal()
    counts = counts + summary.count_sd * generator.normal(size=len(counts))
    return replace(summary, counts=counts, positions=positions, centred=centred)
