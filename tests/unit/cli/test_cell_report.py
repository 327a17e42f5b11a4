"""`release --report`: exact counts on a terminal, and nowhere else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

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


def statement(folder: Path, sketch: str) -> dict[str, Any]:
    return dict(json.loads(called(folder, "show", sketch, "--json").stdout))


def test_a_schema_that_differs_from_the_first_one_reported_is_marked(folder: Path) -> None:
    report = [word for word in RELEASE if word != "--create-ledger"]
    quiet = [word for word in report if word != "--report"]
    assert called(folder, "ledger", "create", "l.db").returncode == 0
    assert called(folder, "ledger", "grant", "l.db", "t", "--epsilon", "9", "--force").returncode == 0
    assert called(folder, *quiet, "-o", "before.sketch").returncode == 0
    assert "after_report" not in statement(folder, "before.sketch")
    code, shown = at_a_terminal(folder, *report, "-o", "first.sketch")
    assert code == 0, shown
    assert "after_report" not in statement(folder, "first.sketch"), "this schema was there before the counts"
    (folder / "s.toml").write_text(SCHEMA.replace("120", "500"))
    assert called(folder, *quiet, "-o", "second.sketch").returncode == 0
    assert statement(folder, "second.sketch")["after_report"] is True
    text = called(folder, "show", "second.sketch").stdout
    assert "Bounds             DATA-DEPENDENT: exact counts of cells were shown to the curator" in text
    code, shown = at_a_terminal(folder, *report, "-o", "third.sketch")
    assert statement(folder, "third.sketch")["after_report"] is True, "a report of its own does not clear it"
    raw = called(folder, "accumulate", "t.csv", "--schema", "s.toml", "--epsilon", "1", "-o", "t.raw")
    assert raw.returncode == 0
    words = ("release", "t.raw", "--epsilon", "1", "--ledger", "l.db", "-o")
    assert called(folder, *words, "raw.sketch").returncode == 0
    assert statement(folder, "raw.sketch")["after_report"] is True, "also by way of a raw sketch"
    (folder / "s.toml").write_text(SCHEMA.replace("rows = 10", "rows = 20").replace('"t"', '"t"\npurpose = "none"'))
    assert called(folder, *quiet, "-o", "same.sketch").returncode == 0
    assert "after_report" not in statement(folder, "same.sketch"), (
        "texts and the number of rows say nothing about cells"
    )
    assert called(folder, *words, "other.sketch", "--dataset", "other").returncode == 1, "one input has one name"
    assert called(folder, "ledger", "verify", "l.db").returncode == 0


def test_a_report_is_noted_even_if_nothing_is_released(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpsketch.cli.release_verbs.check_terminal", lambda wanted: None)
        patch.setattr("dpsketch.cli.release_verbs.accumulated", lambda *_: 1 / 0)
        called(folder, *RELEASE, "-o", "a.sketch")
    assert not (folder / "a.sketch").exists()
    (folder / "s.toml").write_text(SCHEMA.replace("120", "500"))
    quiet = [word for word in RELEASE if word != "--report"]
    assert called(folder, *quiet, "-o", "b.sketch").returncode == 0
    assert statement(folder, "b.sketch")["after_report"] is True


def test_a_study_has_no_report(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpsketch.cli.release_verbs.check_terminal", lambda wanted: None)
        done = called(
            folder,
            *("release", "t.csv", "--schema", "s.toml", "--epsilon", "inf", "--not-private", "--report"),
            *("-o", "a.sketch"),
        )
    assert "BudgetError: the ledger notes that exact counts were shown, and a study without" in done.stderr
    assert "SECRET" not in done.stderr
