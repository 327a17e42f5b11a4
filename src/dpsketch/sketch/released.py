"""A released sketch: immutable, self-describing, free to share. Whatever is computed from it costs no privacy."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from dpsketch.calibration import noise_reach, noise_variance, noise_variances, times_one_curator
from dpsketch.displays import brief, counted, html_table, listed
from dpsketch.errors import DpsketchError, FileError, MergeError, PrivacyWarning, visible
from dpsketch.files.outputs import written
from dpsketch.maps.base import LARGE, BoundMap, Sums
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.advisories import Advisory, advisories
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Noise, Release, exact_number
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch import container, counters, file
from dpsketch.sketch.circumstances import Circumstances
from dpsketch.sketch.container import ASK
from dpsketch.sketch.merging import checked_lineage, merged_bound
from dpsketch.sketch.statement_facts import map_names, statement_facts

M = TypeVar("M", bound=BoundMap)
MOST_MERGED = 1000
_MOST, _MOST_ROWS = (
    Fraction(2**62),
    Fraction(10**15),
)  # above the sums of any table; most rows that a schema may declare


@dataclass(frozen=True, eq=False)
class ReleasedPart:
    """One map, its noisy sums and the noise that is in them."""

    map: BoundMap
    sums: Sums
    noises: tuple[Noise, ...]

    def __repr__(self) -> str:
        return f"ReleasedPart({brief(self.map.description)}, {counted(self.map.size, 'noisy sum')})"

    @property
    def noise_variance(self) -> float:
        """Noise variance of each sum, in the integer units of `sums`, over all merged releases."""
        return sum(noise_variance(noise, self.map) for noise in self.noises)

    @property
    def noise_variances(self) -> Floats:
        """Noise variance of each sum of a group, where they differ."""
        return np.asarray(sum(noise_variances(noise, self.map) for noise in self.noises))


@dataclass(frozen=True)
class ReleasedSketch:
    """Guarantee: each merged release keeps the budget of its entry of `releases`; without any, nothing is protected.
    Source: docs/proofs/release.md.
    """

    schema: Schema
    recipe: Recipe
    maps: tuple[BoundMap, ...]
    sums: tuple[Sums, ...]
    releases: tuple[Release, ...]
    lineage: frozenset[str]
    created: str
    library: str
    circumstances: tuple[Circumstances, ...] = ()  # one for each release, or none

    def __repr__(self) -> str:
        maps = ", ".join(feature_map.description.name for feature_map in self.maps)
        return f"ReleasedSketch({maps}; {counted(len(self.schema.columns), 'column')}; {self.promise})"

    def _repr_html_(self) -> str:
        """List the maps, the columns and the guarantee; the noisy sums are for estimators, not for readers."""
        rows = [
            (brief(part.map), feature_map.size, listed(feature_map.columns))
            for part, feature_map in zip(self.recipe.parts, self.maps, strict=True)
        ]
        return html_table(repr(self), ("map", "noisy sums", "columns"), rows) + self.schema._repr_html_()

    @property
    def promise(self) -> str:
        """The budget of each release, in a few words."""
        return " + ".join(str(release.budget) for release in self.releases) or "NOT PRIVATE"

    @property
    def private(self) -> bool:
        return bool(self.releases)

    @cached_property
    def parts(self) -> tuple[ReleasedPart, ...]:
        return tuple(
            ReleasedPart(feature_map, sums, tuple(release.noises[index] for release in self.releases))
            for index, (feature_map, sums) in enumerate(zip(self.maps, self.sums, strict=True))
        )

    def parts_with(
        self, kind: type[M], columns: Collection[str] | None = None, grouped: bool = False
    ) -> Iterator[tuple[ReleasedPart, M]]:
        """Parts whose map, without its masks, is of this kind and has all of `columns`, each with that map.

        Parts with a group for each label of a column are included only if `grouped`.
        """
        for part in self.parts:
            core, wanted = part.map.core, grouped or part.map.grouped_by is None
            if wanted and isinstance(core, kind) and set(columns or ()) <= set(core.columns):
                yield part, core

    @property
    def advisories(self) -> tuple[Advisory, ...]:
        """Known privacy faults of the versions that made this file."""
        mechanisms = [noise.mechanism.value for release in self.releases for noise in release.noises]
        libraries = {self.library, *(each.library for each in self.circumstances)}
        return advisories(libraries, map_names(self.recipe.to_dict()), mechanisms)

    @property
    def statement(self) -> dict[str, Any]:
        """The privacy statement, derived from what the file holds."""
        made = self.created, self.library
        facts = statement_facts(self.schema, self.recipe, self.releases, len(self.lineage), *made, self.circumstances)
        for part, shown in zip(self.parts, facts.get("parts", []), strict=bool(self.releases)):
            for noise, each in zip(part.noises, shown["noise"], strict=True):
                if noise.shares is not None:
                    each["times"] = round(times_one_curator(noise, part.map, self._bound.body(part.map)), 6)
        return facts

    @property
    def _bound(self) -> BoundRecipe:
        return BoundRecipe(self.schema, self.recipe, self.maps)

    def merge(self, other: ReleasedSketch, disjoint_units: bool = False) -> ReleasedSketch:
        """The sum of two releases; their noises add up. `disjoint_units` as in `RawSketch.merge`."""
        if not self.private or not other.private:
            raise MergeError(
                "a sketch marked NOT PRIVATE does not merge with any other",
                "release with a finite epsilon, or merge the raw sketches",
            )
        bound = merged_bound(self, other, disjoint_units)
        if len(self.releases) + len(other.releases) > MOST_MERGED:
            raise MergeError(f"a sketch may hold at most {MOST_MERGED} releases", "merge raw sketches instead")
        return ReleasedSketch(
            bound.schema,
            bound.recipe,
            bound.maps,
            tuple(_merged(mine, theirs, bound.schema) for mine, theirs in zip(self.parts, other.parts, strict=True)),
            self.releases + other.releases,
            self.lineage | other.lineage,
            max(self.created, other.created),
            library_version(),
            self._each_circumstances() + other._each_circumstances(),
        )

    def _each_circumstances(self) -> tuple[Circumstances, ...]:
        """Those of every release; empty ones for files of earlier versions."""
        return self.circumstances or (Circumstances(self.library),) * len(self.releases)

    def save(self, path: str | Path, force: bool = False) -> None:
        with written(path, force) as target:
            self.write(target)

    def write(self, target: BinaryIO) -> None:
        release = {
            "releases": [release.to_dict() for release in self.releases],
            "lineage": sorted(self.lineage),
            "created": self.created,
            "library": self.library,
        }
        if self.circumstances:
            release["circumstances"] = [each.to_dict() for each in self.circumstances]
        extra = {"release": release, "statement": self.statement}
        bound = BoundRecipe(self.schema, self.recipe, self.maps)
        stored = tuple(_stored(part, self.schema) for part in self.parts)
        file.write(target, "released", file.Contents(bound, stored, extra))

    @classmethod
    def load(cls, path: str | Path) -> ReleasedSketch:
        """Read a released sketch. Warns of known privacy faults of the version that made it."""
        contents = file.read(path, "released")
        contents = replace(contents, sums=tuple(map(_widened, contents.sums)))
        facts = contents.extra.get("release")
        if not isinstance(facts, dict):
            raise FileError(f"{path}: the header is not valid: release", ASK)
        lineage = checked_lineage(path, facts.get("lineage"))
        try:
            releases = _releases(facts, contents.bound)
            _check_sums(path, contents, releases)
            circumstances = _circumstances(facts, releases)
            created, library = date.fromisoformat(facts["created"]).isoformat(), visible(str(facts["library"])[:40])
        except FileError:
            raise
        except (DpsketchError, *container.INVALID):
            raise FileError(f"{path}: the header is not valid: release", ASK) from None
        bound = contents.bound
        found = cls(
            bound.schema, bound.recipe, bound.maps, contents.sums, releases, lineage, created, library, circumstances
        )
        for each in found.advisories:
            warnings.warn(f"{path} may be affected by {each}", PrivacyWarning, stacklevel=2)
        return found


def _check_sums(path: str | Path, contents: file.Contents, releases: Sequence[Release]) -> None:
    """Refuse sums that no table can have.

    Every record adds at most `largest` to each sum, and the count gives the number of records up to noise. Noise
    exceeds `noise_reach` in any of the sums with a probability below 10^-30.
    """
    maps = contents.bound.maps
    reach = [
        sum((noise_reach(release.noises[index], feature_map) for release in releases), Fraction(0))
        for index, feature_map in enumerate(maps)
    ]
    counts = [index for index, feature_map in enumerate(maps) if feature_map.only_counts]
    records = min([_MOST_ROWS, *(max(int(contents.sums[index][0]), 0) + reach[index] for index in counts)])
    for index, (feature_map, sums) in enumerate(zip(maps, contents.sums, strict=True)):
        if counters.narrow(sums):  # large tables are mapped from the file, and four bytes limit them
            continue
        largest = max(int(sums.max(initial=0)), -int(sums.min(initial=0)))
        if largest > min(_MOST, records * feature_map.largest + reach[index]):
            raise FileError(f"{path} is damaged or made by something else: its sums are larger than possible", ASK)


def fits(schema: Schema, feature_map: BoundMap, noises: Sequence[Noise], room: int) -> bool:
    """Whether the declared rows and the noise stay below `room`. All of these numbers are public."""
    reach = sum((noise_reach(noise, feature_map) for noise in noises), Fraction(0))
    return declared_rows(schema) * feature_map.largest + reach < room


def _stored(part: ReleasedPart, schema: Schema) -> Sums:
    """Sums as a file holds them: in four bytes where public numbers say that these suffice, and they do."""
    sums, room = part.sums, counters.NARROW_ROOM
    if sums.size >= LARGE or not part.map.narrow or not fits(schema, part.map, part.noises, room):
        return sums
    return sums.astype(np.int32) if -room <= sums.min(initial=0) and sums.max(initial=0) < room else sums


def _widened(sums: Sums) -> Sums:
    """Large tables of four bytes stay in the file; whoever computes with others need not care."""
    return sums if sums.size >= LARGE else sums.astype(np.int64, copy=False)


def library_version() -> str:
    return version("dpsketch")


def _merged(mine: ReleasedPart, theirs: ReleasedPart, schema: Schema) -> Sums:
    """The sum of two parts, in four bytes if both have four and rows and noises together fit, else in eight."""
    four_bytes = counters.narrow(mine.sums) and counters.narrow(theirs.sums)
    four_bytes = four_bytes and fits(schema, mine.map, mine.noises + theirs.noises, counters.NARROW_ROOM)
    return counters.add(mine.sums, theirs.sums, four_bytes)


def _releases(facts: dict[str, Any], bound: BoundRecipe) -> tuple[Release, ...]:
    """The checked releases of a file. Files of format 1 hold pure ε, spent by shares on Laplace noise."""
    entries = facts.get("releases", facts.get("epsilons"))
    if not isinstance(entries, list) or len(entries) > MOST_MERGED:
        raise ValueError("releases")
    if "releases" not in facts:
        return tuple(_format_1(text, bound) for text in entries)
    releases = tuple(Release.from_dict(entry) for entry in entries)
    if not all(bound.promised(release) for release in releases):
        raise ValueError("noises")
    return releases


def _circumstances(facts: dict[str, Any], releases: Sequence[Release]) -> tuple[Circumstances, ...]:
    entries = facts.get("circumstances", [])
    if not isinstance(entries, list) or len(entries) not in (0, len(releases)):
        raise ValueError("circumstances")
    parsed = tuple(map(Circumstances.from_dict, entries))
    for release, each in zip_longest(releases, parsed):
        shares, group = release.shares, None if each is None else each.consortium
        if shares is None:
            continue
        if group is None or shares.honest != group.honest or not group.least <= shares.added <= group.holders:
            raise ValueError("consortium")
    return parsed


def _format_1(text: object, bound: BoundRecipe) -> Release:
    """A release of format 1: pure ε by shares, Laplace noise, no amplification by sampling."""
    epsilon = exact_number(text)
    noises = []
    for part, own in zip(bound.recipe.parts, bound.maps, strict=True):
        l1 = bound.sensitivity(own).l1
        noises.append(Noise(Mechanism.LAPLACE, l1, l1 / (part.exact_share * epsilon)))
    return Release(Budget(float(epsilon)), tuple(noises))
