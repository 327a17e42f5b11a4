"""The result of a statement: labels and answers, and how they leave for Arrow, pandas, Polars and plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from dpsketch.displays import html_table, listed, text_table
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.answer_pictures import table_pictures
from dpsketch.plots.drawing import Drawing

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

ESTIMATE, ESTIMATED_DATE = "estimate", "estimated date"
ESTIMATES = {ESTIMATE: ("number", "number"), ESTIMATED_DATE: ("date", "span")}  # kinds of a value and of its error


@dataclass(frozen=True)
class Table:
    """Rows of labels and answers, in the order of the select list.

    A table is a sequence of rows: `len(table)`, `table[0]` and iteration give dictionaries, `table[:5]` the first rows,
    `table["name"]` the cells of a column. DuckDB, pandas, Polars and others read it by the Arrow interface.

    `kinds` says what each column holds: text, integer, number, boolean, date, an estimate, or an estimated date. It
    does not depend on which groups the rows show. A label that is a date may be an ISO text; Arrow has it as a date.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    how: tuple[str, ...]
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.kinds:
            kinds = tuple(kind_of([row[index] for row in self.rows]) for index in range(len(self.columns)))
            object.__setattr__(self, "kinds", kinds)

    def __repr__(self) -> str:
        return "\n".join([text_table(self.columns, self.rows), *self.notes])

    def _repr_html_(self) -> str:
        shown = html_table("", self.columns, self.rows)
        pictures = table_pictures(self.columns, self.kinds, self.rows)
        return shown + Drawing(tuple(pictures)).svg if pictures else shown

    def plot(self) -> Drawing:
        """A picture for each aggregate over one or two columns of labels."""
        pictures = table_pictures(self.columns, self.kinds, self.rows)
        if not pictures:
            raise QueryError(
                "there is no picture of this table", "ask for numbers by one or two columns: group by city"
            )
        return Drawing(tuple(pictures))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Table: ...
    @overload
    def __getitem__(self, key: str) -> tuple[Any, ...]: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, slice):
            return replace(self, rows=self.rows[key])
        if not isinstance(key, str):
            return dict(zip(self.columns, self.rows[key], strict=True))
        if key not in self.columns:
            raise QueryError(f"the table has no column '{key}'", f"its columns are {listed(self.columns)}")
        index = self.columns.index(key)
        return tuple(row[index] for row in self.rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why nothing is known of some answers, by column."""
        reasons = {
            f"{name} not known: {cell.reason}": None
            for row in self.rows
            for name, cell in zip(self.columns, row, strict=True)
            if isinstance(cell, Answer) and cell.reason
        }
        return tuple(reasons)

    def to_dicts(self, raw: bool = False) -> list[dict[str, Any]]:
        """Plain rows, ready for JSON: each aggregate gives its value and its standard error (of a date in seconds);
        not-a-number becomes None, a date a text. A column with answers of which nothing is known also gives their
        reason and what is possible.

        If `raw`, values are the unbiased estimates, which add up but may be impossible, such as negative counts.
        """
        fields = self._fields(raw)
        names = [name for name, _, _ in fields]
        cells = [[plain(cell) for cell in column] for _, _, column in fields]
        return [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]

    def to_arrow(self, raw: bool = False) -> pa.Table:
        """An Arrow table with the columns of `to_dicts`: labels as integers, booleans, dates (UTC) or text, each
        aggregate as its value and `NAME_stderr`, which is a duration for a date. What is not a number is null.
        """
        import pyarrow as pa

        types = {
            "text": pa.string(),
            "integer": pa.int64(),
            "number": pa.float64(),
            "boolean": pa.bool_(),
            "date": pa.timestamp("us", "UTC"),
            "span": pa.duration("us"),
        }
        fields = self._fields(raw)
        arrays = [pa.array([_typed(kind, cell) for cell in cells], types[kind]) for _, kind, cells in fields]
        return pa.table(arrays, names=[name for name, _, _ in fields])

    def to_pandas(self, raw: bool = False) -> pd.DataFrame:
        """A pandas frame with the columns of `to_arrow`. Integers and booleans have types that can hold missing
        labels: Int64 and boolean.
        """
        import pandas as pd
        import pyarrow as pa

        nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        return self.to_arrow(raw).to_pandas(types_mapper=nullable.get)

    def to_polars(self, raw: bool = False) -> pl.DataFrame:
        """A Polars frame with the columns of `to_arrow`."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow(raw))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface: DuckDB, pandas, Polars and others read the table without a copy."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _fields(self, raw: bool) -> list[tuple[str, str, list[Any]]]:
        """Name, kind and cells of every column of an export."""
        fields: list[tuple[str, str, list[Any]]] = []
        for index, (name, kind) in enumerate(zip(self.columns, self.kinds, strict=True)):
            cells = [row[index] for row in self.rows]
            if kind not in ESTIMATES:
                fields.append((name, kind, cells))
                continue
            value, error = ESTIMATES[kind]
            fields.append((name, value, [cell.raw if raw else cell.value for cell in cells]))
            fields.append((f"{name}_stderr", error, [cell.stderr for cell in cells]))
            if any(cell.reason for cell in cells):
                fields.append((f"{name}_reason", "text", [cell.reason or None for cell in cells]))
                ends = [(None, None) if cell.known else cell.possible for cell in cells]
                fields.append((f"{name}_low", value, [low for low, _ in ends]))
                fields.append((f"{name}_high", value, [high for _, high in ends]))
        return fields


def kind_of(cells: Sequence[Any]) -> str:
    """What a column of these cells holds; missing cells aside."""
    present = [cell for cell in cells if cell is not None]
    if present and all(isinstance(cell, Answer) for cell in present):
        dated = any(isinstance(cell.value, np.datetime64) for cell in present)
        return ESTIMATED_DATE if dated else ESTIMATE
    kinds: list[tuple[str, tuple[type, ...]]] = [
        ("boolean", (bool,)),
        ("integer", (int,)),
        ("number", (int, float)),
        ("date", (np.datetime64, date)),
    ]
    for kind, types in kinds:
        if present and all(isinstance(cell, types) for cell in present):
            return kind
    return "text"


def plain(value: Any) -> Any:
    """A cell as JSON can hold it: dates as texts, spans of time in seconds, None for not-a-number."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, np.timedelta64):
        value = float(value / np.timedelta64(1, "s"))
    return value if np.isfinite(value) else None


def _typed(kind: str, cell: Any) -> Any:
    """A cell as Arrow holds it, None where it is no value of its kind."""
    if cell is None or kind == "text":
        return cell if cell is None else str(cell)
    if kind in ("date", "span"):  # in microseconds
        if kind == "date" and isinstance(cell, date | str):
            cell = np.datetime64(cell, "us")
        known = isinstance(cell, np.datetime64 if kind == "date" else np.timedelta64) and not np.isnat(cell)
        return (
            int(cell.astype("datetime64[us]" if kind == "date" else "timedelta64[us]").astype(int)) if known else None
        )
    return cell if np.isfinite(cell) else None
