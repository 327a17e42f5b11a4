"""What holders and a coordinator agree on before a joint release, and what they ask of whoever adds their sums up.

`federate` implements `Exchange` with masks, keys and messages; nothing here knows how.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dpsketch.maps.base import Sums
from dpsketch.privacy.events import Release
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.schema import Schema
from dpsketch.sketch import container

SumsType = np.dtype[np.int64] | np.dtype[np.int32]


class Share(Protocol):
    """One part of one stage at one holder: its exact sums plus its own share of the noise."""

    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> SumsType:
        """Eight bytes for sums modulo 2^64, four for sums modulo 2^32."""

    def chunks(self) -> Iterator[Sums]:
        """The sums in order. Noise is drawn while they are read, so they can be read once: a second time raises."""


class Totals(NamedTuple):
    """The sums of all shares of a stage, which may be memory-mapped, and how many holders are in them."""

    sums: Sequence[Sums]
    holders: int


class Exchange(Protocol):
    """One session of secure sums, at a holder or at the coordinator."""

    def join(self, terms: Terms, lineage: frozenset[str]) -> frozenset[str]:
        """Agree on members, keys and terms, before anything is spent. Refuses members whose terms differ.

        `lineage` identifies the inputs of this holder (nothing at the coordinator). Returns those of all holders, and
        refuses an id that two of them have.
        """

    def sum(self, stage: int, shares: Sequence[Share], meaning: bytes) -> Totals:
        """The totals of a stage. Stages are 0, 1, …; the members of all are those of the first one's sum.

        `meaning` holds public bytes that must be equal at all members before a vector of this stage leaves. At the
        coordinator, `shares` have sizes and types only. Where the stage was finished before a restart, its stored
        totals are returned and no share is read; a share whose reading was interrupted is never read again.
        """


@dataclass(frozen=True)
class Awaited:
    """A part of a stage as the coordinator knows it: its size and type."""

    size: int
    dtype: SumsType

    def chunks(self) -> Iterator[Sums]:
        raise RuntimeError("a bug: the coordinator has no share")


@dataclass(frozen=True)
class Terms:
    """Everything public that must be equal at all members of a session.

    `event` holds the budget and the noise of every part, with the number of shares that can be in the sum at most.
    """

    consortium: Consortium
    bound: BoundRecipe
    event: Release
    types: tuple[SumsType, ...]
    disjoint_units: bool
    library: str

    @property
    def schema(self) -> Schema:
        return self.bound.schema

    @property
    def recipe(self) -> Recipe:
        return self.bound.recipe

    def to_bytes(self) -> bytes:
        """Canonical JSON: sorted keys, no spaces, UTF-8."""
        names = {kind: name for name, kind in container.TYPES.items()}
        facts = {
            "consortium": self.consortium.to_dict(),
            "schema": self.schema.to_dict(),
            "recipe": self.recipe.to_dict(),
            "fingerprints": [own.fingerprint() for own in self.bound.maps],
            "sizes": [own.size for own in self.bound.maps],
            "types": [names[kind.newbyteorder("<")] for kind in self.types],
            "release": self.event.to_dict(),
            "accounted": list(self.schema.accounted),
            "disjoint_units": self.disjoint_units,
            "library": self.library,
        }
        return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the terms, in hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()
