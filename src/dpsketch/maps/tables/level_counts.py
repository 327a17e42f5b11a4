"""Counts of every level of a column: what a release chooses the cells of its marginals from, and then drops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpsketch.denoise.cuts import bin_firsts
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, FeatureMap, Sensitivity, Sums, check_columns, check_whole, chosen_columns
from dpsketch.maps.tables.cells import MOST_BINS, Cells, cells_of, level_cells, run_cells
from dpsketch.maps.tables.one_way import CellCounter, one_cell_a_column
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class Levels(FeatureMap):
    """For each column of numbers with more than `bins` + 2 levels, the number of records at every level, or in each of
    `runs` near-equal runs of levels.

    Noise is added to all of them. `AdaptiveMarginals` of the same recipe choose their cells from the noisy counts,
    which are then dropped: a file holds none of them, and says so by `dropped`. Runs serve beside single levels, where
    the noise of thousands of levels would hide the records of a bin.
    """

    columns: tuple[str, ...] | None = None
    bins: int = 64
    dropped: bool = False
    runs: int | None = None

    name: ClassVar[str] = "levels"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = {"dropped": False, "runs": None}

    def __post_init__(self) -> None:
        check_whole("Levels", "bins", self.bins, 1, MOST_BINS)
        object.__setattr__(self, "columns", check_columns("Levels", self.columns))
        if not isinstance(self.dropped, bool):
            raise RecipeError(f"Levels: dropped must be true or false, got {self.dropped!r} instead")
        if self.runs is not None:
            check_whole("Levels", "runs", self.runs, 2, MOST_BINS)

    def names(self, schema: Schema) -> tuple[str, ...]:
        """The columns that have more levels than cells."""
        names = chosen_columns(schema, self.columns)
        many = tuple(name for name in names if cells_of(schema.column(name), self.bins).binned)
        if not many:
            raise RecipeError(
                f"Levels needs a column of numbers with more than {self.bins + 2} values", "leave out the map"
            )
        return many

    def length(self, schema: Schema) -> int:
        return 0 if self.dropped else sum(own.count for own in self.cells(schema))

    def cells(self, schema: Schema) -> list[Cells]:
        """A cell for each level or run of levels; the bounds and missing have cells of their own."""
        columns = [schema.column(name) for name in self.names(schema)]
        if self.runs is None:
            return [level_cells(column) for column in columns]
        return [run_cells(column, 1 + bin_firsts(column.levels - 2, self.runs)) for column in columns]

    def unsettled(self) -> Levels:
        return replace(self, dropped=False) if self.dropped else self

    def bind(self, schema: Schema) -> BoundLevels | DroppedLevels:
        return DroppedLevels(self, schema) if self.dropped else BoundLevels(self, schema)


class BoundLevels(CellCounter):
    """Guarantee: that of `CellCounter`. Source: docs/proofs/levels.md."""

    adaptive = True
    description: Levels

    @property
    def runs(self) -> int | None:
        return self.description.runs

    def __init__(self, description: Levels, schema: Schema) -> None:
        super().__init__(description, schema, description.names(schema), description.cells(schema))

    def check_beside(self, maps: Sequence[BoundMap]) -> None:
        if not any(each.depends_on(self) for each in maps):
            raise RecipeError(
                "Levels needs AdaptiveMarginals in the same recipe: a release drops the levels, so that they only "
                "serve to choose the cells of these",
                "add Part(AdaptiveMarginals(), share), or use Marginals instead of both",
            )
        if self.runs and not any(isinstance(each.description, Levels) and not each.description.runs for each in maps):
            raise RecipeError(
                "Levels with runs serve beside counts of single levels", "add Part(Levels(), share) to the recipe"
            )

    def settle_as(self, other: BoundMap) -> DroppedLevels:
        """Cells are agreed upon, so that nothing is left to choose: no level is counted, and other parts get the
        share.
        """
        if not isinstance(other, DroppedLevels):
            raise RecipeError("Levels: the other release has no such part")
        return self.published()

    def coarsen(self, sums: Sums, settled: BoundMap) -> Sums:
        return sums[: settled.size]

    def published(self) -> DroppedLevels:
        return DroppedLevels(replace(self.description, dropped=True), self.schema)


class DroppedLevels(BoundMap):
    """What is left of `Levels` in a file: no sums, and the sensitivities that their noise was for.

    Guarantee: dropping sums is post-processing. Source: docs/proofs/levels.md.
    """

    size = 0
    largest = 1
    narrow = True
    sparse = True
    description: Levels

    def __init__(self, description: Levels, schema: Schema) -> None:
        super().__init__(description, schema, description.names(schema))

    def accumulate(self, records: Records, sums: Sums) -> None:
        """There is nothing to count."""

    def features(self, records: Records) -> Floats:
        return np.empty((len(records), 0))

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        return one_cell_a_column(len(self.columns), relation)

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        return True
