"""The command line as a person uses it: real files, and real processes where it starts, stops or is interrupted."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import called, hear_signals
from dpsketch.cli.demo import SCHEMA, make_table
from dpsketch.privacy.accounting import Partition
from dpsketch.privacy.events import Mechanism, Noise, Release

PROGRAM = str(Path(sys.executable).with_name("dpsketch"))


def process(folder: Path, *words: str) -> str:
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(folder: Path, *words: str) -> str:
    done = called(folder, *words)
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
    process(
        folder,
        "release",
        "both.raw",
        "--epsilon",
        "1",
        "--ledger",
        "l.db",
        "--create-ledger",
        "--dataset",
        "both",
        "-o",
        "both.sketch",
    )
    (row,) = json.loads(run(folder, "ask", "both.sketch", "select count(*) from sketch", "--json"))
    assert row["count(*)"] == pytest.approx(3000, abs=600)
    (account,) = json.loads(run(folder, "ledger", "show", "l.db", "--json"))
    assert (account["dataset"], account["spent"], account["left"]) == ("both", "1", "0")


def test_released_sketches_merge_and_show_both(folder: Path) -> None:
    for name in ("a", "b"):
        options = [
            "--schema",
            "hospital.toml",
            "--ledger",
            "l.db",
            "--create-ledger",
            "--dataset",
            name,
            "-o",
            f"{name}.sketch",
        ]
        agreed = ["--groups-from", "a.sketch"] if name == "b" else []
        run(folder, "release", "hospital.parquet", "--epsilon", "0.5", *options, *agreed)
    run(folder, "merge", "a.sketch", "b.sketch", "-o", "both.sketch")
    assert "2 releases (epsilon 0.5; epsilon 0.5)" in run(folder, "show", "both.sketch")


POOLED = """
[[parts]]
map = "count"
share = 0.05
[[parts]]
map = "marginals"
share = 0.4
bins = 16
[[parts]]
map = "pairs"
share = 0.55
bins = 16
pool = true
most = 6
"""


@pytest.mark.parametrize("raw", [False, True])
def test_released_pairs_merge_in_the_groups_of_the_first_site(folder: Path, raw: bool) -> None:
    (folder / "pooled.toml").write_text(POOLED)
    described, recipe = ["--schema", "hospital.toml"], ["--recipe", "pooled.toml"]
    spend = ["--epsilon", "2", "--ledger", "l.db", "--create-ledger", "--dataset"]
    run(folder, "release", "hospital.parquet", *described, *recipe, *spend, "a", "-o", "a.sketch")
    much = ["--epsilon", "50", *spend[2:]]  # for other groups
    run(folder, "release", "hospital.parquet", *described, *recipe, *much, "b", "-o", "b.sketch")
    alone = called(folder, "merge", "a.sketch", "b.sketch", "-o", "x")
    assert alone.returncode == 1
    assert "--groups-from" in alone.stderr
    agreed = ["--groups-from", "a.sketch"]
    if raw:
        run(folder, "accumulate", "hospital.parquet", *described, *recipe, "-o", "c.raw")
        run(folder, "release", "c.raw", *spend, "c", *agreed, "-o", "c.sketch")
    else:
        run(folder, "release", "hospital.parquet", *described, *spend, "c", *agreed, "-o", "c.sketch")
    run(folder, "merge", "a.sketch", "c.sketch", "-o", "both.sketch")
    pairs = json.loads(run(folder, "show", "both.sketch", "--json"))["parts"][2]
    assert len(pairs["pairs"]) == 6
    assert [noise["sensitivity"] for noise in pairs["noise"]] == [6, 6]


def test_groups_of_a_site_with_another_schema_are_refused_as_such(folder: Path) -> None:
    """Not as groups that do not fit: the next step is one schema file."""
    spend = ["--epsilon", "2", "--ledger", "l.db", "--create-ledger", "--dataset"]
    run(folder, "release", "hospital.parquet", "--schema", "hospital.toml", *spend, "a", "-o", "a.sketch")
    other = SCHEMA.replace('"maternity", ', "")
    assert other != SCHEMA
    (folder / "other.toml").write_text(other)
    command = ["release", "hospital.parquet", "--schema", "other.toml", *spend, "b", "-o", "b.sketch"]
    done = called(folder, *command, "--groups-from", "a.sketch")
    assert done.returncode == 1
    assert "another schema" in done.stderr
    assert "use one schema file at every site" in done.stderr


def test_a_schema_from_init_needs_a_person(folder: Path) -> None:
    (folder / "draft.toml").write_text(run(folder, "init", "hospital.parquet"))
    command = [
        "release",
        "hospital.parquet",
        "--schema",
        "draft.toml",
        "--epsilon",
        "1",
        "--ledger",
        "l.db",
        "--create-ledger",
    ]
    done = called(folder, *command, "-o", "x.sketch")
    assert done.returncode == 1
    assert "SchemaError: draft.toml: about.name, privacy.rows, columns.age.lower, columns.age.upper, " in done.stderr
    assert "columns.admitted.lower and columns.admitted.upper are still blank" in done.stderr


def test_init_of_a_csv_reads_the_header_only(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'age,"last, first"\n\xff\xfe"broken')
    template = run(tmp_path, "init", "t.csv", "--header")
    assert '[columns."last, first"]' in template
    assert "broken" not in template


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_releases_nothing_and_spends_nothing(number: signal.Signals, folder: Path) -> None:
    """A real signal in the middle of a pass that takes one core several seconds, and gets no second one."""
    table = pa.table(make_table(100_000))
    (folder / "many").mkdir()
    for part in range(10):
        pq.write_table(table, folder / "many" / f"{part}.parquet")
    words = [PROGRAM, "release", "many", "--schema", "hospital.toml", "--epsilon", "1", "--frequencies", "4000"]
    core = {min(os.sched_getaffinity(0))}
    process = subprocess.Popen(
        [*words, "--ledger", "l.db", "--create-ledger", "-o", "x.sketch"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: (hear_signals(), os.sched_setaffinity(0, core)),
    )
    while not (folder / "l.db").exists():
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert errors == "Interrupted.\nNothing was written, nothing was spent.\n"
    assert {path.name for path in folder.iterdir()} == {"many", "hospital.toml", "hospital.parquet", "l.db"}
    assert dps.Ledger(folder / "l.db").accounts() == ()


def test_wrong_usage_shows_the_usage(tmp_path: Path) -> None:
    for words, message in ((["relese"], "No such command"), (["show"], "Missing"), ([], "Usage: dpsketch")):
        done = subprocess.run([PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_people_with_several_rows(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        '[about]\nname = "t"\n[privacy]\nrows = 1000\nunit = "person"\nmax_rows_per_unit = 2\n'
        '[columns.x]\nkind = "boolean"\n'
    )
    lines = ["person,x"] + [f"p{i % 500},{i % 2 == 0}" for i in range(5000)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    run(
        tmp_path,
        "release",
        "t.csv",
        "--schema",
        "t.toml",
        "--epsilon",
        "1",
        "--ledger",
        "l.db",
        "--create-ledger",
        "-o",
        "t.sketch",
    )
    (row,) = json.loads(run(tmp_path, "ask", "t.sketch", "select count(*) from sketch", "--json"))
    assert row["count(*)"] == pytest.approx(1000, abs=800)
    assert "everyone identified by column 'person', with all their rows (at most 2 are used)" in run(
        tmp_path, "show", "t.sketch"
    )
    assert "'person' with up to 2 rows" in run(tmp_path, "ledger", "show", "l.db", "--json")


def test_a_curator_grants_declares_and_looks(folder: Path) -> None:
    run(folder, "ledger", "create", "l.db")
    run(folder, "ledger", "grant", "l.db", "hospital", "--epsilon", "5", "--delta", "1e-5", "--force")
    words = ["--release", "epsilon=0.1", "--release", "epsilon=0.05,delta=1e-8", "--times", "50", "--delta", "1e-6"]
    run(folder, "ledger", "declare", "l.db", "hospital", "year", "--schema", "hospital.toml", *words)
    options = ["--schema", "hospital.toml", "--ledger", "l.db", "--create-ledger", "-o", "a.sketch"]
    run(folder, "release", "hospital.parquet", "--epsilon", "0.5", *options)
    run(folder, "ledger", "grant", "l.db", "other", "--rho", "0.5", "--force")
    shown = process(folder, "ledger", "show", "l.db", "--as-plan", "1e-6")
    lines = shown.splitlines()
    cells = [line.split() for line in lines]
    assert cells[0] == ["dataset", "relation", "budget", "cap", "spent", "left"]
    assert cells[1][:4] == ["hospital", "add-remove", "epsilon", "5"]
    assert cells[2] == ["delta", "1e-05", "1e-06", "9e-06"]
    assert cells[3] == ["other", "-", "rho", "0.5", "0", "0.5"]
    assert max(map(len, lines)) <= 100
    assert lines[4].startswith("hospital: per row; 1 release. As one plan: epsilon 0.")
    assert lines[4].endswith(" at delta 1e-06.")
    assert lines[5].startswith("Plan 'year' of 'hospital': epsilon 3.7")
    assert lines[5].endswith(" and delta 1e-06; 0 releases made, 100 left.")
    assert lines[6] == "other: 0 releases. As one plan: epsilon 0 at delta 1e-06."
    first, second = json.loads(run(folder, "ledger", "show", "l.db", "--json", "--as-plan", "1e-6"))
    assert (first["kind"], first["relation"]) == ("epsilon", "add-remove")
    assert 0.49 < float(first["epsilon_as_one_plan"]) <= 0.5
    assert (first["cap"], first["delta_cap"], first["delta_spent"]) == ("5", "0.00001", "0.000001")
    assert [spend["budget"] for spend in first["spends"]] == [{"epsilon": 0.5}]
    assert (second["kind"], second["left"], second["unit"]) == ("rho", "0.5", None)


def test_a_ledger_is_readable_in_80_columns(tmp_path: Path) -> None:
    ledger = dps.Ledger(tmp_path / "l.db")
    name = "a dataset with quite a long name, which is folded"
    ledger.grant(name, dps.Budget(2.0, 1.23456789e-5))
    accounted = ("person", 3, "replace-one")
    noise = (Noise(Mechanism.GAUSSIAN, 1, Fraction(10)),)
    release = Release(dps.Budget(0.123456789, 1.23456789e-7), noise)
    for value in "xy":
        ledger.reserve(name, accounted, release, frozenset("i"), Partition("c", value, "s"))
    ledger.commit(ledger.reserve(name, accounted, Release(dps.Budget(0.1), ()), frozenset("i")))
    ledger.grant("s", dps.Budget(1.0))
    ledger.reserve("s", ("row", 1, "add-remove"), Release(dps.Budget(0.1), (), Fraction(1, 3)), frozenset("j"))
    *lines, first, second = process(tmp_path, "ledger", "show", "l.db").splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "…" not in text
    words = text.split()
    for word in ("replace-one", "0.346914", "1.65308", "1.23456e-05", "2.46914e-07", "1.20987e-05"):
        assert word in words, "spent is rounded up, cap and left down"
    assert first == f"{name}: per 'person' with up to 3 rows; 3 releases (2 unfinished), of 2 parts."
    assert second == "s: per row; 1 release (1 unfinished), of 1 sample."
    exact = json.loads(run(tmp_path, "ledger", "show", "l.db", "--json"))[0]
    assert (exact["spent"], exact["delta_cap"]) == ("0.346913578", "0.0000123456789")


def said(folder: Path, *words: str) -> str:
    done = called(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_declare_says_what_a_plan_costs(folder: Path) -> None:
    run(folder, "ledger", "create", "l.db")
    declare = ["ledger", "declare", "l.db"]
    rest = ["--schema", "hospital.toml", "--delta"]
    assert said(folder, *declare, "a", "p", *rest, "0", "--release", "epsilon=0.1") == (
        "Plan 'p' of dataset 'a': 1 release for epsilon 0.1 and delta 0.\n"
        "The plan saves nothing: without it, its releases would cost no more.\n"
    )
    words = said(folder, *declare, "b", "p", *rest, "1e-6", "--release", "epsilon=0.1, delta=1e-9", "--times", "52")
    assert words.startswith("Plan 'p' of dataset 'b': 52 releases for epsilon 3.2")
    assert words.endswith(" and delta 1e-06 together.\n")


@pytest.mark.parametrize(
    "command", ["show l.db", "grant l.db a --epsilon 2 --force", "declare l.db b p --schema s.toml"]
)
def test_an_upgrade_is_told_once(command: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[privacy]\nrows = 1000\n[columns.x]\nkind = "boolean"\n')
    with closing(sqlite3.connect(tmp_path / "l.db")) as connection:
        connection.executescript(OLD)
    words = ["ledger", *command.split()]
    if "declare" in command:
        words += ["--release", "epsilon=0.1", "--delta", "0"]
    assert "The ledger was upgraded to this version's tables" in said(tmp_path, *words).splitlines()[0]
    assert "upgraded" not in said(tmp_path, "ledger", "show", "l.db")


TABLES = """
[[parts]]
map = "count"
share = 0.1
[[parts]]
map = "histogram"
share = 0.9
bins = 16
"""


def test_a_plan_reads_and_spends_nothing(tmp_path: Path) -> None:
    (tmp_path / "hospital.toml").write_text(SCHEMA)
    (tmp_path / "tables.toml").write_text(TABLES)
    mean, rare, date = (
        f"select {what} from sketch" for what in ("avg(age)", "count(*) filter (where smoker) as n", "median(admitted)")
    )
    asked = ["--query", mean, "--query", rare, "--query", date]
    options = ["--schema", "hospital.toml", "--recipe", "tables.toml", "--simulations", "2", "--rows", "2000", *asked]
    words = run(tmp_path, "plan", *options, "--epsilon", "0.001,5", "--plot", "plan.png")
    assert "Nothing was read or spent" in words
    assert f"Below 10 % of a typical answer from epsilon 5 on: {mean}" in words
    assert "2024-" in words
    assert f"answer with none of these budgets: {date}" not in words
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"hospital.toml", "tables.toml", "plan.png"}
    rows = json.loads(run(tmp_path, "plan", *options, "--epsilon", "1", "--json"))["predictions"]
    assert [row["query"] for row in rows] == [mean, rare, date]
    assert 0 < rows[0]["error"] < rows[0]["typical"] < 110
    assert rows[2]["relative"] is None


# An empty ledger of version 0.1.0.
OLD = """
CREATE TABLE datasets (name VARCHAR NOT NULL, unit VARCHAR NOT NULL, max_rows_per_unit INTEGER NOT NULL);
CREATE TABLE grants (number INTEGER NOT NULL, dataset VARCHAR NOT NULL, cap VARCHAR NOT NULL, created VARCHAR NOT NULL);
CREATE TABLE spends (number INTEGER NOT NULL, id VARCHAR NOT NULL, dataset VARCHAR NOT NULL, epsilon VARCHAR NOT NULL,
  event VARCHAR NOT NULL, created VARCHAR NOT NULL);
CREATE TABLE commits (spend VARCHAR NOT NULL);
"""


HEAVY = ["numba", "scipy", "sklearn", "pyarrow", "sqlalchemy", "alembic", "dp_accounting", "mpmath"]


def loaded(folder: Path, *words: str) -> set[str]:
    """Every module in the process when a command has run."""
    code = "import sys; from dpsketch.cli import app\ntry: app.main()\nfinally: sys.stderr.write(' '.join(sys.modules))"
    called = [sys.executable, "-c", code, *words]
    done = subprocess.run(called, cwd=folder, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [("--help",), ("show", "--help"), ("fit", "--help"), ("ledger", "--help")])
def test_help_loads_neither_arrays_nor_what_verbs_need(words: tuple[str, ...], tmp_path: Path) -> None:
    found = loaded(tmp_path, *words)
    assert "typer" in found
    assert not found & {"numpy", "dpsketch.schema.schema", "dpsketch.recipe.recipe", "dpsketch.learn.view", *HEAVY}


def test_show_loads_no_more_than_reading_a_release_needs(folder: Path) -> None:
    spend = ["--epsilon", "1", "--ledger", "l.db", "--create-ledger"]
    run(folder, "release", "hospital.parquet", "--schema", "hospital.toml", *spend, "-o", "s")
    found = loaded(folder, "show", "s")
    assert "dpsketch.sketch.released" in found
    assert not found & {"dpsketch.learn.view", "dpsketch.sketch.release", "dpsketch.ledger.ledger", *HEAVY}
