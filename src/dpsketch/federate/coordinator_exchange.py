"""A session of secure sums at the coordinator: `sketch.joint_terms.Exchange` over a folder of boxes.

It collects every round's messages, and posts the collection to everyone. It has no secrets: a restarted coordinator
goes on from its folder, and a collection that it posted stands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np

from dpsketch.errors import FederationError
from dpsketch.federate.boxes import Boxes
from dpsketch.federate.correspondence import Waiting
from dpsketch.federate.envelope import SESSION, Envelope
from dpsketch.federate.roster import EVERYONE, Party, check_secret_folder
from dpsketch.federate.session_files import Finished, TotalsFile, check_shape
from dpsketch.federate.sum_messages import (
    AGREE,
    AGREED,
    ALL_SHARES,
    COORDINATOR,
    DONE,
    FAILED,
    HOLDER,
    JOIN,
    JOINS,
    MASKED,
    OPEN,
    SHARES,
    SURVIVORS,
    TOTAL,
    TOTALS,
    UNMASK,
    VECTOR,
    Opening,
    Result,
    Setting,
    Shape,
    VectorDigest,
    chunks_of,
    done_body,
    failure_body,
    failure_of,
    public_digest,
)
from dpsketch.federate.sum_totals import CoordinatorSum, Signed
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.sketch.joint_terms import Share, Terms, Totals

_T = TypeVar("_T")
_LONG = 10**9  # seconds


class CoordinatorExchange:
    """One session at the coordinator. Serve its `boxes` with a `Mailbox`, or carry messages by hand.

    After `patience` seconds without any message a round goes on with those who sent theirs; a session that has too few
    of them ends. A holder may store `room` bytes. With `by_hand` a round waits for all but the holders in `without`,
    and raises `Waiting`.
    """

    def __init__(
        self,
        party: Party,
        folder: Path,
        patience: float = 600,
        by_hand: bool = False,
        without: Collection[str] = (),
        room: int = 1 << 40,
        tell: Callable[[str], None] = lambda _: None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        check_secret_folder(folder)
        if party.name != party.roster.the(COORDINATOR):
            raise FederationError(f"{party.name} is not the coordinator in the roster", "use the coordinator's key")
        self.party, self._folder, self._patience, self._by_hand = party, folder, patience, by_hand
        self._without, self._tell, self._progress = set[str](), tell, progress
        self._session = _session_id(folder / "session")
        self.boxes = Boxes(folder / "boxes", party.roster, self._session, room, party.name)
        self._terms = b""
        self._consortium: Consortium | None = None
        for name in without:
            self.leave_out(name)

    def leave_out(self, name: str) -> None:
        """Wait for this holder no longer, at once: somebody knows that it has dropped out."""
        if name not in self.party.roster.with_role(HOLDER):
            raise FederationError(f"{name} is not a holder in the roster", "name a holder")
        self._without.add(name)
        self.boxes.wake()

    def join(self, terms: Terms, lineage: frozenset[str] = frozenset()) -> frozenset[str]:
        """Open the session and collect the holders' signatures of its terms. Returns the ids of their inputs."""
        holders = self.party.roster.with_role(HOLDER)
        if len(holders) != terms.consortium.holders:
            fact = f"the roster has {len(holders)} holders, the terms {terms.consortium.holders}"
            raise FederationError(fact, "list every holder")
        own = terms.to_bytes()
        self._terms, self._consortium = public_digest(own), terms.consortium
        self._post(
            Envelope(
                self._session, self.party.name, EVERYONE, OPEN, body=Opening(self.party.roster.digest, own).to_bytes()
            )
        )
        self._checked(lambda: None)  # a session that ended stays so
        hub = CoordinatorSum(self._setting(0))
        self._round(hub, JOIN, JOINS, holders, hub.take_joins)
        return hub.lineage

    def sum(self, stage: int, shares: Sequence[Share], meaning: bytes) -> Totals:
        """The totals of a stage, of which `shares` name sizes and types."""
        shape = tuple((share.size, share.dtype.itemsize) for share in shares)
        finished = Finished.load(self._folder, stage)
        if finished is None:
            finished = self._summed(stage, shape, meaning)
        check_shape(finished.shape, shape)
        return Totals(TotalsFile(self._folder / f"totals-{stage}", shape).sums(), finished.result.holders)

    def finish(self) -> list[str]:
        """Wait until the holders in the sum have its totals. Returns those who have not said so."""
        stage = 0
        while Finished.load(self._folder, stage + 1) is not None:
            stage += 1
        finished = Finished.load(self._folder, stage)
        assert finished is not None
        setting, right = self._setting(stage), done_body(finished.result)
        with suppress(Waiting):
            self._arrived(setting, DONE, finished.survivors, len(finished.survivors))
        receipts = {name: self.boxes.get(setting.envelope(name, DONE)) for name in finished.survivors}
        return [name for name, receipt in receipts.items() if receipt is None or receipt.body != right]

    def _setting(self, stage: int) -> Setting:
        assert self._consortium is not None
        members, previous = self.party.roster.with_role(HOLDER), bytes(32)
        if stage > 0:
            last = Finished.load(self._folder, stage - 1)
            if last is None:
                raise RuntimeError("a bug: stages follow each other")
            members, previous = last.survivors, last.result.digest
        return Setting(
            self.party.roster, self.party.name, self._session, stage, self._terms, self._consortium, members, previous
        )

    def _summed(self, stage: int, shape: Shape, meaning: bytes) -> Finished:
        setting = self._setting(stage)
        hub = CoordinatorSum(setting)
        joined = self._round(hub, JOIN, JOINS, setting.members, hub.take_joins)
        sharing = self._round(hub, SHARES, ALL_SHARES, joined, hub.take_shares)
        self._checked(lambda: _check_agreed(hub, shape, public_digest(meaning)))
        self._round(hub, MASKED, SURVIVORS, sharing, lambda signed: self._with_vectors(hub, signed))
        threshold = setting.consortium.threshold
        self._round(hub, AGREE, AGREED, hub.survivors, hub.take_agreements, threshold)
        self._arrived(setting, UNMASK, hub.survivors, threshold)
        messages = {name: self.boxes.get(setting.envelope(name, UNMASK)) for name in hub.survivors}
        sent = {name: message for name, message in messages.items() if message is not None}
        result = self._checked(lambda: self._total(hub, sent))
        finished = Finished(result, shape, hub.survivors)
        self._post(setting.envelope(self.party.name, TOTALS, result.to_bytes()))
        finished.save(self._folder, stage)
        self._forget_vectors(hub)
        self._tell(f"stage {stage + 1}: the sum of {result.holders} holders, digest {result.digest.hex()[:16]}")
        return finished

    def _round(
        self,
        hub: CoordinatorSum,
        round_: str,
        returned: str,
        expected: Collection[str],
        take: Callable[[Signed], bytes],
        enough: int | None = None,
    ) -> tuple[str, ...]:
        """Collect the messages of a round and post them as a collection; or take the one that was posted earlier."""
        setting = hub.setting
        own = setting.envelope(self.party.name, returned)
        stored = self.boxes.get(own)
        if stored is not None:
            names = tuple(setting.collected(stored.body, round_, expected))
        else:
            names = self._arrived(setting, round_, expected, len(expected) if enough is None else enough)
        signed = {name: self.boxes.signed(setting.envelope(name, round_)) for name in names}
        body = self._checked(lambda: take(signed))
        self._post(setting.envelope(self.party.name, returned, body))
        if stored is None:
            self._tell(f"stage {setting.stage + 1}, round {round_}: {len(names)} holders")
        return names

    def _arrived(self, setting: Setting, round_: str, expected: Collection[str], enough: int) -> tuple[str, ...]:
        """Who of those expected has sent a message of this round, once enough have or the patience is over."""
        last, seen = time.monotonic(), -1
        for _ in self.boxes.changes(0 if self._by_hand else _LONG):
            there = tuple(name for name in expected if self.boxes.has(setting.envelope(name, round_)))
            awaited = [name for name in expected if name in there or name not in self._without]
            for name in there if round_ == JOIN else ():
                self._check_join(setting, name)
            if len(there) >= min(enough, len(awaited)):
                return there
            if seen != self.boxes.arrivals:
                last, seen = time.monotonic(), self.boxes.arrivals
            if self._by_hand or time.monotonic() - last > self._patience:
                break
        if self._by_hand:
            missing = ", ".join(name for name in awaited if name not in there)
            raise Waiting(
                f"waiting for messages of round {round_}, stage {setting.stage + 1}, from {missing}",
                "import their files and run this again, or go on without one of them: --without NAME",
            )
        return there

    def _check_join(self, setting: Setting, name: str) -> None:
        message = self.boxes.get(setting.envelope(name, JOIN))
        if message is not None:
            self._checked(lambda: CoordinatorSum(setting).check_join(message))

    def _with_vectors(self, hub: CoordinatorSum, signed: Signed) -> bytes:
        """The list of survivors, after checking that the vectors of all of them are whole."""
        body = hub.take_manifests(signed)
        for name in hub.survivors:
            digest = VectorDigest()
            for sequence, (part, _, size) in enumerate(chunks_of(hub.shape)):
                digest.add(self._chunk(hub, name, sequence, size * hub.shape[part][1]))
            if digest.digest() != hub.vector_of(name):
                raise FederationError(f"the masked vector of {name} is not the one that it signed for", "start again")
        return body

    def _chunk(self, hub: CoordinatorSum, name: str, sequence: int, length: int) -> bytes:
        message = self.boxes.get(hub.setting.envelope(name, VECTOR, sequence=sequence))
        if message is None or len(message.body) != length:
            raise FederationError(f"the masked vector of {name} has another length", "compare versions of dpsketch")
        return message.body

    def _total(self, hub: CoordinatorSum, sent: dict[str, Envelope]) -> Result:
        """Add up masked vectors chunk by chunk, take off the masks that do not cancel, and post the totals."""
        masks, digest, chunks = hub.masks(sent), VectorDigest(), chunks_of(hub.shape)
        with TotalsFile(self._folder / f"totals-{hub.setting.stage}", hub.shape).written() as write:
            for sequence, (part, first, size) in enumerate(chunks):
                kind = np.dtype("<u4" if hub.shape[part][1] == 4 else "<u8")
                total = np.zeros(size, kind)
                for name in hub.survivors:
                    total += np.frombuffer(self._chunk(hub, name, sequence, total.nbytes), kind)
                masks.add_to(total)
                data = total.tobytes()
                digest.add(data)
                write(part, first, data)
                self._post(hub.setting.envelope(self.party.name, TOTAL, data, sequence))
                self._progress((sequence + 1) / len(chunks))
        masks.close()
        return Result(hub.after_survivors, len(hub.survivors), digest.digest())

    def _forget_vectors(self, hub: CoordinatorSum) -> None:
        for name in hub.survivors:
            for sequence in range(len(chunks_of(hub.shape))):
                self.boxes.forget(hub.setting.envelope(name, VECTOR, sequence=sequence))

    def _checked(self, work: Callable[[], _T]) -> _T:
        """The result of some work; where the protocol forbids it, everybody is told that the session ends."""
        failure = Envelope(self._session, self.party.name, EVERYONE, FAILED)
        stored = self.boxes.get(failure)
        if stored is not None:
            raise FederationError(
                f"this session ended: {failure_of(stored.body)}", "start a new one, in another folder"
            )
        try:
            return work()
        except Waiting:
            raise
        except FederationError as error:
            body = failure_body(error.fact)
            self._post(Envelope(self._session, self.party.name, EVERYONE, FAILED, body=body))
            raise

    def _post(self, envelope: Envelope) -> None:
        self.boxes.post(envelope.sign(self.party))


def _check_agreed(hub: CoordinatorSum, shape: Shape, meaning: bytes) -> None:
    if (hub.shape, hub.meaning) != (shape, meaning):
        raise FederationError("the holders sum something else than the coordinator", "compare recipes and versions")


def _session_id(path: Path) -> bytes:
    """The session's random id, made at the first start."""
    if not path.exists():
        partial = path.with_name("session.partial")
        partial.write_bytes(os.urandom(SESSION))
        partial.replace(path)
    return path.read_bytes()
