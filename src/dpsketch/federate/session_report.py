"""What a session's folder says about how far the session is, and its bundles: no keys are needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dpsketch.errors import FederationError
from dpsketch.federate.boxes import Boxes
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.roster import EVERYONE, Roster, check_secret_folder
from dpsketch.federate.session_files import Finished
from dpsketch.federate.sum_messages import COORDINATOR, FAILED, failure_of

_ROSTER, _SESSION = "roster.toml", "session"


@dataclass(frozen=True)
class SessionReport:
    """Messages by stage and round with their senders, bytes of all, finished stages, and why the session ended."""

    messages: dict[tuple[int, str], tuple[str, ...]]
    size: int
    finished: tuple[Finished, ...]
    failure: str | None


def keep_roster(folder: Path, roster: Roster) -> None:
    """Keep the roster of a session beside its messages; another one later is refused."""
    check_secret_folder(folder)
    path = folder / _ROSTER
    if path.exists():
        if Roster.load(path) != roster:
            raise FederationError(f"{folder} belongs to a session with another roster", "choose another folder")
        return
    partial = folder / f"{_ROSTER}.partial"
    partial.write_text(roster.text())
    partial.replace(path)


def folder_boxes(folder: Path) -> tuple[Boxes, str]:
    """The boxes of a session's folder, and the box whose messages leave it: to everyone, or to the coordinator."""
    if not (folder / _ROSTER).exists():
        raise FederationError(f"{folder} is not the folder of a session", "run federate holder or coordinator first")
    roster = Roster.load(folder / _ROSTER)
    coordinator, own = roster.the(COORDINATOR), folder / _SESSION
    session = own.read_bytes() if own.exists() else None
    boxes = Boxes(folder / "boxes", roster, session, speaker=coordinator)
    return boxes, coordinator if session is None else EVERYONE


def session_report(folder: Path) -> SessionReport:
    boxes, _ = folder_boxes(folder)
    senders: dict[tuple[int, str], list[str]] = {}
    counts: Counter[tuple[int, str, str]] = Counter()
    size, failure = 0, None
    for box in (boxes.roster.the(COORDINATOR), EVERYONE):
        after = 0
        while True:
            data, after = boxes.fetch(box, after)
            if data is None:
                break
            message, size = Envelope.read(data), size + len(data)
            counts[message.stage, message.round, message.sender] += 1
            if message.round == FAILED:
                failure = failure_of(message.body)
    for stage, round_, sender in sorted(counts):
        senders.setdefault((stage, round_), []).append(sender)
    finished: list[Finished] = []
    while (last := Finished.load(folder, len(finished))) is not None:
        finished.append(last)
    return SessionReport({key: tuple(names) for key, names in senders.items()}, size, tuple(finished), failure)
