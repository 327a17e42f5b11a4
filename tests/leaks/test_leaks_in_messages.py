"""No planted cell is in a message about files that cannot be read, a crash, or progress."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from planted import CANARY, NUMBER, ROWS, UNIT, Folders, assert_silent, described, run


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
    assert run(monkeypatch, *described("release", table, "--ledger", "l.db", "--create-ledger", "-o", "a.sketch")) == 1
    captured = capfd.readouterr()
    assert "SourceError: " in captured.err
    assert_silent(captured.out + captured.err)
    assert dps.Ledger("l.db").accounts() == (), "nothing was spent"


CRASHES = {
    "encode": ("dpsketch.engines.engine.encode", described("accumulate", "t.csv", "-o", "x.raw")),
    "csv": ("dpsketch.engines.csv._batch", described("accumulate", "t.csv", "-o", "x.raw")),
    "parquet": ("dpsketch.engines.sources.files._parquet_batches", described("accumulate", "t.parquet", "-o", "x.raw")),
    "units": ("dpsketch.engines.units.UnitSelection.add", described("accumulate", "t.csv", "-o", "x.raw")),
    "map": (
        "dpsketch.maps.tables.one_way.CellCounter.accumulate",
        described("release", "t.csv", "-o", "x.sketch", "--ledger", "x.db", "--create-ledger"),
    ),
    "noise": (
        "dpsketch.noise.laplace_kernel.fill_digits",
        ["release", "good.raw", "--epsilon", "1", "-o", "x.sketch", "--ledger", "x.db", "--create-ledger"],
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
