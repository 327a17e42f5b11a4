"""Weighted points that represent the records of a release, with refits to new noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.models.clusters.places import frame_places
from dpsketch.learn.models.clusters.table import CellTable
from dpsketch.learn.population.weighted_rows import Population, known_columns, usual_rows
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

REFITS: Annotated[int, UNRECORDED] = 8


class Cloud(Protocol):
    """Weighted points, and their refits to new noise.

    `points` returns points between the bounds, scaled to −½ … ½, and weights that add up to one: of the fit (model 0)
    or of a refit (1 .. refits). `rows` is the noisy number of records, `inside` the variance of records about a point,
    by column. `chance` is one over the number of draws that the points of a refit are, 0 if they are not drawn.
    """

    columns: tuple[str, ...]
    refits: int
    rows: float
    inside: Floats
    chance: float

    def points(self, model: int) -> tuple[Floats, Floats]: ...


class TableCloud:
    """The cells of a denoised table."""

    refits, chance = REFITS, 0.0

    def __init__(self, table: CellTable, seed: int) -> None:
        self._table, self._seed, self.columns = table, seed, table.columns
        self.rows = float(table.cleared.sum())
        self.inside = np.array([axis.widths.max() ** 2 / 12 for axis in table.axes])

    def points(self, model: int) -> tuple[Floats, Floats]:
        table = self._table
        counts = table.redrawn(np.random.default_rng([self._seed, model])) if model else table.cleared
        weights = counts.ravel()
        kept = weights > 0
        return table.places[kept], weights[kept] / weights.sum()


class PopulationCloud:
    """Rows of a release's joint distribution, in the named columns or in all its columns of numbers and dates."""

    def __init__(
        self, schema: Schema, population: Population, rows: float, columns: Sequence[str] | None = None
    ) -> None:
        numbers = (name for name in population.columns if schema.column(name).numeric)
        self.columns = tuple(numbers) if columns is None else known_columns(population, columns)
        if not self.columns:
            raise QueryError("this release holds no column of numbers", "release one with dates or numbers")
        self._population, self.rows, self.refits = population, rows, population.refits
        self.inside, self.chance = np.zeros(len(self.columns)), 1 / usual_rows(1)

    def points(self, model: int) -> tuple[Floats, Floats]:
        found = self._population.points(model)
        return frame_places(found.frame, self.columns), found.weights


def population_cloud(view: View, columns: Sequence[str] | None = None) -> PopulationCloud:
    rows = float(view.count().value)
    return PopulationCloud(view.schema, view.population, rows, columns)
