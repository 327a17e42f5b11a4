"""A server that does not answer is not waited for, and one that is busy not for ever."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import dpsketch as dps
from dpsketch.errors import LedgerError
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.store import Store
from postgres_server import Server

_READY = b"R" + struct.pack("!ii", 8, 0) + b"Z" + struct.pack("!i", 5) + b"I"


@contextmanager
def silent_server(greets: bool) -> Iterator[str]:
    """Accepts connections, perhaps logs everyone in, and says nothing more."""
    connected: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                line, _ = listening.accept()
                connected.append(line)
                while greets:
                    (size,) = struct.unpack("!i", line.recv(4))
                    asked = line.recv(size - 4)
                    if struct.unpack("!i", asked[:4])[0] >> 16 == 3:  # the version of the protocol
                        line.sendall(_READY)
                        break
                    line.sendall(b"N")  # no encryption

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"postgresql://me:hush@127.0.0.1:{listening.getsockname()[1]}/db"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for line in connected:
            line.close()


@pytest.mark.parametrize("greets", [False, True], ids=["says nothing", "logs in and says nothing"])
def test_a_server_that_never_answers_is_given_up(greets: bool) -> None:
    with (
        silent_server(greets) as url,
        pytest.raises(LedgerError, match=r"the ledger's server has not answered for \d s\nHint: check the address and"),
    ):
        Store(url, create=True, patience=0.1)


def test_a_ledger_that_others_hold_is_waited_for_with_patience(postgres: Server) -> None:
    place = postgres.new_database()
    Ledger(place).grant("a", dps.Budget(1.0))
    store = Store(place, create=True, patience=0.1)
    message = r"other processes hold the ledger; waited 0 s for it\nHint: try again when they are done"
    with Ledger(place)._store.writing():
        with store.reading():
            pass
        with pytest.raises(LedgerError, match=message), store.writing():
            pass
    with store.writing():
        pass


def test_a_statement_has_a_limit(postgres: Server) -> None:
    store = Store(postgres.new_database(), create=True, patience=0.1)
    with store.reading() as connection:
        assert connection.exec_driver_sql("show statement_timeout").scalar() == "1100ms"
