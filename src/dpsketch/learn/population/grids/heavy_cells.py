"""Heavy cells of a grid, from coarse to fine, and a distribution over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.population.grids.grid_cells import GridCells, Ranks
from dpsketch.learn.population.grids.level_counters import SPREAD, GridTable
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.simplex import project_groups
from dpsketch.numerics.tuned import BY_HAND, GRID_TABLES, PROTOTYPE, UNRECORDED, Tuned

MOST_CELLS = 1 << 21  # looked at at one level
# Coarsest levels, which are too coarse to stop at.
ALWAYS_SPLIT: Annotated[int, Tuned(GRID_TABLES, by=PROTOTYPE)] = 3
# Standard deviations of all children's noise together, above which a cell is split.
WORTH: Annotated[float, UNRECORDED] = 0.5
# Standard deviations, below zero or between a cell and its children, that only shared counters explain.
ODD: Annotated[float, UNRECORDED] = 6.0
# Standard deviations at which missing values are significant, all together.
STANDS_OUT: Annotated[float, UNRECORDED] = 4.0
ALONE: Annotated[float, UNRECORDED] = 10.0  # the same for one cell

# Share of the cells of missing values that have a counter to themselves, from which only they are evidence.
ENOUGH_ALONE: Annotated[float, Tuned("no table", by=BY_HAND, decision=48)] = 0.1


@dataclass(frozen=True)
class LevelCells:
    """Cells of one level that carry mass by themselves; `masses` are records, `variances` their mean square errors: of
    the noise and, of a search, the square of what it moved the noisy count by.
    """

    position: int
    ranks: Ranks
    masses: Floats
    variances: Floats


@dataclass
class _Looked:
    """Cells of a level as the search saw them: the cell at the level before that each is in, what the counters say with
    its variance, and which of them were split.
    """

    ranks: Ranks
    parents: NDArray[np.int64]
    counts: Floats
    variances: Floats
    split: NDArray[np.bool_]


def search(
    cells: GridCells,
    tables: Sequence[GridTable],
    recovery: str,
    total: float | None,
    total_variance: float = 0.0,
    smooth: bool = False,
) -> list[LevelCells]:
    """Split heavy cells level by level; then share out the total from the coarsest level down.

    A cell that holds less than the noise of its children keeps its mass. Each cell's estimate is joined with its
    children's by their variances, and what children get are the nearest nonnegative numbers with their parent's sum.
    `smooth` draws them towards an even spread first: nearer in single cells, farther in sums over many of them.
    Source: density sec. 3 and App. D (a heap of the noisy table); RESEARCH "Density sketch" (coarse to fine, simplex).
    """
    seen = _look(cells, tables, recovery, total)
    return _shared_out(cells, seen, total, total_variance, smooth)


def _look(cells: GridCells, tables: Sequence[GridTable], recovery: str, total: float | None) -> list[_Looked]:
    variances = [table.variance(recovery) for table in tables]
    ranks = cells.every(0)
    ranks = ranks[:, ~missing_in(cells, 0, ranks, never_missing(cells, tables[0], recovery))]
    parents = np.zeros(ranks.shape[1], np.int64)
    masses: Floats | None = None
    seen: list[_Looked] = []
    for position in range(len(cells.levels)):
        found, errors = tables[position].separated(cells.numbers(position, ranks), recovery)
        found = np.maximum(found, -ODD * np.sqrt(variances[position]))
        if masses is None:
            masses = np.array([max(found.sum() if total is None else total, 1.0)])
        masses = project_groups(found, parents, masses)
        seen.append(_Looked(ranks, parents, found, errors, np.zeros(len(found), bool)))
        if position + 1 == len(cells.levels):
            break
        split = _worth_splitting(cells, position, ranks, masses, variances[position + 1])
        seen[-1].split = split
        if not split.any():
            break
        masses = masses[split]
        ranks, parents = cells.split(position, ranks[:, split])
    return seen


def never_missing(cells: GridCells, table: GridTable, recovery: str) -> list[bool]:
    """Columns of whose cells of missing values, at the coarsest level, neither all together nor any by itself is
    significant: their rows then have no missing values. One or two rows of counters do not tell which of the cells that
    share a counter holds its records: such cells of missing values are no evidence.
    """
    ranks = cells.every(0)
    numbers = cells.numbers(0, ranks)
    found, variances = table.separated(numbers, recovery)
    evident = np.ones(len(found), bool) if table.rows >= SPREAD else table.by_themselves(numbers)
    never = []
    for column, own in zip(cells.columns, ranks, strict=True):
        here = (own == column.count(0) - 1) & column.missing
        seen = here & evident
        if seen.sum() < ENOUGH_ALONE * here.sum():
            seen = here
        together = STANDS_OUT * np.sqrt(variances[seen].sum())
        alone = found[seen] > ALONE * np.sqrt(variances[seen])
        never.append(bool(column.missing and found[seen].sum() <= together and not alone.any()))
    return never


def missing_deviations(cells: GridCells, table: GridTable, recovery: str) -> Floats:
    """Standard deviation of the number of records with a missing value in each column, at the coarsest level."""
    ranks = cells.every(0)
    _, variances = table.separated(cells.numbers(0, ranks), recovery)
    here = [(own == column.count(0) - 1) & column.missing for column, own in zip(cells.columns, ranks, strict=True)]
    return np.sqrt([variances[own].sum() for own in here])


def missing_in(cells: GridCells, position: int, ranks: Ranks, columns: Sequence[bool]) -> NDArray[np.bool_]:
    """Cells of missing values of some columns."""
    found = np.zeros(ranks.shape[1], bool)
    for column, own, wanted in zip(cells.columns, ranks, columns, strict=True):
        if wanted:
            found |= own == column.count(position) - 1
    return found


def _worth_splitting(
    cells: GridCells, position: int, ranks: Ranks, masses: Floats, variance: float
) -> NDArray[np.bool_]:
    """Cells with more mass than WORTH times the noise of their children, the heaviest up to MOST_CELLS children."""
    children = cells.child_counts(position, ranks)
    least = WORTH * np.sqrt(max(variance, 1.0) * children)
    worth = masses > (0.0 if cells.levels[position] < ALWAYS_SPLIT else least)
    order = np.argsort(-masses, kind="stable")
    fits = np.cumsum(np.where(worth, children, 0)[order]) <= MOST_CELLS
    worth[order[~fits]] = False
    return worth


def _shared_out(
    cells: GridCells,
    seen: list[_Looked],
    total: float | None,
    total_variance: float,
    smooth: bool,
) -> list[LevelCells]:
    joined, spread = _joined(seen)
    first, deviation = joined[0].sum(), spread[0].sum()
    if total is not None:
        weight = deviation / max(deviation + total_variance, 1e-300)
        first = first + weight * (total - first)
    masses = np.array([max(first, 1.0)])
    found = []
    for position, looked in enumerate(seen):
        wanted = joined[position]
        if smooth and position:
            sizes = cells.values(position, looked.ranks)
            wanted = _shrunk(wanted, spread[position], sizes, looked.parents, masses)
        masses = project_groups(wanted, looked.parents, masses)
        kept = ~looked.split
        moved = (masses - joined[position])[kept]
        found.append(LevelCells(position, looked.ranks[:, kept], masses[kept], spread[position][kept] + moved**2))
        masses = masses[looked.split]
    return found


def _shrunk(counts: Floats, variances: Floats, sizes: Floats, parents: NDArray[np.int64], masses: Floats) -> Floats:
    """Children's estimates drawn towards an even spread of their parent's mass, the more the less they differ from it
    in units of their noise. Source: James and Stein 1961, the positive part.
    """
    group = len(masses)
    children = np.bincount(parents, minlength=group)
    even = sizes * (masses / np.bincount(parents, sizes, group))[parents]
    apart = counts - even
    apart -= (np.bincount(parents, apart, group) / children)[parents]
    noise = np.bincount(parents, variances, group) * (children - 1) / children
    square = np.bincount(parents, apart**2, group)
    kept = np.maximum(1 - noise / np.maximum(square, 1e-300), 0.0)
    return even + kept[parents] * apart


def _joined(seen: list[_Looked]) -> tuple[list[Floats], list[Floats]]:
    """Every cell's estimate from its own counter and its descendants', and its variance, from fine to coarse.
    Source: Hay, Rastogi, Miklau and Suciu 2010, sec. 4.1.
    """
    joined = [looked.counts.copy() for looked in seen]
    spread = [looked.variances.copy() for looked in seen]
    for position in range(len(seen) - 2, -1, -1):
        split = seen[position].split
        below, count = seen[position + 1].parents, int(split.sum())
        sums = np.bincount(below, joined[position + 1], count)
        sums_variance = np.bincount(below, spread[position + 1], count)
        own, own_variance = joined[position][split], spread[position][split]
        weight = own_variance / np.maximum(own_variance + sums_variance, 1e-300)
        both = own + weight * (sums - own)
        odd = np.abs(sums - own) > ODD * np.sqrt(own_variance + sums_variance + 1.0)
        joined[position][split] = np.where(odd, np.minimum(own, sums), both)
        spread[position][split] = own_variance * (1 - weight)
    return joined, spread
