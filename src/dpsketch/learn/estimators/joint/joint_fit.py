"""From a release's noisy marginals and pair tables or contrasts to a mixture of products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, GroupTotals, Marginal, fit_marginal
from dpsketch.learn.estimators.joint.denoised_pairs import find_dependence
from dpsketch.learn.estimators.joint.descent import fit_mixture
from dpsketch.learn.estimators.joint.latent_factors import factor_mixture
from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.learn.estimators.joint.refine import refine, refined_joint, shares_inside
from dpsketch.learn.estimators.joint.table_matrix import Blocks
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import PROTOTYPE, STUDY_TABLES, Tuned

COMPONENTS: Annotated[int, Tuned(STUDY_TABLES, by=PROTOTYPE)] = 200
SMALLEST_SHARE = 1e-5
# Standard deviations of a pair's cell: smaller residuals are below the noise.
CLOSE_ENOUGH: Annotated[float, Tuned(STUDY_TABLES, by=PROTOTYPE)] = 0.1

Groups = Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class Products:
    """A joint distribution over the cells of all columns, and each column's cells; their shares agree exactly.

    `left[i, j]`, i < j, is what the mixture leaves of the pair table that it was fitted to, in shares of its groups: no
    distribution has all tables that were freed of noise one by one, and answers about pairs are better without that
    compromise.
    """

    mixture: Mixture
    marginals: tuple[Marginal, ...]
    left: Mapping[tuple[int, int], Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class NoisySums:
    """What a release says of its columns and pairs, and how far off. `tables[i, j]`, i < j, are noisy counts of the
    groups of columns i and j, off by `pair_sd` each; if `halved`, columns have two groups and a table is one number,
    the contrast of two by two counts.
    """

    summaries: Sequence[ColumnSummary]
    rows: float
    rows_sd: float
    groups: Groups
    tables: Mapping[tuple[int, int], Floats]
    pair_sd: float
    halved: bool = False

    def totals(self) -> list[GroupTotals | None]:
        """What the pair tables say about single columns: the mean of their row sums, weighted by precision.
        Contrasts say nothing.
        """
        if self.halved:
            return [None] * len(self.groups)
        sums = [np.zeros(int(group.max()) + 1) for group in self.groups]
        precision = [0.0] * len(sums)
        for (i, j), table in self.tables.items():
            for column, axis in ((i, 1), (j, 0)):
                known = (self.rows / self.pair_sd) ** 2 / table.shape[axis]
                sums[column] += known / self.rows * table.sum(axis)
                precision[column] += known
        return [
            GroupTotals(group, total / known, np.full(len(total), known**-0.5)) if known else None
            for group, total, known in zip(self.groups, sums, precision, strict=True)
        ]

    def fit(self, start: Products | None = None) -> Products:
        return fit_products(self, start=start)


def fit_products(sums: NoisySums, components: int = COMPONENTS, start: Products | None = None) -> Products:
    """The mixture of products that explains noisy sums: columns one by one, pairs of groups of their cells together.

    A pair that has no table is taken as independent given the others. Costs no privacy: everything comes from released
    sums. `start`, fitted to similar sums of the same groups, makes the fit several times faster.
    """
    groups, sd = sums.groups, sums.pair_sd / sums.rows
    sizes = [int(group.max()) + 1 for group in groups]
    pairs = {pair: table / sums.rows for pair, table in sums.tables.items()}
    before = [None] * len(sizes) if start is None else start.marginals
    marginals = [
        fit_marginal(summary, sums.rows, total, first)
        for summary, total, first in zip(sums.summaries, sums.totals(), before, strict=True)
    ]
    if sums.halved:
        contrasts = {pair: float(contrast[0, 0]) for pair, contrast in pairs.items()}
        return _agreed(
            factor_mixture(contrasts, sd, marginals, groups, None if start is None else start.mixture.groups),
            marginals,
            {},
        )
    shares = group_shares(marginals, groups)
    found = find_dependence(pairs, sd, shares, [summary.ordered for summary in sums.summaries])
    given = [None] * len(sizes) if start is None else start.mixture.groups
    parts = [refine(*column) for column in zip(marginals, groups, shares, given, strict=True)]
    joint = refined_joint(found, parts)
    blocks = Blocks([len(part.shares) for part in parts])
    known = blocks.known(pairs)
    close = CLOSE_ENOUGH * sd * (sum(sizes) / len(joint)) ** 2
    first = None if start is None else (start.mixture.weights, start.mixture.shares)
    weights, inside = fit_mixture(joint, known, [part.shares for part in parts], components, close, first)
    within = [shares_inside(m.shares, part.groups, len(part.shares)) for m, part in zip(marginals, parts, strict=True)]
    mixture = Mixture(weights, tuple(inside), tuple(part.groups for part in parts), tuple(within))
    left = {(i, j): joint[blocks.of(i), blocks.of(j)] - mixture.grouped_pair(i, j) for i, j in pairs}
    return _agreed(mixture, marginals, left)


def group_shares(marginals: Sequence[Marginal], groups: Groups) -> list[Floats]:
    """Shares of the groups of each column's cells, none of them zero."""
    held = (np.bincount(group, marginal.shares) for marginal, group in zip(marginals, groups, strict=True))
    shares = [np.maximum(share, SMALLEST_SHARE) for share in held]
    return [share / share.sum() for share in shares]


def _agreed(mixture: Mixture, marginals: Sequence[Marginal], left: Mapping[tuple[int, int], Floats]) -> Products:
    shares = (mixture.marginal(column) for column in range(len(marginals)))
    agreed = (replace(marginal, shares=share) for marginal, share in zip(marginals, shares, strict=True))
    return Products(mixture, tuple(agreed), left)
