"""The inputs of a sketch, and the check that two sketches may be added."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from dpsketch.errors import FileError, MergeError
from dpsketch.maps.base import BoundMap
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Part as RecipePart
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.schema import Schema

_ID = re.compile(r"[0-9a-f]{32}")


class Part(Protocol):
    @property
    def map(self) -> BoundMap: ...


class Sketch(Protocol):
    @property
    def schema(self) -> Schema: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def parts(self) -> Sequence[Part]: ...
    @property
    def lineage(self) -> frozenset[str]: ...


def new_lineage() -> frozenset[str]:
    """A random id that identifies an input and reveals nothing about it."""
    return frozenset([secrets.token_hex(16)])


def checked_lineage(path: str | Path, ids: object) -> frozenset[str]:
    if not isinstance(ids, list) or not ids or not all(isinstance(i, str) and _ID.fullmatch(i) for i in ids):
        raise FileError(f"{path}: the header is not valid: lineage", "ask its owner for a new copy")
    return frozenset(ids)


def _unsettled(recipe: Recipe) -> Recipe:
    """The recipe before any release chose groups or pairs for it."""
    parts = [RecipePart(part.map.unsettled(), part.share) for part in recipe.parts]
    return Recipe(parts, sampling=recipe.sampling, only=recipe.only)


def same_maps(one: Sketch, two: Sketch) -> tuple[BoundMap, ...]:
    """The maps of both sketches. Refuses sketches whose sums mean different things."""
    if replace(one.schema, rows=None) != replace(two.schema, rows=None):
        raise MergeError("the sketches have different schemas", "use one schema file at every site")
    if one.recipe != two.recipe and _unsettled(one.recipe) == _unsettled(two.recipe):
        raise MergeError(
            "the sketches have marginals of different cells, or pair tables of different groups of cells or pairs",
            "release one table first, then the other with --groups-from (groups_from=) that release; or sketch both by "
            "one recipe that leaves them to a release, and merge the raw sketches",
        )
    maps = _merged_maps(one, two)
    if maps is None:
        raise MergeError(
            "the sketches were made with different recipes", "use the same recipe, sizes and seeds at every site"
        )
    return maps


def merged_bound(one: Sketch, two: Sketch, disjoint_units: bool) -> BoundRecipe:
    """The schema, recipe and maps of the merged sketch. Raises a MergeError with the reason if the two do not merge."""
    if one.lineage & two.lineage:
        raise MergeError("both sketches hold the same input", "merge each input once")
    maps = same_maps(one, two)
    if one.recipe.sampling is not None and one.recipe.sampling.count is not None:
        raise MergeError(
            "samples of a fixed count of rows do not merge: they would weigh a small table like a large one",
            "sample by rate",
        )
    if one.schema.unit_column is not None and not disjoint_units:
        raise MergeError(
            f"units of column '{one.schema.unit_column}' may have rows in both sketches",
            "if no unit does, say so: --disjoint-units (disjoint_units=True); else sketch the tables together",
        )
    rows = None if one.schema.rows is None or two.schema.rows is None else one.schema.rows + two.schema.rows
    return BoundRecipe(
        replace(one.schema, rows=rows, about=one.schema.about.agreed(two.schema.about)), one.recipe.settled(maps), maps
    )


def _merged_maps(one: Sketch, two: Sketch) -> tuple[BoundMap, ...] | None:
    """The maps of both sketches, None if they differ. One that differs only in saying nothing to readers gives way."""
    if len(one.parts) != len(two.parts):
        return None
    maps: list[BoundMap] = []
    for mine, theirs in ((mine.map, theirs.map) for mine, theirs in zip(one.parts, two.parts, strict=True)):
        if mine.description == theirs.description and mine.fingerprint() != theirs.fingerprint():
            return None
        maps.append(theirs if mine.description == theirs.description.counted() else mine)
        if theirs.description not in (maps[-1].description, maps[-1].description.counted()):
            return None
    return tuple(maps) if one.recipe.settled(maps) == two.recipe.settled(maps) else None
