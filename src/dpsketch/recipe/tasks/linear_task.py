"""A linear regression: a count, second moments and means."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns
from dpsketch.maps.moments.second_moments import SecondMoments
from dpsketch.maps.tables.count import Count
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task import Shares, Task
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
        if not names or target in names:
            raise RecipeError(f"Recipe.linear needs columns other than the target '{target}'", "name them, without it")
        moments = SecondMoments((*names, target), LINEAR_RADIUS * sqrt(len(names) + 1), means=True)
        return [(Count(), 0.03), (moments, 0.97)]

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit linear {sketch} --target {argument}"


TASK = Linear()


def predictors(schema: Schema, target: str) -> tuple[str, ...]:
    """Every number and integer but the target."""
    return tuple(c.name for c in schema.scalars if c.arithmetic and c.name != target)
