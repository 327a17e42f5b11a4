"""A linear regression: a count, second moments and means."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns
from dpsketch.maps.moments.second_moments import SecondMoments
from dpsketch.maps.tables.count import Count
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task import Shares, Task
from dpsketch.schema.columns import Datetime
from dpsketch.schema.schema import Schema

# Of what clips no record: a longer record than that is rare, and noise grows with the square.
# The origin of the number was not recorded.
LINEAR_RADIUS = 0.75


class Linear(Task):
    """See `Recipe.linear`."""

    name = "linear"
    parameter = "target"

    def parts(
        self, schema: Schema, rows: int, budget: Budget, target: str = "", columns: Sequence[str] | None = None
    ) -> Shares:
        if not schema.column(target).numeric or isinstance(schema.column(target), Datetime):
            raise RecipeError(
                f"Recipe.linear: the target '{target}' is not a number", "use Recipe.classify for classes"
            )
        names = check_columns("Recipe.linear", columns)
        if names is None:
            names = tuple(
                c.name for c in schema.scalars if c.numeric and not isinstance(c, Datetime) and c.name != target
            )
        if not names or target in names:
            raise RecipeError(f"Recipe.linear needs columns other than the target '{target}'", "name them, without it")
        moments = SecondMoments((*names, target), LINEAR_RADIUS * sqrt(len(names) + 1), means=True)
        return [(Count(), 0.03), (moments, 0.97)]

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit linear {sketch} --target {argument}"


TASK = Linear()


def predictors(schema: Schema, target: str) -> tuple[str, ...]:
    """Every number and integer except the target."""
    return tuple(c.name for c in schema.scalars if c.numeric and not isinstance(c, Datetime) and c.name != target)
