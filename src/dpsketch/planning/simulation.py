"""Simulated tables that obey a schema, and true answers about them. Only public facts go in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.arrow import encode
from dpsketch.learn import queries as sql
from dpsketch.learn.answer import Estimate
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.selection import Estimator
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.recipe import Only
from dpsketch.schema.columns import OTHER, Boolean, Category, Column, Datetime, IdSet
from dpsketch.schema.schema import Schema

RARE, SOME = 0.01, 0.3  # the share of missing cells and of unlisted values; the share of columns that have them
_WEIGHTS = (0.4, 0.3, 0.2, 0.1)  # weights of the modes of a number column, in any order
_CENTRES = (0.17, 0.33, 0.5, 0.67)  # positions of the modes between the column's bounds
_CHUNK = 1 << 14
_LARGEST_SET = 20


def simulated_table(schema: Schema, rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows simulated from two latent variables, one of them multimodal, on which every column depends to some degree.

    Numbers have skewed modes inside their bounds, labels have shares proportional to 1/rank, and some columns have a
    few missing cells. It is not a mixture of a few products of columns: views fit such a mixture, so errors would be
    too small.
    """
    hidden = rng.normal(size=(2, rows))
    hidden[0] = 0.4 * hidden[0] + rng.choice([-1.2, 0.0, 1.2], rows)
    columns = {column.name: _cells(column, hidden, rng) for column in schema.columns}
    if schema.unit_column is not None:
        columns[schema.unit_column] = _array(pa.int64(), np.arange(rows), np.zeros(rows, bool))
    return pa.table(columns)


class SimulatedTable:
    """A simulated table that gives the true answers to statements, with every row repeated `copies` times.

    `asked` collects the columns that the statements used. Quantiles of columns with many values are computed on the
    grid that views use.
    """

    columns: tuple[str, ...] = ()
    how = rows_how = "the truth"

    def __init__(self, schema: Schema, table: pa.Table, only: Only | None = None, copies: int = 1) -> None:
        self.schema = schema
        self.asked: set[str] = set()
        records = encode(schema, table.combine_chunks().to_batches()[0])
        if only is not None:
            records = records.take(only.places(schema, records))
        self._size, self._copies = len(records), copies
        names = [column.name for column in schema.scalars]
        self._frames = [
            Frame(schema, dict(zip(names, records.codes[:, start : start + _CHUNK], strict=True)))
            for start in range(0, max(self._size, 1), _CHUNK)
        ]

    def sql(self, text: str) -> sql.Table:
        return sql.run(self, text)

    def cells_of(self, column: str) -> None:
        return None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        """Exact expectations over the rows."""
        total: Floats = np.zeros(1)
        for frame in self._frames:
            total = total + np.concatenate([product_at(factors, frame).sum(axis=1) for factors in products])
        return _exact(total / max(self._size, 1))

    def rows(self) -> Estimate:
        return _exact(np.array([float(self._size * self._copies)]))

    def with_rows(self, how: str) -> str:
        return how

    def laplace(self, estimate: Estimate) -> NDArray[np.bool_]:
        return np.zeros(estimate.value.shape, bool)

    def estimators(self, columns: Sequence[str]) -> list[Estimator]:
        self.asked |= {*columns}
        return [self]


def _exact(values: Floats) -> Estimate:
    return Estimate(values, np.zeros((len(values), 1)))


def _cells(column: Column, hidden: Floats, rng: np.random.Generator) -> pa.Array:
    rows = hidden.shape[1]
    if isinstance(column, IdSet):
        return _sets(column, rows, rng)
    angle, close, sign = rng.uniform(0, np.pi / 2), rng.uniform(0.5, 0.97), rng.choice([-1, 1])
    followed = sign * (np.cos(angle) * hidden[0] + np.sin(angle) * hidden[1])
    order = np.argsort(close * followed + np.sqrt(1 - close**2) * rng.normal(size=rows))
    levels = np.empty(rows, np.int64)
    levels[order] = _sorted_levels(column, rows, rng)
    missing = np.asarray(rng.random(rows) < (RARE if rng.random() < SOME else 0.0))
    if isinstance(column, Boolean):
        return _array(pa.bool_(), np.packbits(levels == 1, bitorder="little"), missing)
    if isinstance(column, Category):
        return pa.DictionaryArray.from_arrays(_array(pa.int64(), levels, missing), _texts(column.labels))
    values = column.values_of(column.codes_of(levels))
    if isinstance(column, Datetime):
        return _array(pa.timestamp("us", "UTC"), values.astype(np.int64), missing)
    return _array(pa.float64(), np.asarray(values, np.float64), missing)


def _array(kind: pa.DataType, values: NDArray[Any], missing: NDArray[np.bool_]) -> pa.Array:
    """An Arrow array built from buffers: `pa.array` would import pandas, which takes half a second."""
    present = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, len(missing), [present, pa.py_buffer(np.ascontiguousarray(values))])


def _texts(labels: Sequence[str]) -> pa.Array:
    written = [label.encode() for label in labels]
    offsets = np.cumsum([0, *map(len, written)], dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(written))]
    return pa.Array.from_buffers(pa.large_string(), len(labels), buffers)


def _sorted_levels(column: Column, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Levels in the order in which they follow the latent variables: numbers from low to high, labels in any order."""
    if column.numeric:
        mode = rng.choice(len(_WEIGHTS), rows, p=rng.permutation(_WEIGHTS))
        centre = np.array(_CENTRES) + rng.uniform(-0.07, 0.07, len(_CENTRES))
        width = rng.uniform(0.04, 0.15, len(_CENTRES))
        position = centre[mode] + width[mode] * (rng.gamma(3.0, size=rows) - 3) / np.sqrt(3)
        extent = rng.uniform(0.6, 1.0)  # bounds are often generous, above more than below
        position = rng.beta(1, 3) * (1 - extent) + extent * np.clip(position, 0, 1)
        return np.sort(np.rint(position * (column.levels - 1)).astype(np.int64))
    share = 1 / (1.0 + rng.permutation(column.levels))
    if isinstance(column, Category) and OTHER not in map(str, column.values):
        share[-1] = RARE * share[:-1].sum() if rng.random() < SOME else 0.0
    order = rng.permutation(column.levels)
    return order[np.sort(rng.choice(column.levels, rows, p=share[order] / share.sum()))]


def _sets(column: IdSet, rows: int, rng: np.random.Generator) -> pa.Array:
    lengths = rng.integers(0, min(column.universe, _LARGEST_SET) + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    ids = (column.universe * rng.random(offsets[-1]) ** 2).astype(np.int64)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
