"""Recipes as a person writes them: TOML files with one [[parts]] section per map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dpsketch.errors import RecipeError
from dpsketch.files.toml_file import read_toml
from dpsketch.maps.registry import MAPS


def recipe_facts(path: Path) -> dict[str, Any]:
    """The contents of a recipe file, each part with the current version and defaults of its map."""
    facts = read_toml(
        path,
        RecipeError,
        "name a TOML file with [[parts]]",
        'each part is [[parts]], then map = "…" and share = …',
    )
    parts = facts.get("parts")
    if (
        not set(facts) <= {"parts", "sampling", "only"}
        or not isinstance(parts, list)
        or not all(isinstance(part, Mapping) for part in parts)
    ):
        raise RecipeError(f"{path}: a recipe is a list of [[parts]] sections", "start each with [[parts]]")
    for part in parts:
        if not isinstance(part.get("map"), str) or "share" not in part:
            raise RecipeError(f"{path}: every part needs map and share", 'write map = "race" and share = 1.0')
    return facts | {"parts": [_versioned(part) for part in parts]}


def _versioned(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part as a person writes it, completed with the current version and defaults of its map, also inside `of`."""
    facts = dict(part)
    kind = MAPS.get(str(facts.get("map")))
    if kind is not None:
        facts.setdefault("version", kind.version)
        for entry in fields(kind):  # type: ignore[arg-type]
            if entry.name in kind.absent:  # its absence in a sketch has another meaning than in a person's file
                facts.setdefault(entry.name, entry.default)
    if isinstance(facts.get("of"), Mapping):
        facts["of"] = _versioned(facts["of"])
    return facts
