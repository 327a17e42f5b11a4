"""`dpsketch ledger …`: caps, spends and plans. Commands import what they need when they run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from dpsketch.cli.console import HELP, AsJson, SchemaPath, err, out, print_json
from dpsketch.displays import listed
from dpsketch.errors import BudgetError, LedgerError
from dpsketch.privacy.budget import MOST_EPSILON, Budget, decimal_text

if TYPE_CHECKING:
    from dpsketch.ledger.account import Account, Cap, Plan, Spend, Standing
    from dpsketch.ledger.ledger import Ledger

LEDGER_VARIABLE = "DPSKETCH_LEDGER"
ledger_app = typer.Typer(
    help="Caps and spends of each dataset.", no_args_is_help=True, rich_markup_mode=None, context_settings=HELP
)
_MOST_TIMES = 10_000  # repetitions of the releases in a declared plan
LedgerPlace = Annotated[str, typer.Argument(envvar=LEDGER_VARIABLE, help="Ledger file or postgresql:// URL.")]


@ledger_app.command("create")
def ledger_create(ledger: LedgerPlace, as_json: AsJson = False) -> None:
    """Create a ledger, without any dataset. Releases and grants use one that exists."""
    from dpsketch.ledger.ledger import Ledger

    try:
        book = Ledger(ledger, create=False)
    except LedgerError as error:
        if not error.missing:
            raise
    else:
        raise LedgerError(f"there is a ledger already: {book.place}", "use it, or name another one")
    book = Ledger(ledger)
    err.print(f"{book.place}: a new ledger. Back it up: it is the only record of what was spent.")
    if as_json:
        print_json({"created": True})


@ledger_app.command("show")
def ledger_show(
    ledger: LedgerPlace,
    as_json: AsJson = False,
    as_plan: Annotated[
        float | None,
        typer.Option(
            "--as-plan",
            metavar="DELTA",
            help="Also print the epsilon at DELTA that the releases would cost as one declared plan.",
        ),
    ] = None,
) -> None:
    """Print caps and spends."""
    from dpsketch.ledger.ledger import Ledger

    slack = None if as_plan is None else Budget(1.0, as_plan).exact_delta  # checked as a budget's
    book = Ledger(ledger, create=False)
    _say_upgraded(book)
    accounts = book.accounts()
    planned = {} if slack is None else {account.dataset: _as_plan(account, slack) for account in accounts}
    if as_json:
        print_json([_account_facts(account) | planned.get(account.dataset, {}) for account in accounts])
        return
    out.print(_accounts_table(accounts), soft_wrap=False)
    for account in accounts:
        epsilon = planned.get(account.dataset, {}).get("epsilon_as_one_plan")
        also = "" if slack is None else f" As one plan: epsilon {epsilon} at delta {as_plan:g}."
        out.print(f"{account.dataset}: {_releases_text(account)}.{also if epsilon else ''}")
        for text in _faults(account):
            err.print(text)
        for plan in account.plans:
            out.print(
                f"Plan '{plan.name}' of '{account.dataset}': {_plan_cost(plan)}; "
                f"{_count(len(plan.used), 'release')} made, {len(plan.unused)} left."
            )


@ledger_app.command("grant")
def ledger_grant(
    ledger: LedgerPlace,
    dataset: str,
    epsilon: Annotated[float | None, typer.Option(help="Cap on the sum of epsilon.")] = None,
    delta: Annotated[float, typer.Option(help="Cap on the sum of delta.")] = 0.0,
    rho: Annotated[float | None, typer.Option(help="Cap on the sum of rho, instead of epsilon.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Grant to a dataset that is new, or less than it has spent.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set the cap of a dataset: how much it may spend in total."""
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.privacy.events import budget_facts

    if epsilon is None and rho is None:
        raise BudgetError("a cap is epsilon, with delta or without, or rho", "pass --epsilon 1, or --rho 0.5")
    if epsilon is not None and not math.isinf(epsilon):
        _check_epsilon("a cap's epsilon", epsilon, "a cap holds for all releases together; choose a smaller one")
    budget = Budget(epsilon, delta, rho)
    book = Ledger(ledger, create=False)
    _say_upgraded(book)
    if not force and budget.private:
        _check_grant(book, dataset, budget)
    book.grant(dataset, budget)
    err.print(f"Dataset '{dataset}' may spend {budget} in total.")
    if as_json:
        print_json({"dataset": dataset, "cap": budget_facts(budget)})


def _check_grant(book: Ledger, dataset: str, budget: Budget) -> None:
    """Refuse what is more often a slip than meant: a new name, or a cap below what is spent."""
    from dpsketch.ledger.account import Cap

    standing = book.standing(dataset)
    if standing is None:
        known = [account.dataset for account in book.accounts()]
        named = f": the ledger has {listed(known)}" if known else ""
        raise LedgerError(f"there is no dataset '{dataset}'{named}", "check the name; --force grants to a new dataset")
    cap = Cap.of(budget)
    if not cap.covers(standing.total):
        spent = cap.of_kind(standing.total).text(up=True)
        raise BudgetError(
            f"dataset '{dataset}' has spent {spent}, more than this cap of {budget}"
            if spent
            else f"what dataset '{dataset}' has spent cannot be counted by this cap",
            "with --force no further release is possible until the cap is raised",
        )


@ledger_app.command("verify", short_help="Compare rows with checksums, and totals with spends.")
def ledger_verify(
    ledger: LedgerPlace,
    checksum: Annotated[
        str | None,
        typer.Option(
            "--head", metavar="CHECKSUM", help="Checksum that verify printed earlier: refuse a copy from before then."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare every row with its checksum and every total with the spends. Note the printed checksum elsewhere."""
    from dpsketch.ledger.ledger import Ledger

    book = Ledger(ledger, create=False)
    _say_upgraded(book)
    head = book.verify(checksum)
    if as_json:
        print_json({"sound": True, "entries": head.number, "checksum": head.checksum})
        return
    out.print(
        f"The ledger is sound: {head.number:,} {'entry' if head.number == 1 else 'entries'}, checksum {head.checksum}"
    )


@ledger_app.command("declare")
def ledger_declare(
    ledger: LedgerPlace,
    dataset: str,
    name: Annotated[str, typer.Argument(help="The plan's name.")],
    schema: SchemaPath,
    releases: Annotated[
        list[str],
        typer.Option("--release", help="A release's budget: epsilon=0.1, or epsilon=0.1,delta=1e-7, or rho=0.01."),
    ],
    delta: Annotated[float, typer.Option(help="Delta of the plan; its epsilon follows.")],
    times: Annotated[int, typer.Option(help="Number of times that all these releases are made.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Reserve a plan: releases declared up front cost less together. SCHEMA names the unit whose spends are counted."""
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.schema.schema import Schema

    if not 1 <= times <= _MOST_TIMES:
        raise BudgetError(f"times must be from 1 to {_MOST_TIMES:,}, got {times} instead")
    budgets = [_budget(text) for text in releases] * times
    facts = Schema.load(schema)
    book = Ledger(ledger, create=False)
    _say_upgraded(book)
    plan = book.declare(dataset, facts.accounted, name, budgets, delta)
    together = " together" if len(budgets) > 1 else ""
    err.print(
        f"Plan '{name}' of dataset '{dataset}': {_count(len(budgets), 'release')} for {_plan_cost(plan)}{together}."
    )
    if not plan.saves:
        err.print("The plan saves nothing: without it, its releases would cost no more.")
    if as_json:
        print_json({"dataset": dataset} | _plan_facts(plan) | {"saves": plan.saves})


def _budget(text: str) -> Budget:
    """Parse a budget such as epsilon=0.1,delta=1e-7."""
    hint = "write epsilon=0.1, or epsilon=0.1,delta=1e-7, or rho=0.01"
    numbers: dict[str, float] = {}
    for word in text.split(","):
        key, _, value = word.partition("=")
        key = key.strip()
        if key not in ("epsilon", "delta", "rho") or key in numbers:
            raise BudgetError(f"'{text}' is not a budget", hint)
        try:
            numbers[key] = float(value)
        except ValueError:
            raise BudgetError(f"'{text}' is not a budget", hint) from None
    if set(numbers) == {"delta"}:
        raise BudgetError(f"'{text}' is not a budget: delta needs an epsilon", hint)
    if "epsilon" in numbers:
        _check_epsilon("epsilon of a plan's release", numbers["epsilon"], "choose a smaller one")
    return Budget(**numbers)


def _check_epsilon(what: str, epsilon: float, hint: str) -> None:
    """Refuse an epsilon outside its limits, in words for curators: they make no releases without privacy."""
    if epsilon > MOST_EPSILON:
        raise BudgetError(f"{what} must be between 1e-9 and {MOST_EPSILON}, got {epsilon!r} instead", hint)


def _say_upgraded(book: Ledger) -> None:
    if book.upgraded:
        err.print("The ledger was upgraded to this version's tables; earlier versions of dpsketch refuse it now.")


def _accounts_table(accounts: Sequence[Account]) -> RichTable:
    """A table with one line for each capped number. Long names are wrapped, nothing is cut off."""
    from dpsketch.ledger.account import rounded

    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("dataset", "relation", "budget", "cap", "spent", "left"):
        table.add_column(name, overflow="fold", justify="right" if name in ("cap", "spent", "left") else "left")
    for account in accounts:
        names = (account.dataset, account.relation or "-")
        for kind in _kinds(account):
            cap, spent, left = (getattr(amount, kind) or Fraction(0) for amount in _amounts(account).values())
            shown = rounded(cap, up=cap == spent), rounded(spent, up=True), rounded(left, up=False)
            table.add_row(*names, kind, *shown)
            names = ("", "")
    return table


def spent_text(account: Standing) -> str:
    """A text such as: epsilon 1 of 2 and delta 1e-06 of 1e-05"""
    from dpsketch.ledger.account import rounded

    cap, spent, _ = _amounts(account).values()
    texts = []
    for kind in _kinds(account):
        much, most = (getattr(amount, kind) or Fraction(0) for amount in (spent, cap))
        texts.append(f"{kind} {rounded(much, up=True)} of {rounded(most, up=much == most)}")
    return " and ".join(texts)


def _kinds(account: Standing) -> tuple[str, ...]:
    if account.cap.rho is not None:
        return ("rho",)
    return ("epsilon", "delta") if account.cap.delta or account.spent.delta else ("epsilon",)


def _amounts(account: Standing) -> dict[str, Cap]:
    return {"cap": account.cap, "spent": account.spent, "left": account.left}


def _releases_text(account: Account) -> str:
    """A text such as: per row; 3 releases (1 unfinished), of 2 parts"""
    unfinished = sum(not spend.committed for spend in account.spends)
    text = f"per {account.unit}; " if account.unit else ""
    text += _count(len(account.spends), "release") + (f" ({unfinished} unfinished)" if unfinished else "")
    counts = [_count(count, noun) for count, noun in ((account.parts, "part"), (account.samples, "sample")) if count]
    return text + (f", of {' and '.join(counts)}" if counts else "")


def _faults(account: Account) -> list[str]:
    """Warnings about releases by versions with known privacy faults."""
    found = Counter(each for spend in account.spends for each in spend.advisories)
    return [
        f"Warning: {_count(times, 'release')} of dataset '{account.dataset}' may be affected by {each}"
        for each, times in found.items()
    ]


def _plan_cost(plan: Plan) -> str:
    from dpsketch.ledger.account import rounded

    return f"epsilon {rounded(plan.epsilon, up=True)} and delta {rounded(plan.delta, up=True)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _as_plan(account: Account, delta: Fraction) -> dict[str, str | None]:
    try:
        epsilon = decimal_text(account.as_one_plan(delta))
    except BudgetError:  # none is finite
        return {"epsilon_as_one_plan": None}
    return {"epsilon_as_one_plan": epsilon}


def standing_facts(account: Standing) -> dict[str, Any]:
    """The cap, spend and remaining budget of a dataset, in exact decimals."""
    rho = account.cap.rho is not None
    numbers = _amounts(account)
    facts = {"kind": "rho" if rho else "epsilon"}
    facts |= {
        name: decimal_text((amount.rho if rho else amount.epsilon) or Fraction(0)) for name, amount in numbers.items()
    }
    if not rho:
        facts |= {f"delta_{name}": decimal_text(amount.delta) for name, amount in numbers.items()}
    return facts


def _account_facts(account: Account) -> dict[str, Any]:
    facts = {"dataset": account.dataset, "unit": account.unit, "relation": account.relation} | standing_facts(account)
    plans = [_plan_facts(plan) for plan in account.plans]
    return facts | {"plans": plans, "spends": [_spend_facts(spend) for spend in account.spends]}


def _plan_facts(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "epsilon": decimal_text(plan.epsilon),
        "delta": decimal_text(plan.delta),
        "used": [str(budget) for budget in plan.used],
        "unused": [str(budget) for budget in plan.unused],
        "created": plan.created,
    }


def _spend_facts(spend: Spend) -> dict[str, Any]:
    facts = spend.release.to_dict() | {"created": spend.created, "committed": spend.committed}
    if spend.partition is not None:
        facts["partition"] = {spend.partition.column: spend.partition.value}
        if spend.partition.snapshot is not None:
            facts["snapshot"] = spend.partition.snapshot
    more = {"plan": spend.plan, "event": spend.event, "library": spend.library}
    if spend.advisories:
        facts["advisories"] = [each.to_dict() for each in spend.advisories]
    return facts | {name: value for name, value in more.items() if value is not None}
