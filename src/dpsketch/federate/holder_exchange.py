"""A session of secure sums at a holder: `sketch.joint_terms.Exchange` over stored messages.

Whatever left this holder is sent again as it was stored, never made anew. A holder that stopped while it wrote its
masked vector has dropped out, since masks may be used once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from dpsketch.errors import FederationError
from dpsketch.federate.correspondence import Correspondence, SessionEnded
from dpsketch.federate.mail_client import MailClient
from dpsketch.federate.mask_stream import Counters, MaskStream
from dpsketch.federate.roster import Party, check_secret_folder
from dpsketch.federate.secure_sum import HolderSum, Secrets, checked_joins
from dpsketch.federate.session_files import BEGUN, FRESH, WRITTEN, Finished, StageState, TotalsFile, check_shape
from dpsketch.federate.sum_messages import (
    AGREE,
    AGREED,
    ALL_SHARES,
    CHUNK,
    COORDINATOR,
    DONE,
    HOLDER,
    JOIN,
    JOINS,
    MASKED,
    SHARES,
    SURVIVORS,
    TOTAL,
    TOTALS,
    UNMASK,
    VECTOR,
    Join,
    Opening,
    Result,
    Setting,
    VectorDigest,
    chunks_of,
    done_body,
    public_digest,
)
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.sketch.joint_terms import Share, Terms, Totals

Tell = Callable[[str], None]
Progress = Callable[[float], None]


class HolderExchange:
    """One session at one holder, whose folder holds all of it: with the same folder, a restarted holder goes on.

    `client`: the coordinator's mailbox; None if messages are carried by hand.
    """

    def __init__(
        self,
        party: Party,
        folder: Path,
        client: MailClient | None = None,
        patience: float = 3600,
        tell: Tell = lambda _: None,
        progress: Progress = lambda _: None,
        draw: Callable[[int], bytes] = os.urandom,
    ) -> None:
        check_secret_folder(folder)
        self._coordinator = party.roster.the(COORDINATOR)
        if party.name not in party.roster.with_role(HOLDER):
            raise FederationError(f"{party.name} is not a holder in the roster", f"give it the role {HOLDER}")
        self.party, self._folder, self._draw, self._tell = party, folder, draw, tell
        self._letters = Correspondence(party, self._coordinator, folder, client, patience, progress)
        self._client = client
        self._session = self._terms = b""
        self._consortium: Consortium | None = None
        self._lineage: frozenset[str] = frozenset()
        self._stage: tuple[HolderSum, StageState] | None = None

    def join(self, terms: Terms, lineage: frozenset[str]) -> frozenset[str]:
        """Agree on terms, members and keys of the first stage. Returns the ids of all holders' inputs."""
        message, own = self._letters.opening(), terms.to_bytes()
        opening = Opening.from_bytes(message.body)
        if opening.roster != self.party.roster.digest:
            raise FederationError("the coordinator uses another roster", "compare its digest: dpsketch federate roster")
        if opening.terms != own:
            raise FederationError(f"the coordinator's terms differ in {_differences(opening.terms, own)}", _COMPARE)
        self._session, self._terms, self._consortium = message.session, public_digest(own), terms.consortium
        holders = self.party.roster.with_role(HOLDER)
        if len(holders) != terms.consortium.holders:
            raise FederationError(
                f"the roster has {len(holders)} holders, the terms {terms.consortium.holders}", _COMPARE
            )
        self._lineage = lineage
        if Finished.load(self._folder, 0) is not None:  # restarted later in the session
            setting = self._setting(0)
            stored = self._letters.receive(setting.envelope(self._coordinator, JOINS))
            found = setting.collected(stored.body, JOIN, setting.members)
            return checked_joins(setting, {name: Join.from_bytes(each.body) for name, each in found.items()})
        return self._joined(0)

    def sum(self, stage: int, shares: Sequence[Share], meaning: bytes) -> Totals:
        """The totals of a stage. Each share is read once, while its masked vector is written."""
        shape = tuple((share.size, share.dtype.itemsize) for share in shares)
        finished = Finished.load(self._folder, stage)
        if finished is None:
            if self._stage is None or self._stage[1].stage != stage:
                self._joined(stage)
            finished = self._summed(stage, shares, meaning)
        state = StageState.load(self._folder)
        if state is not None and state.stage == stage:
            state.wipe(self._folder)
        check_shape(finished.shape, shape)
        self._receipt(stage, finished)
        return Totals(TotalsFile(self._totals_path(stage), shape).sums(), finished.result.holders)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes of messages sent to and received from the mailbox by this process."""
        return (0, 0) if self._client is None else (self._client.sent, self._client.received)

    def _setting(self, stage: int) -> Setting:
        assert self._consortium is not None
        members, previous, roster = self.party.roster.with_role(HOLDER), bytes(32), self.party.roster
        if stage > 0:
            last = Finished.load(self._folder, stage - 1)
            if last is None:
                raise RuntimeError("a bug: stages follow each other")
            members, previous = last.survivors, last.result.digest
        return Setting(
            roster, self._coordinator, self._session, stage, self._terms, self._consortium, members, previous
        )

    def _joined(self, stage: int) -> frozenset[str]:
        """Round 0."""
        setting, state = self._setting(stage), StageState.load(self._folder)
        if state is None or state.stage != stage:
            if self._letters.sent(setting.envelope(self.party.name, JOIN)) is not None:
                raise FederationError("this holder's secrets of this session are gone", "start a new session")
            state = StageState(stage, Secrets.fresh(self._draw))
            state.save(self._folder)
        holder = HolderSum(setting, self.party.name, state.secrets, self._lineage if stage == 0 else ())
        self._stage = holder, state
        if state.phase == BEGUN:
            state.secrets.wipe()
            state.save(self._folder)
            raise FederationError(
                "this holder stopped while it wrote its masked vector, so it has dropped out of this session",
                "its spend stands; take part in a new session, in another folder",
            )
        self._send(holder, JOIN, holder.join())
        lineage = holder.take_joins(self._received(holder, JOINS))
        self._tell(f"stage {stage + 1}: all members have signed the same terms")
        return lineage

    def _summed(self, stage: int, shares: Sequence[Share], meaning: bytes) -> Finished:
        """Rounds 1 to 5."""
        assert self._stage is not None
        holder, state = self._stage
        shape = tuple((share.size, share.dtype.itemsize) for share in shares)
        stored = self._letters.sent(holder.setting.envelope(self.party.name, SHARES))
        if stored is None:
            body = holder.shares(public_digest(meaning), shape, self._draw)
            state.save(self._folder)  # the own share of the self seed
            self._send(holder, SHARES, body)
        else:
            body = stored.body
        holder.take_shares(self._received(holder, ALL_SHARES), body)
        check_shape(holder.shape, shape)
        self._mask(holder, state, shares)
        manifest = holder.masked(state.vector)
        self._send(holder, MASKED, manifest)
        self._tell(f"stage {stage + 1}: the masked vector is on its way")
        agreement = holder.take_survivors(self._received(holder, SURVIVORS), manifest)
        state.save(self._folder)  # which list it agreed to
        self._send(holder, AGREE, agreement)
        self._send(holder, UNMASK, holder.take_agreements(self._received(holder, AGREED)))
        result = Result.from_bytes(self._received(holder, TOTALS))
        if result.transcript != holder.after_survivors or result.holders != len(holder.survivors):
            raise FederationError("the totals are of another list of survivors", "the coordinator is not honest")
        self._fetch(holder, result)
        finished = Finished(result, holder.shape, holder.survivors)
        finished.save(self._folder, stage)
        holder.wipe()
        self._tell(f"stage {stage + 1}: the sum of {result.holders} holders, digest {result.digest.hex()[:16]}")
        return finished

    def _mask(self, holder: HolderSum, state: StageState, shares: Sequence[Share]) -> None:
        """Write the masked vector, chunk by chunk, into the box."""
        if state.phase == WRITTEN:
            return
        assert state.phase == FRESH
        state.phase = BEGUN
        state.save(self._folder)  # from here on an interruption means dropping out
        masks, digest, sequence = holder.masks(), VectorDigest(), 0
        try:
            for share in shares:
                for chunk in _masked_chunks(share, masks):
                    digest.add(chunk)
                    self._letters.send(holder.setting.envelope(self.party.name, VECTOR, chunk, sequence))
                    sequence += 1
        finally:
            masks.close()
        state.phase, state.vector = WRITTEN, digest.digest()
        state.save(self._folder)

    def _fetch(self, holder: HolderSum, result: Result) -> None:
        """Write the totals to their file, and check them against their digest."""
        digest, chunks = VectorDigest(), chunks_of(holder.shape)
        file = TotalsFile(self._totals_path(holder.setting.stage), holder.shape)
        with file.written() as write:
            for sequence, (part, first, size) in enumerate(chunks):
                like = holder.setting.envelope(self._coordinator, TOTAL, sequence=sequence)
                body = self._letters.receive(like).body
                if len(body) != size * holder.shape[part][1]:
                    raise FederationError("the totals have another length", "the coordinator is not honest")
                digest.add(body)
                write(part, first, body)
        if digest.digest() != result.vector:
            raise FederationError("the totals are not those that the coordinator signed for", "ask the coordinator")

    def _receipt(self, stage: int, finished: Finished) -> None:
        """Tell the coordinator that the totals are here; from then on the disk need not hold them twice."""
        setting = self._setting(stage)
        self._letters.send(setting.envelope(self.party.name, DONE, done_body(finished.result)))
        self._letters.flush()
        for sequence in range(len(chunks_of(finished.shape))):
            self._letters.boxes.forget(setting.envelope(self._coordinator, TOTAL, sequence=sequence))
            self._letters.boxes.forget(setting.envelope(self.party.name, VECTOR, sequence=sequence))

    def _send(self, holder: HolderSum, round_: str, body: bytes) -> None:
        self._letters.send(holder.setting.envelope(self.party.name, round_, body))

    def _received(self, holder: HolderSum, round_: str) -> bytes:
        try:
            return self._letters.receive(holder.setting.envelope(self._coordinator, round_)).body
        except SessionEnded:
            assert self._stage is not None
            self._stage[1].wipe(self._folder)
            raise

    def _totals_path(self, stage: int) -> Path:
        return self._folder / f"totals-{stage}"


_COMPARE = "compare schemas, recipes, budgets and versions of dpsketch"


def _masked_chunks(share: Share, masks: MaskStream) -> Iterator[bytes]:
    """A share in chunks of CHUNK counters, masked. Unmasked sums exist in this one buffer."""
    kind: np.dtype = np.dtype(np.uint32 if share.dtype.itemsize == 4 else np.uint64)
    buffer: Counters = np.empty(min(CHUNK, share.size), kind)
    filled = whole = 0
    for piece in share.chunks():
        words = piece.view(kind)
        whole += len(words)
        while len(words) and whole <= share.size:
            taken = words[: len(buffer) - filled]
            buffer[filled : filled + len(taken)] = taken
            filled, words = filled + len(taken), words[len(taken) :]
            if filled == len(buffer):
                masks.add_to(buffer)
                yield buffer.astype(kind.newbyteorder("<"), copy=False).tobytes()
                filled = 0
    if whole != share.size:
        raise RuntimeError("a bug: a share of another length")
    if filled:
        masks.add_to(buffer[:filled])
        yield buffer[:filled].astype(kind.newbyteorder("<"), copy=False).tobytes()


def _differences(theirs: bytes, own: bytes) -> str:
    """The names of the terms that differ. All of them are public."""
    try:
        one, two = json.loads(theirs), json.loads(own)
        names = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
    except (AttributeError, RecursionError, ValueError):
        names = []
    return ", ".join(names) or "their form"
