"""The database API of Python (PEP 249) for released sketches: read-only, one table called sketch.

`connect("a.sketch").cursor().execute("select city, avg(age) from sketch group by city").fetchall()`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dpsketch.drivers.statements import run_statement
from dpsketch.errors import DpsketchError, QueryError
from dpsketch.learn.answer_table import ESTIMATED_DATE, ESTIMATES, Table
from dpsketch.learn.view import View, open_view

apilevel = "2.0"
threadsafety = 2  # threads may share a connection
paramstyle = "qmark"

ERRORS = ("columns", "none")
_CODES = {"text": "VARCHAR", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "date": "TIMESTAMP"}
Row = tuple[Any, ...]


class Warning(Exception):
    """A note on an answer, such as why it is not known; see `Cursor.messages`."""


class Error(DpsketchError):
    """Base of the errors of this interface, each with the library's fact and hint."""


class InterfaceError(Error):
    """The interface is used in another way than PEP 249 describes."""


class DatabaseError(Error):
    """An error of the sketch or of a statement."""


class DataError(DatabaseError):
    """A value that a statement cannot have."""


class OperationalError(DatabaseError):
    """The file cannot be opened, or an optional package is missing."""


class IntegrityError(DatabaseError):
    """Never raised: nothing is written."""


class InternalError(DatabaseError):
    """Never raised."""


class ProgrammingError(DatabaseError):
    """A statement that this release cannot answer."""


class NotSupportedError(DatabaseError):
    """A sketch has no rows to read, and nothing can be written to it."""


class TypeObject:
    """A family of type codes, equal to each of them."""

    def __init__(self, *codes: str) -> None:
        self.codes = frozenset(codes)

    def __eq__(self, other: object) -> bool:
        return other in self.codes if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.codes)


STRING = TypeObject("VARCHAR")
NUMBER = TypeObject("BIGINT", "DOUBLE", "BOOLEAN")
DATETIME = TypeObject("TIMESTAMP", "INTERVAL")
BINARY = TypeObject()
ROWID = TypeObject()


def connect(path: str | Path | View, errors: str = "columns") -> Connection:
    """Open a released sketch, or use an open view.

    With errors="columns" each aggregate has a second column, NAME_stderr; with "none" rows are as long as the select
    list, for programs that expect it.
    """
    if errors not in ERRORS:
        raise InterfaceError(f"errors must be columns or none, got {errors!r} instead", "columns keeps standard errors")
    if isinstance(path, View):
        return Connection(path, errors)
    try:
        return Connection(open_view(path), errors)
    except DpsketchError as error:
        raise OperationalError(error.fact, error.hint) from None


class Connection:
    """An open release. It has no transactions: `commit` and `rollback` do nothing."""

    def __init__(self, view: View, errors: str) -> None:
        self._view: View | None = view
        self.errors = errors

    @property
    def view(self) -> View:
        if self._view is None:
            raise InterfaceError("the connection is closed", "connect again")
        return self._view

    def cursor(self) -> Cursor:
        assert self.view
        return Cursor(self)

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None:
        self._view = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """Runs one statement after the other; `table` is the last result, with its answers."""

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection | None = connection
        self.arraysize = 1
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1
        self.messages: list[tuple[type[Exception], str]] = []
        self.table: Table | None = None
        self._rows: Iterator[Row] | None = None

    def execute(self, operation: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Cursor:
        """Run a statement with `?` for each parameter, or `:name` for parameters in a dictionary."""
        connection = self._open()
        self.description, self._rows, self.rowcount, self.table, self.messages = None, None, -1, None, []
        try:
            table = run_statement(connection.view, operation, parameters)
        except QueryError as error:
            kind = NotSupportedError if getattr(error, "not_supported", False) else ProgrammingError
            raise kind(error.fact, error.hint) from None
        except DpsketchError as error:
            raise OperationalError(error.fact, error.hint) from None
        self.table, self.messages = table, [(Warning, note) for note in table.notes]
        self.description, rows = _described(table, connection.errors == "columns")
        self.rowcount, self._rows = len(rows), iter(rows)
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Any]) -> Cursor:
        """Run a statement with each of the parameters; the last result stays."""
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
        return self

    def fetchone(self) -> Row | None:
        return next(self._fetched(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        rows, wanted = self._fetched(), self.arraysize if size is None else size
        return [row for _, row in zip(range(wanted), rows, strict=False)]

    def fetchall(self) -> list[Row]:
        return list(self._fetched())

    def __iter__(self) -> Iterator[Row]:
        return self._fetched()

    def close(self) -> None:
        self.connection, self._rows = None, None

    def setinputsizes(self, sizes: Sequence[Any]) -> None: ...

    def setoutputsize(self, size: int, column: int | None = None) -> None: ...

    def _open(self) -> Connection:
        if self.connection is None:
            raise InterfaceError("the cursor is closed", "connection.cursor() makes another")
        return self.connection

    def _fetched(self) -> Iterator[Row]:
        self._open()
        if self._rows is None:
            raise InterfaceError("there is no result", "execute a statement first")
        return self._rows


def _described(table: Table, with_errors: bool) -> tuple[list[tuple[Any, ...]], list[Row]]:
    """The description of a result, and its rows as plain Python values: what is not known is None, dates are in UTC."""
    names, codes = [], []
    for name, kind in zip(table.columns, table.kinds, strict=True):
        dated = kind == ESTIMATED_DATE
        names.append(name)
        codes.append(_CODES.get(kind, _CODES["date" if dated else "number"]))
        if with_errors and kind in ESTIMATES:
            names.append(f"{name}_stderr")
            codes.append("INTERVAL" if dated else _CODES["number"])
    arrow = table.to_arrow()
    columns = [[_plain(cell) for cell in arrow.column(name).to_pylist()] for name in names]
    description = [(name, code, None, None, None, None, True) for name, code in zip(names, codes, strict=True)]
    return description, list(zip(*columns, strict=True))


def _plain(cell: Any) -> Any:
    return cell.replace(tzinfo=None) if isinstance(cell, datetime) else cell
