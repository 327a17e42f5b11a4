"""Tasks: a recipe with its sizes, a prediction where there is one, and the next step after its release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Any, ClassVar

from dpsketch.calibration import counter_noise
from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap, check_columns
from dpsketch.maps.hashed.race import Race
from dpsketch.maps.tables.count import Count
from dpsketch.numerics.tuned import BY_HAND, DENSITY_TABLES, PROTOTYPE, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.recipe import Part, Recipe, declared_rows
from dpsketch.schema.schema import Schema

Shares = list[tuple[FeatureMap, float]]

# A full table of more columns has too few records a cell; docs/densities.md and docs/clusters.md have measurements.
MOST_TABLE_COLUMNS: Annotated[int, Tuned(DENSITY_TABLES, by=PROTOTYPE)] = 3
MOST_TABLE_BINS = 4096
COUNT_SHARE: Annotated[float, Tuned(DENSITY_TABLES, by=BY_HAND)] = 0.03  # of the budget, for the number of records
COUNT_GAIN: Annotated[float, Tuned("facebook", by=BY_HAND, decision=42)] = 2.0  # by which a count must be more accurate


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted properties of a release for a task, from public numbers alone: nothing is read, nothing is spent."""

    task: str
    rows: int
    budget: Budget
    recipe: Recipe
    note: ClassVar[str] = ""  # printed below a table of several predictions

    def to_dict(self) -> dict[str, Any]:
        budget = {"rho": self.budget.rho} if self.budget.rho is not None else {"epsilon": self.budget.epsilon}
        delta = {"delta": self.budget.delta} if self.budget.delta else {}
        maps = [part.map.name for part in self.recipe.parts]
        return {"task": self.task, "rows": self.rows} | budget | delta | {"maps": maps}

    def lines(self) -> list[str]:
        """The prediction as lines of text."""
        return [f"{self.task}, about {self.rows:,} rows, {self.budget}", f"sketch: {self.sketch}"]

    @property
    def sketch(self) -> str:
        return " and ".join(f"{part.map.name} ({100 * part.share:.3g} %)" for part in self.recipe.parts)

    def cells(self) -> dict[str, str]:
        """A row of a table of predictions for several budgets; empty where only `lines` describe it."""
        return {}


class Task:
    """Base class of tasks. Copy `linear_task.py` for a new one: `parts` is the recipe, the rest has working defaults.

    `parameter` is the keyword of `parts` and `predict` that takes the argument of `--for NAME:ARGUMENT`.
    """

    name: ClassVar[str]
    parameter: ClassVar[str | None] = None

    def parts(self, schema: Schema, rows: int, budget: Budget, *args: Any, **options: Any) -> Shares:
        """Maps and shares, from public numbers alone."""
        raise NotImplementedError

    def recipe(
        self, schema: Schema, *, rows: int | None = None, budget: Budget | None = None, **options: Any
    ) -> Recipe:
        """The recipe. `rows` is a public order of magnitude; sizes follow from it, the budget and the columns."""
        rows, budget = self.known(schema, rows, budget)
        return Recipe([Part(*each) for each in self.parts(schema, rows, budget, **options)], rows)

    def known(self, schema: Schema, rows: int | None, budget: Budget | None) -> tuple[int, Budget]:
        """The declared rows and the budget, from which sizes and predictions follow."""
        rows = declared_rows(schema, rows)
        if budget is None:
            raise RecipeError(f"Recipe.{self.name} needs a budget", "pass budget=Budget(epsilon=1.0)")
        return rows, budget

    def predict(self, schema: Schema, *args: Any, **options: Any) -> Prediction | None:
        """Predict the accuracy of a release; None where no formula does."""
        return None

    def options(self, argument: str) -> dict[str, Any]:
        """Keywords of `recipe` and `predict` from the argument of `--for`, which is "" without one."""
        return {self.parameter: self.parsed(argument)} if self.parameter is not None and argument else {}

    def parsed(self, argument: str) -> Any:
        return argument

    def next_step(self, sketch: str, argument: str) -> str:
        """The command that uses a release."""
        return f'dpsketch ask {sketch} "select count(*) from sketch"'


def whole_number(what: str, argument: str, example: str) -> int:
    if not argument.isdigit():
        raise RecipeError(f"{what} must be a whole number, got '{argument}' instead", f"write {example}")
    return int(argument)


def number_columns(name: str, schema: Schema, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The named columns, or every number, integer and date."""
    names = check_columns(f"Recipe.{name}", columns) or tuple(c.name for c in schema.scalars if c.numeric)
    if not names:
        raise RecipeError(f"Recipe.{name} needs a column of numbers", "declare one in the schema, or name columns")
    return names


def marginal_bins(signal: float) -> int:
    """Bins of a numeric marginal from rows · ε per column."""
    return 16 if signal < 200 else 64 if signal < 5000 else 128


def schema_counter_noise(
    schema: Schema, budget: Budget, tables: int = 1, share: float = 1.0, signed: bool = False
) -> float:
    """`calibration.counter_noise` for a schema's unit and relation."""
    return counter_noise(budget, schema.rows_per_unit or 1, schema.relation, tables, share, signed)


def with_count(schema: Schema, budget: Budget, counters: Race) -> Shares:
    """Hashed counters and, unless they count the records nearly as accurately themselves, a count.

    The number of records is the mean of the totals of R rows of W counters, whose noise is √(W/R) times that of a
    counter: with W = 100,000, more than a thousand records under usual budgets. Densities are divided by this number.
    """
    own = schema_counter_noise(schema, budget, counters.rows) * sqrt(counters.width / counters.rows)
    if own <= COUNT_GAIN * schema_counter_noise(schema, budget, share=COUNT_SHARE):
        return [(counters, 1.0)]
    return [(Count(), COUNT_SHARE), (counters, 1 - COUNT_SHARE)]
