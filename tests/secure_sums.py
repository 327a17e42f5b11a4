"""A secure sum with all parties in one process, and doors for whoever attacks it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dpsketch.federate.envelope import Envelope
from dpsketch.federate.roster import Party
from dpsketch.federate.secure_sum import HolderSum, Secrets
from dpsketch.federate.sum_messages import (
    AGREE,
    JOIN,
    MASKED,
    SHARES,
    UNMASK,
    Setting,
    Shape,
    VectorDigest,
    chunks_of,
)
from dpsketch.federate.sum_totals import CoordinatorSum
from dpsketch.privacy.noise_shares import Consortium
from parties import parties

SESSION = bytes(range(32))
TERMS = bytes([7]) * 32
MEANING = bytes([9]) * 32
TYPES = {4: np.uint32, 8: np.uint64}


@cache
def people(count: int) -> dict[str, Party]:
    return parties(hub="coordinator", **{f"h{number}": "holder" for number in range(1, count + 1)})


@dataclass
class Run:
    """One stage. The methods are the rounds; `sent` are the signed messages by round and sender."""

    consortium: Consortium
    shape: Shape = ((5, 8), (3, 4))
    stage: int = 0
    terms: Mapping[str, bytes] = field(default_factory=dict)
    draw: Callable[[int], bytes] = os.urandom

    def __post_init__(self) -> None:
        self.people = people(self.consortium.holders)
        self.names = [name for name in self.people if name != "hub"]
        self.holders = {
            name: HolderSum(self.setting(self.terms.get(name, TERMS)), name, Secrets.fresh(self.draw), [f"id {name}"])
            for name in self.names
        }
        self.hub = CoordinatorSum(self.setting())
        self.sent: dict[str, dict[str, bytes]] = {}
        self.vectors: dict[str, list[np.ndarray]] = {}

    def setting(self, terms: bytes = TERMS) -> Setting:
        roster = self.people["hub"].roster
        return Setting(roster, "hub", SESSION, self.stage, terms, self.consortium, roster.with_role("holder"))

    def message(self, name: str, round_: str, body: bytes) -> bytes:
        signed = self.setting().envelope(name, round_, body).sign(self.people[name])
        self.sent.setdefault(round_, {})[name] = signed
        return signed

    def own(self, round_: str, name: str) -> bytes:
        return Envelope.verify(self.sent[round_][name], self.people["hub"].roster).body

    def signed(self, round_: str, names: Iterable[str] | None = None) -> dict[str, bytes]:
        return {name: self.sent[round_][name] for name in (names or self.names)}

    def join(self, names: Sequence[str] | None = None) -> bytes:
        for name in names or self.names:
            self.message(name, JOIN, self.holders[name].join())
        body = self.hub.take_joins(self.signed(JOIN, names))
        for name in names or self.names:
            self.holders[name].take_joins(body)
        return body

    def share(self, names: Sequence[str] | None = None) -> bytes:
        for name in names or self.names:
            self.message(name, SHARES, self.holders[name].shares(MEANING, self.shape, self.draw))
        body = self.hub.take_shares(self.signed(SHARES, names))
        for name in names or self.names:
            self.holders[name].take_shares(body, self.own(SHARES, name))
        return body

    def mask(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Masked vectors of these holders."""
        for name, parts in values.items():
            stream, vector = self.holders[name].masks(), VectorDigest()
            masked = [np.array(part, TYPES[width]) for part, (_, width) in zip(parts, self.shape, strict=True)]
            for part, first, size in chunks_of(self.shape):
                stream.add_to(masked[part][first : first + size])
                vector.add(masked[part][first : first + size].tobytes())
            self.vectors[name] = masked
            self.message(name, MASKED, self.holders[name].masked(vector.digest()))

    def survive(self, names: Sequence[str]) -> bytes:
        """The list of survivors, and their agreement to it."""
        body = self.hub.take_manifests(self.signed(MASKED, names))
        for name in names:
            self.message(name, AGREE, self.holders[name].take_survivors(body, self.own(MASKED, name)))
        return body

    def unmask(self, names: Sequence[str]) -> list[np.ndarray]:
        """The totals, from the shares of these holders."""
        body = self.hub.take_agreements(self.signed(AGREE, names))
        for name in names:
            self.message(name, UNMASK, self.holders[name].take_agreements(body))
        return self.totals(names)

    def totals(self, names: Sequence[str]) -> list[np.ndarray]:
        roster = self.people["hub"].roster
        stream = self.hub.masks({name: Envelope.verify(self.sent[UNMASK][name], roster) for name in names})
        totals = [np.zeros(size, TYPES[width]) for size, width in self.shape]
        for part, first, size in chunks_of(self.shape):
            chunk = totals[part][first : first + size]
            for name in self.hub.survivors:
                chunk += self.vectors[name][part][first : first + size]
            stream.add_to(chunk)
        return totals

    def to_survivors(self, values: Mapping[str, Sequence[Any]]) -> bytes:
        """Everything up to the agreement of those who have values."""
        self.join()
        self.share()
        self.mask(values)
        return self.survive(list(values))


def random_values(names: Iterable[str], shape: Shape, seed: int = 0) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {
        name: [rng.integers(0, 2 ** (8 * width) - 1, size, TYPES[width], endpoint=True) for size, width in shape]
        for name in names
    }
