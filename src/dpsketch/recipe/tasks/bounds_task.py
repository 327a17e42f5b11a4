"""Tighter bounds: marginals of numbers, integers and dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsketch.maps.tables.marginals import Marginals
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.recipe import Part, Recipe
from dpsketch.recipe.tasks.task import Task, number_columns
from dpsketch.schema.schema import Schema


class Bounds(Task):
    """See `Recipe.bounds`."""

    name = "bounds"

    def recipe(
        self, schema: Schema, *, rows: int | None = None, budget: Budget | None = None, **options: Any
    ) -> Recipe:
        """The recipe. No size depends on rows or budget."""
        columns: Sequence[str] | None = options.get("columns")
        return Recipe([Part(Marginals(number_columns("bounds", schema, columns)), 1.0)])

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch tighten {sketch} -o tighter.toml"


TASK = Bounds()
