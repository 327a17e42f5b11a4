"""Command line: parse, call, print. Commands import what they need, so that each starts fast."""

from __future__ import annotations

import csv
import gc
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from dpsketch.errors import BudgetError, DpsketchError, FileError, MergeError, RecipeError
from dpsketch.privacy.budget import MOST_EPSILON, NOT_IN_LEDGER, Budget, decimal_text
from dpsketch.schema import Schema
from dpsketch.sketch.file import read_header
from dpsketch.sketch.released import ReleasedSketch
from dpsketch.sketch.statement import statement_text

if TYPE_CHECKING:
    from dpsketch.learn.sql import Table
    from dpsketch.privacy.account import Account, Cap, Spend
    from dpsketch.privacy.account import Plan as DeclaredPlan
    from dpsketch.privacy.ledger import Ledger
    from dpsketch.recipe import Recipe
    from dpsketch.sketch.raw import RawSketch

app = typer.Typer(
    help="One private pass over a table, one release, unlimited questions afterwards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ledger_app = typer.Typer(help="What each dataset may spend and has spent.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(ledger_app, name="ledger")

out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
_MOST_TIMES = 10_000  # of the releases in a declared plan

SchemaPath = Annotated[Path, typer.Option("--schema", help="TOML file with the table's public facts.")]
Rows = Annotated[int | None, typer.Option(help="Public order of magnitude of the rows; overrides the schema.")]
Epsilon = Annotated[float | None, typer.Option(help="Privacy budget of this release.")]
Delta = Annotated[float, typer.Option(help="Probability of outcomes that epsilon does not hold for, such as 1e-6.")]
Rho = Annotated[float | None, typer.Option(help="Zero-concentrated budget, instead of epsilon and delta.")]
Mechanism = Annotated[str, typer.Option(help="Noise: auto (whichever is less), laplace or gaussian.")]
Plan = Annotated[str | None, typer.Option(help="A plan declared in the ledger, of which this release is an entry.")]
OnlyRows = Annotated[
    str | None, typer.Option("--only", metavar="COLUMN=VALUE", help="Use only the rows of one part of a partition.")
]
Frequencies = Annotated[
    int | None, typer.Option(help="Number of Fourier frequencies; by default from rows and epsilon.")
]
RecipePath = Annotated[
    Path | None, typer.Option("--recipe", help="TOML file with the maps and their shares; by default a general recipe.")
]
LedgerPath = Annotated[str | None, typer.Option(help="Ledger file, created if absent, or postgresql:// URL.")]
LedgerPlace = Annotated[str, typer.Argument(help="Ledger file or postgresql:// URL.")]
Dataset = Annotated[str | None, typer.Option(help="Name in the ledger; by default the table's file name.")]
NotPrivate = Annotated[bool, typer.Option("--not-private", help="For studies: no noise, needs epsilon inf.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


@app.command()
def init(table: Path) -> None:
    """Print a schema to fill in, from column names and types only; values are never looked at."""
    from dpsketch.engines.sources import source_columns
    from dpsketch.template import schema_template

    print(schema_template(source_columns(table)), end="")


@app.command()
def accumulate(
    table: Path,
    schema: SchemaPath,
    output: Output,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    recipe: RecipePath = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    only: OnlyRows = None,
    force: Force = False,
) -> None:
    """Read a table into a raw sketch: exact, secret, mergeable. Nothing is spent: the budget chooses the sizes of the
    general recipe, and tells now whether a release with it will fit.
    """
    from dpsketch.sketch.release import planned

    _free(output, force, table, schema, recipe)
    facts = Schema.load(schema)
    unknown = epsilon is None and rho is None and not delta
    budget = None if unknown and recipe is not None else Budget(epsilon, delta, rho)
    chosen = _recipe(facts, budget, recipe, rows, frequencies, only)
    if budget is not None:
        planned(facts, chosen, budget)
    _accumulated(table, facts, chosen).save(output, force)
    err.print(f"{output}: raw sketch, NOT PRIVATE. Keep it secret; release it with: dpsketch release {output} …")


@app.command()
def release(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file, a folder of them, or a raw sketch.")],
    output: Output,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    schema: Annotated[Path | None, typer.Option("--schema", help="TOML file with the table's public facts.")] = None,
    recipe: RecipePath = None,
    only: OnlyRows = None,
    ledger: LedgerPath = None,
    dataset: Dataset = None,
    plan: Plan = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    not_private: NotPrivate = False,
    force: Force = False,
) -> None:
    """Sketch a table, add noise once, and write the released sketch."""
    from dpsketch.sketch.raw import RawSketch
    from dpsketch.sketch.release import partition, planned

    _free(output, force, table, schema, recipe, ledger)
    budget, book = _spending(Budget(epsilon, delta, rho), ledger, not_private)
    name = dataset or table.name.split(".")[0]
    if table.suffix == ".raw":
        if any(option is not None for option in (schema, recipe, rows, frequencies, only)):
            raise FileError("a raw sketch brings its own schema and recipe", "leave out the options that describe them")
        raw = RawSketch.load(table)
    else:
        if schema is None:
            raise FileError("a table needs --schema", "dpsketch init TABLE > schema.toml writes a template")
        facts = Schema.load(schema)
        chosen = _recipe(facts, budget, recipe, rows, frequencies, only)
        event = planned(facts, chosen, budget, mechanism)
        if book is not None and event is not None:
            book.check(name, facts.accounted, event, partition(facts, chosen), plan)
        raw = _accumulated(table, facts, chosen)
    _release(raw, budget, book, name, output, force, mechanism, plan)


@app.command()
def graph(
    edges: Annotated[Path, typer.Argument(help="CSV or Parquet edge list, or a folder of them.")],
    nodes: Annotated[int, typer.Option(help="Public number of nodes; ids are 0 to NODES-1.")],
    output: Output,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    repetitions: Annotated[int, typer.Option(help="Rows of the table of counters.")] = 200,
    width: Annotated[int, typer.Option(help="Counters in a row of the table.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Public seed of the hashes.")] = 0,
    source: Annotated[str, typer.Option(help="Column of the node whose list an edge belongs to.")] = "src",
    target: Annotated[str, typer.Option(help="Column of the neighbour.")] = "dst",
    undirected: Annotated[bool, typer.Option("--undirected", help="Count every edge in both directions.")] = False,
    ledger: LedgerPath = None,
    dataset: Dataset = None,
    plan: Plan = None,
    not_private: NotPrivate = False,
    force: Force = False,
) -> None:
    """Release the neighbour sets of a graph, for Jaccard densities. One neighbour list is protected, not a node."""
    from dpsketch.engines.graph import check_nodes, graph_schema, neighbour_sets
    from dpsketch.engines.local import accumulate as accumulate_table
    from dpsketch.maps.hashes import MinHash
    from dpsketch.maps.race import Race
    from dpsketch.recipe import Part, Recipe
    from dpsketch.sketch.release import planned

    _free(output, force, edges, ledger)
    budget, book = _spending(Budget(epsilon, delta, rho), ledger, not_private)
    name = dataset or edges.name.split(".")[0]
    check_nodes(nodes)
    facts = Schema.from_dict(graph_schema(nodes, undirected))
    recipe = Recipe([Part(Race(rows=repetitions, width=width, seed=seed, hash=MinHash()), 1.0)])
    event = planned(facts, recipe, budget, mechanism)
    if book is not None and event is not None:
        book.check(name, facts.accounted, event, None, plan)
    with _progress() as report:
        sets = neighbour_sets(edges, nodes, source, target, undirected, report)
        raw = accumulate_table(sets, facts, recipe)
    _release(raw, budget, book, name, output, force, mechanism, plan)


@app.command()
def show(sketch: Path, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the privacy statement of a released sketch."""
    statement = ReleasedSketch.load(sketch).statement
    print(json.dumps(statement, indent=2, ensure_ascii=False) if as_json else statement_text(statement))


@app.command()
def audit(
    recipe: Annotated[Path, typer.Argument(help="TOML recipe to attack.")],
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    schema: Annotated[
        Path | None, typer.Option("--schema", help="TOML file with a table's public facts; by default made-up columns.")
    ] = None,
    relation: Annotated[str | None, typer.Option(help="Of the made-up columns: add-remove or replace-one.")] = None,
    draws: Annotated[int, typer.Option(help="Releases to attack; more prove more.", min=1000)] = 20_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Attack releases of a recipe on its worst neighbouring tables; no data is read, nothing is spent.

    Prints a lower bound of the budget that the attack proves to be spent. Exits with 1 if it is above the claim.
    """
    from dpsketch.audit import audit as attack
    from dpsketch.audit import made_up_schema
    from dpsketch.recipe import Recipe
    from dpsketch.relation import Relation

    chosen = Recipe.load(recipe)
    if schema is not None and relation is not None:
        raise RecipeError("a schema says its relation itself", "leave out --relation")
    if relation is not None and relation not in list(Relation):
        raise RecipeError(
            f"--relation must be add-remove or replace-one, got '{relation}' instead",
            "add-remove hides that a record is there at all",
        )
    facts = Schema.load(schema) if schema else made_up_schema(chosen, Relation(relation or Relation.ADD_REMOVE))
    found = attack(chosen, facts, Budget(epsilon, delta, rho), draws, mechanism)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        out.print(str(found))
    if found.violated:
        raise typer.Exit(1)


@app.command()
def ask(
    sketch: Path,
    question: Annotated[str, typer.Argument(help="A select statement on the table `sketch`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Answer a question; every number carries the standard error of the privacy noise."""
    from dpsketch.learn.view import open_view

    view = open_view(sketch)
    table = view.sql(question)
    rows = table.to_dicts()
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else list(table.columns))
        writer.writeheader()
        writer.writerows(rows)
    else:
        if not view.released.private:
            out.print("NOT PRIVATE: exact sums, for studies only.")
        for line in table.how:
            out.print(f"{line}; ± is one standard error of the privacy noise.")
        out.print(_rich_table(table))


@app.command()
def merge(
    sketches: Annotated[list[Path], typer.Argument(help="Two or more sketches of the same schema and recipe.")],
    output: Output,
    disjoint_units: Annotated[bool, typer.Option("--disjoint-units", help="No unit has rows in two of them.")] = False,
    force: Force = False,
) -> None:
    """Add sketches: all raw (still secret) or all released (noises add up)."""
    from dpsketch.sketch.raw import RawSketch

    if len(sketches) < 2:
        raise MergeError("merge needs at least two sketches")
    _free(output, force, *sketches)
    kinds = {read_header(path)["kind"] for path in sketches}
    if kinds == {"raw"}:
        raw = RawSketch.load(sketches[0])
        for path in sketches[1:]:
            raw = raw.merge(RawSketch.load(path), disjoint_units)
        raw.save(output, force)
    elif kinds == {"released"}:
        released = ReleasedSketch.load(sketches[0])
        for path in sketches[1:]:
            released = released.merge(ReleasedSketch.load(path), disjoint_units)
        released.save(output, force)
    else:
        raise MergeError("raw and released sketches do not merge", "release the raw one first")
    err.print(f"{output}: merged from {len(sketches)} {kinds.pop()} sketches.")


@ledger_app.command("show")
def ledger_show(
    ledger: LedgerPlace,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_plan: Annotated[
        float | None,
        typer.Option(
            "--as-plan",
            metavar="DELTA",
            help="Also the epsilon at DELTA that the releases would have cost, had they been declared as one plan.",
        ),
    ] = None,
) -> None:
    """Print caps and spends."""
    from dpsketch.privacy.ledger import Ledger

    slack = None if as_plan is None else Budget(1.0, as_plan).exact_delta  # checked as a budget's
    book = Ledger(ledger, create=False)
    _say_upgraded(book)
    accounts = book.accounts()
    planned = {} if slack is None else {account.dataset: _as_plan(account, slack) for account in accounts}
    if as_json:
        print(
            json.dumps([_account_facts(account) | planned.get(account.dataset, {}) for account in accounts], indent=2)
        )
        return
    out.print(_accounts_table(accounts), soft_wrap=False)
    for account in accounts:
        epsilon = planned.get(account.dataset, {}).get("epsilon_as_one_plan")
        also = "" if slack is None else f" As one plan: epsilon {epsilon} at delta {as_plan:g}."
        out.print(f"{account.dataset}: {_releases_text(account)}.{also if epsilon else ''}")
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
) -> None:
    """Set how much a dataset may spend in total."""
    from dpsketch.privacy.ledger import Ledger

    if epsilon is None and rho is None:
        raise BudgetError("a cap is epsilon, with delta or without, or rho", "pass --epsilon 1, or --rho 0.5")
    if epsilon is not None and not math.isinf(epsilon):
        _check_epsilon("a cap's epsilon", epsilon, "a cap holds for all releases together; choose a smaller one")
    budget = Budget(epsilon, delta, rho)
    book = Ledger(ledger)
    _say_upgraded(book)
    book.grant(dataset, budget)
    err.print(f"Dataset '{dataset}' may spend {budget} in total.")


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
    times: Annotated[int, typer.Option(help="How many times all these releases.")] = 1,
) -> None:
    """Reserve a plan: releases declared up front cost less together. SCHEMA says whom the ledger counts."""
    from dpsketch.privacy.ledger import Ledger

    if not 1 <= times <= _MOST_TIMES:
        raise BudgetError(f"times must be from 1 to {_MOST_TIMES:,}, got {times} instead")
    budgets = [_budget(text) for text in releases] * times
    facts = Schema.load(schema)
    book = Ledger(ledger)
    _say_upgraded(book)
    plan = book.declare(dataset, facts.accounted, name, budgets, delta)
    together = " together" if len(budgets) > 1 else ""
    err.print(
        f"Plan '{name}' of dataset '{dataset}': {_count(len(budgets), 'release')} for {_plan_cost(plan)}{together}."
    )
    if not plan.saves:
        err.print("The plan saves nothing: without it, its releases would cost no more.")


@app.command()
def demo(folder: Annotated[Path, typer.Argument(help="Where to write the demo's files.")] = Path("demo")) -> None:
    """Make up a table of 100,000 rows, release it at epsilon 1, and compare answers with the truth."""
    from dpsketch.demo import run_demo

    run_demo(folder, out)


def _recipe(
    facts: Schema,
    budget: Budget | None,
    recipe: Path | None,
    rows: int | None,
    frequencies: int | None,
    only: str | None,
) -> Recipe:
    from dpsketch.recipe import Only, Recipe

    if recipe is None:
        chosen = Recipe.general(facts, rows, budget, frequencies)
    elif frequencies is not None:
        raise RecipeError("--frequencies is for the general recipe", "set size in the recipe file instead")
    else:
        chosen = Recipe.load(recipe)
    part = chosen.only
    if only is not None:
        column, separator, value = only.partition("=")
        if not separator:
            raise RecipeError("--only needs a column and a value", "write --only region=north")
        part = Only(column, value)
    return Recipe(chosen.parts, rows, chosen.sampling, part)


def _accumulated(table: Path, facts: Schema, recipe: Recipe) -> RawSketch:
    from dpsketch.engines.local import accumulate as accumulate_table

    with _progress() as report:
        return accumulate_table(table, facts, recipe, progress=report)


def _spending(budget: Budget, ledger: str | None, not_private: bool) -> tuple[Budget, Ledger | None]:
    """The budget and the ledger, if the release may take place with them."""
    from dpsketch.privacy.ledger import Ledger

    if not_private == budget.private:
        raise BudgetError(
            "a file without privacy needs both --epsilon inf and --not-private",
            "pass both, or neither for a private release",
        )
    if not budget.private and ledger is not None:
        raise BudgetError(NOT_IN_LEDGER, "leave out the ledger (--ledger)")
    if budget.private and ledger is None:
        raise BudgetError("a private release needs a ledger", "pass --ledger ledger.db; it is created if absent")
    return budget, None if ledger is None else Ledger(ledger)


def _release(
    raw: RawSketch,
    budget: Budget,
    book: Ledger | None,
    name: str,
    output: Path,
    force: bool,
    mechanism: str,
    plan: str | None,
) -> None:
    from dpsketch.sketch.release import release as release_raw

    release_raw(raw, budget, book, name, mechanism, plan).save(output, force)
    if book is not None:
        (account,) = (account for account in book.accounts() if account.dataset == name)
        err.print(f"{output}: released with {budget}; dataset '{name}' has spent {_spent_text(account)}.")
        err.print(f'Next: dpsketch show {output}, dpsketch ask {output} "select count(*) from sketch"')
    else:
        err.print(f"{output}: NOT PRIVATE, for studies only.")


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar of the share of bytes read: never a number of rows."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("reading"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _free(path: Path, force: bool, *inputs: Path | str | None) -> None:
    """Refuse before any work or spend what would be refused at the end, and what would overwrite an input."""
    if path.exists() and any(
        source is not None and Path(source).exists() and path.samefile(source) for source in inputs
    ):
        raise FileError(f"{path} is an input of this command", "choose another name for the output")
    if path.exists() and not force:
        raise FileError(f"{path} exists already", "choose another name, or pass --force to replace it")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a folder", "create it first")


def _rich_table(table: Table) -> RichTable:
    shown = RichTable()
    for name in table.columns:
        shown.add_column(name, justify="right")
    for row in table.rows:
        shown.add_row(*[_cell_text(cell) for cell in row])
    return shown


def _cell_text(cell: Any) -> str:
    return "(missing)" if cell is None else str(cell)


def _budget(text: str) -> Budget:
    """epsilon=0.1,delta=1e-7 as a budget."""
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
    """A budget's limit in words for curators, who make no studies without privacy."""
    if epsilon > MOST_EPSILON:
        raise BudgetError(f"{what} must be between 1e-9 and {MOST_EPSILON}, got {epsilon!r} instead", hint)


def _say_upgraded(book: Ledger) -> None:
    if book.upgraded:
        err.print("The ledger was upgraded to this version's tables; earlier versions of dpsketch refuse it now.")


def _accounts_table(accounts: Sequence[Account]) -> RichTable:
    """A line for each number that is capped; wide names are folded, numbers are short, nothing is cut off."""
    from dpsketch.privacy.account import rounded

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


def _spent_text(account: Account) -> str:
    """epsilon 1 of 2 and delta 1e-06 of 1e-05"""
    from dpsketch.privacy.account import rounded

    cap, spent, _ = _amounts(account).values()
    texts = []
    for kind in _kinds(account):
        much, most = (getattr(amount, kind) or Fraction(0) for amount in (spent, cap))
        texts.append(f"{kind} {rounded(much, up=True)} of {rounded(most, up=much == most)}")
    return " and ".join(texts)


def _kinds(account: Account) -> tuple[str, ...]:
    if account.cap.rho is not None:
        return ("rho",)
    return ("epsilon", "delta") if account.cap.delta or account.spent.delta else ("epsilon",)


def _amounts(account: Account) -> dict[str, Cap]:
    return {"cap": account.cap, "spent": account.spent, "left": account.left}


def _releases_text(account: Account) -> str:
    """per row; 3 releases (1 unfinished), some of 2 parts"""
    unfinished = sum(not spend.committed for spend in account.spends)
    text = f"per {account.unit}; " if account.unit else ""
    text += _count(len(account.spends), "release") + (f" ({unfinished} unfinished)" if unfinished else "")
    counts = [_count(count, noun) for count, noun in ((account.parts, "part"), (account.samples, "sample")) if count]
    return text + (f", of {' and '.join(counts)}" if counts else "")


def _plan_cost(plan: DeclaredPlan) -> str:
    from dpsketch.privacy.account import rounded

    return f"epsilon {rounded(plan.epsilon, up=True)} and delta {rounded(plan.delta, up=True)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _as_plan(account: Account, delta: Fraction) -> dict[str, str | None]:
    try:
        epsilon = decimal_text(account.as_one_plan(delta))
    except BudgetError:  # none is finite
        return {"epsilon_as_one_plan": None}
    return {"epsilon_as_one_plan": epsilon}


def _account_facts(account: Account) -> dict[str, Any]:
    rho = account.cap.rho is not None
    numbers = _amounts(account)
    facts = {
        "dataset": account.dataset,
        "unit": account.unit,
        "relation": account.relation,
        "kind": "rho" if rho else "epsilon",
    }
    facts |= {
        name: decimal_text((amount.rho if rho else amount.epsilon) or Fraction(0)) for name, amount in numbers.items()
    }
    if not rho:
        facts |= {f"delta_{name}": decimal_text(amount.delta) for name, amount in numbers.items()}
    plans = [
        {
            "name": plan.name,
            "epsilon": decimal_text(plan.epsilon),
            "delta": decimal_text(plan.delta),
            "used": [str(budget) for budget in plan.used],
            "unused": [str(budget) for budget in plan.unused],
            "created": plan.created,
        }
        for plan in account.plans
    ]
    return facts | {"plans": plans, "spends": [_spend_facts(spend) for spend in account.spends]}


def _spend_facts(spend: Spend) -> dict[str, Any]:
    facts = spend.release.to_dict() | {"created": spend.created, "committed": spend.committed}
    if spend.partition is not None:
        facts["partition"] = dict([spend.partition])
    more = {"plan": spend.plan, "event": spend.event}
    return facts | {name: value for name, value in more.items() if value is not None}


def main() -> None:
    """Entry point: errors without tracebacks, which could show records, unless --debug comes first."""
    if sys.argv[1:2] == ["--debug"]:
        del sys.argv[1]
        app()
        return
    try:
        code = app(standalone_mode=False)
        if code == 130:  # how newer versions of Typer tell an interrupt
            raise KeyboardInterrupt
        sys.exit(code)
    except DpsketchError as error:
        err.print(f"{type(error).__name__}: {error}")
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        err.print("Interrupted. Nothing was released; a spend that the ledger already shows stays recorded.")
        sys.exit(130)
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # wrong usage, told by Typer
            if hasattr(error, "message"):
                error.message = re.sub(r"://\S*@", "://…@", error.message)  # an address may hold a password
            error.show()
            sys.exit(error.exit_code)
        # A bug. Its message may hold cells.
        err.print(f"{type(error).__name__}: unexpected error.\nHint: run dpsketch --debug … for a traceback")
        sys.exit(70)


def run() -> None:
    """The installed command: `main` in a process that lives for it alone.

    Collecting its few cycles would take a tenth of the start, tearing down its modules a quarter of a second.
    """
    gc.disable()
    try:
        main()
        code: object = 0
    except SystemExit as stopped:
        code = stopped.code
    with suppress(BrokenPipeError):  # whoever read our output has seen enough
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
