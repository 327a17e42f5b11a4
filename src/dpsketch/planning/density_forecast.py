"""How near densities will be, from a table or from hashed counters, told before any budget is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap
from dpsketch.maps.hashed.hashes import Euclidean, HashFamily
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.ready import density_choices, density_shares
from dpsketch.recipe.recipe import Part, Recipe, declared_rows
from dpsketch.recipe.sizes import TYPICAL_DENSITY, default_bandwidth
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class DensityPlan:
    """Predicted relative errors at a place where the mean kernel value is `density`; None where a table cannot be."""

    density: float
    race: FeatureMap
    race_error: float
    table: FeatureMap | None
    table_error: float | None
    recipe: Recipe  # with the better of the two

    @property
    def better(self) -> str:
        """ "table" or "race", by the smaller predicted error."""
        return "table" if self.table_error is not None and self.table_error < self.race_error else "race"

    def to_dict(self) -> dict[str, Any]:
        return {
            "density": self.density,
            "race": self.race.summary(),
            "race_error": self.race_error,
            "table": None if self.table is None else self.table.summary(),
            "table_error": self.table_error,
            "better": self.better,
        }

    def lines(self) -> list[str]:
        """For a reader."""
        found = [f"at places with a mean kernel value of {self.density:g}"]
        rows, width = (getattr(self.race, name) for name in ("rows", "width"))
        found.append(f"hashed counters, {rows} rows of {width}: predicted relative error {self.race_error:.2%}")
        if self.table is None:
            found.append("a table: of up to three number columns and a kernel of distance only")
        else:
            bins = getattr(self.table, "bins", 0)
            found.append(f"a table, {bins} bins a column: predicted relative error {self.table_error:.2%}")
        return [*found, f"better: {self.better}"]


def density_plan(
    schema: Schema,
    rows: int | None = None,
    budget: Budget | None = None,
    columns: Sequence[str] | None = None,
    bandwidth: float | None = None,
    hash: HashFamily | None = None,
    density: float = TYPICAL_DENSITY,
) -> DensityPlan:
    """Predicted relative errors of both ways to a density; the other arguments are those of `Recipe.density`.

    Nothing is read and nothing is spent. `density` is the mean kernel value at the places that matter: public
    knowledge, or the typical one. Both errors rest on constants that were measured on few tables: `recipe.sizes`.
    """
    if budget is None:
        raise RecipeError("density_plan needs a budget", "pass budget=Budget(epsilon=1.0)")
    if not 0 < density <= 1:
        raise RecipeError(f"density must be above 0 and at most 1, got {density!r} instead")
    rows = declared_rows(schema, rows)
    names = tuple(columns) if columns is not None else tuple(c.name for c in schema.scalars if c.numeric)
    if not names:
        raise RecipeError("density_plan needs a column of numbers", "declare one in the schema, or name columns")
    family = hash if hash is not None else Euclidean(default_bandwidth(len(names)) if bandwidth is None else bandwidth)
    table, race = density_choices(schema, rows, budget, names, family, density)
    recipe = Recipe([Part(*each) for each in density_shares(table, race, rows, budget, names)])
    table_map, table_error = (None, None) if table is None else table
    return DensityPlan(density, *race, table_map, table_error, recipe)
