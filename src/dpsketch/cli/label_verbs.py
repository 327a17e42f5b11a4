"""`dpsketch labels`: find the labels of a column in a small private release."""

from __future__ import annotations

from typing import Annotated

import typer

from dpsketch.cli.console import (
    AsJson,
    Delta,
    Epsilon,
    Force,
    OutputPath,
    SchemaPath,
    check_free,
    err,
    progress_bar,
    tell_written,
    warnings_told,
)
from dpsketch.cli.ledger_verbs import spent_text, standing_facts
from dpsketch.cli.process import check_stopped, ignore_signals
from dpsketch.cli.source_choice import Query, TableName, Tables, chosen_source, local_paths
from dpsketch.cli.spending import AcceptDelta, CreateLedger, Dataset, LedgerPath, check_delta, dataset_name, spending
from dpsketch.files.outputs import Output
from dpsketch.privacy.budget import Budget, spend_stands


def labels(
    tables: Tables,
    schema: SchemaPath,
    column: Annotated[str, typer.Option(help="Column to find the labels of: an undeclared one, or a category.")],
    output: OutputPath,
    table: TableName = None,
    query: Query = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    ledger: LedgerPath = None,
    create_ledger: CreateLedger = False,
    dataset: Dataset = None,
    accept_delta: AcceptDelta = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find the labels of a column that enough units have, and write a schema that lists them.

    This is a small release of its own, before that of the table: both budgets add up. Found labels are published
    verbatim.
    """
    from dpsketch.label_search import find_labels
    from dpsketch.privacy.events import budget_facts
    from dpsketch.privacy.label_threshold import label_event
    from dpsketch.schema.schema import Schema
    from dpsketch.schema.template import schema_text

    check_free(output, force, *local_paths(tables), schema, ledger)
    source, budget = chosen_source(tables, table, query), Budget(epsilon, delta)
    with Output(output, force) as claimed:
        facts = Schema.load(schema)
        label_event(budget, facts.rows_per_unit or 1, facts.relation)  # refuses what no ledger could help
        name, book = dataset_name(facts, dataset, budget), spending(budget, ledger, False, create_ledger)
        check_delta(facts, None, budget, accept_delta)
        check_stopped()
        with progress_bar() as report, warnings_told():
            found = find_labels(source, facts, column, budget, book, name, report)
        try:
            head = f"Labels of {column!r} were found by a private release with {budget}."
            claimed.file.write(schema_text(found.schema, head).encode())
            ignore_signals()
            claimed.keep()
        except BaseException as error:
            error.add_note(spend_stands(name, budget))
            raise
    standing = None if book is None else book.standing(name)
    assert standing is not None
    more = {"column": column, "labels": list(found.labels), "threshold": found.release.threshold}
    spent = {"budget": budget_facts(budget), "dataset": name, "ledger": standing_facts(standing)}
    message = f"{output}: {len(found.labels)} labels of '{column}'; dataset '{name}' has spent {spent_text(standing)}."
    tell_written(as_json, output, message, **more, statement=found.statement, **spent)
    err.print(found.statement)
    if not found.labels:
        err.print("No label is frequent enough to be found: raise epsilon, or type the labels into the schema.")
    err.print(
        f"Next: dpsketch release TABLE --schema {output} … with the same --ledger and --dataset: the spends add up"
    )
