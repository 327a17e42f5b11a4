"""Parametric bootstrap: sums that the fitted distribution would release with new noise, to refit and measure errors."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, Marginal, places_in_parents
from dpsketch.learn.estimators.joint.denoised_pairs import contrast_of
from dpsketch.learn.estimators.joint.joint_fit import NoisySums, Products
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

REFITS: Annotated[int, UNRECORDED] = 8
SEED = 7


def refits(sums: NoisySums, fitted: Products, count: int = REFITS) -> tuple[Products, ...]:
    """Fits to redrawn sums, on all cores. Generators are seeded: the same file gives the same answers everywhere."""

    def refit(number: int) -> Products:
        return redrawn(sums, fitted, np.random.default_rng([SEED, number])).fit(fitted)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(pool.map(refit, range(count)))


def redrawn(sums: NoisySums, fitted: Products, generator: np.random.Generator) -> NoisySums:
    """What would be released of `fitted`, were it the truth."""
    summaries = [
        redrawn_summary(summary, marginal, sums.rows, generator)
        for summary, marginal in zip(sums.summaries, fitted.marginals, strict=True)
    ]
    mixture = fitted.mixture
    inside = [released_groups(*column) for column in zip(mixture.shares, mixture.groups, sums.groups, strict=True)]
    tables = {}
    for (i, j), table in sums.tables.items():
        exact = sums.rows * (inside[i] * mixture.weights[:, None]).T @ inside[j]
        if sums.halved:
            exact = contrast_of(exact)
        tables[i, j] = exact + sums.pair_sd * generator.normal(size=table.shape)
    rows = max(sums.rows + sums.rows_sd * generator.normal(), 1.0)
    return replace(sums, summaries=summaries, rows=rows, tables=tables)


def released_groups(shares: Floats, fine: NDArray[np.int64], groups: NDArray[np.int64]) -> Floats:
    """Components' shares of the release's groups; a mixture's own groups are parts of them."""
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
