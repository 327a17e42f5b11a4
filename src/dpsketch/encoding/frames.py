"""The one reader of a user's table or X: data frames, Arrow tables, mappings of columns and matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.arrow import cells_array, encode_column, encode_sets, whole_numbers
from dpsketch.encoding.records import IdSets
from dpsketch.encoding.rows import derived_codes
from dpsketch.errors import QueryError
from dpsketch.numerics.arrays import Codes
from dpsketch.schema.columns import Column, IdSet
from dpsketch.schema.schema import Schema

_ARROW = (pa.Array, pa.ChunkedArray)


def read_codes(schema: Schema, columns: Sequence[str], X: Any) -> dict[str, Codes]:
    """Codes of the named columns of X, read by the same rules as the released table. A computed column that X lacks is
    computed.
    """
    present = None if isinstance(X, np.ndarray | list) else column_names(X)
    lacking = [schema.column(name) for name in columns if present is not None and name not in present]
    computed = {column.name: column.derived for column in lacking if column.sources}
    codes = {}
    given = [name for name in columns if computed.get(name) is None]
    for name, cells in _several(given, X).items():
        codes[name] = read_column(schema.column(name), cells)
    for name, derived in computed.items():
        if derived is not None:
            arrays = {source: _arrow(cells) for source, cells in _several(derived.sources, X).items()}
            codes[name] = derived_codes(schema, schema.column(name), derived, arrays.__getitem__)
    check_lengths(map(len, codes.values()))
    return {name: codes[name] for name in columns}


def _several(columns: Sequence[str], X: Any) -> dict[str, Any]:
    """The cells of the named columns, each more than a single value."""
    found = named_columns(columns, X)
    for name, cells in found.items():
        if not isinstance(cells, _ARROW) and (isinstance(cells, str | bytes) or not hasattr(cells, "__len__")):
            raise QueryError(f"column '{name}' is a single value", "pass lists or arrays, also for one row")
    return found


def _arrow(cells: Any) -> pa.Array | pa.ChunkedArray:
    return cells if isinstance(cells, _ARROW) else cells_array(cells)


def named_columns(columns: Sequence[str], X: Any) -> dict[str, Any]:
    """The cells of the named columns. Other columns are ignored; a matrix must have exactly these, in this order."""
    if isinstance(X, np.ndarray | list):
        return dict(zip(columns, _matrix(columns, X).T, strict=True))
    present = column_names(X)
    if present is None:
        raise QueryError(
            f"a {type(X).__name__} is not a table with named columns",
            "pass a mapping of columns, a data frame, or a matrix with one row per record",
        )
    for name in columns:
        if name not in present:
            raise QueryError(f"the rows lack column '{name}'", f"give {', '.join(columns)}")
    return {name: X[name] for name in columns}


def column_names(X: Any) -> set[str] | None:
    """The column names of a table; None if it has none."""
    if isinstance(X, Mapping):
        return {str(name) for name in X}
    names = X.column_names if hasattr(X, "column_names") else getattr(X, "columns", None)
    return None if names is None or not hasattr(X, "__getitem__") else {str(name) for name in names}


def read_column(column: Column, cells: Any) -> Codes:
    """Codes of the cells of one column, given as an Arrow, NumPy, pandas or polars array, or a list."""
    return encode_column(column, _arrow(cells))


def read_sets(column: IdSet, rows: Any) -> IdSets:
    """Sets of ids of one column, from an Arrow array or one iterable per row.

    Ids outside the universe become the overflow id. Duplicates in Python rows are kept, because MinHash ignores them.
    """
    if isinstance(rows, _ARROW):
        return encode_sets(column, rows)
    each = [_ids(column.name, row) for row in rows]
    offsets = np.array([0, *accumulate(map(len, each))], np.int64)
    ids = each[0] if len(each) == 1 else np.concatenate([*each, np.empty(0, np.int64)])
    return IdSets(offsets, np.where((ids >= 0) & (ids < column.universe), ids, column.universe).astype(np.int32))


def check_lengths(lengths: Iterable[int]) -> None:
    if len(set(lengths)) > 1:
        raise QueryError("the columns have different lengths", "pass one value per row in every column")


def _matrix(columns: Sequence[str], X: Any) -> NDArray[Any]:
    try:
        matrix = np.asarray(X)
    except ValueError:  # rows of different lengths
        matrix = np.empty(0)
    if matrix.ndim != 2 or matrix.shape[1] != len(columns):
        raise QueryError(
            f"X must have {len(columns)} column{'s' * (len(columns) != 1)}: {', '.join(columns)}",
            "pass a matrix with one row per record, or a table with named columns",
        )
    return matrix


def _ids(name: str, row: Any) -> NDArray[np.int64]:
    if row is None:
        return np.empty(0, np.int64)
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        raise QueryError(f"column '{name}' does not hold lists of ids", "pass a list of lists")
    numbers = row if isinstance(row, np.ndarray) else list(row)
    try:
        numbers = np.asarray(numbers)
    except ValueError:
        numbers = np.array(numbers, object)
    if numbers.dtype.kind in "iu":
        return numbers.ravel().astype(np.int64)
    return whole_numbers(cells_array(numbers.ravel()))
