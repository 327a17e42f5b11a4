"""Pair tables or contrasts whose groups of cells, and which pairs, a release chooses by its own noisy marginals.

The raw sketch keeps fine tables. Their sums in groups of cells are as exact as if they had been counted so; groups and
pairs follow from numbers that are released anyway, so the tables are a second mechanism that was chosen by the first.
Source: docs/proofs/release.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary, fit_marginal
from dpsketch.denoise.groups import choose_groups, choose_halves, groups_wanted, pooling_threshold
from dpsketch.denoise.pair_choice import choose_pairs, spread
from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, NoisyPart, Sums, check_columns, check_whole
from dpsketch.maps.tables.column_summaries import coarse_shares, joint_cells, noisy_totals, pair_summaries, widths_of
from dpsketch.maps.tables.contrasts import BoundContrasts, Contrasts
from dpsketch.maps.tables.count_tables import CountTables
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.maps.tables.pair_map import PairMap
from dpsketch.maps.tables.pairs import MOST_PAIRS, BoundPairs, Pairs
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.schema.columns import Category
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class AdaptivePairs(Pairs):
    """Fine pair tables in the raw sketch; a release chooses groups of their cells from its own noisy marginals. The
    recipe needs `Marginals` of these columns with as many bins, or with fewer that these divide evenly.

    With `most`, a release also chooses that many of the pairs, and its noise is that of these alone; `important` pairs
    are always among them, and pairs with a column of `hints` come next. With `contrasts`, it cuts each column in two
    halves instead, and shows one number a pair: `Contrasts`.
    """

    pool: bool = True
    most: int | None = None
    hints: tuple[str, ...] | None = None
    contrasts: bool = False

    absent: ClassVar[Mapping[str, Any]] = {**Pairs.absent, "most": None, "hints": None, "contrasts": False}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups is not None:
            raise RecipeError("Pairs: groups are either given or chosen by the release", "leave out pool or groups")
        if not self.pool:
            raise RecipeError("AdaptivePairs: pool must be true", "pass Pairs, whose tables are shown as they are")
        check_rule(vars(self))
        object.__setattr__(self, "hints", check_columns("Pairs", self.hints, "hints"))

    def kept(self, schema: Schema) -> int:
        """The number of tables or contrasts that a release shows."""
        every = len(self.tables(schema))
        return every if self.most is None else min(self.most, every)

    def unsettled(self) -> Pairs:
        if self.contrasts:
            return AdaptivePairs(bins=self.bins, tapered=self.tapered, contrasts=True)
        return Pairs(bins=self.bins, tapered=self.tapered, important=self.important, times=self.times)

    def bind(self, schema: Schema) -> BoundAdaptivePairs:
        return BoundAdaptivePairs(self, schema)


def check_rule(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters of `Pairs` that are no rule by which a release can choose."""
    pool, contrasts = parameters.get("pool", False), parameters.get("contrasts", False)
    most, hints = parameters.get("most"), check_columns("Pairs", parameters.get("hints"), "hints")
    if not isinstance(contrasts, bool):
        raise RecipeError(f"Pairs: contrasts must be true or false, got {contrasts!r} instead")
    if contrasts and not pool:
        raise RecipeError(
            "Pairs: contrasts need pool: a release chooses the halves of columns",
            "pass pool=True, or Contrasts with halves of your own",
        )
    if contrasts and parameters.get("important") is not None:
        raise RecipeError("Pairs: contrasts have no weights, so none are important", "leave out important or contrasts")
    if most is not None:
        check_whole("Pairs", "most", most, 1, MOST_PAIRS)
        if not pool:
            raise RecipeError(
                "Pairs: most needs pool: a release chooses pairs as it chooses groups", "pass pool=True, or list pairs"
            )
    if hints is not None and most is None:
        raise RecipeError(
            "Pairs: hints say which pairs are kept first when not all are", "pass most, or leave out hints"
        )


class BoundAdaptivePairs(BoundPairs):
    """Guarantee: whatever `settle` returns has the sensitivities of `noised`, and `coarsen` gives its exact sums.
    Source: docs/proofs/pairs.md.
    """

    adaptive = True
    description: AdaptivePairs

    def __init__(self, description: AdaptivePairs, schema: Schema) -> None:
        super().__init__(description, schema)
        for name in description.hints or ():
            if name not in self.columns:
                raise RecipeError(
                    f"Pairs: hints name '{name}', which is not among the columns", "add it to columns, or leave it out"
                )
        most, important = description.kept(schema), description.important or ()
        if most < len(important):
            raise RecipeError(
                f"Pairs: a release keeps {most} pairs, fewer than the {len(important)} important ones", "raise most"
            )
        wanted = {frozenset(pair) for pair in important}
        self._always = {index for index, pair in enumerate(self.pairs) if frozenset(pair) in wanted}

    def depends_on(self, other: BoundMap) -> bool:
        return chosen_from(other)

    def check_beside(self, maps: Sequence[BoundMap]) -> None:
        if self.marginals_in(maps) is None:
            raise RecipeError(
                "Pairs: pool needs Marginals of the same columns with the same number of bins, or a fraction of it",
                f"add Part(Marginals(bins={self.bins}), share=0.4) to the recipe, or leave out pool",
            )

    def noised(self) -> PairMap:
        """As many tables or contrasts as a release shows: the important ones, then the first others. Which others it
        chooses, and how it cuts columns, makes no difference to their sensitivities.
        """
        others = [index for index in range(len(self.pairs)) if index not in self._always]
        chosen = [*self._always, *others][: self.description.kept(self.schema)]
        kept = tuple(self.pairs[index] for index in sorted(chosen))
        if self.description.contrasts:
            return self.settled([[0] + [1] * (own.count - 1) for own in self.cells], kept)
        return self.coarsened(None, kept)

    def settle(self, earlier: Sequence[NoisyPart], variance: float) -> PairMap:
        """Groups or halves of the cells of every column, and as many pairs as a release keeps: from the noisy
        marginals, sums of columns and count of the same release.
        """
        beside = self.marginals_in([part.map for part in earlier])
        assert beside is not None, "recipes are checked for it"
        rows, columns = fitted_columns(self, beside, earlier)
        pair_sd = max(sqrt(variance), 1.0) / rows
        wanted = groups_wanted(pair_sd)
        groups, spreads = [], []
        for own, (shares, cell_sd) in zip(self.cells, columns, strict=True):
            if self.description.contrasts:
                chosen = choose_halves(shares, not isinstance(own.column, Category) or own.column.in_order)
            else:
                chosen = choose_groups(shares, widths_of(own), wanted, pooling_threshold(cell_sd, pair_sd))
            groups.append(chosen.tolist())
            spreads.append(spread(np.bincount(chosen, shares).astype(np.float64)))
        return self.settled(groups, self._kept(spreads))

    def _kept(self, spreads: Sequence[float]) -> Sequence[tuple[str, str]]:
        most = self.description.kept(self.schema)
        if most == len(self.pairs):
            return self.pairs
        column = {name: number for number, name in enumerate(self.columns)}
        members = [(column[one], column[two]) for one, two in self.pairs]
        hints = [column[name] for name in self.description.hints or ()]
        return [self.pairs[place] for place in choose_pairs(spreads, members, most, hints, self._always)]

    def settle_as(self, other: BoundMap) -> PairMap:
        """The groups or halves, and the pairs, of `other`."""
        if not isinstance(other, PairMap) or other.adaptive or other.halved != self.description.contrasts:
            raise RecipeError("Pairs: the other release has no groups of such tables or contrasts")
        return self.settled(other.groups_of_cells, other.pairs)

    def settled(self, groups: Sequence[Sequence[int]], pairs: Sequence[tuple[str, str]]) -> PairMap:
        """Tables with these groups of cells, or contrasts with these halves, of as many pairs as a release keeps."""
        kept, always = self.description.kept(self.schema), {self.pairs[index] for index in self._always}
        if len(pairs) != kept or not always <= set(pairs) <= set(self.pairs):
            which = ", the important ones among them" if always else ""
            raise RecipeError(f"Pairs: a release keeps {kept} of the pairs{which}")
        tables = self.coarsened(groups, pairs)
        if not self.description.contrasts:
            return tables
        facts = tables.description
        halved = Contrasts(tables.groups_of_cells, facts.columns, facts.bins, facts.pairs, facts.tapered)
        return halved.bind(self.schema)

    def coarsen(self, sums: Sums, settled: BoundMap) -> Sums:
        if isinstance(settled, BoundContrasts):
            return settled.of_tables(self.coarse_sums(sums, settled.tables))
        if not isinstance(settled, BoundPairs):
            raise RecipeError("Pairs: coarse sums are those of pair tables or contrasts")
        return self.coarse_sums(sums, settled)


def chosen_from(other: BoundMap) -> bool:
    """Whether groups of cells are chosen from the noisy sums of this map."""
    return isinstance(other, OneWayMap) or other.only_counts or bool(other.column_totals)


def fitted_columns(
    tables: CountTables, beside: tuple[int, OneWayMap], earlier: Sequence[NoisyPart]
) -> tuple[float, list[tuple[Floats, float]]]:
    """The number of records, and of each column of `tables` the shares of its cells, fitted to the noisy marginals of
    the part `beside` and to the sums of columns, with the standard deviation of a noisy share.
    """
    place, marginals = beside
    maps, noisy, variances = ([getattr(part, name) for part in earlier] for name in ("map", "sums", "variance"))
    totals = noisy_totals(maps, noisy, variances)
    summaries = pair_summaries(tables, marginals, noisy[place], variances[place], totals)
    rows = _rows(earlier, summaries)
    with one_thread():
        shares = [fit_marginal(summary, rows).shares for summary in summaries]
    columns = zip(tables.cells, joint_cells(tables, marginals), shares, summaries, strict=True)
    return rows, [(coarse_shares(own, fine, cells), summary.count_sd / rows) for cells, fine, own, summary in columns]


def _rows(parts: Sequence[NoisyPart], summaries: Sequence[ColumnSummary]) -> float:
    """The noisy number of records: of the count or, without one, the mean of the marginals' totals."""
    for part in parts:
        if part.map.only_counts:
            return max(float(part.sums[0]), 1.0)
    return max(float(np.mean([summary.counts.sum() for summary in summaries])), 1.0)
