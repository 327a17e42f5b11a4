"""Where a ledger is: addresses, drivers, servers and files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

import dpsketch as dps
from dpsketch.ledger.ledger import Ledger
from ledger_spends import refused
from postgres_server import Server


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@127.0.0.1:1/db",
        "postgresql://me:hu%40sh@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=hush",
        "postgresql://me:hush@127.0.0.1:hush/db",
        "postgresql://me:hu@hush/hush@host/db",
        "postgresql://me:x@hush@127.0.0.1:1/db",
        "postgresql://me:hush@127.0.0.1:1/db?hush=1",
        "postgresql:/u:hunter2@h/db",
        "postgresql//u:hunter2@h/db",
        "postgres://u:hunter2@h/db",
        "host=localhost password=hunter2 dbname=x",
        "host=localhost PASSWORD = hunter2 dbname=x",
        "postgresql://u:hun@ter2?x@localhost:1/db",
        "postgresql://u:hunter2?x@localhost:1/db",
        "postgresql://u:hunter2@localhost:1/db?connect_timeout=hunter2",
        "postgresql://u:hunter2@localhost:1/db?plugin=hunter2",
        "mysql://u:hunter2@localhost:1/db",
    ],
)
def test_a_password_is_in_no_error(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        words = refused(lambda c=create: Ledger(url, create=c))
        assert words.startswith(("LedgerError: the ledger", "LedgerError: that is not", "LedgerError: a ledger is"))
        for secret in ("hush", "hu@sh", "hu%40sh", "hunter2", "hun@", "ter2"):
            assert secret not in words
        assert "\n" not in words.replace("\nHint: ", "")
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_none_gets_an_example() -> None:
    for text in ("postgresql:/h/db", "postgres-ledger.db", "password=x"):
        assert refused(lambda t=text: Ledger(t)) == (
            "LedgerError: that is not a ledger's address\nHint: write postgresql://user@host/database, "
            "with the password in ~/.pgpass or PGPASSWORD, or a file as ./name"
        )


def test_whatever_a_driver_says_is_masked(postgres: Server) -> None:
    """A URL that it repeats, too."""
    ledger = Ledger(postgres.new_database())
    error = sa.exc.OperationalError("", None, Exception("no  way\n in postgresql://a:b@c@d/e, sorry"))
    assert str(ledger._store._explained(error)).startswith(
        "the ledger cannot be used: no way in postgresql://***@d/e, sorry\n"
    )


def test_each_refusal_of_a_server_has_its_hint(postgres: Server, tmp_path: Path) -> None:
    place = postgres.new_database()
    schema = place.rsplit("%3D", 1)[1]
    Ledger(place)
    with Ledger(place)._store.writing() as connection:
        connection.exec_driver_sql(f"create role stranger_{schema} login")
    stranger = place.replace("owner@", f"stranger_{schema}@")
    cases = {
        place.replace("owner@", "nobody_at_all@"): ("role", "check the user's name and password"),
        place.replace("/postgres?", "/none?"): ("database", "create the database first, or check its name"),
        f"postgresql://me@/db?host={tmp_path}": ("", "check the address and that the server runs"),
        "postgresql://me@127.0.0.1:1/db": ("", "check the address and that the server runs"),
    }
    for url, (word, hint) in cases.items():
        words = refused(lambda u=url: Ledger(u))
        assert words.startswith("LedgerError: the ledger cannot be used: ")
        assert word in words
        assert words.count("\n") == 1
        assert f"\nHint: {hint}" in words
    with Ledger(place)._store.writing() as connection:
        connection.exec_driver_sql(f"grant usage on schema {schema} to stranger_{schema}")
    words = refused(lambda: Ledger(stranger))
    assert "permission denied for table" in words
    assert "Hint: the role must be allowed to select and insert in the ledger's tables" in words


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ('FATAL:  password authentication failed for user "me"', "check the user's name and password"),
        ("fe_sendauth: no password supplied", "check the user's name and password"),
        ("canceling statement due to lock timeout", "try again when they are done"),
        ("database is locked", "try again when they are done"),
        ("connection refused", "check the path and its permissions"),
    ],
)
def test_what_databases_say_has_a_hint(said: str, hint: str) -> None:
    error = sa.exc.OperationalError("", None, Exception(said))
    assert f"\nHint: {hint}" in str(Ledger("sqlite://")._store._explained(error))


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert refused(lambda: Ledger("postgresql://host/db")) == (
        "LedgerError: a ledger in PostgreSQL needs the driver psycopg\nHint: pip install 'dpsketch[postgres]'"
    )


def test_a_ledger_to_read_must_exist(place: str, tmp_path: Path) -> None:
    assert "there is no ledger" in refused(lambda: Ledger(place, create=False))
    assert "there is no ledger" in refused(lambda: Ledger(f"sqlite:///{tmp_path}/none.db", create=False))
    Ledger(place)
    assert Ledger(place, create=False).accounts() == ()
    for memory in ("sqlite://", ":memory:"):
        assert "a ledger in memory has nothing to read" in refused(lambda m=memory: Ledger(m, create=False))


def test_reading_makes_no_ledger_of_another_file(tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    for content, fact in ((b"", f"{file} exists but is not a ledger"), (b"x" * 5000, f"{file} is not a ledger")):
        file.write_bytes(content)
        assert fact in refused(lambda: Ledger(file, create=False))
        assert [(one, one.read_bytes()) for one in tmp_path.iterdir()] == [(file, content)]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    Ledger(tmp_path / "new.db").grant("a", dps.Budget(1.0))
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    (tmp_path / "new.db").chmod(0o640)
    Ledger(tmp_path / "new.db").grant("a", dps.Budget(1.0))
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o640
