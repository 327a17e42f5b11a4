"""A ledger in PostgreSQL: one writer at a time, and no waiting for ever."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from dpsketch.errors import LedgerError

_LOCK_NUMBER = 0x6470736B65746368  # "dpsketch"
_CONNECT_SECONDS = 15


def postgresql_engine(url: sa.URL, patience: float, example: str) -> sa.Engine:
    """An engine in which every writing statement sees everything committed before it.

    With a snapshot taken at its beginning, a transaction that waited for the lock would miss the spend it waited for. A
    connection lives for one transaction, because hours may pass between two.
    """
    arguments: dict[str, Any] = {}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = max(2, min(_CONNECT_SECONDS, int(patience)))  # the minimum of libpq
    try:
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="READ COMMITTED",
            poolclass=NullPool,
            connect_args=arguments,
        )
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs the driver psycopg", "pip install 'dpsketch[postgres]'"
        ) from None
    except (sa.exc.SQLAlchemyError, ValueError, TypeError):  # an invalid option in the URL
        raise LedgerError("the ledger's URL cannot be read", example) from None
    watch = _Watch(2 * patience)
    sa.event.listen(engine, "connect", watch.begin, insert=True)  # before SQLAlchemy queries the server
    sa.event.listen(engine, "before_cursor_execute", watch.go_on)
    sa.event.listen(engine, "close", watch.end)
    sa.event.listen(engine, "begin", lambda connection: _begin(connection, patience))
    return engine


class _Watch:
    """Closes a connection whose server has not answered for some time.

    Time limits kept by the server do not help if the server or the network has stopped.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timers: dict[int, tuple[threading.Timer, int]] = {}

    def begin(self, connection: Any, _record: Any) -> None:
        self._start(id(connection), os.dup(connection.fileno()))

    def go_on(self, connection: sa.Connection, *_: Any) -> None:
        """Restart the timer for another statement."""
        driver = id(connection.connection.driver_connection)
        if driver in self._timers:
            timer, line = self._timers[driver]
            timer.cancel()
            self._start(driver, line)

    def end(self, connection: Any, _record: Any) -> None:
        timer, line = self._timers.pop(id(connection))
        timer.cancel()
        timer.join()
        os.close(line)

    def _start(self, driver: int, line: int) -> None:
        timer = threading.Timer(self._seconds, _cut, [line])
        timer.daemon = True
        self._timers[driver] = timer, line
        timer.start()


def _cut(line: int) -> None:
    with socket.socket(fileno=os.dup(line)) as connected, suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _begin(connection: sa.Connection, patience: float) -> None:
    """Take one lock for all writers, which also covers creating the tables; closing the connection frees it.

    A server configured to lose the last commits in a crash is told not to. A stricter setting is kept.
    """
    milliseconds = int(1000 * patience)
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {milliseconds + 1000}")
    if not connection.get_execution_options().get("writes"):
        return
    if connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off":
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})")
