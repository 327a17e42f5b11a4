"""No planted cell is in any file that a release writes, leaves behind, or copies from its input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.sketch.file import read_header
from planted import CANARY, NUMBER, ROWS, UNIT, Folders, assert_silent, described, run

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
    assert run(monkeypatch, *described("release", table, "--ledger", "l.db", "--create-ledger", "-o", "a.sketch")) == 0
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

    options = ["--ledger", "l.db", "--create-ledger"] if output.endswith("sketch") else []
    if options:
        assert run(monkeypatch, "ledger", "create", "l.db") == 0
        assert run(monkeypatch, "ledger", "grant", "l.db", "t", "--epsilon", "1", "--force") == 0
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
