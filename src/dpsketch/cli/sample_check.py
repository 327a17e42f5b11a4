"""`dpsketch init --check SAMPLE`: formats in a public sample file that a release does not read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from dpsketch.cli.console import err, progress_bar
from dpsketch.displays import counted
from dpsketch.errors import visible

_MOST_BATCHES = 4  # of the sample; a batch holds thousands of rows
_LONGEST_EXAMPLE = 30


def check_sample(sample: Path, header: bool | None, table: str) -> dict[str, Any]:
    """Print the findings, and SQL that rewrites the table; return both as facts."""
    from dpsketch.encoding.cell_formats import find_formats, rewriting
    from dpsketch.engines.readers import read_batches, source_columns

    columns, layout = source_columns(sample, header)
    names = [name for name, _ in columns]
    with progress_bar("checking") as report:
        batches = list(islice(read_batches(sample, names, report, (), layout), _MOST_BATCHES))
    every = (find_formats(name, (batch.column(name) for batch in batches)) for name in names)
    findings = [finding for finding in every if finding is not None]
    if not findings:
        err.print(f"{sample}: all formats in its {counted(len(names), 'column')} are read, as far as they are known.")
        return {"check": [], "rewrite": None}
    shown = RichTable()
    for title in ("column", "not read", "cells", "for example"):
        shown.add_column(title, justify="right" if title == "cells" else "left")
    for each in findings:
        example = visible(each.example[:_LONGEST_EXAMPLE])
        shown.add_row(each.column, ", ".join(each.formats), f"{each.cells:,} of {each.of:,}", example)
    err.print(f"{sample}: {counted(len(findings), 'column')} of {len(names)} with cells that would count as missing.")
    err.print(shown)
    for each in findings:
        if each.others:
            fits = ", ".join(each.others)
            err.print(f"{each.column}: all dates also fit {fits}. Put the right one into the statement below.")
    rewrite = rewriting(findings, table, f"{Path(table).stem}-rewritten.parquet")
    err.print("Rewrite the table before the release, each cell by itself, for instance in DuckDB (pip install duckdb):")
    err.print(rewrite, soft_wrap=True, markup=False, highlight=False)
    facts = [
        {
            "column": each.column,
            "formats": list(each.formats),
            "cells": each.cells,
            "of": each.of,
            "example": each.example[:_LONGEST_EXAMPLE],
            "others": list(each.others),
        }
        for each in findings
    ]
    return {"check": facts, "rewrite": rewrite}
