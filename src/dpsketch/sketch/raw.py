"""Exact sums before release: secret, mergeable, never to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dpsketch.displays import brief, counted, html_table
from dpsketch.errors import FileError, MergeError
from dpsketch.files.outputs import written
from dpsketch.maps.base import LARGE, BoundMap, Sums
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch import counters, file
from dpsketch.sketch.container import ASK, INVALID
from dpsketch.sketch.inputs import Inputs
from dpsketch.sketch.merging import checked_lineage, merged_bound, same_maps

_MOST_HEADER = 4 << 20  # bytes


@dataclass(frozen=True, eq=False)
class RawPart:
    """One map and its exact sums."""

    map: BoundMap
    sums: Sums

    def __repr__(self) -> str:
        """Describe the part without its sums: a notebook saves whatever a cell displays."""
        return f"RawPart({brief(self.map.description)}, {counted(self.map.size, 'exact sum')}: secret)"


@dataclass(frozen=True)
class RawSketch:
    """Guarantee: none. The sums are exact; only `release` makes them public.

    `lineage` holds a random id for every input that was read, so that the same input cannot be added twice; `removed`
    those of sketches that were subtracted. `inputs` recognises files that were read, one entry for each pass.
    """

    schema: Schema
    recipe: Recipe
    parts: tuple[RawPart, ...]
    lineage: frozenset[str]
    inputs: tuple[Inputs, ...] = ()
    removed: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        maps = ", ".join(part.map.description.name for part in self.parts)
        columns = counted(len(self.schema.columns), "column")
        return f"RawSketch({maps}; {columns}): exact sums, NOT PRIVATE until released"

    def _repr_html_(self) -> str:
        """List the maps, never the sums."""
        rows = [(brief(part.map.description), part.map.size) for part in self.parts]
        return html_table(repr(self), ("map", "number of exact sums (secret)"), rows)

    @property
    def most_bytes(self) -> int:
        """Upper bound on the size of a file of this sketch or of its release, which has no more sums than this."""
        return sum(part.sums.nbytes for part in self.parts) + _MOST_HEADER

    @classmethod
    def of(cls, bound: BoundRecipe, sums: Sequence[Sums], lineage: frozenset[str]) -> RawSketch:
        """The sketch with these sums of the maps of a bound recipe."""
        parts = tuple(RawPart(own, each) for own, each in zip(bound.maps, sums, strict=True))
        return cls(bound.schema, bound.recipe, parts, lineage)

    @cached_property
    def bound(self) -> BoundRecipe:
        """The recipe bound to its schema, with the maps of the parts."""
        return BoundRecipe(self.schema, self.recipe, tuple(part.map for part in self.parts))

    def merge(self, other: RawSketch, disjoint_units: bool = False) -> RawSketch:
        """The sketch of both tables together.

        With a unit column, a person's rows in both tables would count up to twice `max_rows_per_unit`:
        pass `disjoint_units=True` only if no unit has rows in both.
        """
        bound = merged_bound(self, other, disjoint_units)
        if (self.lineage | self.removed) & (other.lineage | other.removed):
            raise MergeError("an input of one sketch was subtracted from the other", "start again from what is left")
        sums = [_merged(mine, theirs, bound.schema) for mine, theirs in zip(self.parts, other.parts, strict=True)]
        merged = RawSketch.of(bound, sums, self.lineage | other.lineage)
        return replace(merged, inputs=self.inputs + other.inputs, removed=self.removed | other.removed)

    def subtract(self, part: RawSketch, whole_units: bool = False) -> RawSketch:
        """The sketch without the rows of `part`, for erasure before a release.

        The rows of `part` must have been counted here, each once: otherwise the sums are those of no table, and one
        person could change them by twice the sensitivity. Nobody but the curator can know that. With a unit column,
        `part` must hold all rows of its units, which `whole_units=True` asserts. Earlier releases still hold the rows.
        """
        same_maps(self, part)
        if self.recipe.sampling is not None or any(each.map.secret for each in self.parts):
            raise MergeError(
                "sampled rows and masked features cannot be subtracted: another draw would be",
                "sketch what is left of the table",
            )
        if part.lineage & self.removed:
            raise MergeError("these rows were subtracted before", "subtract each part once")
        if self.schema.unit_column is not None and not whole_units:
            raise MergeError(
                f"other rows of the units of column '{self.schema.unit_column}' may be left",
                "if the part holds all rows of its units, say so: whole_units=True",
            )
        pairs = zip(self.parts, part.parts, strict=True)
        parts = tuple(RawPart(mine.map, counters.subtract(mine.sums, theirs.sums)) for mine, theirs in pairs)
        return RawSketch(self.schema, self.recipe, parts, self.lineage, self.inputs, self.removed | part.lineage)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the exact sums to a file that only its owner may read: they are as secret as the table."""
        with written(path, force, secret=True) as target:
            self.write(target)

    def write(self, target: BinaryIO) -> None:
        contents = file.Contents(
            self.bound,
            tuple(part.sums for part in self.parts),
            {
                "warning": "UNRELEASED exact sums: NOT PRIVATE, keep secret",
                "lineage": sorted(self.lineage),
                "removed": sorted(self.removed),
                "inputs": [each.to_dict() for each in self.inputs],
            },
        )
        file.write(target, "raw", contents)

    @classmethod
    def load(cls, path: str | Path) -> RawSketch:
        contents = file.read(path, "raw")
        lineage, removed = contents.extra.get("lineage"), contents.extra.get("removed") or None
        try:
            inputs = tuple(map(Inputs.from_dict, contents.extra.get("inputs", ())))
        except INVALID:
            raise FileError(f"{path}: the header is not valid: inputs", ASK) from None
        return replace(
            cls.of(contents.bound, contents.sums, checked_lineage(path, lineage)),
            inputs=inputs,
            removed=frozenset() if removed is None else checked_lineage(path, removed),
        )


def sums_dtype(feature_map: BoundMap, rows: int) -> type[np.int32] | type[np.int64]:
    """Four bytes for a large table of counters if the declared rows fill at most half of their range, else eight.

    The other half is for the noise. Size and rows are public.
    """
    narrow = feature_map.narrow and feature_map.size >= LARGE and rows * feature_map.largest < counters.NARROW_ROOM // 2
    return np.int32 if narrow else np.int64


def empty_sums(feature_map: BoundMap, rows: int) -> Sums:
    sums: Sums = np.zeros(feature_map.size, sums_dtype(feature_map, rows))  # type: ignore[assignment]
    return sums


def _merged(mine: RawPart, theirs: RawPart, schema: Schema) -> Sums:
    """The sum of one part of two sketches. Four bytes stay four bytes, see `counters`; eight may become four."""
    four_bytes = counters.narrow(mine.sums) or counters.narrow(theirs.sums)
    if four_bytes and declared_rows(schema) * mine.map.largest >= counters.NARROW_ROOM:
        raise MergeError(
            f"map {mine.map.description.name}: {schema.rows} declared rows do not fit counters of four bytes",
            f"merge their releases, or sketch both again with at least {counters.NARROW_ROOM} rows declared",
        )
    return counters.add(mine.sums, theirs.sums, four_bytes)
