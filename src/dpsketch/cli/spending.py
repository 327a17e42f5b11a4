"""What verbs that spend share: the ledger, the dataset's name in it, and checks of the budget before any work."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.ledger_verbs import LEDGER_VARIABLE
from dpsketch.errors import BudgetError, LedgerError
from dpsketch.privacy.budget import NOT_IN_LEDGER, Budget

if TYPE_CHECKING:
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.recipe.recipe import Recipe
    from dpsketch.schema.schema import Schema

LedgerPath = Annotated[str | None, typer.Option(envvar=LEDGER_VARIABLE, help="Ledger file or postgresql:// URL.")]
CreateLedger = Annotated[
    bool, typer.Option("--create-ledger", help="Create the ledger if there is none; without it that is an error.")
]
Dataset = Annotated[
    str | None,
    typer.Option(help="Name of the people's data in the ledger. Default: the schema's [about] name."),
]
AcceptDelta = Annotated[
    bool, typer.Option("--accept-delta", help="Accept a delta above one over the declared number of rows.")
]


def dataset_name(facts: Schema, dataset: str | None, budget: Budget) -> str:
    """The dataset's name in the ledger. The file's name would give the shards of one table separate budgets."""
    name = dataset or facts.about.name
    if name is None and budget.private:
        raise LedgerError(
            "a release needs the name under which its people's budget is counted",
            'pass --dataset NAME, or write [about] and name = "…" in the schema; files about the same people share it',
        )
    return name or ""


def spending(budget: Budget, ledger: str | None, not_private: bool, create: bool) -> Ledger | None:
    """The opened ledger, after checking that a release may use it."""
    from dpsketch.ledger.ledger import Ledger

    if not_private == budget.private:
        raise BudgetError(
            "a file without privacy needs both --epsilon inf and --not-private",
            "pass both, or neither for a private release",
        )
    if not budget.private and ledger == os.environ.get(LEDGER_VARIABLE):
        ledger = None  # the default ledger is for private releases
    if not budget.private and ledger is not None:
        raise BudgetError(NOT_IN_LEDGER, "leave out the ledger (--ledger)")
    if budget.private and ledger is None:
        raise BudgetError(
            "a private release needs a ledger", "pass --ledger ledger.db, the first time with --create-ledger"
        )
    return None if ledger is None else Ledger(ledger, create)


def check_delta(facts: Schema, recipe: Recipe | None, budget: Budget, accepted: bool) -> None:
    """Refuse a δ at which publishing a few whole records would count as private."""
    from dpsketch.recipe.recipe import declared_rows

    rows = declared_rows(facts, None if recipe is None else recipe.rows)
    if not accepted and budget.delta and budget.exact_delta > Fraction(1, rows):
        raise BudgetError(
            f"delta {budget.delta:g} is above one over the {rows:,} declared rows: "
            "it would allow some people's records to be published as they are",
            f"pass a delta far below {1 / rows:.1g}, or --accept-delta",
        )
