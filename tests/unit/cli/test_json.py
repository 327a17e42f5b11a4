"""`--json` on every verb: one JSON document on standard output, and nothing else there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from command_line import called
from dpsketch.cli.app import app
from planted_clusters import COLUMNS, planted

SCHEMA = "[about]\nname = 't'\n[privacy]\nrows = 2000\n" + "".join(
    f"[columns.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items())
    for name, facts in COLUMNS.items()
)
RECIPE = "[[parts]]\nshare = 1.0\nmap = 'count'\n"
TABLE = "t.parquet --schema t.toml"
# In an order in which each finds the files that it needs.
COMMANDS = {
    "init": "init t.parquet",
    "plan": "plan --task clusters:2 --columns 3 --rows 1000 --epsilon 1",
    "accumulate": f"accumulate {TABLE} --epsilon 4 -o new.raw",
    "merge": "merge a.raw b.raw -o both.raw",
    "graph": "graph edges.parquet --nodes 9 --epsilon 1 --repetitions 2 --ledger l.db --dataset g -o graph.sketch",
    "release": f"release {TABLE} --epsilon 4 --ledger l.db --create-ledger --dataset other -o other.sketch",
    "show": "show general.sketch",
    "ask": "ask general.sketch 'select avg(a) from sketch'",
    "tighten": "tighten general.sketch -o tight.toml",
    "labels": f"labels {TABLE} --column label --epsilon 4 --delta 1e-6 --ledger l.db --dataset found -o found.toml",
    "audit": "audit recipe.toml --epsilon 1 --draws 1000",
    "demo": "demo hospital",
    "sample": "sample general.sketch -n 5 -o rows.csv",
    "fit linear": "fit linear general.sketch --target c --columns a --save line.model",
    "score": "score line.model t.parquet -o scores.csv",
    "fit density": "fit density density.sketch",
    "fit anomaly": "fit anomaly density.sketch",
    "fit modes": "fit modes density.sketch",
    "fit classifier": "fit classifier classes.sketch --target label",
    "fit hashed_linear": "fit hashed_linear hashed.sketch --target c",
    "fit logistic": "fit logistic general.sketch --target label --columns a",
    "fit kmeans": "fit kmeans clusters.sketch --k 2",
    "fit gmm": "fit gmm clusters.sketch --k 2",
    "fit width": "fit width clusters.sketch --k 2",
    "fit pca": "fit pca general.sketch --k 1",
    "keygen": "keygen me.key --name Ada",
    "sign": "sign general.sketch --key me.key",
    "verify": "verify general.sketch --signers signers",
    "ledger create": "ledger create new.db",
    "ledger grant": "ledger grant l.db plan --epsilon 9 --delta 1e-5 --force",
    "ledger declare": "ledger declare l.db plan p --schema t.toml --release epsilon=0.1 --times 2 --delta 1e-6",
    "ledger show": "ledger show l.db",
    "ledger verify": "ledger verify l.db",
    "federate keygen": "federate keygen west.key --name west",
    "federate roster": "federate roster roster.toml",
    "federate status": "federate status session-hub",
    "federate export": "federate export session-hub -o to-all",
    "federate import": "federate import session-h1 to-all",
}
# They wait for each other: test_federate_verbs, test_market_processes.
_PARTIES = ("aggregator", "owner", "consumer", "plan", "evaluate")
TOGETHER = ("federate coordinator", "federate holder", *(f"market {name}" for name in _PARTIES))
WRITING = ("accumulate", "merge", "graph", "release", "tighten", "labels", "sample", "score")


def verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every verb of the app, by its words."""
    inside = getattr(command, "commands", None)
    if inside is None:
        yield " ".join(words), command
        return
    for name, each in inside.items():
        yield from verbs(each, (*words, name))


SPEAKS = ("mcp",)  # a protocol of its own on standard output
VERBS = {name: verb for name, verb in verbs(typer.main.get_command(app)) if name not in SPEAKS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    pq.write_table(pa.table(dict(planted())).slice(0, 2000), folder / "t.parquet")
    pq.write_table(pa.table({"src": [0, 1, 2], "dst": [3, 4, 5]}), folder / "edges.parquet")
    (folder / "t.toml").write_text(SCHEMA)
    (folder / "recipe.toml").write_text(RECIPE)
    purposes = {
        "general": "",
        "density": "--for density --columns c",
        "classes": "--for classify:label",
        "hashed": "--for hashed_linear:c --columns a,b",
        "clusters": "--for clusters:2 --columns a,b",
    }
    before = [f"accumulate {TABLE} --epsilon 4 -o {name}.raw" for name in "ab"]
    before += [
        f"release {TABLE} --epsilon 4 {words} --ledger l.db --create-ledger --dataset {name} -o {name}.sketch"
        for name, words in purposes.items()
    ]
    for command in before:
        done = called(folder, *shlex.split(command))
        assert done.returncode == 0, done.stderr
    for name in ("hub", "h1", "h2", "h3"):
        role = "coordinator" if name == "hub" else "holder"
        done = called(folder, *shlex.split(f"federate keygen {name}.key --name {name} --role {role}"))
        with (folder / "roster.toml").open("a") as roster:
            roster.write(("[members]\n" if name == "hub" else "") + done.stdout)
    for command in ("coordinator --schema t.toml", "holder a.raw --ledger l.db --dataset federated"):
        name = "hub" if command.startswith("c") else "h1"
        more = f"--key {name}.key --roster roster.toml --folder session-{name} --epsilon 4 -o all.sketch"
        assert called(folder, *shlex.split(f"federate {command} {more}")).returncode == 75
    return folder


def test_every_verb_has_the_option_and_an_example() -> None:
    without = [name for name, verb in VERBS.items() if not any("--json" in option.opts for option in verb.params)]
    assert without == []
    assert {*COMMANDS, *TOGETHER} == set(VERBS)


def test_every_verb_prints_one_document(folder: Path) -> None:
    for name, command in COMMANDS.items():
        done = called(folder, *shlex.split(command), "--json")
        assert done.returncode == 0, (name, done.stderr)
        facts = json.loads(done.stdout)
        assert facts, name
        if name == "keygen":
            (folder / "signers").write_text(facts["signer"])
        if name in WRITING:
            assert (folder / facts["output"]).exists(), name


def test_a_raw_sketch_says_how_large_it_is(folder: Path) -> None:
    """The size follows from the schema and the recipe."""
    done = called(folder, *shlex.split(f"accumulate {TABLE} --epsilon 4 -o size.raw --json"))
    size = (folder / "size.raw").stat().st_size
    assert json.loads(done.stdout)["bytes"] == size
    assert f"raw sketch of {size / 1e6:,.1f} MB, NOT PRIVATE" in " ".join(done.stderr.split())


def test_a_release_says_what_it_spent(folder: Path) -> None:
    command = f"release {TABLE} --epsilon 1 --ledger l.db --create-ledger --dataset spent -o spent.sketch --json"
    facts = json.loads(called(folder, *shlex.split(command)).stdout)
    spent = {"kind": "epsilon", "cap": "1", "spent": "1", "left": "0"}
    assert facts["ledger"] == spent | {"delta_cap": "0", "delta_spent": "0", "delta_left": "0"}
    assert (facts["output"], facts["private"], facts["budget"]) == ("spent.sketch", True, {"epsilon": 1.0})


def test_json_is_also_a_format_of_fits(folder: Path) -> None:
    one, two = (
        called(folder, *shlex.split(f"fit pca general.sketch --k 1 {end}")) for end in ("--json", "--format json")
    )
    assert one.stdout == two.stdout != ""
