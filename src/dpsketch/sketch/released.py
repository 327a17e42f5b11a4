"""A released sketch: immutable, self-describing, free to share. Whatever is computed from it costs no privacy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from math import sinh
from pathlib import Path
from typing import Any

from dpsketch.errors import DpsketchError, FileError, MergeError
from dpsketch.maps.base import BoundMap, Relation, Sensitivity, Sums
from dpsketch.privacy.budget import Budget, decimal_text
from dpsketch.recipe import Part, Recipe, RowSampling, declared_rows
from dpsketch.schema import Schema
from dpsketch.sketch import counters, file
from dpsketch.sketch.lineage import checked_lineage, merged_schema

MECHANISM = "discrete Laplace"
MOST_MERGED = 1000
NOT_PROTECTED = (
    "the schema: column names, bounds, listed values, the declared number of rows",
    "the recipe and its public seeds",
    "that the table exists and was released",
    "how long the release took",
    "facts about groups and the population, which the release is meant to show",
)
_FRACTION = re.compile(r"[0-9]{1,40}(/[0-9]{1,40})?")


@dataclass(frozen=True, eq=False)
class ReleasedPart:
    """One map, its noisy sums and the noise that is in them."""

    map: BoundMap
    sums: Sums
    sensitivity: Sensitivity
    noise_scales: tuple[Fraction, ...]

    @property
    def noise_variance(self) -> float:
        """Of each sum, in the integer units of `sums`: 2a/(1−a)² with a = exp(−1/scale), for every merged release."""
        return sum(0.5 / sinh(0.5 / float(scale)) ** 2 for scale in self.noise_scales)


@dataclass(frozen=True)
class ReleasedSketch:
    """Guarantee: each merged release is ε-differentially private with its own entry of `epsilons`; an empty
    `epsilons` means that nothing is protected. Source: docs/proofs/release.md.
    """

    schema: Schema
    recipe: Recipe
    maps: tuple[BoundMap, ...]
    sums: tuple[Sums, ...]
    epsilons: tuple[Fraction, ...]
    lineage: frozenset[str]
    created: str
    library: str

    @property
    def private(self) -> bool:
        return bool(self.epsilons)

    @cached_property
    def parts(self) -> tuple[ReleasedPart, ...]:
        return tuple(
            ReleasedPart(
                bound, sums, part_sensitivity(self.schema, bound, self.recipe.sampling), self._scales(part, bound)
            )
            for part, bound, sums in zip(self.recipe.parts, self.maps, self.sums, strict=True)
        )

    def _scales(self, part: Part, bound: BoundMap) -> tuple[Fraction, ...]:
        sampling = self.recipe.sampling
        return tuple(part_noise_scale(self.schema, part, bound, epsilon, sampling) for epsilon in self.epsilons)

    @property
    def statement(self) -> dict[str, Any]:
        """The privacy statement, derived from what the file holds."""
        facts: dict[str, Any] = {
            "private": self.private,
            "relation": Relation.ADD_REMOVE.value,
            "unit": self.schema.unit,
            "max_rows_per_unit": self.schema.max_rows_per_unit,
            "record": self.schema.record,
            "note": self.schema.note,
            "not_protected": list(NOT_PROTECTED),
            "created": self.created,
            "library": self.library,
        }
        if self.recipe.sampling is not None:
            facts["sampling"] = _sampling_facts(self.recipe.sampling)
        if not self.private:
            return facts | {"epsilon": "infinity", "warning": "NOT PRIVATE: the sums are exact"}
        facts["epsilon"] = decimal_text(max(self.epsilons))
        facts["epsilon_of_each_merged_release"] = [decimal_text(epsilon) for epsilon in self.epsilons]
        facts["parts"] = [
            part.map.description.summary()
            | {
                "mechanism": MECHANISM,
                "sensitivity_l1": part.sensitivity.l1,
                "epsilon": [decimal_text(entry.exact_share * epsilon) for epsilon in self.epsilons],
                "noise_scale": [str(scale) for scale in part.noise_scales],
            }
            for entry, part in zip(self.recipe.parts, self.parts, strict=True)
        ]
        return facts

    def merge(self, other: ReleasedSketch, disjoint_units: bool = False) -> ReleasedSketch:
        """The sum of two releases: its noise is the sum of both noises. Units as in `RawSketch.merge`."""
        schema = merged_schema(self, other, disjoint_units)
        if not self.private or not other.private:
            raise MergeError(
                "a sketch marked NOT PRIVATE does not merge with any other",
                "release with a finite epsilon, or merge the raw sketches",
            )
        if len(self.epsilons) + len(other.epsilons) > MOST_MERGED:
            raise MergeError(f"a sketch may hold at most {MOST_MERGED} releases", "merge raw sketches instead")
        return ReleasedSketch(
            schema,
            self.recipe,
            self.maps,
            tuple(_merged(mine, theirs, schema) for mine, theirs in zip(self.parts, other.parts, strict=True)),
            self.epsilons + other.epsilons,
            self.lineage | other.lineage,
            max(self.created, other.created),
            library_version(),
        )

    def save(self, path: str | Path, force: bool = False) -> None:
        release = {
            "epsilons": [str(epsilon) for epsilon in self.epsilons],
            "lineage": sorted(self.lineage),
            "created": self.created,
            "library": self.library,
        }
        extra = {"release": release, "statement": self.statement}
        file.write(path, "released", file.Contents(self.schema, self.recipe, self.maps, self.sums, extra), force)

    @classmethod
    def load(cls, path: str | Path) -> ReleasedSketch:
        contents = file.read(path, "released")
        facts = contents.extra.get("release")
        if not isinstance(facts, dict):
            raise FileError(f"{path}: the header is not valid: release", "ask its owner for a new copy")
        lineage = checked_lineage(path, facts.get("lineage"))
        try:
            if not isinstance(facts["epsilons"], list) or len(facts["epsilons"]) > MOST_MERGED:
                raise ValueError("epsilons")
            epsilons = tuple(_epsilon(text) for text in facts["epsilons"])
            created, library = date.fromisoformat(facts["created"]).isoformat(), str(facts["library"])[:40]
        except (DpsketchError, KeyError, TypeError, ValueError, ZeroDivisionError):
            raise FileError(f"{path}: the header is not valid: release", "ask its owner for a new copy") from None
        return cls(contents.schema, contents.recipe, contents.maps, contents.sums, epsilons, lineage, created, library)


def part_sensitivity(schema: Schema, bound: BoundMap, sampling: RowSampling | None) -> Sensitivity:
    """Exact sensitivity of a part for this schema's privacy unit, one unit more or less.

    A row more may take another's place in a sample of a fixed count: then the larger of a row added and a row
    replaced. Source: docs/proofs/row_sampling.md.
    """
    rows_per_unit = None if schema.unit_column is None else schema.max_rows_per_unit
    added = bound.sensitivity(Relation.ADD_REMOVE, rows_per_unit)
    if sampling is None or sampling.count is None:
        return added
    replaced = bound.sensitivity(Relation.REPLACE_ONE, rows_per_unit)
    return Sensitivity(max(added.l1, replaced.l1), max(added.l2_squared, replaced.l2_squared))


def part_noise_scale(
    schema: Schema, part: Part, bound: BoundMap, epsilon: Fraction, sampling: RowSampling | None
) -> Fraction:
    """Scale of the discrete Laplace noise of a part: L1 / (share · ε), exact."""
    return part_sensitivity(schema, bound, sampling).l1 / (part.exact_share * epsilon)


def _sampling_facts(sampling: RowSampling) -> dict[str, Any]:
    exact = {} if sampling.count is not None else {"exact_rate": str(sampling.exact_rate)}
    return sampling.to_dict() | exact | {"amplification": "none claimed"}


def fits(schema: Schema, bound: BoundMap, noise_scales: tuple[Fraction, ...], room: int) -> bool:
    """Whether the declared rows and the noise stay below `room`: public numbers all."""
    return declared_rows(schema) * bound.largest + counters.NOISE_SCALES * sum(noise_scales) < room


def library_version() -> str:
    return version("dpsketch")


def _merged(mine: ReleasedPart, theirs: ReleasedPart, schema: Schema) -> Sums:
    """In four bytes if both are and the sum of rows and noises fits, else in eight."""
    four_bytes = counters.narrow(mine.sums) and counters.narrow(theirs.sums)
    scales = mine.noise_scales + theirs.noise_scales
    four_bytes = four_bytes and fits(schema, mine.map, scales, counters.NARROW_ROOM)
    return counters.add(mine.sums, theirs.sums, four_bytes)


def _epsilon(text: object) -> Fraction:
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise ValueError("epsilon")
    return Budget(float(Fraction(text))).exact_epsilon
