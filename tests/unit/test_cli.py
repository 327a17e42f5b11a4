"""The command line as a person uses it: real processes, real files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.demo import SCHEMA, make_table

PROGRAM = str(Path(sys.executable).with_name("dpsketch"))


def run(folder: Path, *words: str) -> str:
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table(make_table(3000)), tmp_path / "hospital.parquet")
    (tmp_path / "hospital.toml").write_text(SCHEMA)
    return tmp_path


def test_two_sites_merge_raw_sketches_and_release_once(folder: Path) -> None:
    table = pq.read_table(folder / "hospital.parquet")
    for name, part in (("north", table.slice(0, 1000)), ("south", table.slice(1000))):
        pq.write_table(part, folder / f"{name}.parquet")
        run(folder, "accumulate", f"{name}.parquet", "--schema", "hospital.toml", "--epsilon", "1", "-o", f"{name}.raw")
    run(folder, "merge", "north.raw", "south.raw", "-o", "both.raw")
    run(folder, "release", "both.raw", "--epsilon", "1", "--ledger", "l.db", "-o", "both.sketch")
    (row,) = json.loads(run(folder, "ask", "both.sketch", "select count(*) from sketch", "--json"))
    assert row["count(*)"] == pytest.approx(3000, abs=600)
    (account,) = json.loads(run(folder, "ledger", "show", "l.db", "--json"))
    assert (account["dataset"], account["spent"], account["left"]) == ("both", "1", "0")


def test_released_sketches_merge_and_show_both(folder: Path) -> None:
    for name in ("a", "b"):
        options = ["--schema", "hospital.toml", "--ledger", "l.db", "--dataset", name, "-o", f"{name}.sketch"]
        run(folder, "release", "hospital.parquet", "--epsilon", "0.5", *options)
    run(folder, "merge", "a.sketch", "b.sketch", "-o", "both.sketch")
    assert "2 releases (epsilon 0.5, 0.5)" in run(folder, "show", "both.sketch")


def test_a_schema_from_init_needs_a_person(folder: Path) -> None:
    (folder / "draft.toml").write_text(run(folder, "init", "hospital.parquet"))
    command = [PROGRAM, "release", "hospital.parquet", "--schema", "draft.toml", "--epsilon", "1", "--ledger", "l.db"]
    done = subprocess.run([*command, "-o", "x.sketch"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "privacy.rows is still blank" in done.stderr


def test_init_of_a_csv_reads_the_header_only(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'age,"last, first"\n\xff\xfe"broken')
    template = run(tmp_path, "init", "t.csv")
    assert '[columns."last, first"]' in template
    assert "broken" not in template


def test_an_interrupt_releases_nothing_and_spends_nothing(folder: Path) -> None:
    """A real signal in the middle of a long pass."""
    table = pa.table(make_table(100_000))
    (folder / "many").mkdir()
    for part in range(30):
        pq.write_table(table, folder / "many" / f"{part}.parquet")
    words = [PROGRAM, "release", "many", "--schema", "hospital.toml", "--epsilon", "1", "--frequencies", "4000"]
    process = subprocess.Popen(
        [*words, "--ledger", "l.db", "-o", "x.sketch"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    while not (folder / "l.db").exists():
        time.sleep(0.01)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.strip().startswith("Interrupted. Nothing was released")
    assert not (folder / "x.sketch").exists()
    assert dps.Ledger(folder / "l.db").accounts() == ()


def test_wrong_usage_shows_the_usage(tmp_path: Path) -> None:
    for words, message in ((["relese"], "No such command"), (["show"], "Missing"), ([], "Usage: dpsketch")):
        done = subprocess.run([PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_people_with_several_rows(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        '[privacy]\nrows = 1000\nunit = "person"\nmax_rows_per_unit = 2\n[columns.x]\nkind = "boolean"\n'
    )
    lines = ["person,x"] + [f"p{i % 500},{i % 2 == 0}" for i in range(5000)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    run(tmp_path, "release", "t.csv", "--schema", "t.toml", "--epsilon", "1", "--ledger", "l.db", "-o", "t.sketch")
    (row,) = json.loads(run(tmp_path, "ask", "t.sketch", "select count(*) from sketch", "--json"))
    assert row["count(*)"] == pytest.approx(1000, abs=800)
    assert "everyone identified by column 'person', with all their rows (at most 2 are used)" in run(
        tmp_path, "show", "t.sketch"
    )
    assert "'person' with up to 2 rows" in run(tmp_path, "ledger", "show", "l.db", "--json")
