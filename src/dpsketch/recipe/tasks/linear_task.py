"""A linear regression: a count, second moments and means."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import sqrt
from typing import Annotated

from dpsketch.errors import RecipeError, RecipeWarning
from dpsketch.maps.base import check_columns
from dpsketch.maps.moments.second_moments import SecondMoments
from dpsketch.maps.tables.count import Count
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task import Shares, Task
from dpsketch.schema.columns import Boolean, Datetime
from dpsketch.schema.schema import Schema

# Of the radius that clips no record: longer records are rare, and noise grows with its square.
LINEAR_RADIUS: Annotated[float, UNRECORDED] = 0.75


class Linear(Task):
    """See `Recipe.linear`."""

    name = "linear"
    parameter = "target"

    def parts(
        self, schema: Schema, rows: int, budget: Budget, target: str = "", columns: Sequence[str] | None = None
    ) -> Shares:
        if not schema.column(target).arithmetic:
            raise RecipeError(
                f"Recipe.linear: the target '{target}' is not a number", "use Recipe.classify for classes"
            )
        names = check_columns("Recipe.linear", columns)
        if names is None:
            names = tuple(c.name for c in schema.scalars if c.arithmetic and c.name != target)
            _warn_of_others(schema, target)
        if not names or target in names:
            raise RecipeError(f"Recipe.linear needs columns other than the target '{target}'", "name them, without it")
        moments = SecondMoments((*names, target), _radius(schema, (*names, target)), means=True)
        return [(Count(), 0.03), (moments, 0.97)]

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit linear {sketch} --target {argument}"


TASK = Linear()


def _radius(schema: Schema, names: Sequence[str]) -> float:
    """The ball for these columns. A boolean is always at one of its bounds, so it has its full length in every row."""
    booleans = sum(isinstance(schema.column(name), Boolean) for name in names)
    return sqrt(LINEAR_RADIUS**2 * (len(names) - booleans) + booleans) if booleans else LINEAR_RADIUS * sqrt(len(names))


def _warn_of_others(schema: Schema, target: str) -> None:
    """Warn of columns that are no numbers: nothing in the release will know them."""
    others = [column for column in schema.columns if not column.arithmetic and column.name != target]
    if not others:
        return
    named = ", ".join(f"'{column.name}' ({column.kind})" for column in others)
    how = ["for labels take the general recipe: linear models of its releases have a coefficient for each label"]
    if any(isinstance(column, Boolean | Datetime) for column in others):
        how.insert(0, "name booleans and dates among columns (--columns)")
    warnings.warn(
        RecipeWarning(f"Recipe.linear takes numbers alone and leaves out {named}.\nHint: {'; '.join(how)}"),
        stacklevel=2,
    )
