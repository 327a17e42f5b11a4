"""A market of real processes over HTTP: one owner killed and started again, one killed for good."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpsketch.ledger.ledger import Ledger
from market_parties import Town


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def sent_release(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    assert "sent the release" in process.stderr.readline()


def test_a_market_survives_the_death_of_owners(tmp_path: Path) -> None:
    town = Town(tmp_path, free_port())
    running = {"hub": town.start("hub")}
    try:
        for name in ("south", "west"):
            running[name] = town.start(name)
        for name in ("south", "west"):
            sent_release(running[name])
            running[name].kill()
            running[name].communicate()
        spent = Ledger(tmp_path / "south.db").accounts()[0].spent
        running["south"] = town.start("south")  # the other one stays dead
        running["buyer"] = town.start("buyer")
        results = {name: running[name].communicate(timeout=240) for name in ("hub", "buyer", "south")}
    finally:
        for process in running.values():
            process.kill()
    for name, (_, told) in results.items():
        assert running[name].returncode == 0, told
    report = json.loads(results["hub"][0])
    assert report["late"] == []
    assert report["silent"] == (["west"] if report["quotas"]["west"] else [])
    assert set(report["paid"]) == {"south"}
    summary = pq.read_table(tmp_path / "summary.parquet")
    assert set(summary["owner"].to_pylist()) == {"south"}
    assert summary.column_names == ["x", "y", "kind", "weight", "owner"]
    assert summary.num_rows == min(40, report["paid"]["south"])
    assert Ledger(tmp_path / "south.db").accounts()[0].spent == spent  # nothing was spent twice
    assert (tmp_path / "south.state").stat().st_mode & 0o077 == 0


def test_a_key_that_the_roster_does_not_list_is_refused(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from dpsketch.cli.app import app
    from dpsketch.errors import FederationError
    from dpsketch.files.signatures import make_key

    town = Town(tmp_path, 1)
    (tmp_path / "south.key").unlink()
    make_key(tmp_path / "south.key", "south", None)
    words = ["market", "owner", "--config", tmp_path / "market.toml", "--key", tmp_path / "south.key"]
    words += ["--state", tmp_path / "s", "--table", tmp_path / "south.parquet", "--ledger", tmp_path / "l.db"]
    with pytest.raises(FederationError, match="does not list the key"):
        CliRunner().invoke(app, [*map(str, words), "--dataset", "south"], catch_exceptions=False)
    plan = CliRunner().invoke(app, ["market", "plan", "--config", str(town.folder / "market.toml")])
    assert plan.exit_code == 0, plan.output
    assert "target: 300 records, noise" in plan.output
