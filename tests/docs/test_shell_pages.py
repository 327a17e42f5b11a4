"""The commands under "From the shell" in the docs run on the demo's table, one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dpsketch.cli.app import app
from dpsketch.cli.demo import SCHEMA, make_table

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["densities.md", "models.md"])
def test_the_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(make_table(5_000)), "hospital.parquet")
    Path("hospital.toml").write_text(SCHEMA)
    section = (DOCS / page).read_text().split("## From the shell\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    commands = [shlex.split(line)[2:] for line in block.splitlines() if line.startswith("$ dpsketch")]
    assert len(commands) >= 8
    for words in commands:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.exception, done.output)
