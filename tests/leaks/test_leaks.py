"""Plant recognisable cells and an unusual number of rows; look for them in everything that leaves the machine.

Looking for planted words finds what we thought of. So every command also runs on a harmless table of another size: what
is shown and stored must be the same, up to noise, random ids and the date.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from command_line import at_a_terminal
from dpsketch.sketch.file import read_header
from planted import Folders, assert_silent, described, run, without_chance


def commands(table: str) -> list[list[str]]:
    """A working day: sketch, merge, release, show, ask; also what is refused."""
    released = ["--epsilon", "1", "--ledger", "l.db", "--create-ledger", "-o"]
    return [
        ["init", table, "--header"],
        described("accumulate", table, "-o", "one.raw"),
        described("accumulate", table, "-o", "two.raw"),
        described("accumulate", table, "-o", "two.raw"),  # exists already
        ["merge", "one.raw", "two.raw", "-o", "both.raw", "--disjoint-units"],
        ["merge", "one.raw", "one.raw", "-o", "twice.raw", "--disjoint-units"],
        ["merge", "one.raw", "two.raw", "-o", "undeclared.raw"],
        ["release", "both.raw", *released, "both.sketch"],
        ["release", "both.raw", *released, "again.sketch"],  # nothing left
        described("release", table, "--ledger", "l.db", "--create-ledger", "-o", "a.sketch", "--dataset", "a"),
        described(
            "release",
            table,
            "--ledger",
            "l.db",
            "--create-ledger",
            "-o",
            "b.sketch",
            "--dataset",
            "b",
            "--groups-from",
            "a.sketch",
        ),
        described(
            "release",
            table,
            "--ledger",
            "l.db",
            "--create-ledger",
            "-o",
            "d.sketch",
            "--dataset",
            "d",
            "--groups-from",
            "a.sketch",
        ),
        described(
            "release",
            table,
            "--ledger",
            "l.db",
            "--create-ledger",
            "-o",
            "e.sketch",
            "--dataset",
            "e",
            "--groups-from",
            "one.raw",
        ),
        ["merge", "a.sketch", "b.sketch", "-o", "c.sketch", "--disjoint-units"],
        ["show", "both.sketch"],
        ["show", "c.sketch", "--json"],
        ["show", "one.raw"],
        ["ask", "one.raw", "select count(*) from sketch"],
        ["ask", "c.sketch", "select avg(salary) from sketch"],
        ["ask", "c.sketch", "select count(*) from sketch where name = 'q'"],
        ["ask", "c.sketch", "select person from sketch"],
        ["ledger", "show", "l.db"],
        ["ledger", "show", "l.db", "--json"],
    ]


def without_groups(header: dict[str, Any]) -> dict[str, Any]:
    """Without what follows from noisy sums alone, as test_adaptive and test_chosen_cells show: cells of marginals and
    groups of cells of pairs, and with them the file's size.
    """
    parts = header["recipe"]["parts"]
    for map_, chosen in (("pairs", "groups"), ("cell_counts", "cuts")):
        (place,) = (place for place, part in enumerate(parts) if part["map"] == map_)
        for part in (parts[place], header["statement"]["parts"][place]):
            del part[chosen]
        header["fingerprints"][place] = None
    return header


@pytest.mark.parametrize("table", ["t.csv", "t.parquet"])
def test_every_command_shows_and_stores_the_same_for_any_table(
    table: str,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[list[tuple[int, str]]] = [[], []]
    for place, folder in enumerate(folders):
        monkeypatch.chdir(folder)
        for command in commands(table):
            code = run(monkeypatch, *command)
            captured = capfd.readouterr()
            assert_silent(captured.out + captured.err)
            shown[place].append((code, without_chance(captured.out + captured.err)))
        assert run(monkeypatch, "ask", "c.sketch", "select count(*), avg(amount) from sketch group by name") == 0
        assert_silent(re.sub(r"[\d.,]+", "", capfd.readouterr().out))  # noisy numbers may be anything
    for command, planted, harmless in zip(commands(table), *shown, strict=True):
        assert planted == harmless, command
    assert [code for code, _ in shown[0]].count(0) == 13, "thirteen commands succeed, ten are refused"
    assert_silent(caplog.text)

    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    assert names[0] == names[1]
    assert not list((folders.planted.parent / "temporary").iterdir())
    for name in names[0]:
        if name.endswith(".sketch"):
            files = [folder / name for folder in folders]
            assert_silent(files[0].read_bytes())
            headers = [without_groups(read_header(file)) for file in files]
            assert headers[0]["fingerprints"] == headers[1]["fingerprints"], "parameters do not follow the data"
            assert without_chance(json.dumps(headers[0])) == without_chance(json.dumps(headers[1]))
    assert_silent((folders.planted / "l.db").read_bytes())
    assert (folders.planted / "l.db").stat().st_size == (folders.harmless / "l.db").stat().st_size


@pytest.mark.parametrize("table", ["t.csv", "t.parquet"])
def test_a_terminal_shows_percents_and_nothing_else(table: str, folders: Folders) -> None:
    command = described("release", table, "--ledger", "l.db", "--create-ledger", "-o", "a.sketch")
    code, text = at_a_terminal(folders.planted, *command)
    assert code == 0, text
    assert "reading" in text
    assert "100 %" in text
    assert_silent(text)
    assert set(re.findall(r"\d[\d.,]*", text.split("a.sketch:")[0])) <= {"100", "0", "00", *map(str, range(100))} | {
        f"{number:02}" for number in range(60)
    }, "percents and a clock"
