"""A ledger in a file: how it is made, who may read it, and that damage is never silent."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.errors import LedgerError
from dpsketch.ledger import sqlite_file as ledger_file
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.sql_tables import CHAINED
from dpsketch.ledger.store import Store
from dpsketch.privacy.accounting import ADD_REMOVE, Partition
from dpsketch.privacy.events import Release

ROWS = ("row", 1, ADD_REMOVE)
NOT_A_LEDGER = "exists but is not a ledger\nHint: restore it from a backup if it was one; remove it if"
FLIPS = 120


def spend(ledger: Ledger, epsilon: float = 0.01, number: int = 0) -> None:
    part = Partition("region", f"{number % 3}", "2026-11") if number % 2 else None
    rate = Fraction(1, 10) if number % 5 == 0 else None
    release = Release(dps.Budget(epsilon), (), rate)
    ledger.commit(ledger.reserve("a", ROWS, release, frozenset([f"{number // 4}"]), part))


def filled(place: Path, count: int) -> None:
    ledger = Ledger(place)
    ledger.grant("a", dps.Budget(9.0))
    ledger.grant("a", dps.Budget(1.0))
    ledger.declare("b", ROWS, "p", [dps.Budget(0.1)] * 3, 1e-6)
    ledger.note_report("a", "schema")
    for number in range(count):
        spend(ledger, number=number)


def test_a_file_that_was_emptied_is_no_new_ledger(tmp_path: Path) -> None:
    place = tmp_path / "l.db"
    Ledger(place).grant("a", dps.Budget(1.0))
    place.write_bytes(b"")
    for create in (True, False):
        with pytest.raises(LedgerError, match=NOT_A_LEDGER):
            Ledger(place, create=create)
    assert place.read_bytes() == b""


def test_another_programs_file_is_no_new_ledger(tmp_path: Path) -> None:
    for statement in ("create table t (x)", "pragma user_version = 1"):
        place = tmp_path / f"{len(statement)}.db"
        with closing(sqlite3.connect(place)) as connection:
            connection.execute(statement)
        before = place.read_bytes()
        for create in (True, False):
            with pytest.raises(LedgerError, match=NOT_A_LEDGER):
                Ledger(place, create=create)
        assert place.read_bytes() == before


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(LedgerError, match="is a link to a file that does not exist\nHint: restore or mount"):
        Ledger(tmp_path / "l.db")
    assert not (tmp_path / "elsewhere.db").exists()
    Ledger(tmp_path / "elsewhere.db")
    Ledger(tmp_path / "l.db").grant("a", dps.Budget(1.0))
    assert len(Ledger(tmp_path / "elsewhere.db").accounts()) == 1


def test_a_log_without_its_ledger_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "l.db"
    ledger = Ledger(place)
    spend(ledger)
    place.rename(tmp_path / "moved.db")
    with pytest.raises(LedgerError, match=r"l.db-wal is left of one\nHint: it may hold spends"):
        Ledger(place)


def test_a_uri_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///file:l.db?uri=true", "file:l.db"):
        with pytest.raises(LedgerError, match="named by its path, not by a URI"):
            Ledger(url)
    assert list(tmp_path.iterdir()) == []


def test_a_new_ledger_has_its_name_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "_name", crash)
        with pytest.raises(KeyboardInterrupt):
            Ledger(tmp_path / "l.db")
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patch:  # a file system without links
        patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links")))
        Ledger(tmp_path / "l.db").grant("a", dps.Budget(1.0))
    assert len(Ledger(tmp_path / "l.db").accounts()) == 1


def test_who_makes_a_ledger_at_the_same_time_replaces_none(tmp_path: Path) -> None:
    place = tmp_path / "l.db"
    Ledger(place).grant("a", dps.Budget(1.0))
    ledger_file.make_file(str(place), b"another")
    assert len(Ledger(place).accounts()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["l.db"]


def test_the_log_is_its_owners_alone_and_gone_when_the_ledger_is_closed(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "l.db")
        spend(ledger)
        names = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert names == {"l.db": 0o600, "l.db-wal": 0o600, "l.db-shm": 0o600}
        del ledger
        assert [path.name for path in tmp_path.iterdir()] == ["l.db"]
    finally:
        os.umask(mask)


def test_a_copy_of_the_closed_file_is_the_ledger(tmp_path: Path) -> None:
    filled(tmp_path / "l.db", 3)
    (tmp_path / "copy.db").write_bytes((tmp_path / "l.db").read_bytes())
    assert len(Ledger(tmp_path / "copy.db").accounts()[0].spends) == 3


def test_flipped_bits_never_lower_what_was_spent(tmp_path: Path) -> None:
    """Whatever a bit does, the ledger is refused or says the same as before."""
    place = tmp_path / "l.db"
    filled(place, 12)
    sound, before = place.read_bytes(), Ledger(place).accounts()
    assert place.read_bytes() == sound, "reading changes nothing"
    chance, refused = random.Random(SEED), 0
    used = [place for place, byte in enumerate(sound) if byte]
    for _ in range(FLIPS):
        damaged = bytearray(sound)
        damaged[chance.choice(used)] ^= 1 << chance.randrange(8)
        place.write_bytes(damaged)
        try:
            found = Ledger(place).accounts()
        except LedgerError:
            refused += 1
        else:
            assert found == before
        for rest in ("-wal", "-shm", "-journal"):
            Path(f"{place}{rest}").unlink(missing_ok=True)
    assert refused > FLIPS / 2


@pytest.mark.parametrize("table", [table.name for table in CHAINED])
def test_a_row_that_is_changed_or_gone_is_noticed(table: str, tmp_path: Path) -> None:
    place = tmp_path / "l.db"
    filled(place, 4)
    sound = place.read_bytes()
    for statement in (
        f"delete from {table} where entry = (select max(entry) from {table})",
        f"delete from {table} where entry = (select min(entry) from {table})",
        f"update {table} set entry = entry + 1 where entry = (select max(entry) from {table})",
        f"delete from {table}",
    ):
        place.write_bytes(sound)
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute(statement)
        with pytest.raises(LedgerError, match="the ledger is damaged"):
            Ledger(place)


def test_a_lost_tail_is_noticed_unless_all_of_it_is_lost(tmp_path: Path) -> None:
    place = tmp_path / "l.db"
    filled(place, 4)
    noted = Ledger(place).verify()
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("delete from entries where number = ?", (noted.number,))
    with pytest.raises(LedgerError, match="the ledger is damaged"):
        Ledger(place)
    with closing(sqlite3.connect(place)) as connection, connection:
        for table in CHAINED:
            connection.execute(f"delete from {table.name} where entry = ?", (noted.number,))
    with pytest.raises(LedgerError, match="it is an older copy, or another ledger\nHint: go on with the newest copy"):
        Ledger(place).verify(noted.checksum)


def test_a_long_ledger_is_scanned_at_its_end_and_verified_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "l.db"
    filled(place, 10)
    monkeypatch.setattr("dpsketch.ledger.store._MOST_SCANNED", 5)
    monkeypatch.setattr("dpsketch.ledger.chain._AT_ONCE", 3)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("update spends set created = 'x' where entry = (select min(entry) from spends)")
    ledger = Ledger(place)
    with pytest.raises(LedgerError, match="the ledger is damaged"):
        ledger.verify()
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("update spends set created = 'x' where entry = (select max(entry) from spends)")
    with pytest.raises(LedgerError, match="the ledger is damaged"):
        Ledger(place)


def test_every_ledger_has_its_own_checksums(tmp_path: Path) -> None:
    one, two = (Ledger(tmp_path / name).verify() for name in ("a.db", "b.db"))
    assert one.number == two.number == 0
    assert one.checksum != two.checksum


def test_who_waits_too_long_is_told_for_how_long(tmp_path: Path) -> None:
    place = tmp_path / "l.db"
    Ledger(place).grant("a", dps.Budget(1.0))
    store = Store(place, create=True, patience=0.05)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger_file.in_line(str(place), 1.0):
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    message = r"other processes hold the ledger; waited 0 s for it\nHint: try again when they are done"
    with pytest.raises(LedgerError, match=message), store.writing():
        pass
    with store.reading():
        pass
    done.set()
    holder.join()
    with store.writing():
        pass
    with closing(sqlite3.connect(place, isolation_level=None)) as other:  # one that does not wait in line
        other.execute("begin immediate")
        with pytest.raises(LedgerError, match=message), store.writing():
            pass


def test_whoever_gave_up_waiting_holds_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "l.db")
    with ledger_file.in_line(place, 1.0):
        for _ in range(3):
            with pytest.raises(LedgerError, match="waited 0 s"), ledger_file.in_line(place, 0.01):
                pass
    with ledger_file.in_line(place, 10.0):
        pass


def test_a_folder_that_cannot_be_locked_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file.fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(95, "not supported")))
    Ledger(tmp_path / "l.db").grant("a", dps.Budget(1.0))


def test_thirty_two_processes_all_get_their_turn(tmp_path: Path) -> None:
    place = tmp_path / "l.db"
    Ledger(place).grant("a", dps.Budget(100.0))
    clients = str(Path(__file__).parents[2] / "ledger_clients.py")
    done = subprocess.run(
        [sys.executable, clients, "race", str(place), "32", "1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    ledger = Ledger(place)
    ledger.verify()
    assert len(ledger.accounts()[0].spends) == len(set(done.stdout.split())) == 32
