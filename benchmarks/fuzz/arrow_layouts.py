"""A column of random nested layout, filtered and sliced, has the codes of its plain form; damage is refused."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.fuzz.layouts import LISTS, SCALARS, Column, dictionary, run_ends, without_row, wrapped
from dpsketch.encoding.arrow import encode_column, encode_sets, unit_ids
from dpsketch.errors import SourceError
from dpsketch.schema.columns import Boolean, Category, Datetime, IdSet, Integer, Number, as_moment

SETS = IdSet("x", universe=20)
EARLIEST, LATEST = as_moment("2020-01-01"), as_moment("2022-01-01")
assert EARLIEST is not None
assert LATEST is not None
COLUMNS = (
    Integer("x", 0, 10),
    Number("x", -1, 10, missing=5.0),
    Category("x", ("a", "é", 7)),
    Boolean("x"),
    Datetime("x", EARLIEST, LATEST),
)
WORDS = [None, b"", b"7", b" 7.0", b"a", b"\xc3\xa9", b"true", b"2021-06-01", b"1e3", b"-0", b"other", b"x" * 40]
REFUSED = "a column's Arrow buffers contradict each other"


def run_one(rng: np.random.Generator, folder: Path) -> None:
    rows, column, nested = _random_column(rng)
    for _ in range(rng.integers(0, 4)):
        rows, column = _cut(rng, rows, column)
    for kind in (SETS,) if nested else COLUMNS:
        codes, plain = _codes(kind, column), _codes(kind, _plain(rows, nested))
        assert codes == plain, (column.type, kind.kind)
    if not nested:
        for kind_of_id in ("text", "integer"):
            assert _ids(column, kind_of_id) == _ids(_plain(rows, nested), kind_of_id), column.type
    _damage(rng, column)
    try:
        for kind in (SETS,) if nested else COLUMNS:
            _codes(kind, column)
    except SourceError as error:
        assert error.fact == REFUSED, "another message"  # noqa: PT017


def _random_column(rng: np.random.Generator) -> tuple[list[Any], Column, bool]:
    nested, size = bool(rng.random() < 0.5), int(rng.integers(1, 12))
    if nested:
        rows: list[Any] = [
            None if rng.random() < 0.2 else rng.integers(0, 25, rng.integers(1, 5)).tolist() for _ in range(size)
        ]
        column = LISTS[str(rng.choice(list(LISTS)))](rows)
    else:
        rows = [WORDS[index] for index in rng.integers(0, len(WORDS), size)]
        column = SCALARS[str(rng.choice(list(SCALARS)))](rows)
    for _ in range(rng.integers(0, 3)):
        if isinstance(column, pa.ExtensionArray):
            break  # Arrow itself aborts when it validates extensions of dictionaries
        if isinstance(column, pa.Array):
            wrap = (run_ends, wrapped, dictionary)[rng.integers(3)]
            try:
                column = wrap(column)
            except (pa.ArrowException, TypeError):
                break  # a nesting that Arrow itself lacks
    return rows, column, nested


def _cut(rng: np.random.Generator, rows: list[Any], column: Column) -> tuple[list[Any], Column]:
    if not rows:
        return rows, column
    index = int(rng.integers(len(rows)))
    if rng.random() < 0.5:
        return rows[:index] + rows[index + 1 :], without_row(column, index)
    length = int(rng.integers(len(rows) - index + 1))
    return rows[index : index + length], column.slice(index, length)


def _plain(rows: list[Any], nested: bool) -> pa.Array:
    return pa.array(rows, pa.list_(pa.int64()) if nested else pa.large_binary())


def _codes(kind: Any, column: Column) -> Any:
    if isinstance(kind, IdSet):
        sets = encode_sets(kind, column)
        return sets.offsets.tolist(), sets.ids.tolist()
    return encode_column(kind, column).tolist()


def _ids(column: Column, kind: str) -> list[Any]:
    ids = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        cells = unit_ids(chunk, kind)
        values = [*cells.values.to_pylist(), None]
        ids += values[:-1] if cells.index is None else [values[index] for index in cells.index]
    return ids


def _damage(rng: np.random.Generator, column: Column) -> None:
    """Overwrite some bytes of the column's buffers in place: Arrow refuses to build such arrays."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    buffers = [buffer for chunk in chunks for buffer in _buffers(chunk) if buffer is not None and buffer.size]
    for _ in range(rng.integers(1, 4) if buffers else 0):
        buffer = buffers[rng.integers(len(buffers))]
        memory = (ctypes.c_uint8 * buffer.size).from_address(buffer.address)
        memory[int(rng.integers(buffer.size))] = int(rng.choice([0, 1, 127, 128, 255]))


def _buffers(array: pa.Array) -> list[pa.Buffer | None]:
    if isinstance(array, pa.ExtensionArray):
        return _buffers(array.storage)
    if pa.types.is_dictionary(array.type):
        return [*array.indices.buffers(), *_buffers(array.dictionary)]
    return list(array.buffers())
