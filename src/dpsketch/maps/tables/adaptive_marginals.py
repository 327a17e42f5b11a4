"""Marginals whose cells a release chooses by its own noisy counts of levels; counts of the records in such cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dpsketch.denoise.cuts import NoisyLevels, Sharing, choose_cut, shared_values
from dpsketch.errors import RecipeError
from dpsketch.maps.base import (
    BoundMap,
    FeatureMap,
    NoisyPart,
    Sums,
    check_columns,
    check_whole,
    chosen_columns,
)
from dpsketch.maps.tables.cells import MOST_BINS, Cells, RunCells, cells_of, level_cells, run_cells
from dpsketch.maps.tables.level_counts import BoundLevels
from dpsketch.maps.tables.one_way import CellCounter, OneWayMap
from dpsketch.schema.schema import Schema

Cut = tuple[tuple[int, ...], tuple[int, ...], tuple[float, float, float]] | None
MOST_SHARED = 1e30  # more than any file can hold: keeps what is computed from them finite
WORST_CASE = sqrt(3.0)  # the hidden part of a cell's count, if all its records shared one value, over that of the noise


@dataclass(frozen=True)
class AdaptiveMarginals(FeatureMap):
    """Counts of the cells of every column, which a release chooses from the noisy counts of `Levels` of the same
    recipe: at least `bins` bins between a number's bounds, more where records are, and a cell for each value that many
    records share. The raw sketch holds the counts of all levels.
    """

    columns: tuple[str, ...] | None = None
    bins: int = 64

    name: ClassVar[str] = "adaptive_marginals"
    good_for: ClassVar[str] = "questions about one column"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_whole("AdaptiveMarginals", "bins", self.bins, 1, MOST_BINS)
        object.__setattr__(self, "columns", check_columns("AdaptiveMarginals", self.columns))

    def length(self, schema: Schema) -> int:
        return sum(own.count for own in _raw_cells(schema, self.columns, self.bins))

    def bind(self, schema: Schema) -> BoundAdaptiveMarginals:
        return BoundAdaptiveMarginals(self, schema)


class BoundAdaptiveMarginals(CellCounter, OneWayMap):
    """Guarantee: whatever `settle` returns has the sensitivities of this map, and `coarsen` gives its exact sums.
    Source: docs/proofs/levels.md.
    """

    adaptive = True
    description: AdaptiveMarginals

    def __init__(self, description: AdaptiveMarginals, schema: Schema) -> None:
        names = chosen_columns(schema, description.columns)
        super().__init__(description, schema, names, _raw_cells(schema, names, description.bins))
        self.bins = description.bins
        self._cuttable = {
            name: index for index, name in enumerate(names) if cells_of(schema.column(name), self.bins).binned
        }

    def depends_on(self, other: BoundMap) -> bool:
        return isinstance(other, BoundLevels) or other.only_counts

    def settle(self, earlier: Sequence[NoisyPart], variance: float) -> BoundCellCounts:
        cuts: list[Cut] = [None] * len(self.columns)
        rows = next((max(float(part.sums[0]), 1.0) for part in earlier if part.map.only_counts), None)
        levels, runs = _levels_and_runs(earlier)
        for name, index in self._cuttable.items():
            if name in levels:
                cuts[index] = self._cut(levels[name], runs.get(name), rows, max(sqrt(variance), 1.0))
        return self._settled(cuts)

    def _cut(self, levels: NoisyLevels, runs: NoisyLevels | None, rows: float | None, sd: float) -> Cut:
        rows = max(float(levels.counts.sum()), 1.0) if rows is None else rows
        wanted = (rows / (WORST_CASE * sd)) ** (2 / 3)
        starts, alone = choose_cut(levels, self.description.bins, wanted, rows, runs)
        sharing = shared_values(levels, self.description.bins, starts)
        average, deviation, most = (
            min(round(number, 3), MOST_SHARED) for number in (sharing.average, sharing.sd, sharing.most)
        )
        return tuple((1 + starts).tolist()), tuple((1 + alone).tolist()), (average, deviation, most)

    def _settled(self, cuts: Sequence[Cut]) -> BoundCellCounts:
        named = self.description.columns
        return CellCounts(named, self.description.bins, tuple(cuts)).bind(self.schema)

    def settle_as(self, other: BoundMap) -> BoundCellCounts:
        """The cells of `other`."""
        if not isinstance(other, BoundCellCounts):
            raise RecipeError("AdaptiveMarginals: the other release has no such cells")
        return self._settled(other.description.cuts)

    def coarsen(self, sums: Sums, settled: BoundMap) -> Sums:
        if not isinstance(settled, BoundCellCounts) or settled.columns != self.columns:
            raise RecipeError("AdaptiveMarginals: coarse sums are those of cells of the same columns")
        coarse = np.zeros(settled.size, sums.dtype)
        for column, (fine, own) in enumerate(zip(self.cells, settled.cells, strict=True)):
            codes = fine.column.codes_of(np.append(np.arange(fine.column.levels), -1))
            np.add.at(coarse[settled.table(column)], own.cells(codes), sums[self.table(column)])
        return coarse


@dataclass(frozen=True)
class CellCounts(FeatureMap):
    """Counts of the records in chosen cells of every column: what a release shows of `AdaptiveMarginals`.

    `cuts` has an entry for each column, in the order of `columns`: the first level of each cell between the bounds, the
    levels that have a cell of their own, and how many records share a value (`OneWayMap.sharing`); None for a column
    with `bins` bins, or with a cell a level.
    """

    columns: tuple[str, ...] | None
    bins: int
    cuts: tuple[Cut, ...]

    name: ClassVar[str] = "cell_counts"
    good_for: ClassVar[str] = AdaptiveMarginals.good_for
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_whole("CellCounts", "bins", self.bins, 1, MOST_BINS)
        object.__setattr__(self, "columns", check_columns("CellCounts", self.columns))
        object.__setattr__(self, "cuts", _checked_cuts(self.cuts))

    def cells(self, schema: Schema) -> tuple[Cells, ...]:
        names = chosen_columns(schema, self.columns)
        if len(self.cuts) != len(names):
            raise RecipeError(f"CellCounts: cuts must have an entry for each of the {len(names)} columns")
        return tuple(_cells(schema, name, self.bins, cut) for name, cut in zip(names, self.cuts, strict=True))

    def length(self, schema: Schema) -> int:
        return sum(own.count for own in self.cells(schema))

    def unsettled(self) -> AdaptiveMarginals:
        return AdaptiveMarginals(self.columns, self.bins)

    def summary(self) -> dict[str, Any]:
        cells = [None if cut is None else len(cut[0]) for cut in self.cuts]
        return self.to_dict() | {"cuts": cells}

    def bind(self, schema: Schema) -> BoundCellCounts:
        return BoundCellCounts(self, schema)


class BoundCellCounts(CellCounter, OneWayMap):
    """Guarantee: that of `CellCounter`. Source: docs/proofs/levels.md."""

    description: CellCounts

    def __init__(self, description: CellCounts, schema: Schema) -> None:
        names = chosen_columns(schema, description.columns)
        super().__init__(description, schema, names, description.cells(schema))
        self.bins = description.bins

    def sharing(self, column: int) -> Sharing | None:
        cut = self.description.cuts[column]
        return None if cut is None else Sharing(*cut[2])


def _levels_and_runs(earlier: Sequence[NoisyPart]) -> tuple[dict[str, NoisyLevels], dict[str, NoisyLevels]]:
    """Noisy counts of the levels between the bounds of each column, and of runs of them."""
    levels: dict[str, NoisyLevels] = {}
    runs: dict[str, NoisyLevels] = {}
    for part in earlier:
        if isinstance(part.map, BoundLevels):
            for index, name in enumerate(part.map.columns):
                counts = part.sums[part.map.table(index)][1:-2].astype(np.float64)
                found = runs if part.map.runs else levels
                found[name] = NoisyLevels(counts, sqrt(part.variance), part.laplace)
    return levels, runs


def _raw_cells(schema: Schema, columns: Sequence[str] | None, bins: int) -> list[Cells]:
    """Every level of columns that have more of them than cells, else the cells."""
    every = [schema.column(name) for name in chosen_columns(schema, None if columns is None else tuple(columns))]
    if not every:
        raise RecipeError("AdaptiveMarginals needs a column that is not a set of ids", "declare other columns")
    return [level_cells(column) if cells_of(column, bins).binned else cells_of(column, bins) for column in every]


def _cells(schema: Schema, name: str, bins: int, cut: Cut) -> Cells:
    column = schema.column(name)
    own = cells_of(column, bins)
    if cut is None:
        return own
    if not own.binned:
        raise RecipeError(f"CellCounts: column '{name}' has a cell for each of its values, and cannot be cut")
    starts, alone, _ = cut
    if starts[-1] >= column.levels - 1:
        raise RecipeError(f"CellCounts: the cells of column '{name}' begin beyond its bounds")
    cells: RunCells = run_cells(column, np.array(starts), alone)
    if cells.starts != starts:
        raise RecipeError(f"CellCounts: the cells of column '{name}' do not separate its single values")
    return cells


def _checked_cuts(cuts: object) -> tuple[Cut, ...]:
    wrong = RecipeError("CellCounts: cuts must hold, for each column, rising levels, single ones and three numbers")
    if not isinstance(cuts, list | tuple):
        raise wrong
    return tuple(None if cut is None else _checked_cut(cut, wrong) for cut in cuts)


def _checked_cut(cut: object, wrong: RecipeError) -> Cut:
    if not isinstance(cut, list | tuple) or len(cut) != 3:
        raise wrong
    starts, alone, shared = cut
    for levels in (starts, alone):
        if not isinstance(levels, list | tuple) or not all(type(level) is int and level >= 1 for level in levels):
            raise wrong
        if any(two <= one for one, two in pairwise(levels)):
            raise wrong
    if not set(alone) <= set(starts):
        raise wrong
    if not starts or starts[0] != 1 or not isinstance(shared, list | tuple) or len(shared) != 3:
        raise wrong
    if not all(type(number) in (int, float) and 0 <= number <= MOST_SHARED for number in shared):
        raise wrong
    average, sd, most = map(float, shared)
    return tuple(starts), tuple(alone), (average, sd, most)
