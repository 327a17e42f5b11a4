"""Parts of a table count once only if the curator asserts that they are parts of one unchanged table."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import dpsketch as dps
from command_line import called
from dpsketch.errors import BudgetError, MergeError, RecipeError
from dpsketch.recipe.recipe import Recipe
from dpsketch.sketch.privacy_statement import statement_text

TOML = """
[privacy]
rows = 10
{}
[columns.region]
kind = "category"
values = ["north", "south"]
"""
PERSONS = 'unit = "person"\nmax_rows_per_unit = 1\nconstant_per_unit = ["region"]'
COUNT = dps.Part(dps.Count(), 1.0)


def schema(unit: str, relation: str = "add-remove") -> dps.Schema:
    privacy: dict[str, object] = {"rows": 10, "relation": relation}
    if unit != "row":
        privacy |= {"unit": unit, "max_rows_per_unit": 1, "constant_per_unit": ["region"]}
    return dps.Schema.from_dict(
        {"privacy": privacy, "columns": {"region": {"kind": "category", "values": ["north", "south"]}}}
    )


def release_part(
    ledger: dps.Ledger, facts: dps.Schema, people: dict[str, str], region: str, snapshot: str | None
) -> dps.ReleasedSketch:
    table = pa.table({"person": list(people), "region": list(people.values())})
    recipe = Recipe([COUNT], only=dps.Only("region", region, snapshot))
    return dps.release(dps.accumulate(table, facts, recipe), dps.Budget(1.0), ledger, "a")


@pytest.mark.parametrize("unit", ["row", "person"])
def test_a_person_in_two_files_loses_twice(unit: str) -> None:
    """Each pass sees one file, and cannot know that the person is in the other as well."""
    ledger, facts = dps.Ledger("sqlite://"), schema(unit)
    release_part(ledger, facts, {"a": "north", "b": "north"}, "north", None)
    with pytest.raises(BudgetError, match="has 0 left of 1"):
        release_part(ledger, facts, {"a": "south"}, "south", None)


@pytest.mark.parametrize("unit", ["row", "person"])
def test_parts_of_one_snapshot_count_once_and_those_of_two_add_up(unit: str) -> None:
    ledger, facts = dps.Ledger("sqlite://"), schema(unit)
    autumn, winter = {"a": "north", "b": "south"}, {"a": "south", "b": "south"}
    for region in ("north", "south"):
        release_part(ledger, facts, autumn, region, "autumn")
    assert ledger.accounts()[0].total.epsilon == 1
    with pytest.raises(BudgetError, match="has 0 left of 1"):  # a moved and would meet both
        release_part(ledger, facts, winter, "south", "winter")
    ledger.grant("a", dps.Budget(3.0))
    release_part(ledger, facts, winter, "south", "winter")
    release_part(ledger, facts, winter, "north", None)
    assert ledger.accounts()[0].total.epsilon == 3


def test_a_replaced_row_meets_two_parts_of_a_snapshot() -> None:
    ledger, facts = dps.Ledger("sqlite://"), schema("row", "replace-one")
    ledger.grant("a", dps.Budget(2.0))
    for region in ("north", "south"):
        release_part(ledger, facts, {"a": "north"}, region, "autumn")
    assert ledger.accounts()[0].total.epsilon == 2


def test_the_statement_says_what_is_assumed() -> None:
    ledger = dps.Ledger("sqlite://")
    ledger.grant("a", dps.Budget(9.0))
    sketch = release_part(ledger, schema("row"), {"a": "north"}, "north", "2026-11")
    assert sketch.statement["only"] == {"column": "region", "value": "north", "snapshot": "2026-11"}
    assert (
        "Assumes that       every part released under the snapshot name '2026-11' was read from the whole of the same, "
        "unchanged table"
    ) in statement_text(sketch.statement)
    without = release_part(ledger, schema("row"), {"a": "north"}, "north", None)
    assert "Assumes that" not in statement_text(without.statement)
    with pytest.raises(MergeError, match="different recipes"):
        sketch.merge(without)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", 11])
def test_a_snapshot_has_a_printable_name(name: object) -> None:
    with pytest.raises(RecipeError, match="a snapshot's name must have 1 to 200 printable characters"):
        dps.Only("region", "north", name)  # type: ignore[arg-type]


def test_a_recipe_file_may_name_the_snapshot(tmp_path: Path) -> None:
    recipe = Recipe([COUNT], only=dps.Only("region", "north", "2026-11"))
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    text = '[[parts]]\nmap = "count"\nshare = 1.0\n[only]\ncolumn = "region"\nvalue = "north"\nsnapshot = "2026-11"\n'
    (tmp_path / "r.toml").write_text(text)
    assert Recipe.load(tmp_path / "r.toml").only == recipe.only


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TOML.format(PERSONS))
    (tmp_path / "t.csv").write_text("person,region\na,north\nb,south\n")
    options = ["--schema", "t.toml", "--epsilon", "1", "--ledger", "l.db", "--create-ledger", "--dataset", "t"]

    def release(region: str, *words: str, table: str = "t.csv") -> tuple[int, str]:
        part = ["--only", f"region={region}"] if region else []
        done = called(tmp_path, "release", table, *options, "-o", f"{len(words)}{region}.sketch", *part, *words)
        return done.returncode, done.stderr

    assert release("north", "--snapshot", "2026-11")[0] == 0
    assert release("south", "--snapshot", "2026-11")[0] == 0
    assert "this release needs epsilon 1" in release("south")[1]
    assert "RecipeError: --snapshot is for one part of a table" in release("", "--snapshot", "2026-11")[1]
    (account,) = json.loads(called(tmp_path, "ledger", "show", "l.db", "--json").stdout)
    assert (account["spent"], [spend["snapshot"] for spend in account["spends"]]) == ("1", ["2026-11", "2026-11"])
    # A raw sketch keeps what was asserted when it was read.
    words = ["--schema", "t.toml", "--epsilon", "1", "--only", "region=north", "--snapshot", "2026-11"]
    assert called(tmp_path, "accumulate", "t.csv", *words, "-o", "t.raw").returncode == 0
    assert dps.RawSketch.load(tmp_path / "t.raw").recipe.only == dps.Only("region", "north", "2026-11")
    # Groups are taken from another sketch, its snapshot is not.
    done = called(tmp_path, "ledger", "grant", "l.db", "t", "--epsilon", "9", "--force")
    assert done.returncode == 0
    assert release("", "--groups-from", "2north.sketch")[0] == 0
    (account,) = json.loads(called(tmp_path, "ledger", "show", "l.db", "--json").stdout)
    assert "snapshot" not in account["spends"][-1]
    assert account["spent"] == "2"
