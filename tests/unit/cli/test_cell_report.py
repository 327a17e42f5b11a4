"""`release --report`: exact counts on a terminal, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import at_a_terminal, called

SCHEMA = '[about]\nname = "t"\n[privacy]\nrows = 10\n[columns.age]\nkind = "integer"\nlower = 0\nupper = 120\n'
RELEASE = (
    "release",
    "t.csv",
    "--schema",
    "s.toml",
    "--epsilon",
    "1",
    "--ledger",
    "l.db",
    "--create-ledger",
    "--report",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "t.csv").write_text("age\n7\n500\n-3\nseven\nx\ny\n\n30\n")
    return tmp_path


def test_a_terminal_shows_the_counts_and_calls_them_secret(folder: Path) -> None:
    code, shown = at_a_terminal(folder, *RELEASE, "-o", "a.sketch")
    assert code == 0, shown
    assert "SECRET: exact counts of cells. Do not copy, log or share them." in shown
    (line,) = [line for line in shown.splitlines() if re.search(r"\bage\b", line) and "│" in line]
    assert re.findall(r"\d+", line) == ["0", "3", "2"]
    header = (folder / "a.sketch").read_bytes()
    assert b"unreadable" not in header
    assert b"SECRET" not in header


def test_nothing_else_gets_them(folder: Path) -> None:
    done = called(folder, *RELEASE, "-o", "a.sketch")
    assert done.returncode == 1
    assert done.stderr == (
        "FileError: a report has exact counts of cells, as secret as the table: it is shown on a terminal only\n"
        "Hint: run the command at a terminal, without redirecting its output, or leave out --report\n"
    )
    assert done.stdout == ""
    assert not (folder / "a.sketch").exists()
    assert not (folder / "l.db").exists()


def test_a_raw_sketch_has_no_cells(folder: Path) -> None:
    words = ("accumulate", "t.csv", "--schema", "s.toml", "--epsilon", "1", "-o", "t.raw")
    assert called(folder, *words).returncode == 0
    code, shown = at_a_terminal(
        folder,
        "release",
        "t.raw",
        "--epsilon",
        "1",
        "--ledger",
        "l.db",
        "--create-ledger",
        "--report",
        "-o",
        "a.sketch",
    )
    assert code == 1
    assert "a raw sketch brings its own schema and recipe" in shown
