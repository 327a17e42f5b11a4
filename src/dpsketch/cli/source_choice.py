"""Which table a command reads, and which engine reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.errors import SourceError

if TYPE_CHECKING:
    from dpsketch.engines.engine import Engine

ENGINES = ("local", "spark", "dask")

Tables = Annotated[
    list[str],
    typer.Argument(
        help="CSV or Parquet files, folders or patterns of them, a lake table, or the URL of an object store or a "
        "database: docs/sources.md.",
    ),
]
TableName = Annotated[str | None, typer.Option("--table", metavar="NAME", help="Table of a database to read.")]
Query = Annotated[str | None, typer.Option("--query", metavar="SELECT", help="Query of a database to read.")]
EngineName = Annotated[str, typer.Option("--engine", help=f"Where the table is read: {', '.join(ENGINES)}.")]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master or Dask's scheduler. Default: a local one."),
]


def chosen_source(tables: Sequence[str], table: str | None, query: str | None) -> Any:
    """What `accumulate` reads. A single path stays one, so that messages show it as it was given."""
    from dpsketch.engines.sources.databases import Database

    if table is not None or query is not None:
        if len(tables) > 1:
            raise SourceError("--table and --query read one database", "name a single URL")
        return Database(tables[0], query, table)
    return tables[0] if len(tables) == 1 else list(tables)


def local_paths(tables: Sequence[str]) -> list[Path]:
    """The inputs that are paths on this machine, for the check that the output is none of them."""
    return [Path(each) for each in tables if "://" not in each]


def chosen_engine(name: str, master: str | None) -> Engine:
    if name not in ENGINES:
        raise SourceError(f"--engine must be one of {', '.join(ENGINES)}, got '{name}' instead")
    if name == "spark":
        from dpsketch.engines.spark import Spark

        return Spark(master=master)
    if name == "dask":
        from dpsketch.engines.dask import Dask

        return Dask(scheduler=master)
    if master is not None:
        raise SourceError("--master is for --engine spark or dask", "leave out --master")
    from dpsketch.engines.local import Local

    return Local()
