"""A ledger in an SQLite file: created atomically, readable by its owner alone, written by one process at a time."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from dpsketch.errors import LedgerError

try:
    import fcntl
except ImportError:  # on Windows, SQLite's own waiting has to suffice
    fcntl = None  # type: ignore[assignment]


def sqlite_engine(url: sa.URL, patience: float) -> sa.Engine:
    """An engine with one connection, which the caller uses from one thread at a time."""
    arguments = {"timeout": patience, "check_same_thread": False}
    engine = sa.create_engine(url, connect_args=arguments, poolclass=StaticPool)
    sa.event.listen(engine, "connect", _plain_connection)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _plain_connection(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions by itself
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: sa.Connection) -> None:
    """Take the write lock before reading, if the transaction writes: what a reservation reads is still true when it
    writes.

    A transaction that need not survive a crash of the machine does not wait for the disk. This is done only with a
    write-ahead log, which keeps the order of transactions, so that a crash loses the last ones and none in between.
    """
    options = connection.get_execution_options()
    synchronous = "FULL" if options.get("durable", True) else "NORMAL"
    connection.exec_driver_sql(f"PRAGMA synchronous = {synchronous}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")


def has_write_ahead_log(engine: sa.Engine, turn_on: bool = False) -> bool:
    """Whether the file has a write-ahead log, with which readers and a writer work at once and a commit syncs once.

    A file system without shared memory has no such log. There, every transaction waits for all others.
    """
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        (mode,) = driver.execute("PRAGMA journal_mode = WAL" if turn_on else "PRAGMA journal_mode").fetchone()
    return bool(mode == "wal")


def check_file(path: str) -> bool:
    """Whether there is a file to open. Refuses a file that is no ledger, and to replace a ledger that is missing."""
    if path.startswith("file:"):
        raise LedgerError("a ledger's file is named by its path, not by a URI", "pass --ledger ledger.db")
    if os.path.islink(path) and not os.path.exists(path):
        raise LedgerError(
            f"{path} is a link to a file that does not exist",
            "restore or mount what it points to, or remove the link for a new ledger",
        )
    if not os.path.exists(path):
        left = next((rest for rest in (f"{path}-wal", f"{path}-journal") if os.path.lexists(rest)), None)
        if left is not None and not os.path.exists(path):  # and no other process has just created one
            raise LedgerError(
                f"there is no ledger {path}, but {left} is left of one",
                "it may hold spends: put the ledger back beside it, or remove it for a new ledger",
            )
        return left is not None
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise not_a_ledger(path)
    return True


def not_a_ledger(path: str) -> LedgerError:
    return LedgerError(
        f"{path} exists but is not a ledger",
        "restore it from a backup if it was one; remove it if the ledger is meant to be new",
    )


def make_file(path: str, content: bytes) -> None:
    """Write a new ledger, for its owner alone: it will hold values of partitions and ids of inputs.

    The file gets its name only once it is complete, and never replaces another file. If two processes create one at the
    same time, one of them wins, and both continue with the same ledger.
    """
    folder, name = os.path.split(os.path.abspath(path))
    try:
        number, draft = tempfile.mkstemp(prefix=f".{name}.", suffix=".new", dir=folder)  # mode 0600
    except OSError as error:
        raise _not_made(error) from None
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _name(draft, path)
    except OSError as error:
        raise _not_made(error) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    with _opened(folder) as opened, suppress(OSError):
        if opened is not None:
            os.fsync(opened)


def _name(draft: str, path: str) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not os.path.lexists(path):
            os.rename(draft, path)


def _not_made(error: OSError) -> LedgerError:
    return LedgerError(f"the ledger cannot be made: {error.strerror}", "check the path and its permissions")


@contextmanager
def in_line(path: str, patience: float) -> Iterator[None]:
    """Wait in line behind earlier writers.

    SQLite serialises writers but leaves them to guess when to retry, so that with many of them some would never get a
    turn. The lock is on the folder, because closing another descriptor of the file itself would end SQLite's locks.
    Where a folder cannot be locked, nobody waits here.
    """
    with _opened(os.path.dirname(os.path.realpath(path))) as folder:
        if fcntl is not None and folder is not None:
            with suppress(OSError):
                _lock(folder, patience)
        yield


def _lock(folder: int, patience: float) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pass
    # Only a blocking call has a position in the line, and only another thread can be left waiting in it.
    mine = os.dup(folder)
    given_up = threading.Event()

    def wait() -> None:
        with suppress(OSError):
            fcntl.flock(mine, fcntl.LOCK_EX)
        if given_up.is_set():
            with suppress(OSError):
                fcntl.flock(mine, fcntl.LOCK_UN)
        os.close(mine)

    waiting = threading.Thread(target=wait, daemon=True)
    start = time.monotonic()
    waiting.start()
    try:
        waiting.join(patience)
    finally:
        if waiting.is_alive():
            given_up.set()
    if waiting.is_alive():
        raise busy(time.monotonic() - start)


def busy(seconds: float) -> LedgerError:
    return LedgerError(
        f"other processes hold the ledger; waited {seconds:.0f} s for it", "try again when they are done"
    )


@contextmanager
def _opened(folder: str) -> Iterator[int | None]:
    """A descriptor of a folder; None if it cannot be opened."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        number = None
    try:
        yield number
    finally:
        if number is not None:
            os.close(number)
