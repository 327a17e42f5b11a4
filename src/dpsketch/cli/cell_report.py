"""`--report`: how cells were read, on the curator's own terminal and nowhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from dpsketch.cli.console import err, progress_bar
from dpsketch.errors import BudgetError, FileError

if TYPE_CHECKING:
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.schema.schema import Schema

Report = Annotated[
    bool,
    typer.Option(
        "--report",
        help="First count how cells of each column are read, in a pass of its own. Exact and SECRET, so only on a "
        "terminal. A schema changed afterwards is marked as data-dependent in the statement.",
    ),
]


def check_terminal(wanted: bool) -> None:
    """Refuse a report that would end up in a file or another program."""
    if wanted and not (sys.stderr.isatty() and sys.stdout.isatty()):
        raise FileError(
            "a report has exact counts of cells, as secret as the table: it is shown on a terminal only",
            "run the command at a terminal, without redirecting its output, or leave out --report",
        )


def print_report(source: Any, facts: Schema, wanted: bool, book: Ledger | None, dataset: str) -> None:
    """Print how cells are read, if that is wanted. Sets of ids and columns computed from others are not counted.

    The ledger records with which schema counts are shown, before they are.
    """
    if not wanted:
        return
    if book is None:
        raise BudgetError(
            "the ledger notes that exact counts were shown, and a study without privacy has no ledger",
            "leave out --report",
        )
    from dpsketch.sketch.circumstances import schema_digest

    book.note_report(dataset, schema_digest(facts))
    from dpsketch.encoding.cell_counts import CellCounts, count_cells
    from dpsketch.engines.readers import read_batches

    stored = [column for column in facts.scalars if not column.sources]
    counts = {column.name: CellCounts(column.name) for column in stored}
    with progress_bar("counting") as report:
        for batch in read_batches(source, list(counts), report, (), facts.csv):
            for column in stored:
                counts[column.name] += count_cells(column, batch.column(column.name))
    err.print("SECRET: exact counts of cells. Do not copy, log or share them.")
    shown = RichTable()
    for name in ("column", "missing", "unreadable", "clamped or other"):
        shown.add_column(name, justify="left" if name == "column" else "right")
    for each in counts.values():
        shown.add_row(each.column, *(f"{n:,}" for n in (each.missing, each.unreadable, each.outside)))
    err.print(shown, soft_wrap=False)
