"""Boxes: a folder of signed messages, one subfolder for each receiver. Mailboxes, parties and bundles keep theirs so.

A message is stored once and never replaced. The same bytes again change nothing; other bytes under the same number are
refused, so a stored message cannot be overwritten and a replayed one has no effect.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsketch.errors import FederationError
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.roster import EVERYONE, Roster, check_secret_folder

MOST_BYTES = (8 << 20) + (1 << 16)  # of a message: a chunk of a vector, and its envelope
MOST_MESSAGES = 1 << 20  # of one sender in one box
_LINE = 65  # of a log: a name and a line feed


class Boxes:
    """Messages by receiver, in the order of their arrival.

    `session`: only messages of this session are taken. `room`: the number of bytes that one sender may store.
    `speaker`: the one member who may write to everyone; None for all.
    """

    def __init__(
        self,
        folder: Path,
        roster: Roster,
        session: bytes | None = None,
        room: int = 1 << 40,
        speaker: str | None = None,
    ) -> None:
        self.folder, self.roster, self.session, self.room, self.speaker = folder, roster, session, room, speaker
        self._arrived, self.arrivals = threading.Condition(), 0
        check_secret_folder(folder)
        for box in (*roster.members, EVERYONE):
            (folder / box).mkdir(mode=0o700, exist_ok=True)
        with self._locked():
            for box in (*roster.members, EVERYONE):
                self._mend(box)

    def post(self, data: bytes) -> bool:
        """Verify and store a message. Returns whether it is new."""
        if len(data) > MOST_BYTES:
            raise FederationError(f"a message has more than {MOST_BYTES:,} bytes", "update dpsketch at its sender")
        envelope = Envelope.verify(data, self.roster)
        if self.session is not None and envelope.session != self.session:
            raise FederationError(f"a message from {envelope.sender} belongs to another session", "start it again")
        if envelope.receiver == EVERYONE and self.speaker not in (None, envelope.sender):
            raise FederationError(f"{envelope.sender} may not write to everyone", f"only {self.speaker} may")
        path = self._path(envelope)
        with self._locked():
            if path.exists():
                kept = path.read_bytes()
                if kept and kept != data:
                    fact = f"{envelope.sender} sent two different messages of round {envelope.round}"
                    raise FederationError(fact, "its folder was copied, or it does not follow the protocol")
                return False
            count, size = self._used(path.parent, envelope.sender)
            if count >= MOST_MESSAGES or size + len(data) > self.room:
                raise FederationError(
                    f"the box of {envelope.receiver} has no room for {envelope.sender}", "ask its owner"
                )
            partial = path.with_suffix(".partial")
            partial.write_bytes(data)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
            with (path.parent / "log").open("a") as log:
                log.write(f"{_name(path)}\n")
        self.wake()
        return True

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._arrived:
            self.arrivals += 1
            self._arrived.notify_all()

    def fetch(self, box: str, after: int = 0) -> tuple[bytes | None, int]:
        """The first message of a box behind the first `after` ones, or None; and the number to go on after."""
        while True:
            with (self.folder / box / "log").open() as log:
                log.seek(_LINE * after)
                line = log.readline()
            if len(line) < _LINE:
                return None, after
            after += 1
            sender, _, number = line.rstrip("\n").rpartition(" ")
            data = (self.folder / box / f"{sender.strip()}.{number}").read_bytes()
            if data:
                return data, after

    def wait(self, box: str, after: int, seconds: float) -> tuple[bytes | None, int]:
        """As `fetch`, but waits for a message to arrive."""
        for _ in self.changes(seconds):
            data, reached = self.fetch(box, after)
            if data is not None:
                return data, reached
            after = reached
        return None, after

    def changes(self, seconds: float) -> Iterator[float]:
        """Once at first, then after messages may have arrived, until the time is over: the seconds left.

        Messages that another process stores are noticed within a second.
        """
        end = time.monotonic() + seconds
        while True:
            seen = self.arrivals
            yield end - time.monotonic()
            left = end - time.monotonic()
            if left <= 0:
                return
            with self._arrived:
                self._arrived.wait_for(lambda: self.arrivals != seen, min(1.0, left))  # noqa: B023

    def get(self, like: Envelope) -> Envelope | None:
        """The stored message with the number of another, if it is there."""
        path = self._path(like)
        data = path.read_bytes() if path.exists() else b""
        return Envelope.read(data) if data else None

    def signed(self, like: Envelope) -> bytes:
        """The stored bytes of a message that is there."""
        return self._path(like).read_bytes()

    def has(self, like: Envelope) -> bool:
        return self._path(like).exists()

    def forget(self, like: Envelope) -> None:
        """Drop a message's bytes, for the disk's sake. It still counts as arrived."""
        path = self._path(like)
        if path.exists():
            os.truncate(path, 0)

    def _path(self, envelope: Envelope) -> Path:
        return self.folder / envelope.receiver / f"{envelope.sender}.{envelope.number.hex()[:32]}"

    def _used(self, box: Path, sender: str) -> tuple[int, int]:
        sizes = [entry.stat().st_size for entry in os.scandir(box) if entry.name.startswith(f"{sender}.")]
        return len(sizes), sum(sizes)

    def _mend(self, box: str) -> None:
        """List messages whose process was killed before it listed them."""
        folder = self.folder / box
        with (folder / "log").open("a+") as log:
            log.seek(0)
            text = log.read()
            if len(text) % _LINE:  # half a line
                log.truncate(len(text) - len(text) % _LINE)
            listed = {line.rstrip("\n") for line in text.splitlines(keepends=True) if len(line) == _LINE}
            for path in sorted(folder.iterdir()):
                if path.suffix == ".partial":
                    path.unlink()
                elif "." in path.name and _name(path) not in listed:
                    log.write(f"{_name(path)}\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, among threads and processes."""
        with (self.folder / ".lock").open("a") as lock:  # no member has this name
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _name(path: Path) -> str:
    """A message in a log: its sender, filled up, and its number."""
    sender, _, number = path.name.rpartition(".")
    return f"{sender:<31} {number}"
