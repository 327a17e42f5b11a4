"""What people see on a terminal while they wait, and completion in their shell."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import called

PROGRAM = str(Path(sys.executable).with_name("dpsketch"))
SCHEMA = """[about]
name = "t"
[privacy]
rows = 500
[columns.a]
kind = "boolean"
[columns.b]
kind = "boolean"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    pq.write_table(
        pa.table({"a": [True, False] * 250, "b": [True, True, False, False, True] * 100}), folder / "t.parquet"
    )
    (folder / "t.toml").write_text(SCHEMA)
    words = [
        "release",
        "t.parquet",
        "--schema",
        "t.toml",
        "--epsilon",
        "1",
        "--ledger",
        "l.db",
        "--create-ledger",
        "-o",
        "a.sketch",
    ]
    assert called(folder, *words).returncode == 0
    return folder


def on_a_terminal(folder: Path, *words: str) -> str:
    """What a command writes to its standard error, which is a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.Popen(
        [PROGRAM, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs, env=environment
    )
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert done.wait() == 0, said
    return said.decode()


ASK = ["ask", "a.sketch", "select count(*) from sketch where a and b"]
PLAN = ["plan", "--schema", "t.toml", "--epsilon", "1", "--simulations", "1"]


@pytest.mark.parametrize(("words", "line"), [(ASK, "fits a model"), (PLAN, "simulating")], ids=["ask", "plan"])
def test_a_line_while_it_takes_long(folder: Path, words: list[str], line: str) -> None:
    """On a terminal, unless --quiet; not where standard error is a file."""
    assert line in on_a_terminal(folder, *words)
    assert on_a_terminal(folder, "--quiet", *words) == ""
    assert called(folder, *words).stderr == ""


def test_bash_completes_verbs(folder: Path) -> None:
    """The script that --show-completion prints, run by bash."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    environment = os.environ | {"PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"}
    asked = environment | {"_DPSKETCH_COMPLETE": "source_bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run([PROGRAM], env=asked, capture_output=True, text=True, check=False).stdout
    assert "complete " in script
    (folder / "completion.sh").write_text(script)
    typed = "source completion.sh; COMP_WORDS=(dpsketch sa); COMP_CWORD=1; "
    typed += "function=$(complete -p dpsketch | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
    typed += '$function dpsketch sa dpsketch; echo "${COMPREPLY[@]}"'
    done = subprocess.run([bash, "-c", typed], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["sample"], done
