"""The command line inside this process: what a process of its own says, without the second that it takes to start."""

from __future__ import annotations

import signal
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from dpsketch.cli.app import main


def hear_signals() -> None:
    """For a new process: what started the tests may ignore signals (nohup, a job in the background)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True)
class Said:
    returncode: int
    stdout: str
    stderr: str


def called(folder: Path, *words: str) -> Said:
    """`dpsketch` with these words, in this folder."""
    out, err, code = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr("sys.argv", ["dpsketch", *words])
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return Said(code, out.getvalue(), err.getvalue())
