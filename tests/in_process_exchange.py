"""Secure sums without any security: threads of one process that add their shares up. For tests alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Any

import numpy as np

from dpsketch.errors import DpsketchError
from dpsketch.maps.base import Sums
from dpsketch.sketch.joint_terms import Share, Terms, Totals

PATIENCE = 60.0  # seconds


class Gone(Exception):
    """This holder drops out before the stage at which it was told to."""


class Room:
    """Where the members of one session meet. `drops` names the stage before which a holder leaves."""

    def __init__(self, holders: Sequence[str], drops: Mapping[str, int] | None = None) -> None:
        self.holders, self.drops = tuple(holders), dict(drops or {})
        self._changed = Condition()
        self._joined: dict[str, tuple[bytes, frozenset[str]]] = {}
        self._sums: dict[int, list[Sums]] = {}
        self._delivered: dict[int, dict[str, bytes]] = {}
        self.meanings: list[bytes] = []

    def staying(self, stage: int) -> set[str]:
        return {name for name in self.holders if self.drops.get(name, stage + 1) > stage}

    def join(self, name: str, terms: Terms, lineage: frozenset[str]) -> frozenset[str]:
        with self._changed:
            self._joined[name] = terms.to_bytes(), lineage
            self._changed.notify_all()
            self._wait(lambda: len(self._joined) == len(self.holders) + 1)
            if len({terms for terms, _ in self._joined.values()}) > 1:
                raise DpsketchError("the members' terms differ")
            ids = [one for _, ids in self._joined.values() for one in ids]
            if len(set(ids)) < len(ids):
                raise DpsketchError("two holders have the same input")
            return frozenset(ids)

    def add(self, name: str, stage: int, shares: Sequence[Share], meaning: bytes) -> None:
        if name not in self.staying(stage):
            raise Gone(name)
        mine = [_read(share) for share in shares]
        with self._changed:
            others = set(self._delivered.setdefault(stage, {}).values())
            if others - {meaning}:
                raise DpsketchError("the members mean different sums")
            earlier = self._sums.get(stage)
            self._sums[stage] = mine if earlier is None else [a + b for a, b in zip(earlier, mine, strict=True)]
            self._delivered[stage][name] = meaning
            self._changed.notify_all()

    def totals(self, stage: int) -> Totals:
        with self._changed:
            self._wait(lambda: set(self._delivered.get(stage, {})) >= self.staying(stage))
            return Totals(self._sums[stage], len(self._delivered[stage]))

    def _wait(self, ready: Callable[[], bool]) -> None:
        if not self._changed.wait_for(ready, PATIENCE):
            raise DpsketchError("the other members did not come")


class Seat:
    """The place of one member: a holder's, or with the name "" the coordinator's."""

    def __init__(self, room: Room, name: str = "") -> None:
        self.room, self.name = room, name

    def join(self, terms: Terms, lineage: frozenset[str]) -> frozenset[str]:
        return self.room.join(self.name, terms, lineage)

    def sum(self, stage: int, shares: Sequence[Share], meaning: bytes) -> Totals:
        if self.name:
            self.room.add(self.name, stage, shares, meaning)
        totals = self.room.totals(stage)
        assert [sums.size for sums in totals.sums] == [share.size for share in shares]
        return totals


def _read(share: Share) -> Sums:
    chunks = list(share.chunks())
    return np.concatenate(chunks) if chunks else np.zeros(0, share.dtype)


def together(members: Sequence[Callable[[], Any]]) -> list[Any]:
    """What all members return, or the exceptions that they raise, run at once."""
    with ThreadPoolExecutor(len(members)) as pool:
        running = [pool.submit(member) for member in members]
        return [each.exception() or each.result() for each in running]
