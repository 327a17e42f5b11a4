"""A small market: simulated owners and a consumer, their tables, keys, roster and configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpsketch.federate.market.terms import Terms
from dpsketch.federate.roster import Member, Roster
from dpsketch.files.signatures import load_key, make_key
from dpsketch.privacy.budget import Budget
from dpsketch.schema.schema import Schema

BOUNDS = {"kind": "number", "lower": -4.0, "upper": 4.0}
SCHEMA = Schema.from_dict(
    {
        "privacy": {"rows": 1000},
        "columns": {"x": BOUNDS, "y": BOUNDS, "kind": {"kind": "category", "values": ["a", "b"]}},
    }
)
CENTRES = {"north": (-2.0, -2.0), "south": (2.0, 2.0), "west": (-2.0, 2.0)}
WANTED = (1.6, 1.8)


def terms(**changes: object) -> Terms:
    facts: dict[str, object] = {
        "schema": SCHEMA,
        "label": "kind",
        "width": 0.2,
        "size": 40,
        "owner_budget": Budget(1.0, 1e-5),
        "consumer_budget": Budget(1.0, 1e-5),
        "validation_rows": 300,
        "features": 64,
        "over": 1.25,
    }
    return Terms(**(facts | changes))  # type: ignore[arg-type]


def records(centre: tuple[float, float], rows: int, seed: int, labelled: bool = True) -> pa.Table:
    rng = np.random.default_rng(seed)
    values = rng.normal(centre, 0.6, (rows, 2))
    table = {"x": values[:, 0], "y": values[:, 1]}
    if labelled:
        table |= {"kind": np.where(values[:, 0] > centre[0], "a", "b")}
    return pa.table(table)


def owners(rows: int = 800) -> dict[str, pa.Table]:
    return {name: records(centre, rows, seed) for seed, (name, centre) in enumerate(CENTRES.items())}


def validation(rows: int = 300) -> pa.Table:
    return records(WANTED, rows, 99, labelled=False)


TOML = """
[market]
name = "{name}"
schema = "schema.toml"
label = "kind"
width = {width}
size = 40
features = 64
over = 1.25
validation_rows = 300

[budgets]
owner = {{ epsilon = 1.0, delta = 1e-5 }}
consumer = {{ epsilon = 1.0, delta = 1e-5 }}

[meeting]
roster = "roster.toml"
address = "http://127.0.0.1:{port}"
patience = 100
patience_rows = {patience_rows}
"""
SCHEMA_TOML = """
[privacy]
rows = 1000
[columns.x]
kind = "number"
lower = -4.0
upper = {upper}
[columns.y]
kind = "number"
lower = -4.0
upper = 4.0
[columns.kind]
kind = "category"
values = ["a", "b"]
"""


class Town:
    """A folder with all that the processes of a market need."""

    def __init__(self, folder: Path, port: int, sellers: tuple[str, ...] = ("south", "west")) -> None:
        self.folder = folder
        members = []
        for name, role in {**dict.fromkeys(sellers, "owner"), "hub": "aggregator", "buyer": "consumer"}.items():
            make_key(folder / f"{name}.key", name, None)
            public = load_key(folder / f"{name}.key", None).public_key().public_bytes_raw()
            members.append(Member(name, role, public))
        roster = Roster.of(members)
        lines = "\n".join(member.line() for member in roster.members.values())
        (folder / "roster.toml").write_text(f"[members]\n{lines}\n")
        (folder / "schema.toml").write_text(SCHEMA_TOML.format(upper=4.0))
        (folder / "market.toml").write_text(TOML.format(name="may", width=0.2, port=port, patience_rows=3))
        for name, table in {**owners(), "buyer": validation()}.items():
            pq.write_table(table, folder / f"{name}.parquet")

    def start(self, name: str, config: str = "market.toml", **environment: str) -> subprocess.Popen[str]:
        """Start the process of a party."""
        here = self.folder
        verb = {"hub": "aggregator", "buyer": "consumer"}.get(name, "owner")
        words = [verb, "--config", here / config, "--key", here / f"{name}.key", "--state", here / f"{name}.state"]
        if verb != "aggregator":
            words += ["--table", here / f"{name}.parquet", "--ledger", here / f"{name}.db", "--dataset", name]
        words += ["-o", here / "summary.parquet"] if verb == "consumer" else []
        words += ["--json"] if verb == "aggregator" else []
        command = [sys.executable, "-m", "dpsketch", "market", *map(str, words)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
        )
