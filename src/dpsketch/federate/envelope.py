"""Envelopes: every message between parties, signed by its sender (docs/formats/secure-sum.md)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from dpsketch.errors import FederationError
from dpsketch.federate.canonical import Reader, Writer
from dpsketch.federate.roster import EVERYONE, Party, Roster

START = b"dpsketch envelope 1\n"  # also keeps signatures of files and of envelopes apart
SESSION, SIGNATURE = 32, 64  # bytes
_ROUND = re.compile(r"[a-z][a-z-]{0,31}")


@dataclass(frozen=True)
class Envelope:
    """A message: which session, stage and round it belongs to, from whom, to whom (or to everyone), and its body.

    A round with several messages of one sender numbers them by `sequence`. `number` identifies a message: there is at
    most one with each number, so an earlier message cannot pass for a later one.
    """

    session: bytes
    sender: str
    receiver: str
    round: str
    stage: int = 0
    sequence: int = 0
    body: bytes = b""

    @property
    def number(self) -> bytes:
        """SHA-256 of everything but the body."""
        return hashlib.sha256(self._head().data).digest()

    def sign(self, party: Party) -> bytes:
        """The signed bytes. Signing again gives the same bytes."""
        if len(self.session) != SESSION or party.name != self.sender or not _ROUND.fullmatch(self.round):
            raise ValueError("a bug: not an envelope of this party")
        head = self._head()
        return head.bytes() + Writer().field(self.body).raw(party.key.sign(self._signed())).data

    def _head(self) -> Writer:
        head = Writer(START).raw(self.session).text(self.sender).text(self.receiver).text(self.round)
        return head.number(self.stage).number(self.sequence)

    def _signed(self) -> bytes:
        """What the signature is of: everything, with the digest of the body in its place."""
        return self._head().number(len(self.body)).raw(hashlib.sha256(self.body).digest()).bytes()

    @classmethod
    def verify(cls, data: bytes, roster: Roster) -> Envelope:
        """The message, if a member of the roster signed exactly these bytes."""
        envelope = cls.read(data)
        if not roster.signed(envelope.sender, envelope._signed(), data[-SIGNATURE:]):
            raise FederationError(
                f"a message from {envelope.sender} does not carry the signature of that member of the roster",
                "it was changed on its way, or its sender uses another key: ask them",
            )
        if envelope.receiver != EVERYONE and envelope.receiver not in roster.members:
            raise FederationError(f"a message from {envelope.sender} is to nobody in the roster", "compare the rosters")
        return envelope

    @classmethod
    def read(cls, data: bytes) -> Envelope:
        """The message, not verified: only for one's own files, which hold verified messages."""
        reader = Reader(data, START, "a message")
        session, sender, receiver, round_ = reader.raw(SESSION), reader.text(), reader.text(), reader.text()
        stage, sequence, body = reader.number(), reader.number(), reader.field()
        if not _ROUND.fullmatch(round_) or len(data) != reader.at + SIGNATURE:
            raise reader.damaged()
        return cls(session, sender, receiver, round_, stage, sequence, body)
