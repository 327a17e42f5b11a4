"""What noisy marginals and sums of columns say about each column, in cells of tables and units of its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary, Finer
from dpsketch.maps.base import BoundMap, Sums
from dpsketch.maps.tables.cells import GRID, POSITION_GRID, Cells, common_cells
from dpsketch.maps.tables.count_tables import CountTables
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.maps.tables.pair_map import PairMap
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import LOWEST, SPAN


@dataclass(frozen=True)
class NoisyTotal:
    """The sum of x − ½ over a column's records, off by `sd`: sum number `place` of part number `part`."""

    centred: float
    sd: float
    part: int
    place: int


NoisyTotals = Mapping[str, NoisyTotal]


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
    pairs: PairMap | CountTables, marginals: OneWayMap, sums: Sums, variance: float, totals: NoisyTotals
) -> list[ColumnSummary]:
    """What noisy marginals say about the columns of pairs or triples, in `joint_cells`, which may be finer."""
    every = dict(zip(marginals.columns, column_summaries(marginals, sums, variance, totals), strict=True))
    coarse = dict(zip(marginals.columns, marginals.cells, strict=True))
    return [
        replace(every[own.column.name], finer=_finer(coarse[own.column.name], own))
        for own in joint_cells(pairs, marginals)
    ]


def joint_cells(pairs: PairMap | CountTables, marginals: OneWayMap) -> list[Cells]:
    """The cells of the columns of pairs or triples in which neither these nor their marginals cut."""
    coarse = dict(zip(marginals.columns, marginals.cells, strict=True))
    return [common_cells(own, coarse[own.column.name]) for own in pairs.cells]


def _finer(coarse: Cells, cells: Cells) -> Finer | None:
    if cells.cut == coarse.cut:
        return None
    return Finer(parents(coarse, cells), *_geometry_of_levels(cells))


def parents(coarse: Cells, cells: Cells) -> NDArray[np.int64]:
    """The cell of `coarse` that each of `cells` lies in, where bins of the latter divide those of the former evenly."""
    return np.append(coarse.cells(cells.column.codes_of(cells.first_levels[:-1])), coarse.missing)


def coarse_shares(shares: Floats, cells: Cells, coarse: Cells) -> Floats:
    """Shares of `coarse` from those of cells that divide them."""
    return np.bincount(parents(coarse, cells), shares, coarse.count).astype(np.float64)


def widths_of(cells: Cells) -> Floats | None:
    """Widths of the cells on the scale of the bounds, 0 of a single value; None of a column without order."""
    return _geometry_of_levels(cells)[1] if cells.ordered else None


def column_summaries(marginals: OneWayMap, sums: Sums, variance: float, totals: NoisyTotals) -> list[ColumnSummary]:
    """What noisy marginals and `totals` say about each column. Counts without noise are taken as good to one record."""
    sd = max(sqrt(variance), float(marginals.grid))
    found = []
    for place, cells in enumerate(marginals.cells):
        counts = sums[marginals.table(place)] / marginals.grid
        geometry = _geometry_of_levels if cells.chosen else _geometry
        centres, widths = geometry(cells) if cells.ordered else (None, None)
        positions = None
        total = totals.get(marginals.columns[place])
        centred, centred_sd = (None, 0.0) if total is None else (total.centred, total.sd)
        where = marginals.positions(place)
        if where.stop > where.start:
            positions = np.zeros(cells.count)
            positions[1 : cells.bins + 1] = sums[where] / POSITION_GRID
        found.append(
            ColumnSummary(
                counts,
                sd / marginals.grid,
                centres,
                widths,
                positions,
                sd / POSITION_GRID,
                centred,
                centred_sd,
                compressed=cells.column.scale is not None,
            )
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
    if not cells.chosen and (not cells.binned or cells.column.levels > SPAN):
        return centres, widths
    first = cells.first_levels
    codes = cells.column.codes_of(np.arange(cells.column.levels)).astype(np.float64)
    totals, counts = np.append(0.0, np.cumsum(codes - LOWEST)), np.diff(first)
    middle = np.diff(totals[first]) / np.maximum(counts, 1) / SPAN
    own = np.append(np.where(counts > 0, middle, centres[:-1]), 0.5)
    return own, np.where(cells.single, 0.0, np.append(counts, 0) / (cells.column.levels - 1))
