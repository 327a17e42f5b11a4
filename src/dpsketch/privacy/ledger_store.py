"""Where a ledger is kept: SQLite or PostgreSQL, one writer at a time, tables of the right version."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from dpsketch.errors import LedgerError
from dpsketch.privacy import ledger_tables

_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_NUMBER = 0x6470736B65746368  # "dpsketch"
_EXAMPLE = "write postgresql://user@host/database"
_DAMAGE = re.compile(r"malformed|no such (table|column)|(relation|column) .* does not exist")
_HINTS = (  # what a database says, and what to do about it
    (
        r"permission denied for|must be owner",
        "the role must be allowed to select and insert in the ledger's tables and to use their sequences, and to "
        "create tables for a new ledger or an upgrade",
    ),
    (
        r"authentication failed|no password supplied|role .* does not exist|no pg_hba.conf entry",
        "check the user's name and password; the password is best kept in ~/.pgpass or PGPASSWORD",
    ),
    (r"database .* does not exist", "create the database first, or check its name"),
    (r"lock timeout|database is locked", "another process holds the ledger; try again when it is done"),
)


class Store:
    """Transactions that see and change the ledger alone.

    Guarantee: what a transaction has read is still true when it writes, and what it wrote survives a crash.
    """

    def __init__(self, path_or_url: str | Path, create: bool) -> None:
        text = str(path_or_url)
        self._turn = threading.Lock()  # an in-memory ledger has one connection for all threads
        url = _address(text)
        self._secrets = _secrets(text, url)
        if url.get_backend_name() == "sqlite":
            memory = url.database in (None, "", ":memory:")
            self._place, self._hint = str(url.database), "check the path and its permissions"
            if not create and memory:
                raise LedgerError("a ledger in memory has nothing to read", "pass the ledger's file or URL")
            if not create and not Path(self._place).exists():
                raise _no_ledger(self._place)
            if create and not memory:
                _make_file(self._place)
            self._engine = _sqlite(url, memory)
        else:
            self._place, self._hint = "this database", "check the address and that the server runs"
            self._engine = _postgresql(url)
        with self.transaction() as connection:
            self.upgraded = _open(connection, create, self._place)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._turn, self._engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise self._explained(error) from None

    def _explained(self, error: sa.exc.SQLAlchemyError) -> LedgerError:
        said = str(getattr(error, "orig", None) or type(error).__name__)
        if "file is not a database" in said:
            return LedgerError(f"{self._place} is not a ledger", self._hint)
        if _DAMAGE.search(said):
            return damaged()
        hint = next((hint for sign, hint in _HINTS if re.search(sign, said)), self._hint)
        for secret in self._secrets:
            said = said.replace(secret, "***")
        said = re.sub(r"://.*@", "://***@", said, flags=re.DOTALL)
        return LedgerError(f"the ledger cannot be used: {' '.join(said.split())}", hint)


def damaged() -> LedgerError:
    """For whatever a ledger holds that no version of ours wrote."""
    return LedgerError(
        "the ledger is damaged", "restore a backup, and lower the caps by what was released since it was made"
    )


def _address(text: str) -> sa.URL:
    """A file or a URL. No message repeats what may hold a password."""
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
    """What no message may show: the password as it was meant and as it was written."""
    found = [str(url.password or "")]
    if url.password:
        found.append(text.partition("://")[2].rpartition("@")[0].partition(":")[2])
    for name, value in url.query.items():
        if "pass" in name:
            found += [value] if isinstance(value, str) else list(value)
    return sorted({secret for secret in found if secret}, key=len, reverse=True)


def _make_file(place: str) -> None:
    """A new file is its owner's alone: it will hold values of partitions and ids of inputs. Others stay as they are."""
    with suppress(OSError):  # SQLite will say what is wrong
        if not place.startswith("file:"):
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _sqlite(url: sa.URL, memory: bool) -> sa.Engine:
    options: dict[str, Any] = {"poolclass": StaticPool} if memory else {}
    engine = sa.create_engine(url, connect_args={"timeout": 60, "check_same_thread": False}, **options)
    sa.event.listen(engine, "connect", _plain_connection)
    sa.event.listen(engine, "begin", _lock_sqlite)
    return engine


def _plain_connection(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions by itself
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _lock_sqlite(connection: sa.Connection) -> None:
    """Take the write lock before reading: what a reservation reads is still true when it writes."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _postgresql(url: sa.URL) -> sa.Engine:
    try:
        # Every statement sees what was committed before it: with a snapshot of its beginning, a transaction that
        # waited for the lock would miss the spend it waited for. A connection lives for one transaction, because
        # hours may lie between two.
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"), isolation_level="READ COMMITTED", poolclass=NullPool
        )
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs the driver psycopg", "pip install 'dpsketch[postgres]'"
        ) from None
    except (sa.exc.SQLAlchemyError, ValueError, TypeError):  # an option in the URL
        raise LedgerError("the ledger's URL cannot be read", _EXAMPLE) from None
    sa.event.listen(engine, "begin", _lock_postgresql)
    return engine


def _lock_postgresql(connection: sa.Connection) -> None:
    """The same for PostgreSQL, by a lock that also covers making the tables; the end of the connection frees it.

    A server set to lose the last commits in a crash is told not to; nothing stricter is lowered.
    """
    connection.exec_driver_sql("SET LOCAL lock_timeout = '60s'")
    if connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off":
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})")


def _open(connection: sa.Connection, create: bool, place: str) -> bool:
    """Make the tables, or bring older ones up to date, which it returns. The caller holds the lock: nobody else is
    doing the same.
    """
    there = sa.inspect(connection)
    ours = there.has_table("spends")
    versions: list[str] = []
    if there.has_table("alembic_version"):
        versions = list(connection.scalars(sa.select(ledger_tables.version.c.version_num)))
        if not ours:
            raise LedgerError("the database belongs to another program", "give the ledger a database of its own")
    if len(versions) > 1:
        raise damaged()
    if not ours:
        if not create:
            raise _no_ledger(f"in {place}")
        ledger_tables.tables.create_all(connection)
        ledger_tables.version.create(connection)
        connection.execute(ledger_tables.version.insert().values(version_num=ledger_tables.VERSION))
    elif versions != [ledger_tables.VERSION]:
        if versions in ([], [ledger_tables.FIRST_VERSION]) and there.has_table("plans"):  # the first had none
            raise damaged()
        try:
            upgrade(connection, versions[0] if versions else None)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # its rows are not what that version wrote
            raise damaged() from None
        return True
    return False


def upgrade(connection: sa.Connection, version: str | None, target: str = ledger_tables.VERSION) -> None:
    """Run the migrations from `version`; None is a ledger from before versions, or an empty database."""
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    known = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    if version is not None and version not in known:
        raise LedgerError("the ledger was written by a newer dpsketch", "pip install --upgrade dpsketch")
    if version is None and sa.inspect(connection).has_table("spends"):
        command.stamp(config, ledger_tables.FIRST_VERSION)
    command.upgrade(config, target)


def _no_ledger(place: str) -> LedgerError:
    return LedgerError(f"there is no ledger {place}", "the first release, or dpsketch ledger grant, creates it")
