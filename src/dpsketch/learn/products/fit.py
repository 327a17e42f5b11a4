"""From a release's noisy marginals and pair tables to a mixture of products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsketch.fitting.columns import ColumnSummary, GroupTotals, Marginal, fit_marginal
from dpsketch.learn.products.descent import fit_mixture
from dpsketch.learn.products.mixture import Mixture
from dpsketch.learn.products.pairs import denoise_pairs
from dpsketch.schema import Floats

COMPONENTS = 200
SMALLEST_SHARE = 1e-5
CLOSE_ENOUGH = 0.1  # standard deviations of a pair's cell: nothing nearer can be told from noise

Groups = Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class Products:
    """A joint distribution over the cells of all columns, and each column's cells; their shares agree exactly."""

    mixture: Mixture
    marginals: tuple[Marginal, ...]


def fit_products(
    summaries: Sequence[ColumnSummary],
    rows: float,
    groups: Groups,
    tables: Mapping[tuple[int, int], Floats],
    pair_sd: float,
    components: int = COMPONENTS,
) -> Products:
    """The mixture of products that explains noisy sums: columns one by one, pairs of groups of their cells together.

    `tables[i, j]`, i < j, are noisy counts of the groups of columns i and j, off by `pair_sd` each. A pair that is
    not there is taken as independent given the others. Costs no privacy: everything comes from released sums.
    """
    sizes = [int(group.max()) + 1 for group in groups]
    sd = pair_sd / rows
    pairs = {pair: table / rows for pair, table in tables.items()}
    totals = _group_totals(pairs, sd, groups, sizes)
    marginals = [fit_marginal(summary, rows, total) for summary, total in zip(summaries, totals, strict=True)]
    shares = []
    for marginal, group, size in zip(marginals, groups, sizes, strict=True):
        share = np.maximum(np.bincount(group, marginal.shares, size), SMALLEST_SHARE)
        shares.append(share / share.sum())
    scored = [summary.ordered or size == 2 for summary, size in zip(summaries, sizes, strict=True)]
    joint = denoise_pairs(pairs, sd, shares, scored)
    weights, inside = fit_mixture(joint, shares, components, CLOSE_ENOUGH * sd)
    within = [_within(m.shares, group, size) for m, group, size in zip(marginals, groups, sizes, strict=True)]
    mixture = Mixture(weights, tuple(inside), tuple(groups), tuple(within))
    agreed = (replace(marginal, shares=mixture.marginal(j)) for j, marginal in enumerate(marginals))
    return Products(mixture, tuple(agreed))


def _group_totals(
    pairs: Mapping[tuple[int, int], Floats], sd: float, groups: Groups, sizes: Sequence[int]
) -> list[GroupTotals | None]:
    """What the pair tables say about single columns: the mean of their row sums, weighted by precision."""
    sums = [np.zeros(size) for size in sizes]
    precision = [0.0] * len(sizes)
    for (i, j), table in pairs.items():
        for column, axis in ((i, 1), (j, 0)):
            known = 1 / (table.shape[axis] * sd**2)
            sums[column] += known * table.sum(axis)
            precision[column] += known
    return [
        GroupTotals(group, total / known, np.full(len(total), known**-0.5)) if known else None
        for group, total, known in zip(groups, sums, precision, strict=True)
    ]


def _within(shares: Floats, groups: NDArray[np.int64], size: int) -> Floats:
    """Shares of the cells in their groups; equal in a group without mass."""
    total, cells = np.bincount(groups, shares, size)[groups], np.bincount(groups, minlength=size)[groups]
    return np.where(total > 0, shares / np.where(total > 0, total, 1.0), 1 / cells)
