"""Rows of an owner or of a consumer inside its own walls, and rows that travel: as a table in the schema's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpsketch.encoding.frames import read_codes
from dpsketch.errors import FileError
from dpsketch.federate.market.feature_hash import Features, code_points, whole_rows
from dpsketch.federate.market.terms import Terms
from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING

MOST_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Rows:
    """Records with all cells that the market measures: codes of its columns, strata by label, and features."""

    terms: Terms
    codes: Codes  # of the hash's columns, and of the label last if there is one
    features: Features

    def __len__(self) -> int:
        return self.codes.shape[1]

    @classmethod
    def read(cls, terms: Terms, table: Any, labelled: bool = True) -> Rows:
        """Rows of a user's table. Those that lack a cell cannot be measured and are left out."""
        codes = read_rows(terms, table, labelled)
        return cls.of_codes(terms, codes[:, whole_rows(codes[: len(terms.hashed.columns)])])

    @classmethod
    def of_codes(cls, terms: Terms, codes: Codes) -> Rows:
        return cls(terms, codes, terms.hashed.of_codes(codes[: len(terms.hashed.columns)]))

    @property
    def strata(self) -> NDArray[np.int64]:
        """The index of each row's stratum."""
        if self.terms.label is None:
            return np.zeros(len(self), np.int64)
        levels = self.terms.schema.column(self.terms.label).levels_of(self.codes[-1])
        return np.where(levels < 0, len(self.terms.strata) - 1, levels)

    @property
    def points(self) -> Floats:
        """The rows as points in [0, 1]^columns."""
        return code_points(self.codes[: len(self.terms.hashed.columns)])

    def message(self, chosen: NDArray[np.int64]) -> bytes:
        """Some of the rows as a Parquet file in the schema's units."""
        return as_parquet(rows_table(self.terms, self.codes[:, chosen]))


def read_rows(terms: Terms, table: Any, labelled: bool) -> Codes:
    """Codes of a table's columns, the label last."""
    names = [*terms.hashed.columns, *((terms.label,) if labelled and terms.label is not None else ())]
    found = read_codes(terms.schema, names, table)
    return np.stack([found[name] for name in names])


def rows_table(terms: Terms, codes: Codes) -> pa.Table:
    """Rows as a table whose cells are those of the schema."""
    names = [*terms.hashed.columns, terms.label][: len(codes)]
    frame = Frame(terms.schema, {name: codes[row] for row, name in enumerate(names) if name is not None})
    return pa.table({name: pa.array(frame.cells(name)) for name in frame.columns})


def as_parquet(table: pa.Table) -> bytes:
    target = BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def shipped_rows(terms: Terms, message: bytes, most: int, labelled: bool, what: str) -> Codes:
    """Codes of rows in a message; refuses more than `most` rows, other columns, and cells that are missing or NaN."""
    try:
        table = pq.read_table(pa.BufferReader(message))
    except (pa.ArrowException, OSError):
        raise FileError(f"{what} is not a table of rows", "its sender must send it again") from None
    names = [*terms.hashed.columns, *((terms.label,) if labelled and terms.label is not None else ())]
    if table.column_names != names:
        raise FileError(f"{what} has other columns than the market's schema", "compare the two schemas")
    if table.num_rows > most:
        raise FileError(f"{what} has more than its quota of {most} rows", "its sender must send its quota")
    codes = read_rows(terms, table, labelled)
    if (codes[: len(terms.hashed.columns)] == MISSING).any():
        raise FileError(f"{what} has features that are missing or not numbers", "its sender must leave such rows out")
    return codes


def joined_codes(parts: Sequence[Codes]) -> Codes:
    return np.concatenate(parts, axis=1)
