"""A party's letters in a market: payloads of any size as signed envelopes, each under the digest of the terms."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Protocol

from dpsketch.errors import FederationError
from dpsketch.federate.canonical import Reader, Writer
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.market.terms import Terms
from dpsketch.federate.roster import Party

_START = b"dpsketch market 1\n"
_PIECE = 4 << 20  # bytes of a payload in one envelope
_DIGEST = 32
_MOST_PIECES = 1 << 8
_PAUSE = 0.1  # seconds between looks at a box
# Rounds, in their order.
TARGET, VALIDATION, SKETCH, WEIGHTS, POINTS, SUMMARY, DONE = (
    "target",
    "validation",
    "sketch",
    "weights",
    "points",
    "summary",
    "done",
)


def session_of(name: str, party: Party) -> bytes:
    """The session of a market's name among the members of a roster."""
    return hashlib.sha256(_START + party.roster.digest + name.encode()).digest()


class Poster(Protocol):
    """Where signed envelopes go: a mailbox over the network, or the aggregator's own boxes."""

    def post(self, data: bytes) -> object: ...


class Desk:
    """Writes and collects the letters of one party."""

    def __init__(self, party: Party, session: bytes, terms: Terms) -> None:
        self.party, self.session, self.terms = party, session, terms
        self._digest = bytes.fromhex(terms.digest)
        self._pieces: dict[tuple[str, str], dict[int, bytes]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def send(self, poster: Poster, kind: str, receiver: str, payload: bytes) -> None:
        """Sign and post a payload in pieces. Sending the same payload again changes nothing."""
        count = max(1, -(-len(payload) // _PIECE))
        for place in range(count):
            piece = payload[place * _PIECE : (place + 1) * _PIECE]
            body = Writer(_START).raw(self._digest).number(count).field(piece).bytes()
            name = self.party.name
            poster.post(Envelope(self.session, name, receiver, kind, sequence=place, body=body).sign(self.party))

    def receive(self, envelope: Envelope) -> None:
        """Keep a piece; refuses other sessions and terms."""
        if envelope.session != self.session:
            raise FederationError(f"a message from {envelope.sender} belongs to another market", "compare the names")
        reader = Reader(envelope.body, _START, f"a message from {envelope.sender}")
        digest, count, piece = reader.raw(_DIGEST), reader.number(_MOST_PIECES), reader.field()
        reader.end()
        if digest != self._digest:
            raise FederationError(
                f"{envelope.sender} has other terms or another schema", "all parties must use the same market.toml"
            )
        key = envelope.sender, envelope.round
        if envelope.sequence >= count or self._counts.setdefault(key, count) != count:
            raise reader.damaged()
        self._pieces.setdefault(key, {})[envelope.sequence] = piece

    def letter(self, sender: str, kind: str) -> bytes | None:
        """The payload of a sender, once all of its pieces are there."""
        pieces = self._pieces.get((sender, kind), {})
        if len(pieces) != self._counts.get((sender, kind), -1):
            return None
        return b"".join(pieces[place] for place in range(len(pieces)))


class Inbox:
    """Letters that arrive at a party, from its own box and from everyone's.

    A letter that does not fit is an error if its sender is one of `needed`; those of others are left out, and their
    senders are in `refused` with the reason.
    """

    def __init__(
        self, desk: Desk, fetch: Callable[[str, int], tuple[bytes | None, int]], boxes: list[str], needed: str
    ) -> None:
        self._desk, self._fetch, self._reached, self._needed = desk, fetch, dict.fromkeys(boxes, 0), needed
        self.refused: dict[str, str] = {}

    def wait(self, ready: Callable[[], bool], patience: float) -> bool:
        """Read letters until `ready`, or until the patience is over. Returns whether it is ready."""
        end = time.monotonic() + patience
        while not ready():
            if not self._read() and not ready():
                if time.monotonic() > end:
                    return False
                time.sleep(_PAUSE)
        return True

    def _read(self) -> bool:
        """Read the next letter of every box. Returns whether there was one."""
        arrived = False
        for box, after in self._reached.items():
            data, self._reached[box] = self._fetch(box, after)
            if data is None:
                continue
            arrived = True
            envelope = Envelope.verify(data, self._desk.party.roster)
            try:
                self._desk.receive(envelope)
            except FederationError as error:
                if envelope.sender == self._needed:
                    raise
                self.refused[envelope.sender] = error.fact
        return arrived
