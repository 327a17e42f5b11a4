"""The same column in every layout that Arrow has for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Rows = Sequence[Any]
Column: TypeAlias = pa.Array | pa.ChunkedArray


class Wrapped(pa.ExtensionType):
    """An extension type that changes nothing."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "dpsketch.tests.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _: bytes) -> Wrapped:
        return cls(storage)


def wrapped(array: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(Wrapped(array.type), array)


def dictionary(array: pa.Array) -> pa.Array:
    """Values in reverse order after an unused one, null rows as null indices."""
    index = pa.array([None if cell is None else len(array) - i for i, cell in enumerate(array.to_pylist())], pa.int32())
    unused = array.slice(0, 1)
    order = [unused, *(array.slice(i, 1) for i in reversed(range(len(array))))]
    return pa.DictionaryArray.from_arrays(index, pa.concat_arrays(order) if len(array) else array)


def run_ends(array: pa.Array) -> pa.Array:
    """Every row as its own run, so that slices begin inside."""
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int32()), array)


def chunks(array: pa.Array) -> pa.ChunkedArray:
    middle = len(array) // 2
    return pa.chunked_array([array.slice(0, middle), array.slice(0, 0), array.slice(middle)], array.type)


def views(rows: Rows, items: pa.DataType, large: bool = False) -> pa.Array:
    """List views with items in reverse order and gaps of other ids between them."""
    starts, sizes, held = [], [], [77, 78]
    for row in reversed(rows):
        starts.append(len(held))
        sizes.append(len(row or ()))
        held += [*(row or ()), 79, 80]
    kind, number = (pa.LargeListViewArray, pa.int64()) if large else (pa.ListViewArray, pa.int32())
    values = pa.array([item if items == pa.int64() else str(item) for item in held], items)
    missing = pa.array([row is None for row in rows])
    return kind.from_arrays(pa.array(starts[::-1], number), pa.array(sizes[::-1], number), values, mask=missing)


def fixed_size(rows: Rows) -> pa.Array:
    """Lists filled up with their last id: the same sets."""
    longest = max((len(row or ()) for row in rows), default=1)
    return pa.array(
        [[*row, *row[-1:] * (longest - len(row))] if row else None for row in rows], pa.list_(pa.int64(), longest)
    )


def of_items(rows: Rows, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    plain = pa.array(rows, pa.list_(pa.int64()))
    return pa.ListArray.from_arrays(plain.offsets, change(plain.values), mask=plain.is_null())


def stored(rows: Rows, kind: pa.DataType) -> pa.Array:
    return pa.array(rows, pa.large_binary()).cast(kind)


LISTS: dict[str, Callable[[Rows], Column]] = {
    "list": lambda rows: pa.array(rows, pa.list_(pa.int64())),
    "list of int16": lambda rows: pa.array(rows, pa.list_(pa.int16())),
    "large_list": lambda rows: pa.array(rows, pa.large_list(pa.int64())),
    "fixed_size_list": fixed_size,
    "list_view": lambda rows: views(rows, pa.int64()),
    "large_list_view": lambda rows: views(rows, pa.int64(), large=True),
    "list_view of strings": lambda rows: views(rows, pa.string()),
    "list_view of string_view": lambda rows: views(rows, pa.string_view()),
    "list of dictionary": lambda rows: of_items(rows, dictionary),
    "list of run ends": lambda rows: of_items(rows, run_ends),
    "list of extension": lambda rows: of_items(rows, wrapped),
    "dictionary of lists": lambda rows: dictionary(pa.array(rows, pa.list_(pa.int64()))),
    "run ends of lists": lambda rows: run_ends(pa.array(rows, pa.list_(pa.int64()))),
    "run ends of list_view": lambda rows: run_ends(views(rows, pa.int64())),
    "extension of list_view": lambda rows: wrapped(views(rows, pa.int64())),
    "chunks of list_view": lambda rows: chunks(views(rows, pa.int64())),
}  # fmt: skip
SCALARS: dict[str, Callable[[Rows], Column]] = {
    "string": lambda rows: stored(rows, pa.string()),
    "large_string": lambda rows: stored(rows, pa.large_string()),
    "string_view": lambda rows: stored(rows, pa.string_view()),
    "binary": lambda rows: stored(rows, pa.binary()),
    "large_binary": lambda rows: stored(rows, pa.large_binary()),
    "binary_view": lambda rows: stored(rows, pa.binary_view()),
    "dictionary": lambda rows: dictionary(pa.array(rows, pa.string())),
    "dictionary of bytes": lambda rows: dictionary(pa.array(rows, pa.binary())),
    "dictionary with a null": lambda rows: pa.array(rows, pa.string()).dictionary_encode("encode"),
    "run ends": lambda rows: run_ends(pa.array(rows, pa.string_view())),
    "run ends of dictionary": lambda rows: run_ends(dictionary(pa.array(rows, pa.string()))),
    "dictionary of run ends": lambda rows: pa.DictionaryArray.from_arrays(
        pa.array(range(len(rows)), pa.uint16()), run_ends(pa.array(rows, pa.string()))
    ),
    "extension": lambda rows: wrapped(pa.array(rows, pa.string())),
    "dictionary of extension": lambda rows: dictionary(wrapped(pa.array(rows, pa.string()))),
    "extension of dictionary": lambda rows: wrapped(dictionary(pa.array(rows, pa.string()))),
    "chunks of dictionary": lambda rows: chunks(dictionary(pa.array(rows, pa.string()))),
}  # fmt: skip


def without_row(column: Column, row: int) -> Column:
    """The column after Arrow's filter where that works, else the slices around the row."""
    try:
        if _filter_is_broken(column.type):
            raise TypeError
        return column.filter(pa.array(np.arange(len(column)) != row))
    except (pa.ArrowException, TypeError):
        parts = [column.slice(0, row), column.slice(row + 1)]
        return pa.chunked_array([chunk for part in parts for chunk in getattr(part, "chunks", [part])], column.type)


def _filter_is_broken(kind: pa.DataType) -> bool:
    """Arrow's filter aborts on extensions of dictionaries, and loses buffers of views in dictionaries of extensions."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return isinstance(kind, pa.BaseExtensionType) or isinstance(inner, pa.BaseExtensionType)
