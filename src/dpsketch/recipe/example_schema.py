"""A schema on which a recipe can be audited when none is given."""

from __future__ import annotations

from typing import Any

from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


def example_schema(recipe: Recipe, relation: Relation = Relation.ADD_REMOVE) -> Schema:
    """A schema with the columns that a recipe names. The values of its columns do not affect privacy."""
    columns: dict[str, dict[str, Any]] = {}
    for part in recipe.parts:
        _declare(part.map.to_dict(), columns)
    if recipe.only is not None:
        columns[recipe.only.column] = {"kind": "category", "values": [recipe.only.value, f"not {recipe.only.value}"]}
    weights = {part.map.to_dict().get("weight") for part in recipe.parts}
    if sum(facts["kind"] != "set" and name not in weights for name, facts in columns.items()) < 2:
        columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in ("x", "y")} | columns
    return Schema.from_dict({"privacy": {"rows": 100, "relation": relation.value}, "columns": columns})


def _declare(facts: dict[str, Any], columns: dict[str, dict[str, Any]]) -> None:
    """Declare the columns that a map names: sets for MinHash, categories to group by, else numbers."""
    if "of" in facts:
        _declare(facts["of"], columns)
    if isinstance(facts.get("column"), str):
        columns[facts["column"]] = {"kind": "category", "values": ["a", "b"]}
    family = facts.get("hash") or {}
    for factor in family.get("factors") or ():
        _declare(factor, columns)
    if family.get("family") == "minhash":
        for name in facts.get("columns") or ("ids",):
            columns[name] = {"kind": "set", "universe": 1000}
    number = {"kind": "number", "lower": 0, "upper": 1}
    paired = [name for key in ("pairs", "important") for pair in facts.get(key) or () for name in pair]
    for name in (*(facts.get("columns") or ()), *paired, *(facts.get("hints") or ())):
        columns.setdefault(name, number)
    if facts.get("weight"):
        labels = [str(index) for index in range(max(len(facts.get("weights") or ()) - 1, 1))]
        columns[facts["weight"]] = {"kind": "category", "values": labels} if facts.get("weights") else number
