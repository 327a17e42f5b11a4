"""Simulated tables that obey a schema, and true answers about them. Only public facts go in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsketch.encoding.rows import encode
from dpsketch.learn import queries as sql
from dpsketch.learn.answer import Causes, Estimate
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.selection import Estimator
from dpsketch.learn.view import View
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.planning.compared import Compared
from dpsketch.recipe.recipe import Only
from dpsketch.schema.columns import OTHER, Boolean, Category, Column, Datetime, IdSet
from dpsketch.schema.schema import Schema

RARE, SOME = 0.01, 0.3  # the share of missing cells and of unlisted values; the share of columns that have them
_CHUNK = 1 << 14
_LARGEST_SET = 20
# What the columns of the tables that constants are chosen on look like, as far as they were looked at.
_LIKE_TABLES = Tuned("adult, occupancy, california_housing, covtype and kdd", by=BY_HAND, decision=22)
HEAVY: Annotated[float, _LIKE_TABLES] = 0.31  # the share of number columns in which many records share one value
HEAVY_SHARE: Annotated[tuple[float, float], _LIKE_TABLES] = (0.3, 0.97)  # of these records
AT_BOUNDS: Annotated[tuple[float, float], _LIKE_TABLES] = (0.55, 0.2)  # how often that value is the lower, upper bound
COARSE: Annotated[float, _LIKE_TABLES] = 0.5  # the share of number columns with few distinct values
DISTINCT: Annotated[tuple[float, float], _LIKE_TABLES] = (50, 3000)
# Positions between the bounds, in logits: middle and deviation of the centre, range of the width.
CENTRE: Annotated[tuple[float, float], _LIKE_TABLES] = (-0.8, 1.2)
WIDTH: Annotated[tuple[float, float], _LIKE_TABLES] = (0.6, 1.8)
DECLINE: Annotated[tuple[float, float], _LIKE_TABLES] = (0.3, 3.0)  # shares of labels are rank to the power of −this
FEW_LABELS: Annotated[int, _LIKE_TABLES] = 10  # above, shares decline less
# Columns follow the latent variables by a uniform number to this power: weakly and strongly dependent tables.
LOOSE: Annotated[tuple[float, float], _LIKE_TABLES] = (1.2, 0.1)


def simulated_table(
    schema: Schema,
    rows: int,
    rng: np.random.Generator,
    compared: Compared | None = None,
    dependence: float | None = None,
) -> pa.Table:
    """Rows simulated from two latent variables, one of them multimodal, on which every column depends to some degree.

    Numbers have skewed modes inside their bounds; some have a value that many records share, often a bound, and some
    have few distinct values. Shares of labels decline with their rank, and some columns have a few missing cells. It is
    not a mixture of a few products of columns: views fit such a mixture, so errors would be too small.

    People ask about values that records have, so a level that questions compare a column with (`compared`) lies among
    its records. `dependence` is from 0 for weakly to 1 for strongly dependent columns, by default random.
    """
    hidden = rng.normal(size=(2, rows))
    hidden[0] = 0.4 * hidden[0] + rng.choice([-1.2, 0.0, 1.2], rows)
    place = rng.random() if dependence is None else dependence
    loose = LOOSE[0] * (LOOSE[1] / LOOSE[0]) ** place
    asked = compared or {}
    columns = {
        column.name: _cells(column, hidden, rng.random() ** loose, asked.get(column.name, ()), rng)
        for column in schema.columns
    }
    return _with_units(schema, pa.table(columns))


def drawn_table(schema: Schema, like: View, rows: int, rng: np.random.Generator) -> pa.Table:
    """The schema's columns of rows drawn from an earlier release."""
    drawn = like.sample(rows, int(rng.integers(10**9)))
    return _with_units(schema, drawn.select([column.name for column in schema.columns]))


def _with_units(schema: Schema, table: pa.Table) -> pa.Table:
    """Every row as a unit of its own, if the schema has units."""
    if schema.unit_column is None:
        return table
    return table.append_column(
        schema.unit_column, _array(pa.int64(), np.arange(len(table)), np.zeros(len(table), bool))
    )


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

    def noisy_rows(self) -> Estimate:
        return self.rows()

    def with_rows(self, how: str) -> str:
        return how

    def laplace(self, estimate: Estimate) -> NDArray[np.bool_]:
        return np.zeros(estimate.value.shape, bool)

    def causes(self, estimate: Estimate) -> Causes:
        """True answers have no error."""
        return ()

    def tells(self, column: str, value: float) -> bool:
        """Which values many records have is not known beforehand."""
        return False

    def estimators(self, columns: Sequence[str]) -> list[Estimator]:
        self.asked |= {*columns}
        return [self]


def _exact(values: Floats) -> Estimate:
    return Estimate(values, np.zeros((len(values), 1)))


def _cells(column: Column, hidden: Floats, close: float, asked: Sequence[int], rng: np.random.Generator) -> pa.Array:
    rows = hidden.shape[1]
    if isinstance(column, IdSet):
        return _sets(column, rows, rng)
    angle, sign = rng.uniform(0, np.pi / 2), rng.choice([-1, 1])
    followed = sign * (np.cos(angle) * hidden[0] + np.sin(angle) * hidden[1])
    order = np.argsort(close * followed + np.sqrt(1 - close**2) * rng.normal(size=rows))
    levels = np.empty(rows, np.int64)
    levels[order] = (_sorted_numbers if column.numeric else _sorted_labels)(column, rows, asked, rng)
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


def _sorted_numbers(column: Column, rows: int, asked: Sequence[int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Levels from low to high."""
    last = column.levels - 1
    inside = [level for level in asked if 0 < level < last]
    level = int(rng.choice(inside)) if inside else None
    position = _logits(rows, rng)
    if level is not None:
        position += np.log(level / (last - level)) - np.quantile(position, rng.uniform(0.05, 0.95))
    levels = last / (1 + np.exp(-position))
    if rng.random() < COARSE:
        extent = np.ptp(np.quantile(levels, [0.01, 0.99]))
        step, start = max(extent / np.exp(rng.uniform(*np.log(DISTINCT))), 1.0), level or 0
        levels = start + step * np.rint((levels - start) / step)
    bounds = [place for place in asked if not 0 < place < last]
    if bounds or rng.random() < HEAVY * (0.5 if inside else 1.0):
        lower, upper = AT_BOUNDS
        within = level if level is not None else levels[rng.integers(rows)]
        shared = rng.choice(bounds) if bounds else rng.choice([0, last, within], p=[lower, upper, 1 - lower - upper])
        least, most = HEAVY_SHARE
        # The value of a random record is rarely another one where nearly all records share one.
        share = (
            rng.uniform(least, most) if shared in asked or not inside else most - (most - least) * rng.random() ** 0.5
        )
        levels[rng.random(rows) < share] = shared
    return np.sort(np.clip(np.rint(levels), 0, last).astype(np.int64))


def _logits(rows: int, rng: np.random.Generator) -> Floats:
    """Positions between the bounds of a number, in logits: a few modes."""
    modes, width = rng.integers(1, 4), np.exp(rng.uniform(*np.log(WIDTH)))
    mode = rng.choice(modes, rows, p=rng.dirichlet(np.full(modes, 2.0)))
    centre = rng.normal(*CENTRE) + width * rng.normal(size=modes)
    return centre[mode] + (width * rng.uniform(0.3, 1.0, modes))[mode] * rng.normal(size=rows)


def _sorted_labels(column: Column, rows: int, asked: Sequence[int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Levels in any order of labels. Labels that questions name have ranks by their shares, as if by a record."""
    least, most = DECLINE
    decline = rng.uniform(least, least + (most - least) * min(1.0, FEW_LABELS / column.levels))
    share = (1.0 + np.arange(column.levels)) ** -decline
    rank = rng.permutation(column.levels)
    for level in dict.fromkeys(asked):
        other = int(np.flatnonzero(rank == rng.choice(column.levels, p=share / share.sum()))[0])
        rank[level], rank[other] = rank[other], rank[level]
    share = share[rank]
    if isinstance(column, Category) and OTHER not in map(str, column.values):
        share[-1] = RARE * share[:-1].sum() if rng.random() < SOME else 0.0
    order = rng.permutation(column.levels)
    return order[np.sort(rng.choice(column.levels, rows, p=share[order] / share.sum()))]


def _sets(column: IdSet, rows: int, rng: np.random.Generator) -> pa.Array:
    lengths = rng.integers(0, min(column.universe, _LARGEST_SET) + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    ids = (column.universe * rng.random(offsets[-1]) ** 2).astype(np.int64)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
