"""The command line inside this process: what a process of its own says, without the second that it takes to start."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
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


def at_a_terminal(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code of `dpsketch` in a process of its own at a terminal, and what that shows, without its controls."""
    program = str(Path(sys.executable).with_name("dpsketch"))
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen(
        [program, *words], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
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
    return process.returncode, re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown).decode()
