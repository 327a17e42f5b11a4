from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from command_line import called


def test_verify_says_in_a_line_whether_a_ledger_is_sound(tmp_path: Path) -> None:
    called(tmp_path, "ledger", "grant", "l.db", "t", "--epsilon", "9")
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
