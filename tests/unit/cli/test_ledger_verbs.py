from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import dpsketch as dps
from command_line import called
from dpsketch.privacy.events import Release


def test_verify_says_in_a_line_whether_a_ledger_is_sound(tmp_path: Path) -> None:
    called(tmp_path, "ledger", "create", "l.db")
    called(tmp_path, "ledger", "grant", "l.db", "t", "--epsilon", "9", "--force")
    done = called(tmp_path, "ledger", "verify", "l.db")
    assert done.returncode == 0
    assert done.stdout.startswith("The ledger is sound: 1 entry, checksum ")
    checksum = done.stdout.split()[-1]
    before = (tmp_path / "l.db").read_bytes()
    called(tmp_path, "ledger", "grant", "l.db", "t", "--epsilon", "1")
    assert called(tmp_path, "ledger", "verify", "l.db", "--head", checksum).returncode == 0
    newest = called(tmp_path, "ledger", "verify", "l.db").stdout.split()[-1]
    (tmp_path / "l.db").write_bytes(before)
    done = called(tmp_path, "ledger", "verify", "l.db", "--head", newest)
    assert done.returncode == 1
    assert "it is an older copy, or another ledger" in done.stderr
    with closing(sqlite3.connect(tmp_path / "l.db")) as connection, connection:
        connection.execute("update grants set epsilon = '99'")
    assert called(tmp_path, "ledger", "verify", "l.db").returncode == 1


def test_a_grant_that_is_more_often_a_slip_needs_force(tmp_path: Path) -> None:
    """A new name, and a cap below what is spent, which stops all further releases."""
    assert called(tmp_path, "ledger", "create", "l.db").stderr == (
        "l.db: a new ledger. Back it up: it is the only record of what was spent.\n"
    )
    grant = ("ledger", "grant", "l.db", "clinic", "--epsilon")
    assert "there is no dataset 'clinic'\n" in called(tmp_path, *grant, "2").stderr
    assert called(tmp_path, *grant, "2", "--force").returncode == 0
    assert called(tmp_path, *grant, "3").returncode == 0
    spent = Release(dps.Budget(1.0), ())
    dps.Ledger(tmp_path / "l.db").reserve("clinic", ("row", 1, "add-remove"), spent, frozenset(["i"]))
    less = called(tmp_path, *grant, "0.5")
    assert less.returncode == 1
    assert "dataset 'clinic' has spent epsilon 1, more than this cap of epsilon 0.5" in less.stderr
    assert called(tmp_path, *grant, "0.5", "--force").returncode == 0
    (account,) = dps.Ledger(tmp_path / "l.db").accounts()
    assert account.cap.epsilon == Fraction(1, 2)


def test_a_record_is_the_moment_of_a_spend(tmp_path: Path) -> None:
    ledger = dps.Ledger("sqlite://")
    ledger.grant("a", dps.Budget(rho=1.0))
    spends = []
    for rho in (0.25, 0.5):
        release = Release(dps.Budget(rho=rho), ())
        spends.append(ledger.reserve("a", ("row", 1, "add-remove"), release, frozenset(["i"])))
    first, second = map(ledger.record, spends)
    assert (first.number, first.before.rho, first.after.rho) == (1, 0, Fraction(1, 4))
    assert (second.number, second.before.rho, second.after.rho) == (2, Fraction(1, 4), Fraction(3, 4))
    assert second.cap.rho == 1
