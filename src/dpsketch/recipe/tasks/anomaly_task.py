"""Anomaly scores: hashed counters, and the general recipe for thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns
from dpsketch.maps.hashed.hash_inputs import labels_in
from dpsketch.maps.hashed.hashes import Euclidean
from dpsketch.maps.hashed.race import Race
from dpsketch.numerics.tuned import BY_HAND, PROTOTYPE, UNRECORDED, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks import density_task
from dpsketch.recipe.tasks.general_task import general_of
from dpsketch.recipe.tasks.task import MOST_TABLE_COLUMNS, Shares, Task
from dpsketch.schema.schema import Schema

# The origin of these was not recorded; docs/densities.md has the accuracy that they lead to.
ANOMALY_BANDWIDTH: Annotated[float, UNRECORDED] = 0.5  # times the square root of the number of columns
ANOMALY_POWER: Annotated[int, Tuned("kdd99, htru2, mnist", by=PROTOTYPE)] = 8
ANOMALY_ROWS: Annotated[int, UNRECORDED] = 30
# Of tables of two and three columns, in place of CELL_ERROR: rows are drawn from them, whose noise grows with cells.
ANOMALY_CELL_ERROR: Annotated[float, Tuned("skin, cod_rna, covtype, sf_salaries", by=BY_HAND, decision=88)] = 0.013
ANOMALY_THRESHOLD: Annotated[float, UNRECORDED] = 0.3  # share of the budget from which the threshold is estimated


class Anomaly(Task):
    """See `Recipe.anomaly`."""

    name = "anomaly"

    def parts(self, schema: Schema, rows: int, budget: Budget, columns: Sequence[str] | None = None) -> Shares:
        names = check_columns("Recipe.anomaly", columns) or tuple(column.name for column in schema.scalars)
        if not names:
            raise RecipeError("Recipe.anomaly needs a column that is not a set of ids", "declare one in the schema")
        if len(names) <= MOST_TABLE_COLUMNS and all(schema.column(name).numeric for name in names):
            kernel = Euclidean(density_task.default_bandwidth(len(names)))
            density, inside = density_task.TYPICAL_DENSITY, None if len(names) == 1 else (ANOMALY_CELL_ERROR, 1.0)
            choices = density_task.density_choices(schema, rows, budget, names, kernel, density, inside)
            return density_task.density_shares(*choices, rows, budget, names)
        family = Euclidean(ANOMALY_BANDWIDTH * sqrt(len(names)), ANOMALY_POWER)
        labels = labels_in(schema, names)
        race = Race(names, ANOMALY_ROWS, density_task.DENSITY_RACE_WIDTH, hash=family, labels=labels)
        threshold = general_of(schema, names, rows, budget)
        return [
            (race, 1 - ANOMALY_THRESHOLD),
            *((part, round(share * ANOMALY_THRESHOLD, 6)) for part, share in threshold),
        ]

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit anomaly {sketch}"


TASK = Anomaly()
