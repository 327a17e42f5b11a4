"""Records to codes: clamp to the public bounds, one cell at a time.

Guarantee: a record's codes depend on nothing but its own cells and the schema. No cell raises, no cell changes how
another is read, and no libm function or type inference is involved.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsketch.encoding.layouts import Cells, buffer_values, cells_of, filled, int64_array, is_null, lists_of
from dpsketch.encoding.levels import levels_at
from dpsketch.encoding.records import IdSets, joined
from dpsketch.errors import MissingExtraError, SourceError
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import (
    OTHER,
    Boolean,
    Category,
    Column,
    Datetime,
    IdSet,
    Integer,
    Number,
    as_moment,
    microseconds,
)

_DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_IS_DECIMAL = re.compile(_DECIMAL)
_MICROSECONDS = {"day": 86_400e6, "s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_TRUE = {"true", "t", "yes", "y", "1", "1.0"}
_ZERO = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])[0]
_NO_TEXT = pa.nulls(1, pa.large_string())[0]
_FEW = 1000  # texts that are read before Numba would be imported
_MOST_DIGITS = 400  # most digits of a number with an exponent, as an id
_LISTS = (list, tuple, set, frozenset, np.ndarray)
_FALSE = {"false", "f", "no", "n", "0", "0.0"}


def encode_column(column: Column, array: pa.Array | pa.ChunkedArray) -> Codes:
    """Codes of a scalar column, whatever Arrow layout it has."""
    if isinstance(array, pa.ChunkedArray):
        return np.concatenate([*(encode_column(column, chunk) for chunk in array.chunks), np.empty(0, np.int16)])
    cells = cells_of(array)
    if pa.types.is_nested(cells.values.type) or isinstance(column, IdSet):
        raise SourceError(
            f"column '{column.name}' is declared as {column.kind}, but the table holds {array.type}",
            "declare it as a set of ids, or leave it out of the schema",
        )
    return cells.read(lambda values: column.codes_of(cell_levels(column, values)))


def source_numbers(name: str, array: pa.Array | pa.ChunkedArray, missing: float | None) -> Floats:
    """The numbers of a column, NaN where there is none and nothing is declared for that."""
    return _each_value(name, array, lambda values: _with_missing(_numbers(values), missing))


def source_moments(name: str, array: pa.Array | pa.ChunkedArray) -> Floats:
    """The dates of a column in microseconds since 1970, NaN where there is none."""
    return _each_value(name, array, _moments)


def _each_value(name: str, array: pa.Array | pa.ChunkedArray, read: Callable[[pa.Array], Floats]) -> Floats:
    if isinstance(array, pa.ChunkedArray):
        return np.concatenate([*(_each_value(name, chunk, read) for chunk in array.chunks), np.empty(0)])
    cells = cells_of(array)
    if pa.types.is_nested(cells.values.type):
        raise SourceError(
            f"column '{name}' is needed for a computed column, but the table holds {array.type}",
            "name a column of numbers or dates in the schema",
        )
    return cells.read(read)


def encode_sets(column: IdSet, array: pa.Array | pa.ChunkedArray) -> IdSets:
    """Sets of ids. Ids outside the universe become the overflow id `universe`; a missing list is empty."""
    if isinstance(array, pa.ChunkedArray):
        return joined([encode_sets(column, chunk) for chunk in array.chunks])
    lists = lists_of(array)
    if lists is None or pa.types.is_nested(lists.items.values.type):
        raise SourceError(
            f"column '{column.name}' is a set of ids, but the table holds {array.type}",
            "store it as lists of ids in Parquet or Arrow; CSV has none. For edge lists: dpsketch graph",
        )
    numbers = lists.items.read(_whole_numbers)
    ids = np.where((numbers >= 0) & (numbers < column.universe), numbers, column.universe)
    kept = np.repeat(np.arange(len(array)), lists.lengths) * (column.universe + 1) + ids
    if (kept[1:] <= kept[:-1]).any():
        kept = sorted_distinct(kept)
    counts = np.bincount(kept // (column.universe + 1), minlength=len(array))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return IdSets(offsets, (kept % (column.universe + 1)).astype(np.int32))


def sorted_distinct(keys: NDArray[Any]) -> NDArray[Any]:
    """Sort in place and drop duplicates. np.unique hashes integers first, which takes fifty times as long."""
    keys.sort()
    return keys[np.append(np.ones(min(len(keys), 1), np.bool_), keys[1:] != keys[:-1])]


def whole_numbers(array: pa.Array) -> NDArray[np.int64]:
    """Cells as whole numbers; −1 where a cell is not a whole number or exceeds 2^53."""
    return cells_of(array).read(_whole_numbers)


def _whole_numbers(array: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_signed_integer(array.type):
        return filled(array, -1)
    real = _numbers(array)
    whole = (real == np.rint(real)) & (np.abs(real) < 2.0**53)
    return np.where(whole, real, -1).astype(np.int64)


def texts(array: pa.Array) -> pa.Array:
    """Plain values (`layouts.Cells`) as exact text, stripped of outer blanks; missing and empty are null.

    The numbers 7 and 7.0 and the text "7" are equal; the text "7.0" differs.
    """
    kind = array.type
    if _is_text(array):
        text = array.view(pa.large_string())
    elif pa.types.is_floating(kind):
        text = pa.array([float_text(number) for number in _numbers(array).tolist()], pa.large_string())
    elif pa.types.is_decimal(kind):
        text = pa.array([decimal_text(number) for number in array.to_pylist()], pa.large_string())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        text = array.cast(pa.large_string())
    elif pa.types.is_temporal(kind) and kind != pa.month_day_nano_interval():
        text = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.large_string())
    else:
        raise SourceError(f"a column of type {kind} cannot be read as text", "store it as text or numbers")
    text = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.equal(pc.binary_length(text), _ZERO), _NO_TEXT, text)


def unit_ids(array: pa.Array, kind: str) -> Cells:
    """Unit ids as bytes, in a unique form; missing where a row has no unit.

    For the kind "text", ids are compared as text stripped of outer blanks. For the kind "integer", a cell is read as in
    an integer column, but exactly: 7, 7.0 and 007 are the same id, and a cell that is not a whole number has none.
    """
    cells = cells_of(array).used()
    text = texts(cells.values)
    return Cells((_whole_texts(text) if kind == "integer" else text).view(pa.large_binary()), cells.index)


def _whole_texts(text: pa.Array) -> pa.Array:
    """Whole numbers in canonical form, without plus sign, leading zeros, fraction or exponent; other texts are null."""
    usual = pc.match_substring_regex(text, r"^[+-]?[0-9]+(\.0*)?$")
    short = pc.replace_substring_regex(text, r"^(?:\+|(-))?0*([0-9]+?)(?:\.0*)?$", r"\1\2")
    whole = pc.if_else(
        usual, pc.if_else(pc.equal(short, _text_array(("-0",))[0]), _text_array(("0",))[0], short), _NO_TEXT
    )
    if pc.any(pc.and_not(pc.match_substring_regex(text, f"^(?:{_DECIMAL})$"), usual)).as_py():
        rest = pa.array([_whole_text(cell) for cell in text.view(pa.large_binary()).to_pylist()], pa.large_string())
        whole = pc.coalesce(whole, rest)
    return whole


def _whole_text(cell: bytes | None) -> str | None:
    text = "" if cell is None else cell.decode("utf-8", "replace")
    if not _IS_DECIMAL.fullmatch(text):
        return None
    number = Decimal(text)
    if number.adjusted() > _MOST_DIGITS or number != number.to_integral_value():
        return None
    return decimal_text(number)


def float_text(number: float) -> str | None:
    """7.0 as 7, 0.5 as 0.5; NaN and infinities are missing."""
    if not math.isfinite(number):
        return None
    return str(int(number)) if number == int(number) else repr(number)


def decimal_text(number: Decimal | None) -> str | None:
    """All digits, without trailing zeros."""
    if number is None or not number.is_finite():
        return None
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_large_binary(array.type))


def cell_numbers(column: Number | Integer | Datetime, array: pa.Array) -> Floats:
    """Plain values as numbers, of dates as microseconds, before they are clamped; NaN where they are not readable."""
    return _moments(array) if isinstance(column, Datetime) else _numbers(array)


def cell_levels(column: Column, array: pa.Array) -> NDArray[np.int64]:
    """Levels of plain values; −1 where they are missing or not readable."""
    match column:
        case Number() | Integer():
            return levels_at(column, _with_missing(cell_numbers(column, array), column.missing))
        case Datetime():
            return levels_at(column, cell_numbers(column, array))
        case Category():
            text = texts(array)
            level = filled(pc.index_in(text, value_set=_text_array(column.labels)), column.labels.index(OTHER))
            return np.where(is_null(text), -1, level)
        case Boolean():
            return _booleans(array)
    raise AssertionError(column.kind)


def _floats(array: pa.Array) -> Floats:
    """Values as float64, NaN for nulls."""
    numbers = array.cast(pa.float64(), safe=False)
    values = buffer_values(numbers, np.float64)
    return np.where(is_null(numbers), np.nan, values) if numbers.null_count else values


@lru_cache(maxsize=256)
def _text_array(texts: tuple[str, ...]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0] + [len(text) for text in encoded])
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)


def _with_missing(numbers: Floats, replacement: float | None) -> Floats:
    return numbers if replacement is None else np.where(np.isnan(numbers), float(replacement), numbers)


def _numbers(array: pa.Array) -> Floats:
    """Cells as float64; NaN, infinities, nulls and unreadable text are NaN."""
    if _is_text(array):
        numbers = _usual_spellings(array, dates=False)
    elif pa.types.is_boolean(array.type):
        numbers = _floats(array.cast(pa.int8()))
    elif pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        numbers = _floats(array)
    else:
        numbers = np.full(len(array), np.nan)
    finite = np.isfinite(numbers)
    return numbers if finite.all() else np.where(finite, numbers, np.nan)


def _usual_spellings(array: pa.Array, dates: bool) -> Floats:
    """Numbers or dates of text. Kernels read usual spellings where Numba is installed, slower rules everything else."""
    numbers, hard = np.full(len(array), np.nan), np.ones(len(array), np.bool_)
    if len(array) >= _FEW:
        with suppress(MissingExtraError):
            from dpsketch.encoding.text_kernels import read_moments, read_numbers

            offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
            data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
            if dates:
                read_moments(data, offsets, numbers, hard)
            else:
                read_numbers(data, offsets, numbers.view(np.int64), hard)
            absent = is_null(array)
            numbers[absent], hard[absent] = np.nan, False
    rows = np.flatnonzero(hard)
    if len(rows):
        text = texts(array if len(rows) == len(array) else array.take(int64_array(rows)))
        numbers[rows] = _each(text, _moment) if dates else _parsed_numbers(text)
    return numbers


def _parsed_numbers(text: pa.Array) -> Floats:
    readable = pc.match_substring_regex(text, f"^(?:{_DECIMAL})$")
    try:
        parsed = pc.if_else(readable, text, _NO_TEXT).cast(pa.float64())
        return _floats(parsed)
    except pa.ArrowInvalid:  # the fast reader refuses some forms of our grammar: same values, slower
        return _each(text, lambda cell: float(cell) if _IS_DECIMAL.fullmatch(cell) else np.nan)


def _moments(array: pa.Array) -> Floats:
    """Microseconds since 1970; text must be ISO 8601."""
    if _is_text(array):
        return _usual_spellings(array, dates=True)
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        unit = "day" if pa.types.is_date32(array.type) else getattr(array.type, "unit", "ms")
        counts = array.view(pa.int32() if unit == "day" else pa.int64())
        return _floats(counts) * _MICROSECONDS[unit]
    return np.full(len(array), np.nan)


def _moment(cell: str) -> float:
    moment = as_moment(cell)
    return np.nan if moment is None else float(microseconds(moment))


def _booleans(array: pa.Array) -> NDArray[np.int64]:
    flags = _each(texts(array), _flag) if _is_text(array) else _numbers(array)
    return np.where((flags == 0) | (flags == 1), np.nan_to_num(flags, nan=-1.0), -1).astype(np.int64)


def _flag(cell: str) -> float:
    lowered = cell.lower()
    return 1.0 if lowered in _TRUE else 0.0 if lowered in _FALSE else np.nan


def _each(text: pa.Array, read: Callable[[str], float]) -> Floats:
    """Apply `read` to every distinct text. The result is a pure function of the cell; nulls are NaN."""
    encoded = text.view(pa.large_binary()).dictionary_encode()
    table = np.array([read(cell.decode("utf-8", "replace")) for cell in encoded.dictionary.to_pylist()] + [np.nan])
    return table[filled(encoded.indices, len(table) - 1)]


def cells_array(cells: Any) -> pa.Array:
    """A column of Python, NumPy or pandas cells. Objects and labels become text, because Arrow raises
    on mixed types.
    """
    kind = str(getattr(cells, "dtype", "object"))
    if kind not in ("object", "category"):
        try:
            return pa.array(cells, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):
            pass  # an exotic type: read its cells as text
    return pa.array([_cell_text(cell) for cell in cells], pa.large_binary())


def lists_array(rows: Any) -> pa.Array:
    """A column of Python lists of ids. A row that is not a list is missing, whatever the other rows contain."""
    lists = [[_cell_text(cell) for cell in row] if isinstance(row, _LISTS) else None for row in rows]
    return pa.array(lists, pa.large_list(pa.large_binary()))


def _cell_text(cell: Any) -> bytes | None:
    """A Python object as the text that Arrow would give it; missing if it has none or raises an error."""
    try:
        if cell is None or bool(cell != cell):
            return None
        if isinstance(cell, bytes):
            return cell
        if isinstance(cell, bool | np.bool_):
            text: str | None = str(bool(cell)).lower()
        elif isinstance(cell, Integral):
            text = str(int(cell))
        elif isinstance(cell, Decimal):
            text = decimal_text(cell)
        elif isinstance(cell, Real):
            text = float_text(float(cell))
        else:
            text = str(cell)
        return None if text is None else text.encode("utf-8", "surrogatepass")
    except Exception:  # a cell's own code may raise anything
        return None
