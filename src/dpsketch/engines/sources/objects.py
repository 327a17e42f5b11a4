"""Tables in memory and streams of batches: Arrow, pandas, polars, DuckDB, datasets, cursors, arrays by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpsketch.encoding.arrow import cells_array, lists_array
from dpsketch.engines.sources.source import READ_ROWS, Columns, Progress, check_columns, plain_errors
from dpsketch.errors import SourceError

ACCEPTED = (
    "pass a path, a URL, a list of paths, a dps.Database, an Arrow, pandas, polars or DuckDB object, a dataset, a "
    "database cursor, a dict of arrays, or an iterable of batches"
)
_CANNOT = "the source cannot be read as Arrow batches", "run it alone, where its own message may be shown"


@dataclass(frozen=True)
class Objects:
    """Anything tabular that Python holds."""

    held: Any

    def columns(self) -> Columns:
        with plain_errors(*_CANNOT):
            schema = _schema(self.held)
        if schema is None:
            raise SourceError(f"the columns of a {type(self.held).__name__} are unknown before it is read", ACCEPTED)
        return [(field.name, field.type) for field in schema]

    def batches(self, wanted: Sequence[str], sets: Collection[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        with plain_errors(*_CANNOT):
            yield from _batches(self.held, wanted, sets)


def _schema(held: Any) -> pa.Schema | None:
    """None where the columns are known only from the first batch."""
    if isinstance(held, Mapping) or (_from(held, "pandas") and hasattr(held, "columns")):
        return pa.schema([(str(name), _column(cells[:0], False).type) for name, cells in held.items()])
    if _from(held, "polars") and hasattr(held, "collect_schema"):
        empty = held.clear()
        return (empty.collect() if hasattr(empty, "collect") else empty).to_arrow().schema
    if _from(held, "pyarrow"):
        return getattr(held, "projected_schema", None) or held.schema
    if hasattr(held, "__arrow_c_schema__"):
        return pa.schema(held)
    return None


def _from(held: Any, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(held).__mro__)


def _batches(held: Any, wanted: Sequence[str], sets: Collection[str]) -> Iterator[pa.RecordBatch]:
    if _from(held, "pandas") and hasattr(held, "columns"):
        check_columns("the table", [str(name) for name in held.columns], wanted)
        yield from _sliced(held, wanted, sets)
    elif isinstance(held, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
        check_columns("the table", held.schema.names, wanted)
        if isinstance(held, pa.RecordBatch):
            yield held.select(wanted)
        elif isinstance(held, pa.Table):
            yield from held.select(wanted).to_batches(max_chunksize=READ_ROWS)
        else:
            yield from (batch.select(wanted) for batch in held)
    elif _from(held, "pyarrow") and hasattr(held, "to_batches"):
        yield from _of_dataset(held, wanted)
    elif _from(held, "polars") and hasattr(held, "collect_batches"):
        check_columns("the table", held.collect_schema().names(), wanted)
        for frame in held.select(wanted).collect_batches(maintain_order=False):
            yield from _batches(frame, wanted, sets)
    elif hasattr(held, "__arrow_c_stream__"):
        yield from _batches(pa.RecordBatchReader.from_stream(held), wanted, sets)
    elif hasattr(held, "__arrow_c_array__"):
        yield from _batches(pa.record_batch(held), wanted, sets)
    elif isinstance(held, Mapping):
        check_columns("the table", [str(name) for name in held], wanted)
        yield from _of_arrays(held, wanted, sets)
    elif hasattr(held, "fetchmany") and hasattr(held, "description"):
        yield from _of_cursor(held, wanted, sets)
    elif isinstance(held, Iterable) and not isinstance(held, str | bytes):
        for item in held:
            yield from _batches(item, wanted, sets)
    else:
        raise SourceError(f"a {type(held).__name__} is not a table", ACCEPTED)


def _of_dataset(held: Any, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A `pyarrow.dataset.Dataset` or `Scanner`. Formats that infer types from values are refused."""
    format_name = getattr(getattr(held, "format", None), "default_extname", None)
    if format_name in ("csv", "json"):
        raise SourceError(
            f"a dataset of {format_name} files infers types from the cells of a whole column",
            "pass the paths of CSV files themselves: dpsketch reads every cell by itself",
        )
    scanner = hasattr(held, "projected_schema")
    check_columns("the dataset", (held.projected_schema if scanner else held.schema).names, wanted)
    if scanner:
        yield from (batch.select(wanted) for batch in held.to_batches())
    else:
        yield from held.to_batches(columns=list(wanted), batch_size=READ_ROWS)


def _of_arrays(held: Mapping[str, Any], wanted: Sequence[str], sets: Collection[str]) -> Iterator[pa.RecordBatch]:
    arrays = {name: held[name] for name in wanted}
    if len({len(array) for array in arrays.values()}) > 1:
        raise SourceError("the arrays of the table have different lengths", "give every column one cell for each row")
    rows = len(next(iter(arrays.values()), ()))
    for start in range(0, rows, READ_ROWS):
        part = {name: array[start : start + READ_ROWS] for name, array in arrays.items()}
        yield from pa.table({name: _column(cells, name in sets) for name, cells in part.items()}).to_batches()


def _of_cursor(cursor: Any, wanted: Sequence[str], sets: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a cursor that has run its query."""
    if hasattr(cursor, "fetch_record_batch"):  # ADBC and DuckDB: Arrow's own types, a batch at a time
        yield from _batches(cursor.fetch_record_batch(), wanted, sets)
        return
    if cursor.description is None:
        raise SourceError("the cursor has no rows", "execute a select statement before you pass the cursor")
    names = [str(column[0]) for column in cursor.description]
    check_columns("the query", names, wanted)
    while rows := cursor.fetchmany(READ_ROWS):
        cells = {name: [row[names.index(name)] for row in rows] for name in wanted}
        yield from pa.table({name: _column(column, name in sets) for name, column in cells.items()}).to_batches()


def _sliced(frame: Any, wanted: Sequence[str], sets: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Slices of a pandas frame."""
    frame = frame[[name for name in frame.columns if str(name) in wanted]]
    for start in range(0, len(frame), READ_ROWS):
        yield from _columnar(frame.iloc[start : start + READ_ROWS], wanted, sets)


def _columnar(frame: Any, wanted: Sequence[str], sets: Collection[str]) -> Iterator[pa.RecordBatch]:
    columns = {str(name): _column(frame[name], str(name) in sets) for name in frame.columns if str(name) in wanted}
    yield from pa.table(columns).to_batches()  # columns of Arrow types may come in several chunks


def _column(cells: Any, lists: bool) -> Any:
    """Arrow's own arrays as they are. Other objects and labels become text cell by cell, because Arrow raises on mixed
    types.
    """
    if isinstance(cells, pa.Array | pa.ChunkedArray):
        return cells
    objects = str(getattr(cells, "dtype", "object")) == "object"
    return lists_array(cells) if lists and objects else cells_array(cells)
