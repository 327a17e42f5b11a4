"""Recipes: the maps to sketch, each with its share of the budget. Sizes and shares come from public numbers only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.displays import brief, counted, html_table
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, FeatureMap, check_whole, check_work, named_errors
from dpsketch.maps.registry import map_from_dict
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe_file import recipe_facts
from dpsketch.recipe.task_recipes import TaskRecipes
from dpsketch.schema.columns import Boolean, Category
from dpsketch.schema.schema import Schema, nearest

MOST_PARTS = 100
_MOST_LETTERS = 200  # of a snapshot's name


@dataclass(frozen=True)
class Part:
    """A map and the share of the budget that its noise may use."""

    map: FeatureMap
    share: float

    def __post_init__(self) -> None:
        if not isinstance(self.map, FeatureMap):
            raise RecipeError(f"Part: map must be a feature map such as Count(), got {self.map!r} instead")
        if isinstance(self.share, bool) or not isinstance(self.share, Real) or not 1e-9 <= self.share <= 1:
            raise RecipeError(f"Part: share must be above 0 and at most 1, got {self.share!r} instead")
        object.__setattr__(self, "share", float(self.share))  # a NumPy number would have another repr

    def __repr__(self) -> str:
        return f"Part({brief(self.map)}, {self.share})"

    @property
    def exact_share(self) -> Fraction:
        """The share as written: 0.03 is exactly three hundredths."""
        return Fraction(repr(self.share))


@dataclass(frozen=True)
class RowSampling:
    """A random sample of the rows: each with probability `rate`, or `count` of them without replacement.

    Rows are chosen by secret randomness; with a unit column, `rate` keeps or drops whole units. If neighbouring tables
    differ by adding or removing one unit, a rate reduces the noise that a budget needs: docs/proofs/accounting.md.
    """

    rate: float | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.count is None):
            raise RecipeError("RowSampling needs either rate or count", "pass rate=0.1 or count=10_000")
        if self.rate is not None:
            if isinstance(self.rate, bool) or not isinstance(self.rate, Real) or not 2.0**-32 <= self.rate <= 1:
                raise RecipeError(f"RowSampling: rate must be from 2^-32 to 1, got {self.rate!r} instead")
            object.__setattr__(self, "rate", float(self.rate))
        else:
            check_whole("RowSampling", "count", self.count, 1, 10**9)

    @property
    def threshold(self) -> int:
        """A row is kept if a uniform 32-bit word is below this."""
        return round((self.rate or 0.0) * 2**32)

    @property
    def exact_rate(self) -> Fraction:
        """The rate that is actually used: a multiple of 2^-32."""
        return Fraction(self.threshold, 2**32)

    def weight(self, rows: int) -> float:
        """The number of declared rows that a sampled row represents."""
        return float(1 / self.exact_rate) if self.count is None else max(1.0, rows / self.count)

    def to_dict(self) -> dict[str, Any]:
        return {"rate": self.rate} if self.count is None else {"count": self.count}

    @classmethod
    def from_dict(cls, facts: object) -> RowSampling:
        if not isinstance(facts, Mapping) or not set(facts) <= {"rate", "count"}:
            raise RecipeError("sampling has the parameters rate and count", "write rate = 0.1 or count = 10000")
        return cls(**facts)


@dataclass(frozen=True)
class Only:
    """The rows in which a category or boolean column has this value: one part of a partition.

    With `snapshot` you assert that a whole table is read, and that every release of a dataset under this snapshot's
    name is read from the whole of the same, unchanged table. Releases of different parts then cost as much as the most
    expensive of them. Without a snapshot, or with different ones, their costs add up: a person may have moved from one
    part to another, or be in both of two files.
    """

    column: str
    value: str
    snapshot: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not isinstance(self.value, str):
            raise RecipeError("Only needs the name of a column and a value, both texts", 'pass Only("region", "north")')
        name = self.snapshot
        if name is not None and not (isinstance(name, str) and name.isprintable() and 1 <= len(name) <= _MOST_LETTERS):
            raise RecipeError(
                f"Only: a snapshot's name must have 1 to {_MOST_LETTERS} printable characters",
                'pass its date: Only("region", "north", snapshot="2026-11-01")',
            )

    def level(self, schema: Schema) -> int:
        """The index of the value among those of the column."""
        column = schema.column(self.column)
        if not isinstance(column, Category | Boolean):
            raise RecipeError(f"Only: '{self.column}' is not a category or boolean column", "partition by one that is")
        if self.value not in column.labels:
            raise RecipeError(
                f"Only: column '{self.column}' has no value '{self.value}'",
                nearest(self.value, column.labels, "values"),
            )
        return column.labels.index(self.value)

    def places(self, schema: Schema, records: Records) -> NDArray[np.int64]:
        """Indices of the records with this value."""
        return np.flatnonzero(self._levels(schema, records) == self.level(schema))

    def places_elsewhere(self, schema: Schema, records: Records) -> NDArray[np.int64]:
        """Indices of the records with another value; a missing cell is in no part."""
        levels = self._levels(schema, records)
        return np.flatnonzero((levels >= 0) & (levels != self.level(schema)))

    def _levels(self, schema: Schema, records: Records) -> NDArray[np.int64]:
        return schema.column(self.column).levels_of(records.codes[schema.index(self.column)])

    def to_dict(self) -> dict[str, Any]:
        snapshot = {} if self.snapshot is None else {"snapshot": self.snapshot}
        return {"column": self.column, "value": self.value} | snapshot

    @classmethod
    def from_dict(cls, facts: object) -> Only:
        if not isinstance(facts, Mapping) or not {"column", "value"} <= set(facts) <= {"column", "value", "snapshot"}:
            raise RecipeError(
                "only has the parameters column, value and, optionally, snapshot",
                'write column = "region", value = "north"',
            )
        return cls(**facts)


@dataclass(frozen=True)
class Recipe(TaskRecipes):
    """The parts of a sketch.

    `rows`, if given, overrides the schema's declared number of rows. `sampling`, if given, sketches a random sample of
    the rows; `only`, those with one value in a column.
    """

    parts: tuple[Part, ...]
    rows: int | None = field(default=None, compare=False)
    sampling: RowSampling | None = None
    only: Only | None = None

    def __init__(
        self,
        parts: Sequence[Part],
        rows: int | None = None,
        sampling: RowSampling | None = None,
        only: Only | None = None,
    ) -> None:
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "sampling", sampling)
        object.__setattr__(self, "only", only)
        if only is not None and not isinstance(only, Only):
            raise RecipeError(f"Recipe: only must be Only(column, value), got {only!r} instead")
        if sampling is not None and not isinstance(sampling, RowSampling):
            raise RecipeError(f"Recipe: sampling must be RowSampling(…), got {sampling!r} instead")
        if not self.parts or not all(isinstance(part, Part) for part in self.parts):
            raise RecipeError("Recipe: parts must be a list of Part(map, share=…), at least one")
        if len(self.parts) > MOST_PARTS:
            raise RecipeError(
                f"Recipe: {len(self.parts)} parts are more than {MOST_PARTS}", "use maps of several columns"
            )
        total = sum(part.exact_share for part in self.parts)
        if total > 1:
            raise RecipeError(f"Recipe: the shares add up to {float(total):g}, more than 1", "lower some shares")

    def __repr__(self) -> str:
        options = {"sampling": self.sampling, "only": self.only}
        given = "".join(f", {name}={brief(value)}" for name, value in options.items() if value is not None)
        return f"Recipe([{', '.join(map(repr, self.parts))}]{given})"

    def _repr_html_(self) -> str:
        rows = [(brief(part.map), f"{part.share:.3g}") for part in self.parts]
        return html_table(f"Recipe of {counted(len(rows), 'part')}", ("map", "share of the budget"), rows)

    def bind(self, schema: Schema) -> BoundRecipe:
        """This recipe on a schema, with every map; refuses what does not fit together."""
        if self.sampling is not None and self.sampling.count is not None and schema.unit_column is not None:
            raise RecipeError(
                f"a fixed count of rows cannot be sampled with the unit column '{schema.unit_column}'",
                "sample by rate: whole units are then kept or dropped",
            )
        if self.only is not None:
            self.only.level(schema)
        maps: list[BoundMap] = []
        check_work([part.map for part in self.parts], schema)
        for part in self.parts:
            with named_errors(part.map):
                maps.append(part.map.bind(schema))
        for each in maps:
            each.check_beside(maps)
        return BoundRecipe(schema, self, tuple(maps))

    def settled(self, maps: Sequence[BoundMap]) -> Recipe:
        """This recipe with the choices that its maps made when they were bound, as a sketch stores it."""
        parts = [Part(feature_map.description, part.share) for part, feature_map in zip(self.parts, maps, strict=True)]
        return Recipe(parts, self.rows, self.sampling, self.only)

    def to_dict(self) -> dict[str, Any]:
        parts = [{"share": part.share} | part.map.to_dict() for part in self.parts]
        sampling = {} if self.sampling is None else {"sampling": self.sampling.to_dict()}
        only = {} if self.only is None else {"only": self.only.to_dict()}
        return json.loads(json.dumps({"parts": parts} | sampling | only))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Recipe:
        parts = []
        for part in facts["parts"]:
            values = dict(part)
            share = values.pop("share")
            parts.append(Part(map_from_dict(values), share))
        sampling = RowSampling.from_dict(facts["sampling"]) if "sampling" in facts else None
        only = Only.from_dict(facts["only"]) if "only" in facts else None
        return cls(parts, sampling=sampling, only=only)

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a TOML recipe.

        It has one [[parts]] section per map, with its share, and optionally [sampling] and [only]; see docs/recipes.md.
        """
        path = Path(path)
        facts = recipe_facts(path)
        try:
            return cls.from_dict(facts)
        except RecipeError as error:
            raise RecipeError(f"{path}: {error.fact}", error.hint) from None


def declared_rows(schema: Schema, rows: int | None = None) -> int:
    """The public order of magnitude of the number of rows: as passed, or as declared in the schema."""
    rows = schema.rows if rows is None else rows
    if rows is None:
        raise RecipeError(
            "the number of rows must be declared",
            "pass rows (--rows) or set privacy.rows in the schema: a public order of magnitude",
        )
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= 10**15:
        raise RecipeError(f"rows must be a whole number from 1 to 10^15, got {rows!r} instead")
    return rows
