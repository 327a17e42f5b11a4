"""The paper's way to rows: the H heaviest cells of one level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.population.grids.grid_cells import GridCells, Ranks
from dpsketch.learn.population.grids.heavy_cells import LevelCells, missing_in
from dpsketch.learn.population.grids.level_counters import SPREAD, GridTable, HeavyCells

MOST_SCANNED = 1 << 26
HEAVIEST = 5000
CANDIDATES = 4  # times the size of the heap, among which shared counters are told apart
_BLOCK = 1 << 18


def heaviest(
    cells: GridCells, table: GridTable, position: int, size: int, recovery: str, never: Sequence[bool]
) -> LevelCells:
    """Every cell of a level is scanned once and the heaviest are kept, with their noisy counts, or zero where these are
    negative. Columns that are `never` missing have no cells of missing values. Source: density sec. 3 and App. D.
    """
    kept, values = np.empty(0, np.int64), np.empty(0)
    for block, ranks in _scanned(cells, position):
        present = ~missing_in(cells, position, ranks, never)
        block, ranks = block[present], ranks[:, present]
        kept = np.append(kept, block)
        values = np.append(values, table.most(cells.numbers(position, ranks)))
        if len(kept) > CANDIDATES * size:
            top = np.argpartition(-values, CANDIDATES * size - 1)[: CANDIDATES * size]
            kept, values = kept[top], values[top]
    shape = [column.count(position) for column in cells.columns]
    ranks = np.stack(np.unravel_index(kept, shape)).astype(np.int32)
    values, variances = table.separated(cells.numbers(position, ranks), recovery)
    if table.rows < SPREAD:
        variances = np.full(len(values), (table.noise_variance + table.collision_variance) / table.rows)
    order = np.lexsort((*ranks[::-1], -values))[:size]
    return LevelCells(position, ranks[:, order], np.maximum(values[order], 0.0), variances[order])


def number_of_records(cells: GridCells, table: GridTable, position: int = 0) -> tuple[float, float]:
    """n̂: the sum of the estimates of all cells of a level, and its standard deviation. What heavy cells add to the
    counters of others, which is zero on average, is left out. Source: density Theorem 4.
    """
    heavy: list[HeavyCells] = []
    total = np.zeros(table.rows)
    if table.rows >= SPREAD:
        numbers, counts = [], []
        for _, ranks in _scanned(cells, position):
            each = cells.numbers(position, ranks)
            found = table.heavy_by_others(each)
            held = found.any(axis=0)
            numbers.append(each[:, held])
            counts.append(found[:, held])
        every, own = np.concatenate(numbers, axis=1), np.concatenate(counts, axis=1)
        heavy = [table.heavy_cells(every, own[row], row) for row in range(table.rows)]
        total = own.sum(axis=1)
    for _, ranks in _scanned(cells, position):
        total = total + table.totals(cells.numbers(position, ranks), heavy)
    variance = cells.count(position) * (table.noise_variance + table.collision_variance_without(heavy))
    if table.rows >= SPREAD:
        variance = max(variance, float(total.var(ddof=1)))
    return max(float(total.mean()), 1.0), float(np.sqrt(variance / table.rows))


def captured(heap: LevelCells, rows: tuple[float, float]) -> Answer:
    """The capture ratio: the share of the records that the cells of a heap hold, at most one."""
    kept, (number, deviation) = float(heap.masses.sum()), rows
    ratio = kept / number
    stderr = np.sqrt(heap.variances.sum() + (ratio * deviation) ** 2) / number
    return capture_ratio(min(ratio, 1.0), float(stderr))


def capture_ratio(ratio: float, stderr: float) -> Answer:
    return Answer(ratio, stderr, "records in the heap over all records", possible=(0.0, 1.0))


def distance(ratio: Answer) -> Answer:
    """∫|f_C* − f_S| = 2(1 − capture ratio). Source: density Lemma 1."""
    return Answer(2 * (1 - ratio.value), 2 * ratio.stderr, "2 (1 − capture ratio)", possible=(0.0, 2.0))


def check_heavy(heavy: int) -> None:
    if isinstance(heavy, bool) or not isinstance(heavy, int) or heavy < 1:
        raise QueryError(f"heavy must be a whole number of at least 1, got {heavy!r} instead")


def _scanned(cells: GridCells, position: int) -> Iterator[tuple[np.ndarray, Ranks]]:
    """All cells of a level, in blocks: their places in order, and their ranks."""
    every = cells.count(position)
    if every > MOST_SCANNED:
        raise QueryError(
            f"level {cells.levels[position]} has {every:.3g} cells, more than {MOST_SCANNED} to go through",
            "name a coarser level that the release holds, or search from coarse to fine",
        )
    shape = [column.count(position) for column in cells.columns]
    for start in range(0, every, _BLOCK):
        block = np.arange(start, min(start + _BLOCK, every))
        yield block, np.stack(np.unravel_index(block, shape)).astype(np.int32)
