"""A holder's letters to the coordinator and back: stored first, then carried by a mailbox or by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from dpsketch.errors import FederationError
from dpsketch.federate.boxes import Boxes
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.mail_client import MailClient
from dpsketch.federate.mailbox import LONGEST_WAIT
from dpsketch.federate.roster import EVERYONE, Party
from dpsketch.federate.sum_messages import FAILED, OPEN, failure_of

SENT, RECEIVED = "sent", "received"  # files with numbers of messages


class Waiting(FederationError):
    """Nothing is wrong: a message has not come yet, and nobody but a person can fetch it."""


class SessionEnded(FederationError):
    """The coordinator ended the session: nothing more is revealed."""


class Correspondence:
    """The messages of one session at a holder. Without a client, `dpsketch federate export` and `import` carry them.

    `patience`: seconds to wait for the coordinator's next message.
    """

    def __init__(
        self,
        party: Party,
        coordinator: str,
        folder: Path,
        client: MailClient | None,
        patience: float,
        progress: Callable[[float], None],
    ) -> None:
        self.party, self.coordinator, self._folder = party, coordinator, folder
        self.boxes = Boxes(folder / "boxes", party.roster, speaker=coordinator)
        self._client, self._patience, self._progress = client, patience, progress

    def opening(self) -> Envelope:
        """The coordinator's first message. It names the session, and no other is listened to from then on."""
        opening = self._waited(self._first, "its first message")
        self.boxes.session = opening.session
        return opening

    def send(self, envelope: Envelope) -> None:
        """Store a message; it leaves with the next wait. The same message again changes nothing."""
        self.boxes.post(envelope.sign(self.party))

    def sent(self, like: Envelope) -> Envelope | None:
        """The stored message with the number of another."""
        return self.boxes.get(like)

    def receive(self, like: Envelope) -> Envelope:
        """The coordinator's message of a round, once it is there. A session that it ended is an error."""
        return self._waited(lambda: self._found(like), f"its message of round {like.round}, stage {like.stage}")

    def flush(self) -> None:
        """Send what has not been sent."""
        if self._client is None:
            return
        after, box = self._number(SENT), self.coordinator
        whole = max(1, (self._folder / "boxes" / box / "log").stat().st_size // 65 - after)
        first = after
        while True:
            data, reached = self.boxes.fetch(box, after)
            if data is None:
                break
            self._client.post(data)
            after = reached
            self._keep(SENT, after)
            self._progress(min(1.0, (after - first) / whole))

    def _found(self, like: Envelope) -> Envelope | None:
        found = self.boxes.get(like)
        if found is None:
            failed = self.boxes.get(Envelope(like.session, self.coordinator, EVERYONE, FAILED))
            if failed is not None:
                raise SessionEnded(f"the coordinator ended this session: {failure_of(failed.body)}", "start a new one")
        return found

    def _first(self) -> Envelope | None:
        data, after = self.boxes.fetch(EVERYONE)
        while data is not None:
            message = Envelope.verify(data, self.party.roster)
            if message.round == OPEN and message.sender == self.coordinator and message.stage == 0:
                return message
            data, after = self.boxes.fetch(EVERYONE, after)
        return None

    def _waited(self, look: Callable[[], Envelope | None], awaited: str) -> Envelope:
        message = look()
        if message is not None:
            return message
        self.flush()
        end = time.monotonic() + self._patience
        while True:
            message = look()
            if message is not None:
                return message
            if self._client is None:
                raise Waiting(
                    f"waiting for {self.coordinator}: {awaited}",
                    "dpsketch federate export this folder, take the file to the coordinator, import what comes back",
                )
            if time.monotonic() > end:
                raise FederationError(
                    f"{self.coordinator} has not sent {awaited} for {self._patience:g} seconds",
                    "run the same command again to wait longer",
                )
            if self._pull(min(LONGEST_WAIT, max(1, int(end - time.monotonic())))):
                end = time.monotonic() + self._patience

    def _pull(self, wait: int) -> bool:
        """Fetch and store the next message to everyone."""
        assert self._client is not None
        after = self._number(RECEIVED)
        data, reached = self._client.fetch(EVERYONE, after, wait)
        if data is not None:
            self.boxes.post(data)
        if reached != after:
            self._keep(RECEIVED, reached)
        return data is not None

    def _number(self, name: str) -> int:
        path = self._folder / name
        text = path.read_text() if path.exists() else ""
        return int(text) if text.isascii() and text.isdigit() else 0

    def _keep(self, name: str, number: int) -> None:
        partial = self._folder / f"{name}.partial"
        partial.write_text(str(number))
        partial.replace(self._folder / name)
