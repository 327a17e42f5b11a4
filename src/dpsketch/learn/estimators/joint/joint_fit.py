"""From a release's noisy marginals and pair tables or contrasts to a mixture of products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, GroupTotals, Marginal, fit_marginal
from dpsketch.learn.estimators.joint.denoised_pairs import find_dependence
from dpsketch.learn.estimators.joint.descent import Singles, fit_mixture
from dpsketch.learn.estimators.joint.latent_factors import factor_mixture
from dpsketch.learn.estimators.joint.product_mixture import Mixture, shares_in_groups
from dpsketch.learn.estimators.joint.refine import refine, refined_joint, shares_inside
from dpsketch.learn.estimators.joint.table_matrix import Blocks
from dpsketch.learn.shared import made_once
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import PROTOTYPE, STUDY_TABLES, Tuned

COMPONENTS: Annotated[int, Tuned(STUDY_TABLES, by=PROTOTYPE)] = 200
SMALLEST_SHARE = 1e-5
# Standard deviations of a pair's cell: smaller residuals are below the noise.
CLOSE_ENOUGH: Annotated[float, Tuned(STUDY_TABLES, by=PROTOTYPE)] = 0.1

Groups = Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class Products:
    """A joint distribution over the cells of all columns. `groups[j]` is the group of each cell of column j,
    `within[j]` the share of a cell in its group.

    `pairs[i, j]`, i < j, are joint shares of the groups of two columns, freed of noise one by one: no distribution has
    all of them, and answers about pairs are better without that compromise. The compromise, the `mixture`, is fitted to
    `goal`, a matrix of tables, when it is first needed unless it is `given`: up to `close`, from that of `start` if
    there is one. In a fit that refits start from, `common` is what hidden causes explain of its pairs.
    """

    marginals: tuple[Marginal, ...]
    groups: tuple[NDArray[np.int64], ...]
    within: tuple[Floats, ...]
    pairs: Mapping[tuple[int, int], Floats] = field(default_factory=dict)
    goal: Singles | None = None
    close: float = 0.0
    common: Floats | None = None
    start: Products | None = None
    given: Mixture | None = None

    @made_once
    def shares(self) -> tuple[Floats, ...]:
        """Shares of the groups of each column."""
        columns = zip(self.groups, self.marginals, strict=True)
        return tuple(np.bincount(groups, marginal.shares).astype(np.float64) for groups, marginal in columns)

    @made_once
    def mixture(self) -> Mixture:
        if self.given is not None:
            return self.given
        assert self.goal is not None
        known = Blocks([len(share) for share in self.shares]).known(self.pairs)
        first = None if self.start is None else (self.start.mixture.weights, self.start.mixture.shares)
        weights, inside = fit_mixture(self.goal, known, self.shares, COMPONENTS, self.close, first)
        return Mixture(weights, tuple(inside), self.groups, self.within)

    @property
    def made(self) -> bool:
        """Whether the mixture is known."""
        return self.given is not None or "mixture" in vars(self)

    def inside(self, column: int) -> Floats:
        """The share of each cell (row) of a column in each group (column)."""
        return shares_in_groups(self.groups[column], self.within[column])


@dataclass(frozen=True)
class NoisySums:
    """What a release says of its columns and pairs, and how far off. `tables[i, j]`, i < j, are noisy counts of the
    groups of columns i and j; if `halved`, columns have two groups and a table is one number, the contrast of two by
    two counts. The noise of a table has the standard deviation `pair_sd`, divided by the table's weight where it has
    one in `weights`.
    """

    summaries: Sequence[ColumnSummary]
    rows: float
    rows_sd: float
    groups: Groups
    tables: Mapping[tuple[int, int], Floats]
    pair_sd: float
    halved: bool = False
    weights: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def sd_of(self, pair: tuple[int, int]) -> float:
        """Standard deviation of the noise of a table."""
        return self.pair_sd / self.weights.get(pair, 1)

    def share_sds(self) -> Floats:
        """Standard deviations of the noise of joint shares, for each pair of columns: a symmetric matrix."""
        sds = np.full((len(self.groups), len(self.groups)), self.pair_sd / self.rows)
        for i, j in self.weights:
            sds[i, j] = sds[j, i] = self.sd_of((i, j)) / self.rows
        return sds

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
                known = (self.rows / self.sd_of((i, j))) ** 2 / table.shape[axis]
                sums[column] += known / self.rows * table.sum(axis)
                precision[column] += known
        return [
            GroupTotals(group, total / known, np.full(len(total), known**-0.5)) if known else None
            for group, total, known in zip(self.groups, sums, precision, strict=True)
        ]

    def fit(self, start: Products | None = None) -> Products:
        return fit_products(self, start=start)


def fit_products(sums: NoisySums, start: Products | None = None) -> Products:
    """The distribution that explains noisy sums: columns one by one, pairs of groups of their cells together.

    A pair that has no table is taken as independent given the others. Costs no privacy: everything comes from released
    sums. `start`, fitted to similar sums of the same groups, makes the fit several times faster.
    """
    groups, sds = sums.groups, sums.share_sds()
    sizes = [int(group.max()) + 1 for group in groups]
    pairs = {pair: table / sums.rows for pair, table in sums.tables.items()}
    before = [None] * len(sizes) if start is None else start.marginals
    marginals = [
        fit_marginal(summary, sums.rows, total, first)
        for summary, total, first in zip(sums.summaries, sums.totals(), before, strict=True)
    ]
    if sums.halved:
        contrasts = {pair: float(contrast[0, 0]) for pair, contrast in pairs.items()}
        mixture = factor_mixture(
            contrasts, sums.pair_sd / sums.rows, marginals, groups, None if start is None else start.groups
        )
        held = [mixture.weights @ inside for inside in mixture.shares]
        agreed = _agreed(marginals, mixture.groups, held, mixture.within)
        return Products(agreed, mixture.groups, mixture.within, given=mixture)
    shares = group_shares(marginals, groups)
    common = None if start is None else start.common
    dependence = find_dependence(pairs, sds, shares, [summary.ordered for summary in sums.summaries], common)
    given = [None] * len(sizes) if start is None else start.groups
    parts = [refine(*column) for column in zip(marginals, groups, shares, given, strict=True)]
    joint = refined_joint(dependence.found, parts)
    blocks = Blocks([len(part.shares) for part in parts])
    close = CLOSE_ENOUGH * float(sds.min()) * (sum(sizes) / len(joint)) ** 2
    inside = tuple(
        shares_inside(m.shares, part.groups, len(part.shares)) for m, part in zip(marginals, parts, strict=True)
    )
    finer = tuple(part.groups for part in parts)
    agreed = _agreed(marginals, finer, [part.shares for part in parts], inside)
    tables = {(i, j): joint[blocks.of(i), blocks.of(j)].copy() for i, j in pairs}
    common = dependence.common if start is None else None
    return Products(agreed, finer, inside, tables, joint.astype(np.float32), close, common, start)


def group_shares(marginals: Sequence[Marginal], groups: Groups) -> list[Floats]:
    """Shares of the groups of each column's cells, none of them zero."""
    held = (np.bincount(group, marginal.shares) for marginal, group in zip(marginals, groups, strict=True))
    shares = [np.maximum(share, SMALLEST_SHARE) for share in held]
    return [share / share.sum() for share in shares]


def _agreed(
    marginals: Sequence[Marginal], groups: Groups, shares: Sequence[Floats], within: Sequence[Floats]
) -> tuple[Marginal, ...]:
    """Marginals whose groups have these shares."""
    columns = zip(marginals, groups, shares, within, strict=True)
    return tuple(replace(marginal, shares=held[group] * inside) for marginal, group, held, inside in columns)
