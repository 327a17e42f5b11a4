"""Command line: parse, call, print. Commands import what they need, so that each starts fast."""

from __future__ import annotations

import csv
import gc
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from dpsketch.cli.console import (
    Delta,
    Epsilon,
    Force,
    Mechanism,
    RecipePath,
    Rho,
    Rows,
    SchemaPath,
    check_free,
    err,
    listed,
    out,
    print_json,
    progress_bar,
    unprintable,
    warnings_told,
)
from dpsketch.cli.fit import fit_app
from dpsketch.cli.ledger_verbs import ledger_app, spent_text
from dpsketch.cli.plan import audit, plan
from dpsketch.cli.process import Stopped, check_stopped, ignore_signals, prepare_streams, stop_on_signals
from dpsketch.cli.recipe_choice import (
    Clusters,
    Columns,
    Frequencies,
    OnlyRows,
    Purpose,
    Snapshot,
    chosen_recipe,
    next_steps,
)
from dpsketch.cli.row_verbs import sample, score
from dpsketch.errors import BudgetError, DpsketchError, FileError, MergeError, PublicNote, visible, visible_lines
from dpsketch.files.outputs import Output, written
from dpsketch.privacy.budget import NOT_IN_LEDGER, Budget, spend_stands

if TYPE_CHECKING:
    from dpsketch.learn.queries import Table
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.recipe.recipe import Recipe
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.raw import RawSketch
    from dpsketch.sketch.released import ReleasedSketch

app = typer.Typer(
    help="One private pass over a table, one release, unlimited questions afterwards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(fit_app, name="fit")

Plan = Annotated[str | None, typer.Option(help="A plan declared in the ledger, of which this release is an entry.")]
GroupsFrom = Annotated[
    Path | None,
    typer.Option(
        "--groups-from",
        metavar="SKETCH",
        help="Another site's release to merge with: take its pairs and groups of cells, and its recipe.",
    ),
]
LedgerPath = Annotated[str | None, typer.Option(help="Ledger file, created if absent, or postgresql:// URL.")]
Dataset = Annotated[str | None, typer.Option(help="Name in the ledger; by default the table's file name.")]
NotPrivate = Annotated[bool, typer.Option("--not-private", help="For studies: no noise, needs epsilon inf.")]
OutputPath = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]


@app.command()
def init(
    table: Path,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="The first line of a CSV file names its columns, or is a record."),
    ] = None,
) -> None:
    """Print a schema to fill in, from column names and types only; values are never looked at."""
    from dpsketch.engines.readers import source_columns
    from dpsketch.schema.template import schema_template

    print(schema_template(*source_columns(table, header)), end="")


@app.command()
def tighten(
    sketch: Annotated[Path, typer.Argument(help="A released sketch that tells quantiles: --for bounds, or a general.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Schema to write.")],
    share: Annotated[float, typer.Option(help="Records that may be outside, at each end of a column.")] = 0.02,
    columns: Annotated[str | None, typer.Option(help="Columns, with commas between them; by default all.")] = None,
    force: Force = False,
) -> None:
    """Write a schema with tighter bounds, for a second release of the same table with less noise. Values outside will
    count as the bound. The first release has cost privacy; the new bounds cost no more.
    """
    from dpsketch.learn.bounds import tighten as tightened
    from dpsketch.learn.view import open_view
    from dpsketch.schema.template import schema_text

    check_free(output, force, sketch)
    view = open_view(sketch)
    schema = tightened(view, share, listed(columns))
    changed = sum(one != other for one, other in zip(schema.columns, view.schema.columns, strict=True))
    head = f"Bounds at shares of {share:g} and {1 - share:g}, by a private release."
    with written(output, force) as file:
        file.write(schema_text(schema, head).encode())
    err.print(f"{output}: tighter bounds of {changed} of {len(schema.columns)} columns")
    err.print(f"Next: dpsketch release TABLE --schema {output} … with the same --ledger and --dataset, which add up")


@app.command()
def accumulate(
    table: Path,
    schema: SchemaPath,
    output: OutputPath,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    recipe: RecipePath = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    purpose: Purpose = None,
    clusters: Clusters = None,
    columns: Columns = None,
    only: OnlyRows = None,
    snapshot: Snapshot = None,
    force: Force = False,
) -> None:
    """Read a table into a raw sketch: exact, secret, mergeable. Nothing is spent: the budget chooses the sizes of the
    general recipe, and tells now whether a release with it will fit.
    """
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.release import planned

    check_free(output, force, table, schema, recipe)
    facts = Schema.load(schema)
    unknown = epsilon is None and rho is None and not delta
    budget = None if unknown and recipe is not None else Budget(epsilon, delta, rho)
    chosen = chosen_recipe(facts, budget, recipe, rows, frequencies, only, snapshot, None, purpose, clusters, columns)
    if budget is not None:
        planned(facts, chosen, budget)
    with written(output, force, secret=True) as file:
        _accumulated(table, facts, chosen).write(file)
    err.print(f"{output}: raw sketch, NOT PRIVATE. Keep it secret; release it with: dpsketch release {output} …")


@app.command()
def release(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file, a folder of them, or a raw sketch.")],
    output: OutputPath,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    schema: Annotated[Path | None, typer.Option("--schema", help="TOML file with the table's public facts.")] = None,
    recipe: RecipePath = None,
    only: OnlyRows = None,
    snapshot: Snapshot = None,
    ledger: LedgerPath = None,
    dataset: Dataset = None,
    plan: Plan = None,
    rows: Rows = None,
    frequencies: Frequencies = None,
    purpose: Purpose = None,
    clusters: Clusters = None,
    columns: Columns = None,
    groups_from: GroupsFrom = None,
    not_private: NotPrivate = False,
    force: Force = False,
) -> None:
    """Sketch a table, add noise once, and write the released sketch."""
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.raw import RawSketch
    from dpsketch.sketch.release import partition, planned
    from dpsketch.sketch.released import ReleasedSketch

    check_free(output, force, table, schema, recipe, ledger, groups_from)
    other = None if groups_from is None else ReleasedSketch.load(groups_from)
    budget, book = _spending(Budget(epsilon, delta, rho), ledger, not_private)
    name = dataset or table.name.split(".")[0]
    with Output(output, force) as claimed:
        if table.suffix == ".raw":
            described = (schema, recipe, rows, frequencies, purpose, clusters, columns, only, snapshot)
            if any(option is not None for option in described):
                raise FileError(
                    "a raw sketch brings its own schema and recipe", "leave out the options that describe them"
                )
            raw = RawSketch.load(table)
        else:
            if schema is None:
                raise FileError("a table needs --schema", "dpsketch init TABLE > schema.toml writes a template")
            facts = Schema.load(schema)
            chosen = chosen_recipe(
                facts, budget, recipe, rows, frequencies, only, snapshot, other, purpose, clusters, columns
            )
            event = planned(facts, chosen, budget, mechanism)
            if book is not None and event is not None:
                book.check(name, facts.accounted, event, partition(facts, chosen), plan)
            raw = _accumulated(table, facts, chosen)
        _release(raw, budget, book, name, claimed, mechanism, plan, other)
    _tell_released(claimed.path, budget, book, name, next_steps(claimed.path, purpose))


@app.command()
def graph(
    edges: Annotated[Path, typer.Argument(help="CSV or Parquet edge list, or a folder of them.")],
    nodes: Annotated[int, typer.Option(help="Public number of nodes; ids are 0 to NODES-1.")],
    output: OutputPath,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    repetitions: Annotated[
        int | None,
        typer.Option(help="Rows of the table of counters; by default by nodes and budget: up to 2000, of 400 kB each."),
    ] = None,
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
    from dpsketch.engines.graph import COLUMN, check_nodes, graph_schema, neighbour_sets
    from dpsketch.engines.local import accumulate as accumulate_table
    from dpsketch.maps.hashed.hashes import MinHash
    from dpsketch.maps.hashed.race import Race
    from dpsketch.recipe.recipe import Part, Recipe
    from dpsketch.recipe.tasks.graph_task import graph_rows
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.release import planned

    check_free(output, force, edges, ledger)
    budget, book = _spending(Budget(epsilon, delta, rho), ledger, not_private)
    name = dataset or edges.name.split(".")[0]
    check_nodes(nodes)
    facts = Schema.from_dict(graph_schema(nodes, undirected))
    if repetitions is None:
        repetitions = graph_rows(facts, nodes, budget)
    recipe = Recipe([Part(Race((COLUMN,), repetitions, width, seed, MinHash()), 1.0)])
    event = planned(facts, recipe, budget, mechanism)
    if book is not None and event is not None:
        book.check(name, facts.accounted, event, None, plan)
    with Output(output, force) as claimed:
        with progress_bar() as report:
            sets = neighbour_sets(edges, nodes, source, target, undirected, report)
            raw = accumulate_table(sets, facts, recipe)
        _release(raw, budget, book, name, claimed, mechanism, plan, None)
    _tell_released(claimed.path, budget, book, name, next_steps(claimed.path, "graph"))


@app.command()
def show(
    sketch: Annotated[Path, typer.Argument(help="A released sketch, or a model fitted to one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the privacy statement of a released sketch, or of the release that a model follows from."""
    from dpsketch.sketch.privacy_statement import statement_text
    from dpsketch.sketch.released import ReleasedSketch

    try:
        statement = ReleasedSketch.load(sketch).statement
    except FileError:
        from dpsketch.learn.saved import is_model, load_model

        if not is_model(sketch):
            raise
        model = load_model(sketch)
        statement = {"model": type(model).__name__} | model.statement_
        if not as_json:
            print(f"A {statement['model']}, which follows from a release with this statement:\n")
    if as_json:
        print_json(statement)
    else:
        print(visible_lines(statement_text(statement)))


app.command()(audit)
app.command()(plan)


@app.command()
def ask(
    sketch: Path,
    question: Annotated[
        str, typer.Argument(help="A select statement on the table `sketch`; docs/answers.md says what it may hold.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Answer a question; every number carries its standard error."""
    from dpsketch.learn.view import open_view

    view = open_view(sketch)
    table = view.sql(question)
    mark = {} if view.released.private else {"not_private": True}  # in every row: files lose what was printed beside
    rows = [row | mark for row in table.to_dicts()]
    if as_json:
        print_json(rows)
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [*table.columns, *mark])
        writer.writeheader()
        writer.writerows(rows if not sys.stdout.isatty() else map(_shown_cells, rows))
    else:
        if not view.released.private:
            out.print("NOT PRIVATE: exact sums, for studies only.")
        for line in table.how:
            out.print(f"{line}; ± is one standard error.")
        out.print(_rich_table(table))


app.command()(sample)
app.command()(score)


@app.command()
def merge(
    sketches: Annotated[list[Path], typer.Argument(help="Two or more sketches of the same schema and recipe.")],
    output: OutputPath,
    disjoint_units: Annotated[bool, typer.Option("--disjoint-units", help="No unit has rows in two of them.")] = False,
    force: Force = False,
) -> None:
    """Add sketches: all raw (still secret) or all released (noises add up)."""
    from dpsketch.sketch.file import read_header
    from dpsketch.sketch.raw import RawSketch
    from dpsketch.sketch.released import ReleasedSketch

    if len(sketches) < 2:
        raise MergeError("merge needs at least two sketches", "dpsketch merge A.sketch B.sketch -o BOTH.sketch")
    check_free(output, force, *sketches)
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


@app.command()
def demo(folder: Annotated[Path, typer.Argument(help="Where to write the demo's files.")] = Path("demo")) -> None:
    """Make up a table of 100,000 rows, release it at epsilon 1, and compare answers with the truth."""
    from dpsketch.cli.demo import run_demo

    run_demo(folder, out)


def _accumulated(table: Path, facts: Schema, recipe: Recipe) -> RawSketch:
    from dpsketch.engines.local import accumulate as accumulate_table
    from dpsketch.engines.readers import holds_csv

    with progress_bar() as report:
        raw = accumulate_table(table, facts, recipe, progress=report)
    if not facts.csv.multiline and holds_csv(table):
        err.print(
            "CSV: every line was read as one row, also inside of quotes. To change that: csv.multiline in the schema."
        )
    return raw


def _spending(budget: Budget, ledger: str | None, not_private: bool) -> tuple[Budget, Ledger | None]:
    """The budget and the ledger, if the release may take place with them."""
    from dpsketch.ledger.ledger import Ledger

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
    output: Output,
    mechanism: str,
    plan: str | None,
    other: ReleasedSketch | None,
) -> None:
    """Release into a claimed file. What goes wrong after the spend says that the spend stands."""
    from dpsketch.sketch.release import release as release_raw

    check_stopped()
    output.make_room(raw.most_bytes)
    with warnings_told():
        released = release_raw(raw, budget, book, name, mechanism, plan, other)
    try:
        released.write(output.file)
        ignore_signals()
        output.keep()
    except BaseException as error:
        if released.private:
            error.add_note(spend_stands(name, budget))
        raise


def _tell_released(output: Path, budget: Budget, book: Ledger | None, name: str, then: str) -> None:
    standing = None if book is None else book.standing(name)
    if standing is not None:
        err.print(f"{output}: released with {budget}; dataset '{name}' has spent {spent_text(standing)}.")
        err.print(f"Next: dpsketch show {output}, {then}")
    else:
        err.print(f"{output}: NOT PRIVATE, for studies only.")


def _rich_table(table: Table) -> RichTable:
    shown = RichTable()
    for name in table.columns:
        shown.add_column(name, justify="right")
    for row in table.rows:
        shown.add_row(*[_cell_text(cell) for cell in row])
    return shown


def _shown_cells(row: dict[str, Any]) -> dict[str, Any]:
    """For a terminal; a file or another program gets labels as they are."""
    return {name: visible(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def _cell_text(cell: Any) -> str:
    return "(missing)" if cell is None else str(cell)


def main() -> None:
    """Entry point: errors without tracebacks, which could show records, unless --debug comes first."""
    if sys.argv[1:2] == ["--debug"]:
        del sys.argv[1]
        app()
        return
    try:
        sys.exit(app(standalone_mode=False))
    except DpsketchError as error:
        err.print("\n".join([f"{type(error).__name__}: {error}", *_notes(error)]))
        sys.exit(1)
    except Stopped as stopped:
        err.print("\n".join(["Interrupted.", *(_notes(stopped) or ["Nothing was written, nothing was spent."])]))
        sys.exit(stopped.exit_code)
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.exit(1)
    except Exception as raised:
        # Typer takes an EOFError for a user at a prompt; there are none here.
        failure = raised.__cause__ if isinstance(raised, typer.Abort) and raised.__cause__ else raised
        if hasattr(failure, "show") and hasattr(failure, "exit_code"):  # wrong usage, reported by Typer
            if hasattr(failure, "message"):
                failure.message = re.sub(r"://\S*@", "://…@", failure.message)  # an address may hold a password
            failure.show()
            sys.exit(failure.exit_code)
        # A bug. Its message may hold cells.
        hint = "Hint: run dpsketch --debug … for a traceback"
        err.print("\n".join([f"{type(failure).__name__}: unexpected error.", *_notes(failure), hint]))
        sys.exit(70)


def _notes(error: BaseException) -> list[str]:
    """What our own code added to an exception on its way: whether a spend stands."""
    return [note for note in getattr(error, "__notes__", []) if isinstance(note, PublicNote)]


def run() -> None:
    """The installed command: `main` in a process that lives for it alone.

    Collecting its few cycles would take a tenth of the start, tearing down its modules a quarter of a second.
    """
    gc.disable()
    prepare_streams()
    stop_on_signals()
    try:
        main()
        code: object = 0
    except SystemExit as stopped:
        code = stopped.code
    except Stopped as stopped:  # while an error was being printed
        code = stopped.exit_code
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough
        pass
    except OSError as error:
        err.print(f"FileError: {unprintable(error)}")
        code = code or 1
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
