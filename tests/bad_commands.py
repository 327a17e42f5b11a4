"""Commands that a user can get wrong, and the exact words they get back: what the tests of them share."""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.cli.app import main
from dpsketch.maps import registry
from dpsketch.privacy.events import Release

GOOD = """[about]
name = "t"
[privacy]
rows = 100
[columns.age]
kind = "integer"
lower = 0
upper = 120
[columns.sex]
kind = "category"
values = ["Female", "Male"]
[columns.joined]
kind = "datetime"
lower = 2020-01-01
upper = 2025-01-01
[columns.member]
kind = "boolean"
"""
RELEASE = "release t.parquet --schema good.toml --epsilon 1 --ledger l.db -o new.sketch"


@dataclass(frozen=True)
class Case:
    """A command, or a schema text to release with, and what it must print."""

    command: str
    message: str
    schema: str | None = None
    recipe: str | None = None


def schema(text: str, message: str) -> Case:
    command = "release t.parquet --schema bad.toml --epsilon 1 --ledger l.db --dataset t -o new.sketch"
    return Case(command, f"SchemaError: bad.toml: {message}", text)


def column(text: str, message: str) -> Case:
    return schema(f"[privacy]\nrows = 10\n[columns.x]\n{text}\n", message)


def recipe(text: str, message: str) -> Case:
    """A recipe of one map with all of the budget."""
    return Case(
        RELEASE + " --recipe bad-recipe.toml", f"RecipeError: {message}", None, f"[[parts]]\nshare = 1.0\n{text}"
    )


def sql(question: str, message: str) -> Case:
    return Case(f"ask good.sketch|{question}", f"QueryError: {message}")


def write_files(path: Path) -> None:
    """Fill a working folder with a table, its schema, a release, and damaged or unsuitable files."""
    table = pa.table(
        {"age": [30, 40], "sex": ["Female", "Male"], "joined": ["2021-01-01"] * 2, "member": [True, False]}
    )
    pq.write_table(table, path / "t.parquet")
    pq.write_table(table.rename_columns(["Age", "sex", "joined", "member"]), path / "narrow.parquet")
    pq.write_table(table.set_column(0, "age", pa.array([[1], [2]])), path / "lists.parquet")
    (path / "broken.parquet").write_bytes((path / "t.parquet").read_bytes()[:-20])
    (path / "t.xlsx").write_bytes(b"")
    (path / "quote.csv").write_bytes(b'a,"b\n1,2\n')
    (path / "returns.csv").write_bytes(b"name,age\rAlice,33\rBob,44\r")
    (path / "twice.csv").write_bytes(b"age,age,sex,joined,member\n1,2,3,4,5\n")
    (path / "empty").mkdir()
    (path / "good.toml").write_text(GOOD)
    (path / "nameless.toml").write_text(GOOD.replace('name = "t"', 'licence = "CC0"'))
    (path / "rowless.toml").write_text(GOOD.replace("rows = 100", ""))
    facts, budget = dps.Schema.load(path / "good.toml"), dps.Budget(1.0)
    recipe = dps.Recipe.general(facts, budget=budget)
    raw = dps.accumulate(path / "t.parquet", facts, recipe)
    raw.save(path / "good.raw")
    dps.release(raw, budget, dps.Ledger("sqlite://"), "t").save(path / "good.sketch")
    other = dps.accumulate(path / "t.parquet", facts, recipe)
    dps.release(other, dps.Budget(float("inf"))).save(path / "study.sketch")
    (path / "cut.sketch").write_bytes((path / "good.sketch").read_bytes()[:-1])
    (path / "empty.db").touch()
    damaged = dps.Ledger(path / "damaged.db")
    damaged.reserve("a", ("row", 1, "add-remove"), Release(dps.Budget(1.0), ()), frozenset(["i"]))
    with sqlite3.connect(path / "damaged.db") as connection:
        connection.execute("update spends set release = '{}'")
    ledger = dps.Ledger(path / "l.db")
    ledger.grant("spent", dps.Budget(1.0))
    ledger.reserve("spent", ("row", 1, "add-remove"), Release(dps.Budget(0.875), ()), frozenset(["i"]))


def check_message(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delitem(registry.MAPS, "middle", raising=False)  # the contract tests' own map
    if case.schema is not None:
        (folder / "bad.toml").write_text(case.schema)
    if case.recipe is not None:
        (folder / "bad-recipe.toml").write_text(case.recipe)
    command, _, question = case.command.partition("|")
    monkeypatch.setattr("sys.argv", ["dpsketch", *command.split(" "), *([question] if question else [])])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    captured = capsys.readouterr()
    assert captured.err.strip() == case.message
    assert captured.out == ""
    assert not os.path.exists("new.sketch")


def name_of(case: Case) -> str:
    return re.sub(r"\W+", "-", case.message[:60])
