"""Any tabular source to Arrow record batches of the wanted columns, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpsketch.engines.sources.data_files import shown
from dpsketch.engines.sources.databases import SCHEMES, Database
from dpsketch.engines.sources.files import Files
from dpsketch.engines.sources.lakes import Delta, Iceberg, lake
from dpsketch.engines.sources.objects import Objects
from dpsketch.engines.sources.source import WITH_HEADER, Columns, Progress, Source
from dpsketch.errors import SourceError
from dpsketch.schema.schema import Csv
from dpsketch.sketch.inputs import Inputs

__all__ = ["Progress", "counted", "holds_csv", "opened", "read_batches", "source_columns"]


def opened(source: Any, layout: Csv = WITH_HEADER) -> Source:
    """The reader of a source; nothing is read yet. `layout` is that of CSV files."""
    if isinstance(source, Source):
        return source
    if isinstance(source, str) and source.partition("://")[0] in SCHEMES:
        return Database(source)  # says what is missing
    if isinstance(source, str | os.PathLike):
        path = source if isinstance(source, str) else Path(source)
        return lake(path) or Files(path, layout)
    if isinstance(source, Sequence) and source and all(isinstance(each, str | os.PathLike) for each in source):
        return Files([each if isinstance(each, str) else Path(each) for each in source], layout)
    return Objects(source)


def read_batches(
    source: Any, wanted: Sequence[str], progress: Progress, sets: Collection[str] = (), layout: Csv = WITH_HEADER
) -> Iterator[pa.RecordBatch]:
    """Batches of a source.

    `sets` names the columns that contain lists of ids, which Python objects do not reveal; `layout` is that of CSV
    files.

    Guarantee: a column's type in one part of the source never changes how another part is read, and no error contains a
    cell's content.
    """
    yield from opened(source, layout).batches(wanted, sets, progress)


def counted(source: Any, key: bytes | None = None) -> Inputs:
    """What recognises the files of a source, or its table or query. Objects in memory leave no trace."""
    inputs = Inputs() if key is None else Inputs(key=key)
    read = opened(source)
    if isinstance(read, Files):
        marks = (mark for file in read.files for mark in (file.place(), file.samples()))
        return replace(inputs, hashes=frozenset(map(inputs.hash, marks)))
    if isinstance(read, Database):
        return replace(inputs, tables=(f"{read.name}: {read.query or read.table}",))
    if isinstance(read, Delta | Iceberg):
        return replace(inputs, tables=(shown(read.name),))
    return inputs


def holds_csv(source: Any) -> bool:
    """Whether any file of a source is a CSV file."""
    files = opened(source)
    return isinstance(files, Files) and files.csv


def _name(source: Any) -> str:
    return shown(source) if isinstance(source, str | Path) else "the table"


def source_columns(source: Any, header: bool | None = None) -> tuple[Columns, Csv]:
    """Names and stored types of the columns, and the layout of a CSV file. No value is read.

    `header` is true if the first line of a CSV file contains column names. This cannot be inferred: it may be a record.
    """
    read, layout = opened(source), WITH_HEADER
    if isinstance(read, Files):
        read = read.named_by(header)
        layout = read.layout
    columns = read.columns()
    first: dict[str, int] = {}
    for index, (name, _) in enumerate(columns):
        if first.setdefault(name, index) != index:
            raise SourceError(
                f"{_name(source)}: columns {first[name] + 1} and {index + 1} have the same name",
                "give each column its own name",
            )
    return columns, layout
