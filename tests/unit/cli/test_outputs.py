"""Nothing is spent for a release that cannot be written, and every message says whether a spend stands."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import Said, called
from dpsketch.cli import process
from dpsketch.cli.demo import SCHEMA, make_table
from dpsketch.errors import LedgerError
from dpsketch.files.outputs import Output
from dpsketch.sketch import release as release_module

PROGRAM = str(Path(sys.executable).with_name("dpsketch"))
STANDS = "The spend of epsilon 1 by dataset 'hospital' stands, but nothing was released."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table(make_table(1000)), tmp_path / "hospital.parquet")
    (tmp_path / "hospital.toml").write_text(SCHEMA)
    return tmp_path


@pytest.fixture
def signals() -> Iterator[None]:
    """The signal handlers of a command's own process, for as long as the test lasts."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    process.stop_on_signals()
    yield
    process._arrived.clear()
    for number, handler in before.items():
        signal.signal(number, handler)


def release(folder: Path, output: str = "x.sketch", ledger: str = "l.db", *more: str) -> Said:
    words = ["release", "hospital.parquet", "--schema", "hospital.toml", "--epsilon", "1"]
    return called(folder, *words, "--ledger", ledger, "--create-ledger", "-o", output, *more)


def spends(folder: Path) -> list[bool]:
    """For each spend in the ledger, whether it was committed."""
    if not (folder / "l.db").exists():
        return []
    return [spend.committed for account in dps.Ledger(folder / "l.db").accounts() for spend in account.spends]


@pytest.mark.parametrize("output", ["/proc/x.sketch", "folder", "pipe", "link.sketch", "x" * 256, "claimed.sketch"])
def test_an_output_that_cannot_be_written_costs_nothing(output: str, folder: Path) -> None:
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "link.sketch").symlink_to(folder / "nothing.sketch")
    with Output(folder / "claimed.sketch"):  # as by another release that is running
        done = release(folder, output, "l.db", "--force")
    assert done.returncode == 1
    assert done.stderr.startswith("FileError: ")
    assert spends(folder) == []


def test_a_full_disk_costs_nothing(folder: Path) -> None:
    """A limit on the size of files stands for a full disk: room is set aside before the spend."""
    words = ["release", "hospital.parquet", "--schema", "hospital.toml", "--epsilon", "1"]
    done = subprocess.run(
        [PROGRAM, *words, "--ledger", "l.db", "--create-ledger", "-o", "x.sketch"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert done.returncode == 1, done.stderr
    assert "FileError: x.sketch cannot be written: File too large" in done.stderr
    assert spends(folder) == []
    assert not list(folder.glob(".dpsketch-*"))


@pytest.mark.parametrize(
    ("ledger", "output"),
    [("sqlite:///l.db", "l.db"), ("l.db", "./l.db"), ("l.db", "l.db-wal"), ("new.db", "new.db"), ("l.db", "hard.db")],
)
def test_an_output_never_replaces_the_ledger(ledger: str, output: str, folder: Path) -> None:
    dps.Ledger(folder / "l.db").grant("hospital", dps.Budget(1.0))
    (folder / "hard.db").hardlink_to(folder / "l.db")
    done = release(folder, output, ledger, "--force")
    assert done.returncode == 1
    assert f"{Path(output)} is another file of this command" in done.stderr
    assert [account.dataset for account in dps.Ledger(folder / "l.db").accounts()] == ["hospital"]


def test_an_output_never_replaces_a_file_of_an_input_folder(folder: Path) -> None:
    words = ["release", ".", "--schema", "hospital.toml", "--epsilon", "1", "--ledger", "l.db", "--create-ledger"]
    done = called(folder, *words, "-o", "hospital.parquet", "--force")
    assert "hospital.parquet lies in ., an input of this command" in done.stderr
    assert len(pq.read_table(folder / "hospital.parquet")) == 1000


def test_two_outputs_of_one_command_differ(folder: Path) -> None:
    release(folder)
    done = called(folder, "fit", "pca", "x.sketch", "--k", "2", "--save", "same.png", "--plot", "same.png")
    assert "same.png is another file of this command" in done.stderr


def test_a_stop_after_the_spend_says_that_it_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> None:
        raise process.Stopped(signal.SIGTERM)

    monkeypatch.setattr(release_module, "_noisy", stopped)
    done = release(folder)
    assert (done.returncode, done.stderr) == (143, f"Interrupted.\n{STANDS}\n")
    assert spends(folder) == [False]
    assert not (folder / "x.sketch").exists()


def test_a_bug_after_the_spend_says_that_it_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise EOFError("which Typer takes for a user at a prompt")

    monkeypatch.setattr(release_module, "_noisy", fails)
    done = release(folder)
    assert done.returncode == 70
    assert done.stderr.lstrip().startswith(f"EOFError: unexpected error.\n{STANDS}\n")


def test_a_failure_to_write_after_the_spend_says_that_it_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    done = release(folder)
    assert done.returncode == 1
    assert done.stderr == (
        f"FileError: x.sketch cannot be written: No space left on device\nHint: write somewhere else\n{STANDS}\n"
    )


@pytest.mark.usefixtures("signals")
def test_a_signal_after_the_file_is_written_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Output.keep

    def keep_then_signal(output: Output) -> None:
        keep(output)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Output, "keep", keep_then_signal)
    done = release(folder)
    assert done.returncode == 0
    assert "x.sketch: released with epsilon 1" in done.stderr


@pytest.mark.usefixtures("signals")
def test_a_signal_that_a_callback_swallowed_stops_before_the_spend(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulate = dps.accumulate

    def swallows(*arguments: Any, **options: Any) -> Any:
        with suppress(process.Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
        return accumulate(*arguments, **options)

    monkeypatch.setattr("dpsketch.engines.engine.accumulate", swallows)
    done = release(folder)
    assert done.returncode == 143
    assert spends(folder) == []


@pytest.mark.parametrize("failures", [2, 3])
def test_a_failed_commit_is_retried_and_costs_no_release(
    failures: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = dps.Ledger.commit, []

    def flaky(ledger: dps.Ledger, spend: str) -> None:
        calls.append(spend)
        if len(calls) <= failures:
            raise LedgerError("the ledger cannot be used: the network is gone")
        commit(ledger, spend)

    monkeypatch.setattr(dps.Ledger, "commit", flaky)
    done = release(folder)
    assert done.returncode == 0
    assert len(calls) == 3
    assert ("Warning: the release was made and its spend stands" in done.stderr) == (failures == 3)
    assert spends(folder) == [failures < 3]
    dps.open(folder / "x.sketch")


def test_a_ledger_that_fails_during_the_spend_says_where_to_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that broke may have recorded the spend, or not; a refusal has not."""

    def breaks(*_: Any) -> None:
        error = LedgerError("the ledger cannot be used: the connection is gone")
        error.lost = True
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(dps.Ledger, "reserve", breaks)
        done = release(folder)
    assert "dpsketch ledger show says whether the spend of dataset 'hospital' was recorded." in done.stderr
    assert release(folder).returncode == 0
    assert "ledger show says" not in release(folder, "y.sketch").stderr


def test_a_spend_is_committed_once(folder: Path) -> None:
    release(folder)
    ledger = dps.Ledger(folder / "l.db")
    (spend,) = ledger.accounts()[0].spends
    ledger.commit(spend.id)
    assert called(folder, "ledger", "verify", "l.db").returncode == 0


def test_closed_streams_do_not_fail_a_release(folder: Path) -> None:
    """Nor does the ledger get the number of standard error, and messages with it."""
    words = [
        "release",
        "hospital.parquet",
        "--schema",
        "hospital.toml",
        "--epsilon",
        "1",
        "--ledger",
        "l.db",
        "--create-ledger",
    ]
    closed = subprocess.run(
        [PROGRAM, *words, "-o", "x.sketch"], cwd=folder, check=False, preexec_fn=lambda: os.closerange(0, 3)
    )
    assert closed.returncode == 0
    assert spends(folder) == [True]
    reader, writer = os.pipe()
    os.close(reader)
    broken = subprocess.run(
        [PROGRAM, *words, "--dataset", "two", "-o", "y.sketch"], cwd=folder, check=False, stderr=writer, stdout=writer
    )
    os.close(writer)
    assert broken.returncode == 0


def test_a_terminal_that_knows_ascii_only_gets_the_signs_spelled_out(folder: Path) -> None:
    release(folder)
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = [PROGRAM, "ask", "x.sketch", "select count(*) from sketch"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b" +/- " in done.stdout
    with open("/dev/full", "wb") as full:
        lost = subprocess.run(words, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert lost.returncode == 1
    assert lost.stderr.startswith("FileError: the output cannot be printed: No space left on device\n")


def test_exact_answers_are_marked_in_every_format(folder: Path) -> None:
    words = ["release", "hospital.parquet", "--schema", "hospital.toml", "--epsilon", "inf", "--not-private"]
    assert called(folder, *words, "-o", "exact.sketch").returncode == 0
    question = ["ask", "exact.sketch", "select count(*) from sketch"]
    table = called(folder, *question).stdout
    assert table.startswith("NOT PRIVATE")
    assert "noisy" not in table
    (row,) = json.loads(called(folder, *question, "--json").stdout)
    assert row["not_private"] is True
    assert called(folder, *question, "--csv").stdout.splitlines()[0].endswith(",not_private")
    release(folder)
    assert "not_private" not in called(folder, "ask", "x.sketch", question[-1], "--json").stdout


def test_tighten_writes_through_no_link_and_leaves_no_half_file(folder: Path) -> None:
    release(folder)
    (folder / "link.toml").symlink_to(folder / "elsewhere.toml")
    assert "is a symbolic link" in called(folder, "tighten", "x.sketch", "-o", "link.toml").stderr
    assert not (folder / "elsewhere.toml").exists()
    assert called(folder, "tighten", "x.sketch", "-o", "/proc/t.toml").returncode == 1
    assert called(folder, "tighten", "x.sketch", "-o", "t.toml").returncode == 0


def test_the_demo_replaces_no_ledger_but_its_own(tmp_path: Path) -> None:
    dps.Ledger(tmp_path / "ledger.db").grant("mine", dps.Budget(1.0))
    done = called(tmp_path, "demo", ".")
    assert "ledger.db was not written by the demo of this version" in done.stderr
    assert "name another folder" in done.stderr
    assert "files of an earlier version's demo can be deleted" in " ".join(done.stderr.split())
    assert [account.dataset for account in dps.Ledger(tmp_path / "ledger.db").accounts()] == ["mine"]
    (tmp_path / "file").write_text("")
    assert "file cannot be used: File exists" in called(tmp_path, "demo", "file").stderr


def test_displaying_a_raw_sketch_shows_no_sum(folder: Path) -> None:
    schema = dps.Schema.load(folder / "hospital.toml")
    budget = dps.Budget(1.0)
    raw = dps.accumulate(folder / "hospital.parquet", schema, dps.Recipe.general(schema, budget=budget))
    assert 1000 in raw.parts[0].sums
    maps = "count, levels, adaptive_marginals, pairs, totals"
    assert repr(raw) == str(raw) == f"RawSketch({maps}; 7 columns): exact sums, NOT PRIVATE until released"
    assert repr(raw.parts[0]) == "RawPart(Count(), 1 exact sum: secret)"
    for text in (repr(raw), repr(raw.parts), f"{raw}", f"{raw.parts[1]!r}"):
        assert "array" not in text
