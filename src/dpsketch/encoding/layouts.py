"""Arrow's many layouts of a column, read as plain cells and as lists.

Guarantee: the values of a row follow from that row's own offset, size, index or run. Rows that were filtered out or
sliced away contribute nothing, although their values may still be in the buffers. Nothing is cast between nested types,
and inconsistent buffers are refused before they are used, in an error without their content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.errors import SourceError

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """Cell i is `values[index[i]]`, or missing where the index is -1; without an index it is `values[i]`.

    Values have a plain type: dictionaries, run ends, extensions and views are resolved, and text is large_binary.
    """

    values: pa.Array
    index: Places | None = None

    def __len__(self) -> int:
        return len(self.values) if self.index is None else len(self.index)

    def take(self, rows: Places) -> Cells:
        """The cells of some rows, in their order; row -1 is missing."""
        return Cells(self.values, rows if self.index is None else np.append(self.index, -1)[rows])

    def used(self) -> Cells:
        """The same cells, with no more values than cells."""
        if self.index is None or len(self.values) <= len(self.index):
            return self
        needed, index = np.unique(np.append(self.index, -1), return_inverse=True)
        return Cells(self.values.take(int64_array(needed[1:])), index.astype(np.int64)[:-1] - 1)

    def read(self, function: Callable[[pa.Array], NDArray[Any]]) -> NDArray[Any]:
        """Apply `function` to every cell. It maps an array of values to one result each, and runs once per value."""
        if self.index is None:
            return function(self.values)
        cells = self.used()
        missing = function(pa.nulls(1, cells.values.type))
        return np.append(function(cells.values), missing)[cells.index]


@dataclass(frozen=True)
class Lists:
    """The number of items in each row, and the concatenated items of all rows; a missing list has none."""

    lengths: Places
    items: Cells


def cells_of(array: pa.Array) -> Cells:
    """The cells of an array of any layout. Nested values stay as they are: see `lists_of`."""
    _check(array)
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return cells_of(array.storage)
    if pa.types.is_dictionary(kind):
        index = filled(array.indices, -1)
        inside = (index >= 0) & (index < len(array.dictionary))
        _require(bool((inside | is_null(array.indices)).all()))
        return cells_of(array.dictionary).take(index)
    if pa.types.is_run_end_encoded(kind):
        ends, rows = filled(array.run_ends, 0), np.arange(array.offset, array.offset + len(array))
        index = np.searchsorted(ends, rows, side="right")
        _require(bool((np.diff(ends, prepend=0) > 0).all() and (index < len(array.values)).all()))
        return cells_of(array.values).take(index)
    if _is_text(kind):
        return Cells(_bytes(array))
    return Cells(array)


def lists_of(array: pa.Array) -> Lists | None:
    """The lists of an array of any layout; None if it does not hold lists."""
    cells = cells_of(array)
    stored = _stored_lists(cells.values)
    if stored is None:
        return None
    starts, lengths, items = stored
    lengths = np.where(is_null(cells.values), 0, lengths)
    starts = np.where(lengths == 0, 0, starts)
    _require(bool(((lengths >= 0) & (starts >= 0) & (starts <= len(items) - lengths)).all()))
    if cells.index is not None:
        starts, lengths = (np.append(numbers, 0)[cells.index] for numbers in (starts, lengths))
    held = lengths > 0
    first, last = (starts[held].min(), (starts + lengths)[held].max()) if held.any() else (0, 0)
    within = cells_of(items.slice(first, last - first))
    before = np.cumsum(lengths) - lengths
    if last - first == lengths.sum() and (starts - first == before)[held].all():  # no gaps, in order
        return Lists(lengths, within)
    return Lists(lengths, within.take(np.arange(int(lengths.sum())) + np.repeat(starts - first - before, lengths)))


def _stored_lists(values: pa.Array) -> tuple[Places, Places, pa.Array] | None:
    """Start and length of each list, and the array of all items; positions are relative to its start."""
    kind = values.type
    if pa.types.is_null(kind):
        none = np.zeros(len(values), np.int64)
        return none, none, pa.nulls(0, pa.int64())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = filled(values.offsets, 0) if len(values) else np.zeros(1, np.int64)
        return offsets[:-1], np.diff(offsets), values.values
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return filled(values.offsets, 0), filled(values.sizes, 0), values.values
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        return np.arange(values.offset, values.offset + len(values)) * size, np.full(len(values), size), values.values
    return None


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def _bytes(array: pa.Array) -> pa.Array:
    """Text as bytes, with 64-bit offsets. Bytes that are not UTF-8 are a cell's content, not damage."""
    if pa.types.is_string_view(array.type):
        array = array.view(pa.binary_view())
    elif pa.types.is_string(array.type):
        array = array.view(pa.binary())
    elif pa.types.is_large_string(array.type):
        array = array.view(pa.large_binary())
    _check(array, full=True)
    return array.cast(pa.large_binary())


def _check(array: pa.Array, full: bool = False) -> None:
    """Refuse buffers that Arrow reports as damaged. The full check is for bytes only: for other types
    it reads cells.
    """
    try:
        array.validate(full=full)
    except pa.ArrowException:
        _require(False)


def _require(consistent: bool) -> None:
    if not consistent:
        raise SourceError(
            "a column's Arrow buffers contradict each other", "write the table again with the program that made it"
        )


# The rest reads Arrow's buffers directly: to_numpy, fill_null and scalars would import pandas if it is installed.
def filled(array: pa.Array, value: int) -> NDArray[np.int64]:
    """Whole numbers with `value` for nulls."""
    numbers = array.cast(pa.int64(), safe=False)  # the error of a safe cast contains the number
    return np.where(is_null(numbers), value, buffer_values(numbers, np.int64))


def buffer_values(array: pa.Array, kind: type) -> NDArray[Any]:
    """The buffer of a primitive array; values at nulls are undefined."""
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


def is_null(array: pa.Array) -> NDArray[np.bool_]:
    """Which values are null."""
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    if pa.types.is_null(array.type):
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)] == 0


def int64_array(numbers: NDArray[Any]) -> pa.Array:
    """Whole numbers as an Arrow array."""
    return pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers, np.int64))]
    )
