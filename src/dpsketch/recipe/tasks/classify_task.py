"""A classifier: counts and hashed counters of each class."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Annotated

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns
from dpsketch.maps.grouped import Grouped
from dpsketch.maps.hashed.hashes import SignedProjection
from dpsketch.maps.hashed.race import Race
from dpsketch.maps.hashed.ramps import ramps
from dpsketch.maps.tables.count import Count
from dpsketch.numerics.tuned import BY_HAND, CLASSIFIER_TABLES, PROTOTYPE, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task import Shares, Task, schema_counter_noise
from dpsketch.schema.columns import Boolean, Category, Integer
from dpsketch.schema.schema import Schema

# Measurements: docs/models.md.
_ORIGIN = Tuned(CLASSIFIER_TABLES, by=BY_HAND)
GAUSSIAN_ROWS: Annotated[int, Tuned(CLASSIFIER_TABLES, by=PROTOTYPE)] = 100  # of hashed counters
# Least and most, under pure ε.
PURE_ROWS: Annotated[tuple[int, int], Tuned(CLASSIFIER_TABLES, by=PROTOTYPE)] = (10, 40)
LEAST_BITS: Annotated[int, _ORIGIN] = 5
MOST_BITS: Annotated[int, _ORIGIN] = 10
STANDING_OUT: Annotated[float, _ORIGIN] = 56.0  # squared size of a class over the noise variance, for each counter
OCTAVES: Annotated[int, _ORIGIN] = 3  # of ramps
FEW_NUMBERS: Annotated[int, _ORIGIN] = 16  # columns, above which there are no ramps


class Classify(Task):
    """See `Recipe.classify`."""

    name = "classify"
    parameter = "target"

    def parts(
        self, schema: Schema, rows: int, budget: Budget, target: str = "", columns: Sequence[str] | None = None
    ) -> Shares:
        column = schema.column(target)
        if not (isinstance(column, Category | Boolean) or (isinstance(column, Integer) and column.levels == 2)):
            raise RecipeError(
                f"Recipe.classify: column '{target}' is a {column.kind}, not a class",
                "declare it as a category or a boolean",
            )
        names = check_columns("Recipe.classify", columns)
        if names is None:
            names = tuple(each.name for each in schema.scalars if each.name != target)
        if not names or target in names:
            raise RecipeError(
                f"Recipe.classify needs columns other than the target '{target}'", "name them, without the target"
            )
        classes = len(column.values) if isinstance(column, Category) else 2
        tables, bits = classifier_sizes(schema, rows, budget, classes, 0.97)
        embedding = ramps(schema, names, OCTAVES if len(names) <= FEW_NUMBERS else 0)
        race = Race(names, tables, 1 << bits, hash=SignedProjection(bits), embedding=embedding)
        return [(Grouped(Count(), target), 0.03), (Grouped(race, target), 0.97)]

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit classifier {sketch} --target {argument}"


TASK = Classify()


def classifier_sizes(schema: Schema, rows: int, budget: Budget, classes: int, share: float) -> tuple[int, int]:
    """Rows and bits of the tables of hashed counters for a classifier, from public numbers.

    Under Gaussian noise, the noise of a sum over all rows does not grow with their number, so there are many. Under
    pure ε it does, and fewer are better: 40·ε^0.3. The number of counters is such that the average class, spread evenly
    over them, has a sum of squares STANDING_OUT times that of the noise. Source: RESEARCH "Classifiers (race)";
    docs/models.md.
    """
    if not budget.private:
        return GAUSSIAN_ROWS, MOST_BITS
    if budget.pure:
        least, most = PURE_ROWS
        tables = int(min(max(round(most * budget.strength**0.3), least), 2 * most))
    else:
        tables = GAUSSIAN_ROWS
    signal = rows / classes / schema_counter_noise(schema, budget, tables, share)
    bits = int(min(max(round(log2(max(signal**2 / STANDING_OUT, 1.0))), LEAST_BITS), MOST_BITS))
    if tables == GAUSSIAN_ROWS and bits < MOST_BITS:
        tables *= 2  # when noise dominates, log-odds are nearly linear in the counters, and more rows cost nothing
    return tables, bits
