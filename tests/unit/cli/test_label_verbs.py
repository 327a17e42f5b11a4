"""`dpsketch labels`: a schema with labels that a private release has found."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import called

SCHEMA = """[about]
name = "flights"
[privacy]
rows = 2000
[columns.delay]
kind = "integer"
lower = 0
upper = 9
"""
SPEND = ["--epsilon", "1", "--delta", "1e-6", "--ledger", "l.db"]
LABELS = ["labels", "flights.parquet", "--schema", "flights.toml", "--column", "origin"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    origins = ["JFK"] * 700 + ["LAX"] * 700 + [f"secret {row}" for row in range(600)]
    pq.write_table(pa.table({"origin": origins, "delay": [3] * 2000}), tmp_path / "flights.parquet")
    (tmp_path / "flights.toml").write_text(SCHEMA)
    dps.Ledger(tmp_path / "l.db").grant("flights", dps.Budget(2.0, 1e-6))
    return tmp_path


def test_a_schema_is_written_that_the_next_release_reads(folder: Path) -> None:
    done = called(folder, *LABELS, *SPEND, "-o", "new.toml")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    first, statement, following = done.stderr.splitlines()
    assert first == (
        "new.toml: 2 labels of 'origin'; dataset 'flights' has spent epsilon 1 of 2 and delta 1e-06 of 1e-06."
    )
    assert "Listed labels are published verbatim." in statement
    assert following.startswith("Next: dpsketch release TABLE --schema new.toml … with the same --ledger and --dataset")
    text = (folder / "new.toml").read_text()
    assert text.startswith("# Labels of 'origin' were found by a private release with epsilon 1 and delta 1e-06.\n")
    assert 'values = ["JFK", "LAX"]' in text
    stored = b"".join(path.read_bytes() for path in folder.iterdir() if path.suffix != ".parquet")
    assert b"secret" not in stored + done.stderr.encode()
    release = ["release", "flights.parquet", "--schema", "new.toml", "--epsilon", "1", "--ledger", "l.db"]
    done = called(folder, *release, "-o", "flights.sketch")
    assert done.returncode == 0, done.stderr
    assert "Labels were found by an earlier private release" in called(folder, "show", "flights.sketch").stdout


def test_json(folder: Path) -> None:
    facts = json.loads(called(folder, *LABELS, *SPEND, "-o", "new.toml", "--json").stdout)
    assert (facts["labels"], facts["column"], facts["dataset"]) == (["JFK", "LAX"], "origin", "flights")
    assert facts["budget"] == {"epsilon": 1.0, "delta": 1e-6}


def test_nothing_found_is_said(folder: Path) -> None:
    done = called(folder, *LABELS, *SPEND[2:], "--epsilon", "0.001", "-o", "new.toml")
    assert done.returncode == 0, done.stderr
    assert "No label is frequent enough to be found: raise epsilon, or type the labels into the schema." in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epsilon", "1", "--ledger", "l.db"], "BudgetError: labels cannot be found with pure epsilon"),
        (["--epsilon", "1", "--delta", "0.001", "--ledger", "l.db"], "BudgetError: delta 0.001 is above one over"),
        (SPEND[:4], "BudgetError: a private release needs a ledger"),
        ([*SPEND, "--column", "delay"], "SchemaError: column 'delay' is declared as integer"),
        ([*SPEND, "--column", "gate"], "SourceError: "),
        ([*SPEND, "--epsilon", "3"], "BudgetError: this release needs epsilon 3; dataset 'flights' has 2 left of 2."),
        (["--epsilon", "inf", "--ledger", "l.db"], "BudgetError: labels are found with epsilon and delta"),
    ],
    ids=["pure", "large delta", "no ledger", "a number", "no column", "too much", "not private"],
)
def test_refusals_cost_nothing_and_hold_no_data(folder: Path, words: list[str], message: str) -> None:
    done = called(folder, *LABELS, *words, "-o", "new.toml")
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert "secret" not in done.stderr
    assert "JFK" not in done.stderr
    assert not (folder / "new.toml").exists()
    standing = dps.Ledger(folder / "l.db").standing("flights")
    assert standing is not None
    assert standing.total.epsilon == 0


def test_a_large_delta_can_be_accepted(folder: Path) -> None:
    dps.Ledger(folder / "l.db").grant("flights", dps.Budget(2.0, 0.001))
    words = ["--epsilon", "1", "--delta", "0.001", "--ledger", "l.db", "--accept-delta"]
    assert called(folder, *LABELS, *words, "-o", "new.toml").returncode == 0


def test_an_existing_schema_is_not_replaced(folder: Path) -> None:
    done = called(folder, *LABELS, *SPEND, "-o", "flights.toml", "--force")
    assert done.stderr.startswith("FileError: flights.toml is another file of this command")
