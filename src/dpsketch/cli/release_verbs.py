"""`dpsketch release` and `graph`: the verbs that read tables, spend and write released sketches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.cell_report import Report, check_terminal, print_report
from dpsketch.cli.console import (
    AsJson,
    Delta,
    Epsilon,
    Force,
    Mechanism,
    OutputPath,
    RecipePath,
    Rho,
    Rows,
    check_free,
    err,
    print_json,
    progress_bar,
    tell_written,
    warnings_told,
)
from dpsketch.cli.ledger_verbs import spent_text, standing_facts
from dpsketch.cli.process import check_stopped, ignore_signals
from dpsketch.cli.raw_verbs import OptionalSchema, accumulated, check_alone, loaded_schema
from dpsketch.cli.recipe_choice import (
    Clusters,
    Columns,
    Frequencies,
    Important,
    OnlyRows,
    Purpose,
    Snapshot,
    chosen_recipe,
    next_steps,
)
from dpsketch.cli.source_choice import (
    EngineName,
    Master,
    Query,
    TableName,
    Tables,
    chosen_engine,
    chosen_source,
    local_paths,
)
from dpsketch.cli.spending import (
    AcceptDelta,
    CreateLedger,
    Dataset,
    LedgerPath,
    check_delta,
    dataset_name,
    spending,
)
from dpsketch.errors import FileError, RecipeError
from dpsketch.files.outputs import Output
from dpsketch.privacy.budget import Budget, spend_stands

if TYPE_CHECKING:
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.recipe.recipe import Recipe
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.circumstances import AuditResult
    from dpsketch.sketch.predicted_errors import PredictedErrors
    from dpsketch.sketch.raw import RawSketch
    from dpsketch.sketch.released import ReleasedSketch

Plan = Annotated[str | None, typer.Option(help="Make this release an entry of a plan declared in the ledger.")]
GroupsFrom = Annotated[
    Path | None,
    typer.Option(
        "--groups-from",
        metavar="SKETCH",
        help="Another site's release to merge with later: use its recipe, cells, groups of cells and pairs.",
    ),
]
AuditPath = Annotated[
    Path | None,
    typer.Option("--audit", help="What `dpsketch audit … --json` printed for this recipe: the statement cites it."),
]
PredictionsPath = Annotated[
    Path | None,
    typer.Option(
        "--predictions", help="What `dpsketch plan … --json` printed for this release: the statement cites it."
    ),
]
NotPrivate = Annotated[bool, typer.Option("--not-private", help="For studies: no noise; needs --epsilon inf.")]


def release(
    tables: Tables,
    output: OutputPath,
    table: TableName = None,
    query: Query = None,
    engine: EngineName = "local",
    master: Master = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    schema: OptionalSchema = None,
    recipe: RecipePath = None,
    only: OnlyRows = None,
    snapshot: Snapshot = None,
    ledger: LedgerPath = None,
    create_ledger: CreateLedger = False,
    dataset: Dataset = None,
    plan: Plan = None,
    accept_delta: AcceptDelta = False,
    audit: AuditPath = None,
    predictions: PredictionsPath = None,
    report: Report = False,
    rows: Rows = None,
    frequencies: Frequencies = None,
    important: Important = None,
    purpose: Purpose = None,
    clusters: Clusters = None,
    columns: Columns = None,
    groups_from: GroupsFrom = None,
    not_private: NotPrivate = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Sketch a table, or take a raw sketch, add noise once, and write the released sketch."""
    from dpsketch.sketch.release import partition, planned
    from dpsketch.sketch.released import ReleasedSketch

    check_free(output, force, *local_paths(tables), schema, recipe, ledger, groups_from, audit, predictions)
    check_terminal(report)
    source, workers = chosen_source(tables, table, query), chosen_engine(engine, master)
    other, budget = None if groups_from is None else ReleasedSketch.load(groups_from), Budget(epsilon, delta, rho)
    described, tasks = (recipe, rows, frequencies, only, snapshot), (purpose, clusters, columns, important)
    with Output(output, force) as claimed:
        raw = _loaded(source, report or any(option is not None for option in (schema, *described, *tasks)))
        facts = loaded_schema(schema) if raw is None else raw.schema
        name, book = dataset_name(facts, dataset, budget), spending(budget, ledger, not_private, create_ledger)
        chosen = chosen_recipe(facts, budget, *described, other, *tasks) if raw is None else raw.recipe
        check_delta(facts, chosen, budget, accept_delta)
        cited = _cited(audit, predictions, chosen, facts, mechanism, budget)
        if raw is None:
            event = planned(facts, chosen, budget, mechanism)
            if book is not None and event is not None:
                book.check(name, facts.accounted, event, partition(facts, chosen), plan)
            print_report(source, facts, report, book, name)
            raw = accumulated(source, facts, chosen, workers)
        _release(raw, budget, book, name, claimed, mechanism, plan, other, *cited)
    task = purpose or (None if clusters is None else f"clusters:{clusters}")
    then = None if _is_raw(source) else next_steps(claimed.path, task)  # a raw sketch names no task
    _tell_released(claimed.path, budget, book, name, then, as_json)


def graph(
    edges: Tables,
    nodes: Annotated[int, typer.Option(help="Public number of nodes; ids are 0 to NODES-1.")],
    output: OutputPath,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    repetitions: Annotated[
        int | None,
        typer.Option(
            help="Repetitions of the hashed counters, 400 kB each. Default: up to 2000, from nodes and budget."
        ),
    ] = None,
    width: Annotated[int, typer.Option(help="Counters in each repetition.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Public seed of the hashes.")] = 0,
    source: Annotated[str, typer.Option(help="Column of the node whose list an edge belongs to.")] = "src",
    target: Annotated[str, typer.Option(help="Column of the neighbour.")] = "dst",
    undirected: Annotated[bool, typer.Option("--undirected", help="Count every edge in both directions.")] = False,
    engine: EngineName = "local",
    master: Master = None,
    ledger: LedgerPath = None,
    create_ledger: CreateLedger = False,
    dataset: Dataset = None,
    plan: Plan = None,
    accept_delta: AcceptDelta = False,
    not_private: NotPrivate = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release the neighbour sets of a graph, for Jaccard densities. One neighbour list is protected, not a node."""
    from dpsketch.engines.engine import accumulate as accumulate_table
    from dpsketch.engines.graph import COLUMN, EdgeList, graph_schema
    from dpsketch.maps.hashed.hashes import MinHash
    from dpsketch.maps.hashed.race import Race
    from dpsketch.recipe.recipe import Part, Recipe
    from dpsketch.recipe.tasks.graph_task import graph_rows
    from dpsketch.recipe.tasks.task import with_count
    from dpsketch.schema.schema import Schema
    from dpsketch.sketch.release import planned

    check_free(output, force, *local_paths(edges), ledger)
    budget, workers = Budget(epsilon, delta, rho), chosen_engine(engine, master)
    graph_of = EdgeList(chosen_source(edges, None, None), nodes, source, target, undirected)
    facts = Schema.from_dict(graph_schema(nodes, undirected))
    name, book = dataset_name(facts, dataset, budget), spending(budget, ledger, not_private, create_ledger)
    if repetitions is None:
        repetitions = graph_rows(facts, nodes, budget)
    counters = Race((COLUMN,), repetitions, width, seed, MinHash())
    recipe = Recipe([Part(*each) for each in with_count(facts, budget, counters)])
    check_delta(facts, recipe, budget, accept_delta)
    event = planned(facts, recipe, budget, mechanism)
    if book is not None and event is not None:
        book.check(name, facts.accounted, event, None, plan)
    with Output(output, force) as claimed:
        with progress_bar() as report:
            raw = accumulate_table(graph_of, facts, recipe, workers, report)
        _release(raw, budget, book, name, claimed, mechanism, plan, None)
    _tell_released(claimed.path, budget, book, name, next_steps(claimed.path, "graph"), as_json)


def _is_raw(source: Any) -> bool:
    return isinstance(source, str) and source.endswith(".raw")


def _loaded(source: Any, described: bool) -> RawSketch | None:
    """The raw sketch, if that is what the path names."""
    from dpsketch.sketch.raw import RawSketch

    if not _is_raw(source):
        return None
    check_alone(described)
    return RawSketch.load(source)


def _cited(
    audit: Path | None, plan: Path | None, recipe: Recipe, facts: Schema, mechanism: str, budget: Budget
) -> tuple[AuditResult | None, PredictedErrors | None]:
    """The results of an audit and a plan of this release, from files."""
    from dpsketch.sketch.circumstances import audited_digest, checked_audit
    from dpsketch.sketch.predicted_errors import checked_predictions, planned_digest

    tested = predicted = None
    if audit is not None:
        tested = checked_audit(_printed(audit, "audit"), str(audit), audited_digest(recipe, facts, mechanism), budget)
    if plan is not None:
        if mechanism != "auto":
            raise RecipeError("a plan is about a release that chooses its mechanism", "leave out --mechanism")
        predicted = checked_predictions(_printed(plan, "plan"), str(plan), planned_digest(recipe, facts, budget))
    return tested, predicted


def _printed(path: Path, verb: str) -> object:
    """What a verb printed with --json into a file; None if it is no JSON."""
    import json

    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        hint = f"name a file that {verb} --json printed"
        raise FileError(f"{path}: cannot be read: {error.strerror}", hint) from None
    except (ValueError, RecursionError):
        return None


def _release(
    raw: RawSketch,
    budget: Budget,
    book: Ledger | None,
    name: str,
    output: Output,
    mechanism: str,
    plan: str | None,
    other: ReleasedSketch | None,
    audit: AuditResult | None = None,
    predicted: PredictedErrors | None = None,
) -> None:
    """Release into a claimed file. Errors after the spend state that it stands."""
    from dpsketch.sketch.release import release as release_raw

    check_stopped()
    output.make_room(raw.most_bytes)
    with warnings_told():
        released = release_raw(raw, budget, book, name, mechanism, plan, other, audit, predicted)
    try:
        released.write(output.file)
        ignore_signals()
        output.keep()
    except BaseException as error:
        if released.private:
            error.add_note(spend_stands(name, budget))
        raise


def _tell_released(
    output: Path, budget: Budget, book: Ledger | None, name: str, then: str | None, as_json: bool
) -> None:
    from dpsketch.privacy.events import budget_facts

    standing = None if book is None else book.standing(name)
    if standing is None:
        message = f"{output}: NOT PRIVATE, for studies only."
        tell_written(as_json, output, message, kind="released", private=False)
        return
    err.print(f"{output}: released with {budget}; dataset '{name}' has spent {spent_text(standing)}.")
    err.print(f"Next: dpsketch show {output}" + (f", {then}" if then else ""))
    if as_json:
        facts = {"kind": "released", "private": True, "budget": budget_facts(budget), "dataset": name}
        print_json({"output": str(output)} | facts | {"ledger": standing_facts(standing)})
