"""The messages of a secure sum and what all of its parties check of them: docs/formats/secure-sum.md.

Pure functions of bytes. A holder sends one message a round; the coordinator returns the signed messages of all of them
as one collection, and the next message of everybody names the digest of all collections so far. Two parties that were
shown different collections therefore cannot go on together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpsketch.errors import FederationError
from dpsketch.federate.canonical import Reader, Writer
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.mask_stream import SEED
from dpsketch.federate.roster import EVERYONE, Roster
from dpsketch.privacy.noise_shares import Consortium

DIGEST = 32
CHUNK = 1 << 20  # counters in a message
VERSION = b"dpsketch secure-sum 1 "
# Rounds of holders, and the collections in which they come back.
OPEN, FAILED = "open", "failed"  # and the coordinator's first message, and the last one of a session that fails
COORDINATOR, HOLDER = "coordinator", "holder"  # roles
JOIN, JOINS = "join", "joins"
SHARES, ALL_SHARES = "shares", "all-shares"
VECTOR, MASKED, SURVIVORS = "vector", "masked", "survivors"
AGREE, AGREED = "agree", "agreed"
UNMASK = "unmask"
TOTAL, TOTALS, DONE = "total", "totals", "done"
_MOST_PARTS = 1 << 16
_MOST_IDS = 1 << 16
_MOST_TEXT = 1000
_SEALED = 2 * SEED + 16  # two shares and the tag of ChaCha20-Poly1305

Shape = tuple[tuple[int, int], ...]  # counters and bytes a counter of every part


@dataclass(frozen=True)
class Setting:
    """What is public before a stage's first message: who, under which terms, after which totals.

    `terms` is the digest of the terms, `previous` that of the last stage's totals (zeros at first). `members` are those
    who may take part; at a later stage all of them must.
    """

    roster: Roster
    coordinator: str
    session: bytes
    stage: int
    terms: bytes
    consortium: Consortium
    members: tuple[str, ...]
    previous: bytes = bytes(DIGEST)

    @property
    def least(self) -> int:
        """Number of holders that every list must have at least."""
        if self.stage > 0:
            return len(self.members)
        return max(self.consortium.least, self.consortium.threshold)

    def start(self) -> bytes:
        """The digest of all of it, with which every holder's first message begins."""
        writer = tagged("start").raw(self.session).number(self.stage).raw(self.roster.digest).text(self.coordinator)
        writer.raw(self.terms).raw(self.previous)
        facts = self.consortium
        for number in (facts.holders, facts.least, facts.colluders, facts.threshold, len(self.members)):
            writer.number(number)
        for name in self.members:
            writer.text(name)
        return hashlib.sha256(writer.data).digest()

    def envelope(self, sender: str, round_: str, body: bytes = b"", sequence: int = 0) -> Envelope:
        """A message of this stage; the coordinator's go to everyone."""
        receiver = EVERYONE if sender == self.coordinator else self.coordinator
        return Envelope(self.session, sender, receiver, round_, self.stage, sequence, body)

    def collected(self, body: bytes, round_: str, senders: Iterable[str]) -> dict[str, Envelope]:
        """The signed messages in a collection, by their senders, all of them members in `senders`, each once."""
        reader = Reader(body, tagged(round_).bytes(), f"a list of round {round_}")
        allowed, found = set(senders), dict[str, Envelope]()
        for _ in range(reader.number(len(self.members))):
            message = Envelope.verify(reader.field(), self.roster)
            if message != self.envelope(message.sender, round_, message.body) or message.sender not in allowed:
                raise FederationError(
                    f"a message of {message.sender} does not belong to round {round_} of this session",
                    "somebody replayed it, or the coordinator does not follow the protocol",
                )
            if found and message.sender <= max(found):
                raise FederationError(f"a list of round {round_} is not in order", "ask the coordinator")
            found[message.sender] = message
        reader.end()
        return found


def tagged(name: str) -> Writer:
    """The beginning of every body and of every text that is hashed: version and kind."""
    return Writer(VERSION + name.encode() + b"\n")


def collection(round_: str, messages: Mapping[str, bytes]) -> bytes:
    """Signed messages of a round as one body, by sender."""
    writer = tagged(round_).number(len(messages))
    for sender in sorted(messages):
        writer.field(messages[sender])
    return writer.bytes()


def next_transcript(transcript: bytes, body: bytes) -> bytes:
    """The digest of everything agreed on so far, after one more collection."""
    return hashlib.sha256(tagged("transcript").raw(transcript).raw(hashlib.sha256(body).digest()).data).digest()


def public_digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@dataclass(frozen=True)
class Join:
    """Round 0: the terms signed, two fresh X25519 keys, and the ids of the inputs."""

    start: bytes
    mask_key: bytes
    share_key: bytes
    lineage: tuple[str, ...]

    def to_bytes(self) -> bytes:
        writer = tagged(JOIN).raw(self.start).raw(self.mask_key).raw(self.share_key).number(len(self.lineage))
        for each in self.lineage:
            writer.text(each)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Join:
        reader = Reader(data, tagged(JOIN).bytes(), "a message of round join")
        start, mask_key, share_key = reader.raw(DIGEST), reader.raw(SEED), reader.raw(SEED)
        lineage = tuple(reader.text() for _ in range(reader.number(_MOST_IDS)))
        reader.end()
        if list(lineage) != sorted(set(lineage)):
            raise reader.damaged()
        return cls(start, mask_key, share_key, lineage)


@dataclass(frozen=True)
class SealedShares:
    """Round 1: what the stage means, the vector's shape, a commitment to the self seed, encrypted shares by peer."""

    transcript: bytes
    meaning: bytes
    shape: Shape
    commitment: bytes
    sealed: Mapping[str, bytes]

    def to_bytes(self) -> bytes:
        writer = tagged(SHARES).raw(self.transcript).raw(self.meaning).number(len(self.shape))
        for size, width in self.shape:
            writer.number(size).number(width)
        writer.raw(self.commitment)
        for name in sorted(self.sealed):
            writer.raw(self.sealed[name])
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes, peers: Iterable[str]) -> SealedShares:
        reader = Reader(data, tagged(SHARES).bytes(), "a message of round shares")
        transcript, meaning = reader.raw(DIGEST), reader.raw(DIGEST)
        shape = tuple((reader.number(), reader.number(8)) for _ in range(reader.number(_MOST_PARTS)))
        if any(width not in (4, 8) for _, width in shape):
            raise reader.damaged()
        commitment = reader.raw(DIGEST)
        sealed = {name: reader.raw(_SEALED) for name in sorted(peers)}
        reader.end()
        return cls(transcript, meaning, shape, commitment, sealed)

    @property
    def agreed(self) -> tuple[bytes, bytes, Shape]:
        """What must be equal at all holders."""
        return self.transcript, self.meaning, self.shape


def digests(kind: str, transcript: bytes, vector: bytes) -> bytes:
    """The body of a manifest: the transcript, and the digest of a vector that was sent in chunks."""
    return tagged(kind).raw(transcript).raw(vector).bytes()


def commitment(seed: bytes | bytearray) -> bytes:
    return hashlib.sha256(tagged("self seed").raw(seed).data).digest()


class VectorDigest:
    """The digest of a vector: SHA-256 of the SHA-256 of its chunks."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(tagged("vector").data)

    def add(self, chunk: bytes | memoryview) -> None:
        self._hash.update(hashlib.sha256(chunk).digest())

    def digest(self) -> bytes:
        return self._hash.digest()


def chunks_of(shape: Shape) -> list[tuple[int, int, int]]:
    """Part, first counter and number of counters of every chunk, in the order of sending."""
    return [
        (part, first, min(CHUNK, size - first))
        for part, (size, _) in enumerate(shape)
        for first in range(0, size, CHUNK)
    ]


def unmask_body(transcript: bytes, shares: Iterable[bytes | bytearray]) -> bytes:
    """Round 4: one share of every holder of round 1, in their order: of the self seed of a survivor, of the mask key of
    one that dropped out.
    """
    writer = tagged(UNMASK).raw(transcript)
    for share in shares:
        writer.raw(share)
    return writer.bytes()


def unmask_shares(data: bytes, transcript: bytes, names: Iterable[str]) -> dict[str, bytes]:
    reader = Reader(data, tagged(UNMASK).bytes(), "a message of round unmask")
    if reader.raw(DIGEST) != transcript:
        raise reader.damaged()
    shares = {name: reader.raw(SEED) for name in sorted(names)}
    reader.end()
    return shares


@dataclass(frozen=True)
class Opening:
    """The coordinator's first message: the session's terms and the roster that it uses."""

    roster: bytes
    terms: bytes

    def to_bytes(self) -> bytes:
        return tagged(OPEN).raw(self.roster).field(self.terms).bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Opening:
        reader = Reader(data, tagged(OPEN).bytes(), "the coordinator's first message")
        opening = cls(reader.raw(DIGEST), reader.field())
        reader.end()
        return opening


@dataclass(frozen=True)
class Result:
    """The coordinator's last message of a stage: for which survivors, how many, and the digest of the totals."""

    transcript: bytes
    holders: int
    vector: bytes

    def to_bytes(self) -> bytes:
        return tagged(TOTALS).raw(self.transcript).number(self.holders).raw(self.vector).bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Result:
        reader = Reader(data, tagged(TOTALS).bytes(), "the coordinator's totals")
        result = cls(reader.raw(DIGEST), reader.number(), reader.raw(DIGEST))
        reader.end()
        return result

    @property
    def digest(self) -> bytes:
        """What the next stage's first messages name."""
        return hashlib.sha256(self.to_bytes()).digest()


def failure_body(fact: str) -> bytes:
    """Why the coordinator ends a session."""
    return tagged(FAILED).text(fact[:_MOST_TEXT]).bytes()


def failure_of(body: bytes) -> str:
    reader = Reader(body, tagged(FAILED).bytes(), "the coordinator's last message")
    fact = reader.text()
    reader.end()
    return fact[:_MOST_TEXT]


def done_body(result: Result) -> bytes:
    """A holder's receipt for the totals."""
    return tagged(DONE).raw(result.digest).bytes()
