"""`dpsketch federate …`: the same sessions over a mailbox and by hand, from keys to released sketches."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import Said, called

SCHEMA = """[privacy]
rows = 3000
[columns.age]
kind = "integer"
lower = 0
upper = 99
"""
RECIPE = """[[parts]]
map = "count"
share = 0.5
[[parts]]
map = "histogram"
share = 0.5
bins = 8
"""
BUDGET = ("--epsilon", "1")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["federation_processes", "dpsketch.sketch.joint_release", "dpsketch.noise.laplace"])


def good(folder: Path, *words: str) -> Said:
    said = called(folder, *words)
    assert said.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, the roster, and the raw sketches of five holders."""
    folder = tmp_path_factory.mktemp("federation")
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "recipe.toml").write_text(RECIPE)
    lines = []
    for name in ("hub", "h1", "h2", "h3", "h4", "h5"):
        (folder / name).mkdir()
        role = "coordinator" if name == "hub" else "holder"
        line = good(folder, "federate", "keygen", f"{name}/own.key", "--name", name, "--role", role).stdout
        (folder / f"{name}.line").write_text(line)
        lines.append(f"{name}.line")
        if name != "hub":
            rng = np.random.default_rng(list(name.encode()))
            pq.write_table(pa.table({"age": rng.integers(0, 99, 500)}), folder / name / "table.parquet")
            raw = dps.accumulate(
                str(folder / name / "table.parquet"),
                dps.Schema.load(folder / "schema.toml"),
                dps.Recipe.load(folder / "recipe.toml"),
            )
            raw.save(folder / name / "own.raw")
    said = good(folder, "federate", "roster", *lines, "-o", "roster.toml", "--json")
    assert json.loads(said.stdout)["digest"] in good(folder, "federate", "roster", "roster.toml").stdout
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "all")
    return tmp_path / "all"


def party(name: str, *more: str) -> list[str]:
    common = ["--key", f"{name}/own.key", "--roster", "roster.toml", "--folder", f"{name}/session", *BUDGET]
    common += ["-o", f"{name}/all.sketch", *more]
    if name == "hub":
        return ["federate", "coordinator", "--schema", "schema.toml", "--recipe", "recipe.toml", *common]
    ledger = ["--ledger", f"{name}/ledger.db", "--create-ledger", "--dataset", "people"]
    return ["federate", "holder", f"{name}/own.raw", *common, *ledger]


def check_released(folder: Path, names: Sequence[str], summed: Sequence[str]) -> None:
    """Every party has the same sums: those of the raw sketches plus noise."""
    released = [dps.ReleasedSketch.load(folder / name / "all.sketch") for name in names]
    exact = [dps.RawSketch.load(folder / name / "own.raw") for name in summed]
    for place, part in enumerate(released[0].sums):
        for other in released[1:]:
            assert np.array_equal(other.sums[place], part)
        noise = part - np.sum([raw.parts[place].sums for raw in exact], axis=0)
        assert np.abs(noise).max() < 200  # scales of 2 and 4, and a few shares more than one
    assert noise.any()
    assert released[0].promise == "epsilon 1"


def run_party(folder: Path, name: str, words: list[str]) -> None:
    said = called(folder, *words, "--json")
    (folder / name / "said").write_text(said.stderr)
    (folder / name / "facts").write_text(said.stdout)


def test_six_processes_release_one_sum(folder: Path) -> None:
    holders = ["h1", "h2", "h3", "h4", "h5"]
    port = free_port()
    running = [
        PROCESSES.Process(
            target=run_party,
            args=(
                folder,
                name,
                party(
                    name,
                    *(
                        ["--listen", f"127.0.0.1:{port}"]
                        if name == "hub"
                        else ["--mailbox", f"http://127.0.0.1:{port}"]
                    ),
                    "--patience",
                    "60",
                ),
            ),
        )
        for name in ("hub", *holders)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(90)
        assert process.exitcode == 0
    check_released(folder, ["hub", *holders], holders)
    for name in holders:
        facts = json.loads((folder / name / "facts").read_text())
        assert f"Sent {facts['sent']:,} bytes, received {facts['received']:,}." in (folder / name / "said").read_text()
        account = json.loads(good(folder, "ledger", "show", f"{name}/ledger.db", "--json").stdout)
        assert "people" in json.dumps(account)
    assert json.loads((folder / "hub" / "facts").read_text())["late"] == []
    said = good(folder, "federate", "status", "hub/session", "--json")
    facts = json.loads(said.stdout)
    assert [each["holders"] for each in facts["finished"]] == [holders]
    assert facts["failure"] is None
    assert (
        "stage 1 is finished: the sum of h1, h2, h3, h4, h5" in good(folder, "federate", "status", "h1/session").stdout
    )


def free_port() -> int:
    import socket

    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


def test_by_hand_with_one_holder_that_stops(folder: Path) -> None:
    """Files carried to and fro; h5 never answers, and the coordinator goes on without it."""
    holders = ["h1", "h2", "h3", "h4"]
    done: set[str] = set()
    for _ in range(8):
        said = called(folder, *party("hub", "--without", "h5"))
        if said.returncode == 0:
            done.add("hub")
        else:
            assert said.returncode == 75, said
            assert "waiting for messages of round" in said.stderr
        good(folder, "federate", "export", "hub/session", "-o", "to-all", "--force")
        for name in holders:
            first = not (folder / name / "session").exists()
            if first:
                said = called(folder, *party(name))
                assert said.returncode == 75
                assert "waiting for hub: its first message" in said.stderr
            good(folder, "federate", "import", f"{name}/session", "to-all")
            said = called(folder, *party(name))
            if said.returncode == 0:
                done.add(name)
            assert said.returncode in (0, 75), said
            good(folder, "federate", "export", f"{name}/session", "-o", f"from-{name}", "--force")
            good(folder, "federate", "import", "hub/session", f"from-{name}")
            if first:  # twice does no harm
                good(folder, "federate", "import", "hub/session", f"from-{name}")
        if len(done) == 5:
            break
    check_released(folder, ["hub", *holders], holders)
    nothing = called(folder, "federate", "export", "h1/session", "-o", "more")
    assert "nothing to export" in nothing.stderr
    account = json.loads(good(folder, "ledger", "show", "h1/ledger.db", "--json").stdout)
    assert json.dumps(account).count('"committed": true') <= 1


def test_bundles_that_were_changed_are_refused(folder: Path) -> None:
    assert called(folder, *party("hub")).returncode == 75
    good(folder, "federate", "export", "hub/session", "-o", "to-all")
    assert called(folder, *party("h1")).returncode == 75
    data = bytearray((folder / "to-all").read_bytes())
    data[200] ^= 1
    (folder / "to-all").write_bytes(data)
    said = called(folder, "federate", "import", "h1/session", "to-all")
    assert said.returncode == 1
    assert "does not carry the signature" in said.stderr
    (folder / "to-all").write_bytes(data[:-3])
    assert called(folder, "federate", "import", "h1/session", "to-all").returncode == 1
    assert "not a bundle" in called(folder, "federate", "import", "h1/session", "recipe.toml").stderr


def test_another_budget_at_a_holder_spends_nothing(folder: Path) -> None:
    assert called(folder, *party("hub")).returncode == 75
    good(folder, "federate", "export", "hub/session", "-o", "to-all")
    words = [word if word != "1" else "2" for word in party("h1")]
    assert called(folder, *words).returncode == 75
    good(folder, "federate", "import", "h1/session", "to-all")
    said = called(folder, *words)
    assert said.returncode == 1
    assert "the coordinator's terms differ in release" in said.stderr
    assert "people" not in good(folder, "ledger", "show", "h1/ledger.db", "--json").stdout


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["federate", "keygen", "new.key", "--name", "North Clinic"], "name or role"),
        (["federate", "keygen", "h1/own.key", "--name", "h1"], "exists already"),
        (["federate", "roster", "h1.line", "h1.line"], "has a name or key of another"),
        (["federate", "status", "h1"], "not the folder of a session"),
        (["federate", "export", "h1", "-o", "x"], "not the folder of a session"),
        ([*party("hub"), "--listen", "8765"], "needs a host and a port"),
        ([*party("hub"), "--threshold", "3"], "does not protect 5 holders"),
        ([*party("hub"), "--without", "h9"], "h9 is not a holder"),
        ([*party("h1"), "--mailbox", "ftp://x"], "not the address of a mailbox"),
        ([word.replace("h1/own.key", "hub/own.key") for word in party("h1")], "hub is not a holder"),
        ([word.replace("hub/own.key", "h1/own.key") for word in party("hub")], "h1 is not the coordinator"),
    ],
)
def test_wrong_words_are_refused(folder: Path, words: list[str], fact: str) -> None:
    said = called(folder, *words)
    assert said.returncode == 1
    assert fact in said.stderr
