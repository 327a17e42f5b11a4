"""Any tabular source to Arrow record batches of the wanted columns, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dpsketch.encoding.arrow import cells_array, lists_array
from dpsketch.engines import csv
from dpsketch.errors import SourceError
from dpsketch.schema.schema import Csv, nearest

Progress = Callable[[float], None]
_CSV = (".csv", ".tsv")
_PARQUET = (".parquet", ".pq")
_READ_ROWS = 1 << 16
_WITH_HEADER = Csv()
_FIRST_LINE = (
    "the first line of a CSV file must name its columns; if it is a record, the schema names them: [csv] columns"
)
_LAKES = {  # folder of a table's log, name of the format, and what identifies it
    "_delta_log": ("a Delta Lake", "_delta_log"),
    ".hoodie": ("a Hudi", ".hoodie"),
    "metadata": ("an Iceberg", "metadata/*.metadata.json*"),
}


def read_batches(
    source: Any, wanted: Sequence[str], progress: Progress, sets: Collection[str] = (), layout: Csv = _WITH_HEADER
) -> Iterator[pa.RecordBatch]:
    """Batches of a path, an Arrow object, anything with `__arrow_c_stream__`, or an iterable of such batches.

    `sets` names the columns that contain lists of ids, which Python objects do not reveal; `layout` is that of CSV
    files.

    Guarantee: a column's type in one part of the source never changes how another part is read, and no error contains a
    cell's content.
    """
    if isinstance(source, str | os.PathLike):
        yield from _files(Path(source), wanted, progress, layout)
        return
    try:
        yield from _objects(source, wanted, sets)
    except pa.ArrowException as error:
        raise SourceError(f"the source cannot be read as Arrow batches ({type(error).__name__})") from None


def holds_csv(path: Path) -> bool:
    """Whether any file of a path is a CSV file."""
    return any(_is_csv(file) for file in data_files(path))


def source_columns(path: Path, header: bool | None = None) -> tuple[list[tuple[str, pa.DataType]], Csv]:
    """Names and stored types of the columns, and the layout of a CSV file. No value is read.

    `header` is true if the first line of a CSV file contains column names. This cannot be inferred: it may be a record.
    """
    file, layout = data_files(path)[0], _WITH_HEADER
    with _unnamed(path, file):
        if _is_csv(file) and header is None:
            raise SourceError(
                f"{path}: it is unknown whether the first line of a CSV file names its columns",
                "pass --header if it does, to print them; --no-header if it is a record",
            )
        if _is_csv(file) and not header:
            layout = Csv(columns=tuple(f"column_{index + 1}" for index in range(len(csv.header(file)))))
        columns = _file_columns(path, file, layout)
        _check_distinct(path, [name for name, _ in columns])
        return columns, layout


def _check_distinct(path: Path, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            raise SourceError(
                f"{path}: columns {first[name] + 1} and {index + 1} have the same name", "give each column its own name"
            )


def _is_csv(file: Path) -> bool:
    return file.suffix.lower() in _CSV


def _file_columns(root: Path, file: Path, layout: Csv) -> list[tuple[str, pa.DataType]]:
    if _is_csv(file):
        columns = [(name, pa.string()) for name in csv.column_names(file, layout)]
    else:
        columns = [(field.name, field.type) for field in _parquet(file).schema_arrow]
    return columns + [(key, pa.string()) for key in _folder_columns(root, file)]


def data_files(path: Path) -> list[Path]:
    """The files of a path, in a fixed order: itself, or every CSV and Parquet file below a folder."""
    if path.is_dir():
        entries = sorted(path.rglob("*"))
        _refuse_lakes(path, entries)
        files = [file for file in entries if file.suffix.lower() in _CSV + _PARQUET and file.is_file()]
        files = [
            file for file in files if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        ]
        if not files:
            raise SourceError(f"{path} holds no CSV or Parquet file", "name a folder with .csv or .parquet files")
        return files
    if not path.is_file():
        raise SourceError(f"there is no file {path}", "check the path: a CSV or Parquet file, or a folder of them")
    if path.suffix.lower() not in _CSV + _PARQUET:
        raise SourceError(f"{path}: the name must end in {', '.join(_CSV + _PARQUET)}", "rename or convert the file")
    _refuse_lakes(path, [])
    return [path]


def _refuse_lakes(path: Path, entries: Sequence[Path]) -> None:
    """Refuse tables whose log decides which of their files and rows are still valid: we do not read the log."""
    starts = [folder.resolve() for folder in (path, *entries) if folder == path or folder.is_symlink()]
    above = [folder / name for start in starts for folder in (start, *start.parents) for name in _LAKES]
    for entry in [*above, *entries]:
        if entry.name in _LAKES and next(entry.parent.glob(_LAKES[entry.name][1]), None) is not None:
            raise SourceError(
                f"{path} holds files of {_LAKES[entry.name][0]} table, which may have been deleted or replaced",
                "export a snapshot to plain Parquet in another folder; reading through the table's log is planned",
            )


def _files(path: Path, wanted: Sequence[str], progress: Progress, layout: Csv) -> Iterator[pa.RecordBatch]:
    files = data_files(path)
    for file in files:
        hint = _FIRST_LINE if _is_csv(file) and layout.columns is None else None
        with _unnamed(path, file):
            _check_columns(str(file), [name for name, _ in _file_columns(path, file, layout)], wanted, hint)
    sizes = [max(file.stat().st_size, 1) for file in files]
    total, done = sum(sizes), 0
    for file, size in zip(files, sizes, strict=True):
        before = done

        def report(share: float, before: int = before, size: int = size) -> None:
            # Whole percents: an exact fraction of a known batch size would reveal the number of rows.
            progress(int(100 * (before + share * size) / total) / 100)

        constants = {key: value for key, value in _folder_columns(path, file).items() if key in wanted}
        with _unnamed(path, file):
            try:
                if _is_csv(file):
                    read: Iterable[pa.RecordBatch] = csv.batches(file, wanted, report, layout)
                else:
                    read = _parquet_batches(file, wanted, report)
                for batch in read:
                    yield _with_constants(batch, constants)
            except (pa.ArrowException, OSError) as error:
                raise SourceError(
                    f"{file} cannot be read ({type(error).__name__})", "check that the file is whole"
                ) from None
        done += size


def _folder_columns(root: Path, file: Path) -> dict[str, str | None]:
    """Columns that a partitioned dataset stores in the names of its folders: key=value, always text or missing."""
    if not root.is_dir():
        return {}
    pairs = (part.split("=", 1) for part in file.relative_to(root).parts[:-1] if "=" in part)
    return {key: None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for key, value in pairs}


@contextmanager
def _unnamed(root: Path, file: Path) -> Iterator[None]:
    """Keep the path of a file in a partitioned dataset out of errors: the names of its folders are cells."""
    try:
        yield
    except SourceError as error:
        if not _folder_columns(root, file):
            raise
        raise SourceError(error.fact.replace(str(file), f"a file in {root}"), error.hint) from None


def _with_constants(batch: pa.RecordBatch, constants: dict[str, str | None]) -> pa.RecordBatch:
    for key, value in constants.items():
        if key not in batch.schema.names:
            batch = batch.append_column(key, pa.repeat(pa.scalar(value, pa.string()), batch.num_rows))
    return batch


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{path} cannot be read as Parquet ({type(error).__name__})", "check that the file is whole"
        ) from None


def _parquet_batches(path: Path, wanted: Sequence[str], progress: Progress) -> Iterator[pa.RecordBatch]:
    with _parquet(path) as file:
        rows, seen = max(file.metadata.num_rows, 1), 0
        columns = [name for name in file.schema_arrow.names if name in wanted]
        for batch in file.iter_batches(batch_size=_READ_ROWS, columns=columns, use_threads=False):
            yield batch
            seen += batch.num_rows
            progress(seen / rows)


def _check_columns(source: str, names: Sequence[str], wanted: Sequence[str], hint: str | None = None) -> None:
    """Refuse a table without the wanted columns, before any record is read. `hint` replaces names that may be cells."""
    for name in wanted:
        if name not in names:
            raise SourceError(f"{source} has no column '{name}'", hint or nearest(name, list(names)))
        if list(names).count(name) > 1:
            raise SourceError(f"{source} has several columns '{name}'", "give each column its own name")


def _objects(source: Any, wanted: Sequence[str], sets: Collection[str]) -> Iterator[pa.RecordBatch]:
    if any(kind.__module__.partition(".")[0] == "pandas" for kind in type(source).__mro__) and hasattr(
        source, "columns"
    ):
        _check_columns("the table", [str(name) for name in source.columns], wanted)
        yield from _pandas(source, wanted, sets)
    elif isinstance(source, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
        _check_columns("the table", source.schema.names, wanted)
        if isinstance(source, pa.RecordBatch):
            yield source.select(wanted)
        elif isinstance(source, pa.Table):
            yield from source.select(wanted).to_batches(max_chunksize=_READ_ROWS)
        else:
            yield from (batch.select(wanted) for batch in source)
    elif hasattr(source, "__arrow_c_stream__"):
        yield from _objects(pa.RecordBatchReader.from_stream(source), wanted, sets)
    elif hasattr(source, "__arrow_c_array__"):
        yield from _objects(pa.record_batch(source), wanted, sets)
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        for item in source:
            yield from _objects(item, wanted, sets)
    else:
        raise SourceError(
            f"a {type(source).__name__} is not a table",
            "pass a path, an Arrow, pandas or polars object, or an iterable of batches",
        )


def _pandas(frame: Any, wanted: Sequence[str], sets: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Slices of a pandas frame. Columns of objects and labels become text cell by cell, because Arrow raises on mixed
    types.
    """
    frame = frame[[name for name in frame.columns if str(name) in wanted]]
    for start in range(0, len(frame), _READ_ROWS):
        part = frame.iloc[start : start + _READ_ROWS]
        columns = {
            str(name): (lists_array if str(name) in sets and part[name].dtype == object else cells_array)(part[name])
            for name in part.columns
        }
        yield from pa.table(columns).to_batches()  # columns of Arrow types may come in several chunks
