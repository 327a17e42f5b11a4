"""A linear model from hashed counters of inner products, for comparison with the race paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns
from dpsketch.maps.grouped import Grouped
from dpsketch.maps.hashed.hashes import InnerProduct
from dpsketch.maps.hashed.race import Race
from dpsketch.maps.hashed.ramps import with_one
from dpsketch.numerics.tuned import Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task import Shares, Task
from dpsketch.schema.columns import Boolean, Category
from dpsketch.schema.schema import Schema

# A tenth of it under pure ε.
HASHED_LINEAR_ROWS: Annotated[int, Tuned("the race paper's tables", by="the race paper")] = 1000
HASHED_LINEAR_BITS: Annotated[int, Tuned("the race paper's tables", by="the race paper")] = 4


class HashedLinearTask(Task):
    """See `Recipe.hashed_linear`."""

    name = "hashed_linear"
    parameter = "target"

    def parts(
        self, schema: Schema, rows: int, budget: Budget, target: str = "", columns: Sequence[str] | None = None
    ) -> Shares:
        column = schema.column(target)
        classes = len(column.values) if isinstance(column, Category) else 2 if isinstance(column, Boolean) else 0
        if not (column.arithmetic or classes == 2):
            raise RecipeError(
                f"Recipe.hashed_linear: the target '{target}' is neither a number nor one of two classes",
                "use Recipe.classify for more classes",
            )
        names = check_columns("Recipe.hashed_linear", columns)
        if names is None:
            names = tuple(c.name for c in schema.scalars if c.arithmetic and c.name != target)
        if not names or target in names:
            raise RecipeError(
                f"Recipe.hashed_linear needs columns other than the target '{target}'", "name them, without it"
            )
        hashed = (*names, target) if column.numeric else names
        race = Race(
            hashed,
            HASHED_LINEAR_ROWS // 10 if budget.pure else HASHED_LINEAR_ROWS,
            1 << HASHED_LINEAR_BITS,
            hash=InnerProduct(HASHED_LINEAR_BITS),
            embedding=with_one(len(hashed)),
        )
        return [(race if column.numeric else Grouped(race, target), 1.0)]

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit hashed_linear {sketch} --target {argument}"


TASK = HashedLinearTask()
