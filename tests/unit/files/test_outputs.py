"""Outputs are complete or absent, and never replace what is not theirs."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import hear_signals
from dpsketch.errors import FileError
from dpsketch.files.outputs import Output, same_file, written

HOLD = """
import sys, time
from dpsketch.files.outputs import Output
from dpsketch.cli.process import Stopped, stop_on_signals
stop_on_signals()
try:
    with Output(sys.argv[1], secret=True) as output:
        output.file.write(b"exact sums")
        output.file.flush()
        print("ready", flush=True)
        sys.stdin.read()
except Stopped as stopped:
    sys.exit(stopped.exit_code)
"""


def partials(folder: Path) -> list[Path]:
    return list(folder.glob(".dpsketch-*.partial"))


def holding(path: Path) -> subprocess.Popen[str]:
    """A process that has claimed `path` and written exact sums to its partial file."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_file_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "x"
    with written(target) as file:
        file.write(b"all")
        assert not target.exists()
    assert target.read_bytes() == b"all"
    with pytest.raises(TypeError), written(target, force=True) as file:
        file.write("text into a binary file")  # type: ignore[arg-type]
    assert target.read_bytes() == b"all"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_room_that_was_set_aside_is_given_back(tmp_path: Path) -> None:
    with Output(tmp_path / "x") as output:
        output.make_room(1 << 20)
        output.file.write(b"little")
        output.keep()
    assert (tmp_path / "x").stat().st_size == 6


def test_secret_files_are_their_owners_alone(tmp_path: Path) -> None:
    with written(tmp_path / "x", secret=True) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


@pytest.mark.parametrize("force", [False, True])
def test_folders_links_and_devices_are_never_replaced(force: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for name, reason in (
        ("folder", "is a folder"),
        ("pipe", "not a regular file"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
    ):
        with pytest.raises(FileError, match=reason), written(tmp_path / name, force=force):
            pass
    assert (tmp_path / "file").read_text() == "mine"
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("path", ["/proc/x", "x" * 256, "none/x"])
def test_what_cannot_be_written_is_refused_at_once(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError):
        Output(path)


def test_long_names_that_the_folder_takes_are_taken(tmp_path: Path) -> None:
    with written(tmp_path / ("x" * 255)) as file:
        file.write(b"1")
    assert (tmp_path / ("x" * 255)).read_bytes() == b"1"


def test_one_of_several_writers_gets_the_name(tmp_path: Path) -> None:
    with Output(tmp_path / "x") as first, pytest.raises(FileError, match="another process is writing"):
        Output(tmp_path / "x")
    with Output(tmp_path / "x") as first, Output(tmp_path / "y"):  # another name is free
        first.keep()
    with pytest.raises(FileError, match="exists already"):
        Output(tmp_path / "x")


def test_a_name_taken_in_the_meantime_stays_theirs(tmp_path: Path) -> None:
    """The release has been paid for: it gets a name of its own."""
    with Output(tmp_path / "x") as output:
        output.file.write(b"ours")
        (tmp_path / "x").write_bytes(b"theirs")
        output.keep()
    assert (tmp_path / "x").read_bytes() == b"theirs"
    assert output.path != tmp_path / "x"
    assert output.path.read_bytes() == b"ours"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_signal_leaves_exact_sums(number: signal.Signals, tmp_path: Path) -> None:
    process = holding(tmp_path / "x.raw")
    assert len(partials(tmp_path)) == 1
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_leaves_is_removed_by_the_next_claim(tmp_path: Path) -> None:
    process = holding(tmp_path / "x.raw")
    process.kill()
    process.communicate(timeout=60)
    (left,) = partials(tmp_path)
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    with Output(tmp_path / "y"):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_partial_file_is_removed_once_it_is_old(tmp_path: Path) -> None:
    """A new one may be about to be locked by its maker."""
    empty = tmp_path / ".dpsketch-0.partial"
    empty.touch()
    with Output(tmp_path / "y"):
        assert empty.exists()
    os.utime(empty, (0, 0))
    with Output(tmp_path / "y"):
        assert not empty.exists()


def test_a_partial_file_in_use_is_left_alone(tmp_path: Path) -> None:
    process = holding(tmp_path / "x.raw")
    with Output(tmp_path / "y"):
        assert len(partials(tmp_path)) == 2
    process.communicate(timeout=60)


def test_files_are_compared_not_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "folder").symlink_to(tmp_path)
    assert same_file(tmp_path / "a", tmp_path / "b")
    assert same_file(tmp_path / "new", tmp_path / "folder" / "new")  # neither exists yet
    assert not same_file(tmp_path / "a", tmp_path / "new")
