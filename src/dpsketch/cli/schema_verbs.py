"""`dpsketch init` and `tighten`: schemas to fill in, and schemas with tighter bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpsketch.cli.console import AsJson, Force, check_free, err, listed, print_json, tell_written
from dpsketch.cli.sample_check import check_sample
from dpsketch.cli.source_choice import Query, TableName, Tables, chosen_source, local_paths
from dpsketch.errors import SourceError
from dpsketch.files.outputs import written


def init(
    tables: Tables,
    table: TableName = None,
    query: Query = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="The first line of a CSV file names its columns, or is a record."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="A PUBLIC sample file with the same columns: list formats of its cells that a release does not read, "
            "such as $55,000 or 31.12.2025. Its values are looked at."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a schema to fill in, from column names and types only; values of the table are never looked at."""
    from dpsketch.engines.readers import source_columns
    from dpsketch.schema.template import schema_template

    if check is not None and check.resolve() in [path.resolve() for path in local_paths(tables)]:
        raise SourceError("--check looks at values, and names the table itself", "name a sample that is public")
    template = schema_template(*source_columns(chosen_source(tables, table, query), header))
    if not as_json:
        print(template, end="")
    checked = {} if check is None else check_sample(check, header, tables[0])
    if as_json:
        print_json({"schema": template} | checked)


def tighten(
    sketch: Annotated[Path, typer.Argument(help="A release made with --for bounds, or a general one.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Schema to write.")],
    share: Annotated[
        float, typer.Option(help="Share of records that may lie outside, at each end of a column.")
    ] = 0.02,
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns. Default: all.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a schema with tighter bounds, for a second release of the same table with less noise.

    Values outside the bounds will be clamped. The first release has cost privacy; the new bounds cost no more.
    """
    from dpsketch.learn.bounds import cuts
    from dpsketch.learn.bounds import tighten as tightened
    from dpsketch.learn.view import open_view
    from dpsketch.schema.template import schema_text

    check_free(output, force, sketch)
    view = open_view(sketch)
    schema = tightened(view, share, listed(columns))
    changed = cuts(view.schema, schema)
    head = f"Bounds at the quantiles {share:g} and {1 - share:g}, from a private release."
    with written(output, force) as file:
        file.write(schema_text(schema, head).encode())
    message = f"{output}: tighter bounds of {len(changed)} of {len(schema.columns)} columns"
    facts = {each.column: {"before": each.before, "after": each.after} for each in changed}
    tell_written(as_json, output, message, changed=len(changed), columns=len(schema.columns), cut=facts)
    for each in changed:
        err.print(f"  {each}")
    if changed:
        err.print(f"A share of about {share:g} of the records lies beyond each new bound and will be clamped to it.")
    err.print(
        f"Next: dpsketch release TABLE --schema {output} … with the same --ledger and --dataset: the spends add up"
    )
