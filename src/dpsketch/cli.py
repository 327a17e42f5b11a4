"""Command line: parse, call, print. Commands import what they need, so that each starts fast."""

from __future__ import annotations

import csv
import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from dpsketch.errors import BudgetError, DpsketchError, FileError, MergeError, RecipeError
from dpsketch.privacy.budget import NOT_IN_LEDGER, Budget, decimal_text
from dpsketch.schema import Schema
from dpsketch.sketch.file import read_header
from dpsketch.sketch.released import ReleasedSketch
from dpsketch.sketch.statement import statement_text

if TYPE_CHECKING:
    from dpsketch.learn.sql import Table
    from dpsketch.privacy.ledger import Ledger
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

SchemaPath = Annotated[Path, typer.Option("--schema", help="TOML file with the table's public facts.")]
Rows = Annotated[int | None, typer.Option(help="Public order of magnitude of the rows; overrides the schema.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget of this release.")]
Frequencies = Annotated[
    int | None, typer.Option(help="Number of Fourier frequencies; by default from rows and epsilon.")
]
RecipePath = Annotated[
    Path | None, typer.Option("--recipe", help="TOML file with the maps and their shares; by default a general recipe.")
]
LedgerPath = Annotated[str | None, typer.Option(help="Ledger file; created if absent.")]
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
    epsilon: Epsilon,
    recipe: RecipePath = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    force: Force = False,
) -> None:
    """Read a table into a raw sketch: exact, secret, mergeable. EPSILON only chooses sizes; nothing is spent."""
    _free(output, force)
    _accumulated(table, Schema.load(schema), Budget(epsilon), recipe, rows, frequencies).save(output, force)
    err.print(f"{output}: raw sketch, NOT PRIVATE. Keep it secret; release it with: dpsketch release {output} …")


@app.command()
def release(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file, a folder of them, or a raw sketch.")],
    output: Output,
    epsilon: Epsilon,
    schema: Annotated[Path | None, typer.Option("--schema", help="TOML file with the table's public facts.")] = None,
    recipe: RecipePath = None,
    ledger: LedgerPath = None,
    dataset: Dataset = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    not_private: NotPrivate = False,
    force: Force = False,
) -> None:
    """Sketch a table, add noise once, and write the released sketch."""
    from dpsketch.sketch.raw import RawSketch

    _free(output, force)
    budget, book = _spending(epsilon, ledger, not_private)
    name = dataset or table.name.split(".")[0]
    if table.suffix == ".raw":
        if any(option is not None for option in (schema, recipe, rows, frequencies)):
            raise FileError("a raw sketch brings its own schema and recipe", "leave out the options that describe them")
        raw = RawSketch.load(table)
    else:
        if schema is None:
            raise FileError("a table needs --schema", "dpsketch init TABLE > schema.toml writes a template")
        facts = Schema.load(schema)
        if book is not None:
            book.check(name, budget.exact_epsilon, *facts.accounted)
        raw = _accumulated(table, facts, budget, recipe, rows, frequencies)
    _release(raw, budget, book, name, output, force)


@app.command()
def graph(
    edges: Annotated[Path, typer.Argument(help="CSV or Parquet edge list, or a folder of them.")],
    nodes: Annotated[int, typer.Option(help="Public number of nodes; ids are 0 to NODES-1.")],
    output: Output,
    epsilon: Epsilon,
    repetitions: Annotated[int, typer.Option(help="Rows of the table of counters.")] = 200,
    width: Annotated[int, typer.Option(help="Counters in a row of the table.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Public seed of the hashes.")] = 0,
    source: Annotated[str, typer.Option(help="Column of the node whose list an edge belongs to.")] = "src",
    target: Annotated[str, typer.Option(help="Column of the neighbour.")] = "dst",
    undirected: Annotated[bool, typer.Option("--undirected", help="Count every edge in both directions.")] = False,
    ledger: LedgerPath = None,
    dataset: Dataset = None,
    not_private: NotPrivate = False,
    force: Force = False,
) -> None:
    """Release the neighbour sets of a graph, for Jaccard densities. One neighbour list is protected, not a node."""
    from dpsketch.engines.graph import check_nodes, graph_schema, neighbour_sets
    from dpsketch.engines.local import accumulate as accumulate_table
    from dpsketch.maps.hashes import MinHash
    from dpsketch.maps.race import Race
    from dpsketch.recipe import Part, Recipe
    from dpsketch.sketch.release import check_fit

    _free(output, force)
    budget, book = _spending(epsilon, ledger, not_private)
    name = dataset or edges.name.split(".")[0]
    check_nodes(nodes)
    facts = Schema.from_dict(graph_schema(nodes, undirected))
    recipe = Recipe([Part(Race(rows=repetitions, width=width, seed=seed, hash=MinHash()), 1.0)])
    check_fit(facts, recipe, budget)
    if book is not None:
        book.check(name, budget.exact_epsilon, *facts.accounted)
    with _progress() as report:
        sets = neighbour_sets(edges, nodes, source, target, undirected, report)
        raw = accumulate_table(sets, facts, recipe)
    _release(raw, budget, book, name, output, force)


@app.command()
def show(sketch: Path, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the privacy statement of a released sketch."""
    statement = ReleasedSketch.load(sketch).statement
    print(json.dumps(statement, indent=2, ensure_ascii=False) if as_json else statement_text(statement))


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
    _free(output, force)
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
def ledger_show(ledger: str, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print caps and spends."""
    from dpsketch.privacy.ledger import Ledger

    accounts = Ledger(ledger, create=False).accounts()
    if as_json:
        print(json.dumps([_account_facts(account) for account in accounts], indent=2))
        return
    table = RichTable("dataset", "unit", "cap", "spent", "left", "releases", "unfinished")
    for account in accounts:
        unfinished = sum(not spend.committed for spend in account.spends)
        numbers = [decimal_text(number) for number in (account.cap, account.spent, account.left)]
        table.add_row(account.dataset, account.unit or "-", *numbers, str(len(account.spends)), str(unfinished))
    out.print(table)


@ledger_app.command("grant")
def ledger_grant(ledger: str, dataset: str, epsilon: Epsilon) -> None:
    """Set how much a dataset may spend in total."""
    from dpsketch.privacy.ledger import Ledger

    Ledger(ledger).grant(dataset, Budget(epsilon))
    err.print(f"Dataset '{dataset}' may spend epsilon {decimal_text(Budget(epsilon).exact_epsilon)} in total.")


@app.command()
def demo(folder: Annotated[Path, typer.Argument(help="Where to write the demo's files.")] = Path("demo")) -> None:
    """Make up a table of 100,000 rows, release it at epsilon 1, and compare answers with the truth."""
    from dpsketch.demo import run_demo

    run_demo(folder, out)


def _accumulated(
    table: Path, facts: Schema, budget: Budget, recipe: Path | None, rows: int | None, frequencies: int | None
) -> RawSketch:
    from dpsketch.engines.local import accumulate as accumulate_table
    from dpsketch.recipe import Recipe
    from dpsketch.sketch.release import check_fit

    if recipe is None:
        chosen = Recipe.general(facts, rows, budget, frequencies)
    elif frequencies is not None:
        raise RecipeError("--frequencies is for the general recipe", "set size in the recipe file instead")
    else:
        loaded = Recipe.load(recipe)
        chosen = Recipe(loaded.parts, rows, loaded.sampling)
    check_fit(facts, chosen, budget)
    with _progress() as report:
        return accumulate_table(table, facts, chosen, progress=report)


def _spending(epsilon: float, ledger: str | None, not_private: bool) -> tuple[Budget, Ledger | None]:
    """The budget and the ledger, if the release may take place with them."""
    from dpsketch.privacy.ledger import Ledger

    budget = Budget(epsilon)
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


def _release(raw: RawSketch, budget: Budget, book: Ledger | None, name: str, output: Path, force: bool) -> None:
    from dpsketch.sketch.release import release as release_raw

    release_raw(raw, budget, book, name).save(output, force)
    if budget.private:
        err.print(
            f"{output}: released with epsilon {decimal_text(budget.exact_epsilon)}, recorded for dataset '{name}'."
        )
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


def _free(path: Path, force: bool) -> None:
    """Refuse before any work or spend what would be refused at the end."""
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


def _account_facts(account: Any) -> dict[str, Any]:
    return {
        "dataset": account.dataset,
        "unit": account.unit,
        "cap": decimal_text(account.cap),
        "spent": decimal_text(account.spent),
        "left": decimal_text(account.left),
        "spends": [
            {
                "epsilon": decimal_text(spend.epsilon),
                "event": spend.event,
                "created": spend.created,
                "committed": spend.committed,
            }
            for spend in account.spends
        ],
    }


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
