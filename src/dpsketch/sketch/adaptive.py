"""Which cells of pair tables a release pools, or how it halves columns, and which pairs it keeps: chosen from its own
noisy marginals and sums of columns, never from exact sums.

The raw sketch keeps fine tables. Their sums in groups of cells are as exact as if they had been counted so; groups and
pairs follow from numbers that are released anyway, so the tables are a second mechanism that was chosen by the first.
Source: docs/proofs/release.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, Finer, fit_marginal
from dpsketch.denoise.groups import choose_groups, choose_halves, groups_wanted, pooling_threshold
from dpsketch.denoise.pair_choice import choose_pairs, spread
from dpsketch.maps.base import BoundMap, Sums
from dpsketch.maps.tables.cells import GRID, POSITION_GRID, Cells
from dpsketch.maps.tables.marginals import BoundMarginals
from dpsketch.maps.tables.pair_map import PairMap
from dpsketch.maps.tables.pairs import BoundPairs
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.schema.columns import LOWEST, SPAN


@dataclass(frozen=True)
class NoisyTotal:
    """The sum of x − ½ over a column's records, off by `sd`: sum number `place` of part number `part`."""

    centred: float
    sd: float
    part: int
    place: int


NoisyTotals = Mapping[str, NoisyTotal]


def settled(
    pending: BoundMap, variance: float, maps: Sequence[BoundMap], noisy: Sequence[Sums], variances: Sequence[float]
) -> BoundMap:
    """What a release shows of a pending map whose noise has this variance, chosen from the noisy sums of the others and
    the variances of theirs.
    """
    assert isinstance(pending, BoundPairs), "no other map leaves a choice to the release"
    return pooled_pairs(pending, variance, maps, noisy, variances)


def pooled_pairs(
    pairs: BoundPairs, pair_variance: float, maps: Sequence[BoundMap], noisy: Sequence[Sums], variances: Sequence[float]
) -> PairMap:
    """What a release shows of `pairs`: groups or halves of the cells of every column, and as many pairs as it keeps,
    from the noisy sums of the other parts and the variances of all noises.
    """
    beside = pairs.marginals_in(maps)
    assert beside is not None, "recipes are checked for it"
    place, marginals = beside
    totals = noisy_totals(maps, noisy, variances)
    summaries = pair_summaries(pairs, marginals, noisy[place], variances[place], totals)
    rows = _rows(maps, noisy, summaries)
    pair_sd = max(sqrt(pair_variance), 1.0) / rows
    wanted = groups_wanted(pair_sd)
    groups, spreads = [], []
    with one_thread():
        for summary in summaries:
            threshold = pooling_threshold(summary.count_sd / rows, pair_sd)
            marginal = fit_marginal(summary, rows)
            shares = marginal.shares
            if pairs.description.contrasts:
                chosen = choose_halves(shares, summary.ordered)
            else:
                chosen = choose_groups(shares, marginal.widths, wanted, threshold)
            groups.append(chosen.tolist())
            spreads.append(spread(np.bincount(chosen, shares).astype(np.float64)))
    return pairs.settled(groups, _kept(pairs, spreads))


def _kept(pairs: BoundPairs, spreads: Sequence[float]) -> list[tuple[str, str]]:
    most = pairs.description.most
    if most is None or most >= len(pairs.pairs):
        return list(pairs.pairs)
    column = {name: number for number, name in enumerate(pairs.columns)}
    members = [(column[one], column[two]) for one, two in pairs.pairs]
    hints = [column[name] for name in pairs.description.hints or ()]
    return [pairs.pairs[place] for place in choose_pairs(spreads, members, most, hints)]


def noisy_totals(maps: Sequence[BoundMap], noisy: Sequence[Sums], variances: Sequence[float]) -> NoisyTotals:
    """What a release says of sums of columns, in `Totals` or beside counts: of each column the one with the least
    noise. Sums without noise are taken as good to one record.
    """
    found: dict[str, NoisyTotal] = {}
    for part, (bound, sums, variance) in enumerate(zip(maps, noisy, variances, strict=True)):
        sd = max(sqrt(variance), float(GRID)) / SPAN
        for name, place in bound.column_totals.items():
            if name not in found or sd < found[name].sd:
                found[name] = NoisyTotal(float(sums[place]) / SPAN, sd, part, place)
    return found


def pair_summaries(
    pairs: PairMap, marginals: BoundMarginals, sums: Sums, variance: float, totals: NoisyTotals
) -> list[ColumnSummary]:
    """What noisy marginals say about the columns of pairs, whose cells may be finer."""
    every = dict(zip(marginals.columns, column_summaries(marginals, sums, variance, totals), strict=True))
    coarse = dict(zip(marginals.columns, marginals.cells, strict=True))
    return [
        replace(every[name], finer=_finer(coarse[name], own))
        for name, own in zip(pairs.columns, pairs.cells, strict=True)
    ]


def _finer(coarse: Cells, cells: Cells) -> Finer | None:
    if cells.cut == coarse.cut:
        return None
    return Finer(parents(coarse, cells), *_geometry_of_levels(cells))


def parents(coarse: Cells, cells: Cells) -> NDArray[np.int64]:
    """The cell of `coarse` that each of `cells` lies in, where bins of the latter divide those of the former evenly."""
    own = cells.firsts[:-1] if cells.binned else cells.column.codes_of(np.arange(cells.column.levels))
    return np.append(coarse.cells(own), coarse.missing)


def column_summaries(
    marginals: BoundMarginals, sums: Sums, variance: float, totals: NoisyTotals
) -> list[ColumnSummary]:
    """What noisy marginals and `totals` say about each column. Counts without noise are taken as good to one record."""
    sd = max(sqrt(variance), float(GRID))
    found = []
    for place, cells in enumerate(marginals.cells):
        counts = sums[marginals.table(place)] / GRID
        centres, widths = _geometry(cells) if cells.ordered else (None, None)
        positions = None
        total = totals.get(marginals.columns[place])
        centred, centred_sd = (None, 0.0) if total is None else (total.centred, total.sd)
        if cells.binned:
            positions = np.zeros(cells.count)
            positions[1 : cells.bins + 1] = sums[marginals.positions(place)] / POSITION_GRID
        found.append(
            ColumnSummary(counts, sd / GRID, centres, widths, positions, sd / POSITION_GRID, centred, centred_sd)
        )
    return found


def _geometry(cells: Cells) -> tuple[Floats, Floats]:
    """Centres and widths of the cells with the bounds at 0 and 1; a single value has no width, missing is at ½."""
    first, last = cells.firsts[:-1], cells.firsts[1:] - 1
    if not cells.binned:
        codes = cells.column.codes_of(np.arange(cells.column.levels)).astype(np.float64)
        return np.append((codes - LOWEST) / SPAN, 0.5), np.zeros(cells.count)
    centres = (first + last - 2 * LOWEST) / (2 * SPAN)
    widths = np.where(last > first, (last - first + 1) / SPAN, 0.0)
    return np.append(centres, 0.5), np.append(widths, 0.0)


def _geometry_of_levels(cells: Cells) -> tuple[Floats, Floats]:
    """The same by the levels in a cell instead of its codes: of integers some cells have one more than others."""
    centres, widths = _geometry(cells)
    if not cells.binned or cells.column.levels > SPAN:
        return centres, widths
    first = cells.first_levels
    codes = cells.column.codes_of(np.arange(cells.column.levels)).astype(np.float64)
    totals, counts = np.append(0.0, np.cumsum(codes - LOWEST)), np.diff(first)
    middle = np.diff(totals[first]) / np.maximum(counts, 1) / SPAN
    own = np.append(np.where(counts > 0, middle, centres[:-1]), 0.5)
    return own, np.where(widths > 0, np.append(counts, 0) / (cells.column.levels - 1), 0.0)


def _rows(maps: Sequence[BoundMap], noisy: Sequence[Sums], summaries: Sequence[ColumnSummary]) -> float:
    """The noisy number of records: of the count or, without one, the mean of the marginals' totals."""
    for bound, sums in zip(maps, noisy, strict=True):
        if bound.only_counts:
            return max(float(sums[0]), 1.0)
    return max(float(np.mean([summary.counts.sum() for summary in summaries])), 1.0)
