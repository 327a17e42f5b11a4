"""`dpsketch show` and `ask`: what a released sketch guarantees, holds and answers."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from dpsketch.cli.console import AsJson, out, print_json, waiting
from dpsketch.displays import shown
from dpsketch.errors import FileError, visible, visible_lines

if TYPE_CHECKING:
    from dpsketch.learn.queries import Table


def show(
    sketch: Annotated[Path, typer.Argument(help="A released sketch, or a model fitted to one.")],
    as_json: AsJson = False,
) -> None:
    """Print what a released sketch guarantees, holds and answers well; for a model, the guarantee of its release."""
    from dpsketch.sketch.privacy_statement import statement_text
    from dpsketch.sketch.released import ReleasedSketch

    try:
        released = ReleasedSketch.load(sketch)
    except FileError:
        from dpsketch.learn.saved import is_model, load_model

        if not is_model(sketch):
            raise
        model = load_model(sketch)
        statement = {"model": type(model).__name__} | model.statement_
        if not as_json:
            print(f"A {statement['model']}, which follows from a release with this statement:\n")
    else:
        from dpsketch.learn.contents import contents, contents_line

        statement = released.statement | {"contents": contents(released)}
    if as_json:
        print_json(statement)
        return
    print(visible_lines(statement_text(statement)))
    if "contents" in statement:
        _print_contents(contents_line(released), statement["contents"])


def ask(
    sketch: Path,
    question: Annotated[
        str,
        typer.Argument(help="A select statement on the table `sketch`; see docs/answers.md for the SQL it supports."),
    ],
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Answer a question; every number carries its standard error. `describe sketch` lists the columns."""
    from dpsketch.learn.contents import asks_for_contents
    from dpsketch.learn.view import open_view

    view = open_view(sketch)
    with waiting("answering; the first question about several columns fits a model, which is kept"):
        table = view.sql(question)
    mark = {} if view.released.private else {"not_private": True}  # in every row: a message beside a file gets lost
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
            out.print(line if asks_for_contents(question) else f"{line}; ± is one standard error.")
        out.print(_rich_table(table))
        for note in table.notes:
            out.print(visible(note))


def _print_contents(line: str, facts: dict[str, Any]) -> None:
    """Print the columns of a release, its declared rows and the questions that it suits."""
    out.print(f"\nCONTENTS\n{line}")
    table = RichTable(*facts["columns"][0])
    for column in facts["columns"]:
        table.add_row(*column.values())
    out.print(table, soft_wrap=False)


def _rich_table(table: Table) -> RichTable:
    printed = RichTable()
    for name in table.columns:
        printed.add_column(name, justify="right")
    for row in table.rows:
        printed.add_row(*[_cell_text(cell) for cell in row])
    return printed


def _shown_cells(row: dict[str, Any]) -> dict[str, Any]:
    """Cells as a terminal shows them; files and other programs get labels as they are."""
    return {name: visible(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def _cell_text(cell: Any) -> str:
    return "(missing)" if cell is None else shown(cell)
