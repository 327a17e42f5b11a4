"""Jaccard densities of nodes by their neighbour sets: MinHash counters."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

from dpsketch.errors import RecipeError
from dpsketch.maps.hashed.hashes import MinHash
from dpsketch.maps.hashed.race import Race
from dpsketch.numerics.tuned import PROTOTYPE, UNRECORDED, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.density_task import LEAST_RACE_ROWS
from dpsketch.recipe.tasks.task import Shares, Task, schema_counter_noise, with_count
from dpsketch.schema.schema import Schema

GRAPH_RACE_WIDTH: Annotated[int, Tuned("slashdot", by=PROTOTYPE)] = 100_000  # counters in a row
MOST_GRAPH_ROWS: Annotated[int, Tuned("slashdot", by=PROTOTYPE)] = 2000
MOST_PURE_GRAPH_ROWS: Annotated[int, UNRECORDED] = 500


class Graph(Task):
    """See `Recipe.graph`."""

    name = "graph"

    def parts(self, schema: Schema, rows: int, budget: Budget, columns: Sequence[str] | None = None) -> Shares:
        if columns is not None:
            raise RecipeError("--columns is not for graphs: a graph has one column of sets", "leave it out")
        if len(schema.sets) != 1:
            raise RecipeError("Recipe.graph needs one column of sets of ids", 'declare neighbours: kind = "set"')
        size = graph_rows(schema, rows, budget)
        return with_count(schema, budget, Race((schema.sets[0].name,), size, GRAPH_RACE_WIDTH, hash=MinHash()))

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit density {sketch}"


TASK = Graph()


def graph_rows(schema: Schema, rows: int, budget: Budget) -> int:
    """Rows of hashed counters for Jaccard densities of neighbour sets. Few sets are similar, so fewer under pure ε."""
    if not budget.pure:
        return MOST_GRAPH_ROWS
    single = sqrt(2) / schema_counter_noise(schema, budget)
    return int(min(max(0.0006 * rows * single, LEAST_RACE_ROWS), MOST_PURE_GRAPH_ROWS))
