"""Tables with recognisable cells and an unusual number of rows, and a search for these in what was shown or stored."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsketch.cli.app import main

CANARY = "xq7zsecret"
NUMBER = 123457.91
UNIT = 990017003
ROWS = 10_007
SECRETS = (CANARY, str(NUMBER), "123457", str(UNIT), str(ROWS), f"{ROWS:,}", f"{ROWS:_}", str(ROWS - 1), str(ROWS + 1))
PROGRAM = str(Path(sys.executable).with_name("dpsketch"))
SCHEMA = """[about]
name = "t"
[privacy]
rows = 10000
unit = "person"
max_rows_per_unit = 2
[columns.name]
kind = "category"
values = ["a", "b"]
[columns.amount]
kind = "number"
lower = 0
upper = 1000000
[columns.age]
kind = "integer"
lower = 0
upper = 120
[columns.born]
kind = "datetime"
lower = 1900-01-01
upper = 2030-01-01
[columns.flag]
kind = "boolean"
"""
COLUMNS = ("person", "name", "amount", "age", "born", "flag")
BAD_CELLS = [
    CANARY,
    f"{CANARY}\u2028\x00",
    str(NUMBER),
    f"{NUMBER}e9999",
    f"{NUMBER}{CANARY}",
    "9" * 400,
    "-1e400",
    "nan",
    "inf",
    "0x1F",
    "1_0",
    "",
    " ",
    "\ufeff1",
    "2024-02-30",
    f"2024-01-01T{CANARY}",
    "99999-01-01",
    "İ",
]
BAD_LINES = [
    f'{UNIT},"{CANARY},1,1,1,1',
    f'{UNIT},{CANARY}"x",1,1,1,1',
    f"{UNIT},{CANARY}",
    f"{UNIT}," + f"{CANARY}," * 30,
    "," * 5,
    f"\x00{CANARY}\x00,,,,,",
    f"{CANARY}\r{CANARY},,,,,",
]


def write_planted(folder: Path) -> None:
    """Every bad cell in every column, broken lines, and ROWS rows in all."""
    rows = [[str(UNIT + place)] + [cell] * 5 for place, cell in enumerate(BAD_CELLS)]
    rows += [[cell, "a", "1", "1", "2000-01-01", "true"] for cell in BAD_CELLS]
    rows += [[str(UNIT), CANARY, str(NUMBER), CANARY, CANARY, CANARY]] * (ROWS - len(rows))
    pq.write_table(pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))), folder / "t.parquet")
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row).encode() for row in rows]
    lines = [line.encode() for line in BAD_LINES] + [b"\xff\xfe," + CANARY.encode() + b",\xc3\x28,,,"]
    data = b"\n".join([",".join(COLUMNS).encode(), *lines, *quoted[: ROWS - len(lines)]])
    (folder / "t.csv").write_bytes(data)


def write_harmless(folder: Path) -> None:
    row = ["1", "a", "1", "1", "2000-01-01", "true"]
    pq.write_table(pa.table({name: [cell] * 3 for name, cell in zip(COLUMNS, row, strict=True)}), folder / "t.parquet")
    (folder / "t.csv").write_text("\n".join([",".join(COLUMNS), *[",".join(row)] * 3]))


@dataclass(frozen=True)
class Folders:
    planted: Path
    harmless: Path

    def __iter__(self) -> Iterator[Path]:
        return iter((self.planted, self.harmless))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dpsketch", *arguments])
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


def without_chance(text: str) -> str:
    """Without random ids, dates and times, which are no secrets but differ, and could look like one, and without the
    numbers of groups and cells, which follow from noisy numbers.
    """
    text = re.sub(r'(groups|cuts)(=|": )\[([\d,\s]|null|None)*\]', "GROUPS", text)
    text = re.sub(r"[0-9a-f]{32,}", "ID", text)
    return re.sub(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d\+00:00)?", "DATE", text)


def assert_silent(text: str | bytes) -> None:
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    for secret in SECRETS:
        assert secret not in without_chance(text), secret


def described(*arguments: str) -> list[str]:
    return [*arguments, "--schema", "schema.toml", "--epsilon", "1"]
