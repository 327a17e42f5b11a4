"""The paper's way to rows: the H heaviest cells of one level."""

from __future__ import annotations

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.population.grids.grid_cells import GridCells
from dpsketch.learn.population.grids.heavy_cells import Counts, LevelCells

MOST_SCANNED = 1 << 26
HEAVIEST = 5000
_BLOCK = 1 << 18


def heaviest(cells: GridCells, counts: Counts, position: int, size: int, variance: float) -> LevelCells:
    """Every cell of a level is looked at once and the heaviest are kept, with what the noisy counters say of them,
    or nothing where that is negative. Source: density sec. 3 and App. D.
    """
    every = cells.count(position)
    if every > MOST_SCANNED:
        raise QueryError(
            f"level {cells.levels[position]} has {every:.3g} cells, more than {MOST_SCANNED} to go through",
            "name a coarser level that the release holds, or search from coarse to fine",
        )
    shape = [column.count(position) for column in cells.columns]
    kept, values = np.empty(0, np.int64), np.empty(0)
    for start in range(0, every, _BLOCK):
        block = np.arange(start, min(start + _BLOCK, every))
        ranks = np.stack(np.unravel_index(block, shape)).astype(np.int32)
        kept, values = np.append(kept, block), np.append(values, counts(position, ranks))
        if len(kept) > size:
            top = np.argpartition(-values, size - 1)[:size]
            kept, values = kept[top], values[top]
    order = np.lexsort((kept, -values))
    ranks = np.stack(np.unravel_index(kept[order], shape)).astype(np.int32)
    return LevelCells(position, ranks, np.maximum(values[order], 0.0), np.full(len(kept), variance))
