"""Synthetic rows that obey the schema."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dpsketch.errors import QueryError
from dpsketch.learn.points import Frame
from dpsketch.learn.population.weighted_rows import Rows
from dpsketch.schema.columns import Boolean, Category, Column, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

MOST_ROWS = 10**9
_TYPES: dict[str, pa.DataType] = {
    "number": pa.float64(),
    "integer": pa.int64(),
    "category": pa.string(),
    "boolean": pa.bool_(),
    "datetime": pa.timestamp("us", tz="UTC"),
}


def sample(schema: Schema, population: Rows, rows: int, seed: int) -> pa.Table:
    """Draw rows with the columns in schema order; missing cells are null. The same seed gives the same rows."""
    for name, value, least in (("n", rows, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= MOST_ROWS:
            raise QueryError(f"{name} must be a whole number from {least} to {MOST_ROWS}, got {value!r} instead")
    columns = [column for column in schema.scalars if column.name in population.columns]
    kinds = pa.schema([(column.name, _TYPES[column.kind]) for column in columns])
    return pa.Table.from_batches(_batches(columns, kinds, population.draw(int(rows), int(seed))), kinds)


def rows_of(schema: Schema, frame: Frame) -> pa.Table:
    """The points of a frame as rows with the columns in schema order."""
    columns = [column for column in schema.scalars if column.name in frame.columns]
    return pa.table([_cells(column, frame) for column in columns], [column.name for column in columns])


def _batches(columns: list[Column], kinds: pa.Schema, frames: Iterator[Frame]) -> Iterator[pa.RecordBatch]:
    for frame in frames:
        yield pa.record_batch([_cells(column, frame) for column in columns], schema=kinds)


def _cells(column: Column, frame: Frame) -> pa.Array:
    levels = frame.levels(column.name)
    missing = levels < 0
    if isinstance(column, Category):
        indices = pa.array(levels, pa.int32(), mask=missing)
        return pa.DictionaryArray.from_arrays(indices, pa.array(column.labels, pa.string())).dictionary_decode()
    if isinstance(column, Boolean):
        return pa.array(levels == 1, pa.bool_(), mask=missing)
    values = column.values_of(frame.codes(column.name))
    if isinstance(column, Integer | Datetime):
        whole = np.rint(np.where(missing, 0.0, values)).astype(np.int64)
        return pa.array(whole, pa.int64(), mask=missing).cast(_TYPES[column.kind])
    if isinstance(column, Number):  # a logarithm and its inverse may exceed a bound by rounding
        values = np.clip(values, column.lower, column.upper)
    return pa.array(values, pa.float64(), mask=missing)
