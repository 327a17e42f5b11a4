"""Tables of three columns in the general recipe: which, how fine, and their part of the pairs' share."""

from __future__ import annotations

from math import comb
from typing import Annotated

from dpsketch.maps.tables.triple_tables import MOST_TRIPLES, Triple, Triples
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.tasks.task import schema_counter_noise
from dpsketch.schema.schema import Schema

# Of tables of three columns, under pure ε and with δ or ρ: their part of the pairs' share, and the standard deviation
# of a cell, as a share of the rows, up to which they are worth it.
PURE_TRIPLES: Annotated[tuple[float, float], Tuned("flights of the truth study", by=BY_HAND, decision=35)] = (
    0.2,
    2.5e-4,
)
GAUSSIAN_TRIPLES: Annotated[
    tuple[float, float], Tuned("fare, flights, payroll and california", by=BY_HAND, decision=40)
] = (0.1, 5e-3)
# The same of the tables of important triples alone, with any budget.
IMPORTANT_TRIPLES: Annotated[tuple[float, float], Tuned("fare, and those of decision 40", by=BY_HAND, decision=56)] = (
    0.1,
    5e-3,
)
FEWEST_BINS: Annotated[int, Tuned("flights", by=BY_HAND, decision=35)] = 16
MOST_TRIPLE_CELLS = 16_000_000  # of a raw sketch: 64 MB in four-byte counters


def affordable_triples(
    schema: Schema, rows: int, budget: Budget, bins: int, pairs_share: float, listed: tuple[Triple, ...], whole: bool
) -> tuple[Triples, float] | None:
    """Tables of all triples of columns if `whole`, or else of the listed ones, beside pair tables that divide this
    number of equal bins, with their part of the pairs' share of the budget. They are worth it where there are few
    enough of them for the rows and the budget: from public numbers.

    Source: docs/decisions/035-tables-of-three-columns.md, 040-rows-follow-tables-of-three-columns.md,
    056-tables-of-important-triples.md.
    """
    every = comb(len(schema.scalars), 3) if whole else 0
    usual = PURE_TRIPLES if budget.pure else GAUSSIAN_TRIPLES
    for triples, tables, (part, most) in ((None, every, usual), (listed, len(listed), IMPORTANT_TRIPLES)):
        if not 0 < tables <= MOST_TRIPLES or not budget.private:
            continue
        sd = schema_counter_noise(schema, budget, tables, part * pairs_share) / rows
        found = None if sd > most else _fitting(schema, bins, triples)
        if found is not None:
            return found, part
    return None


def _fitting(schema: Schema, bins: int, listed: tuple[Triple, ...] | None) -> Triples | None:
    """The tables in the finest bins that a raw sketch has room for: where records are concentrated in few bins, a
    release can still split them, and pooled cells add no noise.
    """
    for fewer in range(bins, FEWEST_BINS - 1, -1):
        if bins % fewer == 0:
            triples = Triples(bins=fewer, pool=True, triples=listed)
            if triples.cells(schema) <= MOST_TRIPLE_CELLS:
                return triples
    return None
