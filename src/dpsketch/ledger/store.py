"""Storage of a ledger: SQLite or PostgreSQL, one writer at a time, tables of the right version."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpsketch.errors import LedgerError
from dpsketch.ledger import sql_tables
from dpsketch.ledger.chain import Head, begin_chain, check_chain, damaged
from dpsketch.ledger.postgres import postgresql_engine
from dpsketch.ledger.sqlite_file import (
    busy,
    check_file,
    has_write_ahead_log,
    in_line,
    make_file,
    not_a_ledger,
    sqlite_engine,
)

_PATIENCE = 120.0  # seconds to wait for other processes, and for a server's answer
_MOST_SCANNED = 10_000  # entries checked when a file is opened, in about a tenth of a second
_EXAMPLE = "write postgresql://user@host/database"
_DAMAGE = re.compile(r"malformed|Could not decode|no such (table|column)|(relation|column) .* does not exist")
_BUSY = re.compile(r"lock timeout|database is locked")
_SILENT = re.compile(r"statement timeout|connection timeout|timeout expired")
_HINTS = (  # parts of a database's message, and what to do about them
    (
        r"permission denied for|must be owner",
        "the role must be allowed to select and insert in the ledger's tables, and to create tables for a new "
        "ledger or an upgrade",
    ),
    (
        r"authentication failed|no password supplied|role .* does not exist|no pg_hba.conf entry",
        "check the user's name and password; the password is best kept in ~/.pgpass or PGPASSWORD",
    ),
    (r"database .* does not exist", "create the database first, or check its name"),
)


class Store:
    """Transactions that see a consistent snapshot of the ledger, or read and change it exclusively.

    Guarantee: what a writing transaction has read is still true when it writes, and what it wrote survives a crash.
    """

    def __init__(self, path_or_url: str | Path, create: bool, patience: float = _PATIENCE) -> None:
        text = str(path_or_url)
        self._turn = threading.Lock()  # an SQLite ledger has one connection for all threads
        self._patience = patience
        url = _address(text)
        self._secrets = _secrets(text, url)
        self._file: str | None = None
        self._log = False  # whether there is a write-ahead log
        if url.get_backend_name() == "sqlite":
            self.place, self._hint = url.database or "in memory", "check the path and its permissions"
            self._open_sqlite(url, create)
        else:
            self.place, self._hint = "this database", "check the address and that the server runs"
            self._engine = postgresql_engine(url, patience, _EXAMPLE)
            self.upgraded = self._make_or_upgrade(create)

    def _open_sqlite(self, url: sa.URL, create: bool) -> None:
        memory = url.database in (None, "", ":memory:")
        if memory and not create:
            raise LedgerError("a ledger in memory has nothing to read", "pass the ledger's file or URL")
        if not memory:
            self._file = self.place
            if not check_file(self.place):
                if not create:
                    raise _no_ledger(self.place)
                with in_line(self.place, self._patience):
                    make_file(self.place, _empty_ledger())
        self._engine = sqlite_engine(url, self._patience)
        weakref.finalize(self, self._engine.dispose)  # the last process to close a file merges its log into it
        self.upgraded = self._make_or_upgrade(memory)
        if not memory:
            with self._explaining():
                self._log = has_write_ahead_log(self._engine) or self._turned_on()
            with self.reading() as connection:
                self._check(connection, _MOST_SCANNED)

    def _turned_on(self) -> bool:
        """Turn on the write-ahead log for a ledger of an earlier version, or try again later if it is in use."""
        with self._line(), suppress(sqlite3.OperationalError):
            return has_write_ahead_log(self._engine, turn_on=True)
        return False

    def verify(self) -> Head:
        """Compare all rows and indexes with one another and with their checksums."""
        with self.reading() as connection:
            return self._check(connection, None)

    def _check(self, connection: sa.Connection, most: int | None) -> Head:
        """Check the newest entries, and a file's indexes if these are all the entries."""
        newest = check_chain(connection, most)
        if self._file is None or (most is not None and newest.number > most):
            return newest
        if connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok":
            raise damaged()
        return newest

    def _make_or_upgrade(self, create: bool) -> bool:
        """Create or upgrade the ledger; return whether it was upgraded. Takes no lock if the ledger is up to date."""
        with self.reading() as connection:
            if _is_current(connection):
                return False
        with self.writing() as connection:
            return _open(connection, create, self.place, self._file is not None)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A read transaction. It never waits for writers in PostgreSQL or with a write-ahead log."""
        with self._transaction(isolation_level="REPEATABLE READ") as connection:
            yield connection

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[sa.Connection]:
        """A write transaction. If `durable`, it survives a crash of the machine once it is over."""
        with self._line(), self._transaction(writes=True, durable=durable or not self._log) as connection:
            yield connection

    def _line(self) -> AbstractContextManager[None]:
        return nullcontext() if self._file is None else in_line(self._file, self._patience)

    @contextmanager
    def _transaction(self, **options: Any) -> Iterator[sa.Connection]:
        if self._engine.dialect.name == "sqlite":
            options.pop("isolation_level", None)  # every transaction has the strictest level
        with self._turn, self._explaining(), self._engine.connect() as connection:
            connection.execution_options(**options)
            with connection.begin():
                yield connection

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        except UnicodeDecodeError:
            raise damaged() from None
        except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
            raise self._explained(error, time.monotonic() - start) from None

    def _explained(self, error: sa.exc.SQLAlchemyError | sqlite3.Error, seconds: float = 0.0) -> LedgerError:
        said = str(error if isinstance(error, sqlite3.Error) else getattr(error, "orig", None) or type(error).__name__)
        if "file is not a database" in said:
            return LedgerError(f"{self.place} is not a ledger", self._hint)
        if _DAMAGE.search(said):
            return damaged()
        if _BUSY.search(said):
            return busy(seconds)
        if _SILENT.search(said) or (self._file is None and seconds >= 2 * self._patience):
            return _lost(f"the ledger's server has not answered for {seconds:.0f} s", self._hint)
        hint = next((hint for sign, hint in _HINTS if re.search(sign, said)), self._hint)
        for secret in self._secrets:
            said = said.replace(secret, "***")
        said = re.sub(r"://.*@", "://***@", said, flags=re.DOTALL)
        return _lost(f"the ledger cannot be used: {' '.join(said.split())}", hint)


def _lost(fact: str, hint: str) -> LedgerError:
    error = LedgerError(fact, hint)
    error.lost = True
    return error


def _address(text: str) -> sa.URL:
    """Parse a file or a URL. No message repeats what may contain a password."""
    scheme, separator, rest = text.partition("://")
    if re.search(r"password\s*=", text, re.IGNORECASE) or (
        text.lower().startswith("postgres") and (not separator or scheme not in ("postgresql", "postgresql+psycopg"))
    ):
        raise LedgerError(
            "that is not a ledger's address",
            f"{_EXAMPLE}, with the password in ~/.pgpass or PGPASSWORD, or a file as ./name",
        )
    if not separator:
        return sa.URL.create("sqlite", database=text)
    if scheme not in ("sqlite", "postgresql", "postgresql+psycopg"):
        raise LedgerError(
            "a ledger is a file, an sqlite:// or a postgresql:// URL",
            "pass --ledger ledger.db, or postgresql://user@host/database",
        )
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is None or (scheme != "sqlite" and re.search(r"[@/?#\s]", rest.rpartition("@")[0])):
        raise LedgerError(
            "the ledger's URL cannot be read",
            f"{_EXAMPLE}; signs like @, / and ? in a password must be percent-encoded",
        )
    return url


def _secrets(text: str, url: sa.URL) -> list[str]:
    """The strings that no message may show: the password as decoded and as written."""
    secrets = [str(url.password or "")]
    if url.password:
        secrets.append(text.partition("://")[2].rpartition("@")[0].partition(":")[2])
    for name, value in url.query.items():
        if "pass" in name:
            secrets += [value] if isinstance(value, str) else list(value)
    return sorted({secret for secret in secrets if secret}, key=len, reverse=True)


def _is_current(connection: sa.Connection) -> bool:
    there = sa.inspect(connection)
    return (
        there.has_table("alembic_version")
        and there.has_table("spends")
        and list(connection.scalars(sa.select(sql_tables.version.c.version_num))) == [sql_tables.VERSION]
    )


def _open(connection: sa.Connection, create: bool, place: str, file: bool) -> bool:
    """Create the tables, or upgrade older ones; return whether they were upgraded. The caller holds the lock."""
    there = sa.inspect(connection)
    ours = there.has_table("spends")
    versions: list[str] = []
    if there.has_table("alembic_version"):
        versions = list(connection.scalars(sa.select(sql_tables.version.c.version_num)))
        if not ours:
            raise LedgerError("the database belongs to another program", "give the ledger a database of its own")
    if len(versions) > 1:
        raise damaged()
    if not ours:
        if file:
            raise not_a_ledger(place)
        if not create:
            raise _no_ledger(f"in {place}")
        make_tables(connection)
    elif versions != [sql_tables.VERSION]:
        later = {"plans": sql_tables.FIRST_VERSION, "entries": "0002"}  # tables that no version up to this one had
        if any((versions or [""])[0] <= last and there.has_table(name) for name, last in later.items()):
            raise damaged()
        try:
            from dpsketch.ledger.upgrade import upgrade

            upgrade(connection, versions[0] if versions else None)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # its rows are not those of that version
            raise damaged() from None
        return True
    return False


def make_tables(connection: sa.Connection) -> None:
    sql_tables.tables.create_all(connection)
    sql_tables.version.create(connection)
    connection.execute(sql_tables.version.insert().values(version_num=sql_tables.VERSION))
    begin_chain(connection)


def _empty_ledger() -> bytes:
    """The content of an empty SQLite ledger."""
    engine = sqlite_engine(sa.URL.create("sqlite"), 0.0)
    with engine.connect() as connection:
        with connection.begin():
            make_tables(connection)
        driver: Any = connection.connection.driver_connection
        content = bytearray(driver.serialize())
    engine.dispose()
    # the file-format versions of a file with a write-ahead log, so that nobody has to turn it on
    content[18:20] = b"\2\2"
    return bytes(content)


def _no_ledger(place: str) -> LedgerError:
    error = LedgerError(
        f"there is no ledger {place}", "create it: dpsketch ledger create LEDGER, or release with --create-ledger"
    )
    error.missing = True
    return error
