"""Entries: the rows that one transaction adds to a ledger, with a checksum of them and of all earlier entries.

Guarantee: a row that was changed, deleted or inserted by other means is detected, unless someone recomputed all later
checksums. An older copy of the whole ledger is consistent, too; only a checksum noted elsewhere reveals it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from dpsketch.errors import BudgetError, LedgerError
from dpsketch.ledger.sql_tables import CHAINED, entries

_AT_ONCE = 1000  # entries read in one query


@dataclass(frozen=True)
class Head:
    """The newest entry. Its number is the number of entries, not counting the first, which has no rows."""

    number: int
    checksum: str


class Entry:
    """The rows of one transaction. Nothing is sealed before `seal`."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._before = head(connection)
        self._rows: list[str] = []
        self.number = self._before.number + 1

    def add(self, table: sa.Table, **values: Any) -> None:
        row = {column.name: values.get(column.name) for column in table.columns} | {"entry": self.number}
        self._connection.execute(table.insert().values(**row))
        self._rows.append(_text(table, row.values()))

    def seal(self) -> None:
        checksum = _checksum(self._before.checksum, self._rows)
        self._connection.execute(entries.insert().values(number=self.number, checksum=checksum))


def damaged() -> LedgerError:
    """The error for contents of a ledger that no version of ours wrote."""
    return LedgerError(
        "the ledger is damaged", "restore a backup, and lower the caps by what was released since it was made"
    )


@contextmanager
def as_written() -> Iterator[None]:
    """Report any error while rows are read as damage, because we check what we write."""
    try:
        yield
    except (ArithmeticError, AttributeError, BudgetError, LookupError, RecursionError, TypeError, ValueError):
        raise damaged() from None


def begin_chain(connection: sa.Connection) -> None:
    """Write the first entry of a new ledger: a random checksum, which no other ledger has."""
    connection.execute(entries.insert().values(number=0, checksum=secrets.token_hex(32)))


def head(connection: sa.Connection) -> Head:
    newest = sa.select(entries).order_by(entries.c.number.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    if row is None:
        raise damaged()
    return Head(row.number, row.checksum)


def seal_rows(connection: sa.Connection) -> None:
    """Write the entries of a ledger whose rows have none yet."""
    begin_chain(connection)
    checksum, sealed = head(connection).checksum, []
    for number, rows in _rows_by_entry(connection, 0, newest_row(connection)):
        checksum = _checksum(checksum, rows)
        sealed.append({"number": number, "checksum": checksum})
    if sealed:
        connection.execute(entries.insert(), sealed)


def check_chain(connection: sa.Connection, most: int | None = None) -> Head:
    """Compare the rows of the newest entries, or of all, with their checksums, and return the head."""
    with as_written():
        newest = head(connection)
        first = 0 if most is None else max(0, newest.number - most)
        stored = _checksums(connection, first, newest.number)
        checksum = next(stored)
        for _, rows in _rows_by_entry(connection, first, newest.number):
            checksum = _checksum(checksum, rows)
            if checksum != next(stored):
                raise damaged()
        if newest_row(connection) > newest.number:
            raise damaged()
    return newest


def has_checksum(connection: sa.Connection, checksum: str) -> bool:
    """Whether an entry with this checksum is in the ledger."""
    return connection.scalar(sa.select(entries.c.number).where(entries.c.checksum == checksum)) is not None


def newest_row(connection: sa.Connection) -> int:
    return max(connection.scalar(sa.select(sa.func.max(table.c.entry))) or 0 for table in CHAINED)


def _checksums(connection: sa.Connection, first: int, last: int) -> Iterator[str]:
    """The stored checksums of these entries, none of which may be missing."""
    for start in range(first, last + 1, _AT_ONCE):
        stop = min(start + _AT_ONCE, last + 1)
        some = sa.select(entries).where(entries.c.number >= start, entries.c.number < stop).order_by(entries.c.number)
        rows = connection.execute(some).all()
        if [row.number for row in rows] != list(range(start, stop)):
            raise damaged()
        yield from (row.checksum for row in rows)


def _rows_by_entry(connection: sa.Connection, after: int, last: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the texts of all rows of each entry after the given one, in order, in constant memory."""
    for start in range(after + 1, last + 1, _AT_ONCE):
        stop = min(start + _AT_ONCE, last + 1)
        texts: dict[int, list[str]] = {number: [] for number in range(start, stop)}
        for table in CHAINED:
            rows = sa.select(table).where(table.c.entry >= start, table.c.entry < stop)
            index = list(table.columns).index(table.c.entry)
            for row in connection.execute(rows):
                texts[row[index]].append(_text(table, row))
        yield from texts.items()


def _text(table: sa.Table, values: Iterable[Any]) -> str:
    return json.dumps([table.name, *values])


def _checksum(before: str, rows: list[str]) -> str:
    return hashlib.sha256("\n".join([before, *sorted(rows)]).encode()).hexdigest()
