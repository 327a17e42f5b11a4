"""Records to codes: columns as they are stored, and columns that are computed from other cells of the same row.

Guarantee: a record's code depends on its own cells alone. Each operation is one of IEEE 754 on one record's
cells, so neither the batch nor the machine changes a result, and no cell raises.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dpsketch.encoding.arrow import encode_column, encode_sets, source_moments, source_numbers
from dpsketch.encoding.levels import levels_at
from dpsketch.encoding.records import Records
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.calendar import part_values, truncated
from dpsketch.schema.columns import Category, Column, Datetime, Integer, Number
from dpsketch.schema.derived import Derived
from dpsketch.schema.schema import Schema

Stored = Callable[[str], pa.Array | pa.ChunkedArray]


def encode(schema: Schema, batch: pa.RecordBatch) -> Records:
    """Codes of the scalar columns and ids of the set columns."""
    codes = np.empty((len(schema.scalars), batch.num_rows), np.int16)
    for row, column in enumerate(schema.scalars):
        codes[row] = _scalar_codes(schema, column, batch.column)
    return Records(codes, {column.name: encode_sets(column, batch.column(column.name)) for column in schema.sets})


def _scalar_codes(schema: Schema, column: Column, stored: Stored) -> Codes:
    """Codes of a scalar column of a table whose columns `stored` gives by name."""
    if column.derived is None or not column.sources:
        return encode_column(column, stored(column.name))
    return derived_codes(schema, column, column.derived, stored)


def derived_codes(schema: Schema, column: Column, derived: Derived, stored: Stored) -> Codes:
    """Codes of a computed column; missing where a cell that it needs is missing or unreadable."""
    if derived.form == "part":
        moments = source_moments(derived.sources[0], stored(derived.sources[0]))
        numbers = truncated("day", moments) if column.dates else part_values(derived.part, moments)
    else:
        numbers = _combined(derived, [_number(schema, source, stored) for source in derived.sources])
    if isinstance(column, Category):
        levels = np.searchsorted(np.array(derived.edges), numbers, side="right")
        return column.codes_of(np.where(np.isnan(numbers), -1, levels).astype(np.int64))
    assert isinstance(column, Number | Integer | Datetime)
    return column.codes_of(levels_at(column, numbers))


def _combined(derived: Derived, numbers: list[Floats]) -> Floats:
    with np.errstate(all="ignore"):  # a warning would speak of cells
        match derived.form:
            case "ratio":
                return numbers[0] / np.where(numbers[1] == 0, np.nan, numbers[1])
            case "difference":
                return numbers[0] - numbers[1]
    return numbers[0]


def _number(schema: Schema, source: str, stored: Stored) -> Floats:
    """The numbers of a stored column as they are, beyond its bounds too; what its section declares for missing cells
    counts here.
    """
    declared = next((column for column in schema.columns if column.name == source), None)
    missing = declared.missing if isinstance(declared, Number | Integer) else None
    return source_numbers(source, stored(source), missing)
