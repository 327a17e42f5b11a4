"""Seven real processes on loopback: one aggregator, five owners and a consumer, with the digits of MNIST."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.market.tables import Study, study
from dpsketch.federate.roster import Member, Roster
from dpsketch.files.signatures import load_key, make_key

SECONDS = 120
_TOML = """
[market]
name = "study"
schema = "schema.toml"
label = "{label}"
width = {width}
size = {size}
over = 1.25
validation_rows = 500
seed = {seed}

[budgets]
owner = {{ epsilon = 1.0, delta = 1e-5 }}
consumer = {{ epsilon = 1.0, delta = 1e-5 }}

[meeting]
roster = "roster.toml"
address = "http://127.0.0.1:{port}"
"""


def run(seed: int, say: Callable[[str], None], size: int = 1000) -> None:
    """Time the whole market, from the start of the processes to the summary, and say how close it is."""
    table = study("mnist", seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names = _prepare(folder, table, size, seed)
        start = time.perf_counter()
        processes = {name: _start(folder, name, role) for name, role in names.items()}
        results = {name: process.communicate(timeout=1200) for name, process in processes.items()}
        seconds = time.perf_counter() - start
        for name, process in processes.items():
            if process.returncode:
                say(f"{name} failed: {results[name][1]}")
                return
        report = json.loads(results["hub"][0])
        words = ["evaluate", "--summary", "summary.parquet", "--table", "buyer.parquet", "--json"]
        judged = _command(folder, words, stdout=subprocess.PIPE).communicate()[0]
        distance = json.loads(judged)["mmd2"]
    verdict = "PASS" if seconds <= SECONDS else "SHORT"
    say(f"{len(names)} processes, p={size}, c=1.25: {seconds:.0f} s, goal ≤ {SECONDS}: {verdict}")
    say(f"  MMD² {distance:.2g}, parsimony {report['parsimony']:.2f}, paid {report['paid']}")


def _prepare(folder: Path, table: Study, size: int, seed: int) -> dict[str, str]:
    names = {"hub": "aggregator", "buyer": "consumer", **dict.fromkeys(table.owners, "owner")}
    members = []
    for name, role in names.items():
        make_key(folder / f"{name}.key", name, None)
        key = load_key(folder / f"{name}.key", None).public_key().public_bytes_raw()
        members.append(Member(name, role, key))
    lines = "\n".join(member.line() for member in Roster.of(members).members.values())
    (folder / "roster.toml").write_text(f"[members]\n{lines}\n")
    (folder / "schema.toml").write_text(_toml(table.schema.to_dict()))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    facts = {"label": table.label, "width": table.width, "size": size, "seed": seed, "port": port}
    (folder / "market.toml").write_text(_TOML.format(**facts))
    parts: dict[str, pa.Table] = {**table.owners, "buyer": table.validation}
    for name, rows in parts.items():
        pq.write_table(rows, folder / f"{name}.parquet")
    return names


def _toml(facts: dict[str, dict[str, object]]) -> str:
    """A schema's facts as TOML, whose inline values are JSON."""
    lines = []
    for section, values in facts.items():
        tables = {key: value for key, value in values.items() if isinstance(value, dict)}
        lines += [f"[{section}]", *(f"{key} = {json.dumps(v)}" for key, v in values.items() if key not in tables)]
        for key, value in tables.items():
            lines += [f"[{section}.{key}]", *(f"{name} = {json.dumps(fact)}" for name, fact in value.items())]
    return "\n".join(lines) + "\n"


def _start(folder: Path, name: str, role: str) -> subprocess.Popen[str]:
    words = [role, "--key", f"{name}.key", "--state", f"{name}.state"]
    if role != "aggregator":
        words += ["--table", f"{name}.parquet", "--ledger", f"{name}.db", "--dataset", name]
    words += {"aggregator": ["--json"], "consumer": ["-o", "summary.parquet"], "owner": []}[role]
    return _command(folder, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _command(folder: Path, words: list[str], **streams: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dpsketch", "market", words[0], "--config", "market.toml", *words[1:]]
    return subprocess.Popen(command, cwd=folder, text=True, **streams)  # type: ignore[call-overload]
