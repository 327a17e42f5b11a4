"""Plant recognisable cells and an unusual number of rows; look for them in everything that leaves the machine.

Looking for planted words finds what we thought of. So every command also runs on a harmless table of another size: what
is shown and stored must be the same, up to noise, random ids and the date.
"""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.cli.app import main
from dpsketch.sketch.file import read_header

CANARY = "xq7zsecret"
NUMBER = 123457.91
UNIT = 990017003
ROWS = 10_007
SECRETS = (CANARY, str(NUMBER), "123457", str(UNIT), str(ROWS), f"{ROWS:,}", f"{ROWS:_}", str(ROWS - 1), str(ROWS + 1))
PROGRAM = str(Path(sys.executable).with_name("dpsketch"))
SCHEMA = """[privacy]
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


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """Two working folders of the same names of files, and an empty folder for temporary ones."""
    both = Folders(tmp_path / "planted", tmp_path / "harmless")
    for folder, fill in zip(both, (write_planted, write_harmless), strict=True):
        folder.mkdir()
        fill(folder)
        (folder / "schema.toml").write_text(SCHEMA)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return both


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


def commands(table: str) -> list[list[str]]:
    """A working day: sketch, merge, release, show, ask; also what is refused."""
    released = ["--epsilon", "1", "--ledger", "l.db", "-o"]
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
        described("release", table, "--ledger", "l.db", "-o", "a.sketch", "--dataset", "a"),
        described(
            "release", table, "--ledger", "l.db", "-o", "b.sketch", "--dataset", "b", "--groups-from", "a.sketch"
        ),
        described(
            "release", table, "--ledger", "l.db", "-o", "d.sketch", "--dataset", "d", "--groups-from", "a.sketch"
        ),
        described("release", table, "--ledger", "l.db", "-o", "e.sketch", "--dataset", "e", "--groups-from", "one.raw"),
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
    ours, theirs = pty.openpty()
    command = described("release", table, "--ledger", "l.db", "-o", "a.sketch")
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen(
        [PROGRAM, *command], cwd=folders.planted, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 1 << 16)
            except OSError:  # how Linux tells that the other side is closed
                break
            if not block:
                break
            shown += block
    os.close(ours)
    assert process.returncode == 0, shown
    text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown).decode()
    assert "reading" in text
    assert "100 %" in text
    assert_silent(text)
    assert set(re.findall(r"\d[\d.,]*", text.split("a.sketch:")[0])) <= {"100", "0", "00", *map(str, range(100))} | {
        f"{number:02}" for number in range(60)
    }, "percents and a clock"


WRITTEN: list[str] = []
_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Names of files that are opened for writing; an audit hook stays for good, so it only listens on demand."""
    if _watching and event in ("open", "os.rename", "os.mkdir", "tempfile.mkstemp", "tempfile.mkdtemp"):
        path, mode = arguments[0], arguments[1] if len(arguments) > 1 else None
        if event != "open" or not isinstance(mode, str) or set(mode) & set("wax+"):
            WRITTEN.append(os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else "")


@pytest.fixture
def watched() -> Iterator[list[str]]:
    global _watching
    if not WRITTEN:
        sys.addaudithook(_watch)
    WRITTEN[:] = ["(listening)"]
    _watching = True
    yield WRITTEN
    _watching = False


@pytest.mark.parametrize("table", ["t.csv", "t.parquet"])
def test_temporary_files_are_private_nameless_and_gone(
    table: str, folders: Folders, monkeypatch: pytest.MonkeyPatch, watched: list[str]
) -> None:
    """Seen just before they are renamed: a released one holds no secret, a raw one is its owner's alone."""
    monkeypatch.chdir(folders.planted)
    seen = []
    replace = os.replace

    def spy(source: Path, target: Path) -> None:
        assert_silent(Path(source).name)
        if Path(target).suffix == ".kernel":  # compiled code, on the first use of a machine
            replace(source, target)
            return
        seen.append(Path(target).suffix)
        if Path(target).suffix == ".sketch":
            assert_silent(Path(source).read_bytes())
        else:
            assert Path(source).stat().st_mode & 0o077 == 0
        replace(source, target)

    monkeypatch.setattr(os, "replace", spy)
    before = set(folders.planted.iterdir())
    assert run(monkeypatch, *described("accumulate", table, "-o", "a.raw")) == 0
    assert run(monkeypatch, *described("release", table, "--ledger", "l.db", "-o", "a.sketch")) == 0
    assert seen == [".raw", ".sketch"]
    assert {path.name for path in set(folders.planted.iterdir()) - before} == {"a.raw", "a.sketch", "l.db"}
    assert any(name.endswith(".partial") for name in watched), "the watch works"
    assert_silent("\n".join(watched))


@pytest.mark.parametrize("output", ["a.raw", "a.sketch"])
def test_a_crash_while_writing_leaves_no_file(
    output: str, folders: Folders, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folders.planted)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device", CANARY)

    options = ["--ledger", "l.db"] if output.endswith("sketch") else []
    if options:
        assert run(monkeypatch, "ledger", "grant", "l.db", "t", "--epsilon", "1") == 0
    monkeypatch.setattr(os, "fsync", full)
    before = {path.name for path in folders.planted.iterdir()} | {"l.db"}
    assert run(monkeypatch, *described("release" if options else "accumulate", "t.csv", "-o", output, *options)) == 1
    captured = capfd.readouterr()
    assert "cannot be written: No space left on device" in captured.err
    assert_silent(captured.out + captured.err)
    assert {path.name for path in folders.planted.iterdir()} <= before


def test_the_size_of_a_file_does_not_depend_on_the_data(tmp_path: Path) -> None:
    facts = {
        "privacy": {"rows": 10_000},
        "columns": {
            "name": {"kind": "category", "values": ["a", "b"]},
            "amount": {"kind": "number", "lower": 0, "upper": 1e6},
            "items": {"kind": "set", "universe": 50},
        },
    }
    schema, budget = dps.Schema.from_dict(facts), dps.Budget(1.0)
    recipe = dps.Recipe(
        [
            dps.Part(dps.Count(), 0.1),
            dps.Part(dps.Histogram(bins=16), 0.2),
            dps.Part(dps.Grouped(dps.Fourier(size=5, columns=["amount"]), "name"), 0.2),
            dps.Part(dps.Grid(columns=["amount"], rows=3, width=64), 0.2),
            dps.Part(dps.Race(columns=["items"], rows=10, width=50, hash=dps.MinHash()), 0.2),
        ]
    )
    table = pa.table({"name": [CANARY] * ROWS, "amount": [NUMBER] * ROWS, "items": [[UNIT, 7]] * ROWS})
    sizes = set()
    for rows in (0, 1, ROWS):
        raw = dps.accumulate(table.slice(0, rows), schema, recipe)
        path = tmp_path / f"{len(sizes)}.sketch"
        dps.release(raw, budget, dps.Ledger("sqlite://"), "t").save(path, force=True)
        assert_silent(json.dumps(read_header(path)))
        sizes.add(path.stat().st_size)
    assert len(sizes) == 1


def test_foreign_metadata_stays_behind(tmp_path: Path) -> None:
    """Parquet files that pandas wrote tell the number of rows, and may hold anything else."""
    import pandas

    frame = pandas.DataFrame({"flag": [True] * ROWS})
    table = pa.Table.from_pandas(frame)
    table = table.replace_schema_metadata(table.schema.metadata | {"comment": CANARY})
    assert str(ROWS).encode() in table.schema.metadata[b"pandas"]
    pq.write_table(table, tmp_path / "t.parquet")
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"flag": {"kind": "boolean"}}})
    recipe = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    for source in (table, frame, tmp_path / "t.parquet"):
        raw = dps.accumulate(source, schema, recipe)
        dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "t").save(tmp_path / "t.sketch", force=True)
        raw.save(tmp_path / "t.raw", force=True)
        for name in ("t.sketch", "t.raw"):
            assert_silent(json.dumps(read_header(tmp_path / name)))
            assert_silent((tmp_path / name).read_bytes())


def _damaged(path: Path) -> None:
    """A Parquet file whose pages are broken: reading starts and then fails."""
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(b ^ 0x5A for b in data[4:400])
    path.write_bytes(data)


def _nested(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "name", pa.array([[CANARY]] * table.num_rows)), path)


def _narrow(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["flag"]), path)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("partitioned", [False, True], ids=["file", "partitioned"])
@pytest.mark.parametrize("harm", [_damaged, _nested, _narrow, _truncated])
def test_unreadable_files_are_told_without_cells(
    harm: Callable[[Path], None],
    partitioned: bool,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also those in folders whose names are cells."""
    monkeypatch.chdir(folders.planted)
    file, table = Path("t.parquet"), "t.parquet"
    if partitioned:
        table, file = "tables", Path("tables", f"ward={CANARY}", "t.parquet")
        file.parent.mkdir(parents=True)
        shutil.copy("t.parquet", file)
    harm(file)
    assert run(monkeypatch, *described("release", table, "--ledger", "l.db", "-o", "a.sketch")) == 1
    captured = capfd.readouterr()
    assert "SourceError: " in captured.err
    assert_silent(captured.out + captured.err)
    assert dps.Ledger("l.db").accounts() == (), "nothing was spent"


CRASHES = {
    "encode": ("dpsketch.engines.engine.encode", described("accumulate", "t.csv", "-o", "x.raw")),
    "csv": ("dpsketch.engines.csv._batch", described("accumulate", "t.csv", "-o", "x.raw")),
    "parquet": ("dpsketch.engines.readers._parquet_batches", described("accumulate", "t.parquet", "-o", "x.raw")),
    "units": ("dpsketch.engines.units.UnitSelection.add", described("accumulate", "t.csv", "-o", "x.raw")),
    "map": (
        "dpsketch.maps.tables.one_way.CellCounter.accumulate",
        described("release", "t.csv", "-o", "x.sketch", "--ledger", "x.db"),
    ),
    "noise": (
        "dpsketch.noise.laplace_kernel.fill_digits",
        ["release", "good.raw", "--epsilon", "1", "-o", "x.sketch", "--ledger", "x.db"],
    ),
    "merge": ("dpsketch.sketch.raw._merged", ["merge", "good.raw", "other.raw", "--disjoint-units", "-o", "x.raw"]),
    "ask": ("dpsketch.learn.view.View.sql", ["ask", "good.sketch", "select count(*) from sketch"]),
}


@pytest.mark.parametrize("crash", CRASHES)
def test_an_unexpected_error_stays_silent(
    crash: str, folders: Folders, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """If a bug ever raises with a cell in its message, the command line must not show it."""
    monkeypatch.chdir(folders.planted)
    schema, budget = dps.Schema.load("schema.toml"), dps.Budget(1.0)
    recipe = dps.Recipe.general(schema, budget=budget)
    for name in ("good", "other"):
        dps.accumulate(Path("t.csv"), schema, recipe).save(f"{name}.raw")
    dps.release(dps.RawSketch.load("good.raw"), budget, dps.Ledger("sqlite://"), "t").save("good.sketch")
    place, command = CRASHES[crash]

    def bug(*_: object, **__: object) -> None:
        error = ValueError(f"cannot read {CANARY}, row {ROWS}")
        error.add_note(f"near {NUMBER}")
        raise error from KeyError(UNIT)

    monkeypatch.setattr(place, bug)
    assert run(monkeypatch, *command) == 70
    captured = capfd.readouterr()
    assert_silent(captured.out + captured.err)
    assert captured.err.lstrip().startswith("ValueError: unexpected error.")
    assert not list(Path().glob("*x.raw")) + list(Path().glob("*x.sketch"))


class Hostile:
    """A cell whose own code raises with its content."""

    def __str__(self) -> str:
        raise ValueError(CANARY)


def test_progress_does_not_tell_the_number_of_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"flag": [True] * 100_003}), tmp_path / "t.parquet")
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"flag": {"kind": "boolean"}}})
    shares: list[float] = []
    dps.accumulate(tmp_path / "t.parquet", schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]), progress=shares.append)
    assert all(round(100 * share) / 100 == share for share in shares)


def test_a_missing_column_is_told_without_any_row() -> None:
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"flag": {"kind": "boolean"}}})
    recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    for rows in (0, 1):
        for source in (pa.table({"other": [True] * rows}), pa.table({"other": [True] * rows}).to_pandas()):
            with pytest.raises(dps.DpsketchError, match="has no column 'flag'"):
                dps.accumulate(source, schema, recipe)


def test_mixed_pandas_objects_do_not_raise() -> None:
    import pandas

    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 5}, "columns": {"amount": {"kind": "number", "lower": 0, "upper": 10}}}
    )
    cells = [1, "2", None, b"\xff", object(), float("nan"), [3], "\ud800", pandas.NA, Hostile(), np.arange(2), 10**5000]
    frame = pandas.DataFrame({"amount": pandas.Series(cells, dtype=object), "other": [Hostile()] * len(cells)})
    raw = dps.accumulate(frame, schema, dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(bins=5), 0.5)]))
    assert raw.parts[0].sums.tolist() == [len(cells)]
    assert raw.parts[1].sums[-1] == len(cells) - 2
    labels = pandas.DataFrame({"amount": pandas.Categorical([1, "x", 2.5, None])})
    raw = dps.accumulate(labels, schema, raw.recipe)
    assert raw.parts[1].sums[-1] == 2
