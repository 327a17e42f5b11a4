"""Holders and a coordinator as processes of their own, each with a folder of its own, which talk over loopback.

They are forked from a server process that has imported what they need, and share no memory with it or the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np

from dpsketch.errors import FederationError
from dpsketch.federate import coordinator_exchange
from dpsketch.federate.coordinator_exchange import CoordinatorExchange
from dpsketch.federate.correspondence import Correspondence
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.holder_exchange import HolderExchange
from dpsketch.federate.mail_client import MailClient
from dpsketch.federate.mailbox import Mailbox
from dpsketch.federate.roster import Member, Party, Roster
from dpsketch.federate.sum_messages import Result
from dpsketch.files.signatures import load_key, make_key
from dpsketch.privacy.noise_shares import Consortium

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["federation_processes"])
Shape = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PlainTerms:
    """Terms of a session that sums given vectors."""

    consortium: Consortium
    text: str = "{}"

    def to_bytes(self) -> bytes:
        return self.text.encode()


@dataclass
class PlainShare:
    """A given vector, in pieces of odd lengths; read once."""

    values: np.ndarray
    read: bool = field(default=False, init=False)

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def chunks(self) -> Iterator[np.ndarray]:
        assert not self.read
        self.read = True
        for first in range(0, len(self.values), 777_777):
            yield self.values[first : first + 777_777].copy()


def values_of(name: str, stage: int, shape: Shape) -> list[np.ndarray]:
    rng = np.random.default_rng([stage, *name.encode()])
    kinds = {4: np.int32, 8: np.int64}
    return [rng.integers(-1000, 1000, size).astype(kinds[width]) for size, width in shape]


@dataclass(frozen=True)
class Told:
    """What a process is told. `die`: "before" or "after" it sends its message of a round, such as "before masked"."""

    folder: Path
    consortium: Consortium
    stages: Sequence[Shape]
    patience: float = 60.0
    address: str = ""
    port: int = 0
    die: str = ""
    terms: str = "{}"

    def party(self) -> Party:
        return Party.load(self.folder / "own.key", Roster.load(self.folder / "roster.toml"))


def run_holder(told: Told, pipe: Connection) -> None:
    if told.die:
        mortal(told.die)
    party = told.party()
    client = MailClient(party, told.address, told.patience)
    exchange = HolderExchange(party, told.folder / "session", client, told.patience)
    try:
        exchange.join(PlainTerms(told.consortium, told.terms), frozenset({f"id {party.name}"}))  # type: ignore[arg-type]
        totals = []
        for stage, shape in enumerate(told.stages):
            shares = [PlainShare(values) for values in values_of(party.name, stage, shape)]
            found = exchange.sum(stage, shares, b"meaning")
            totals.append(([np.array(each) for each in found.sums], found.holders))
        pipe.send((totals, exchange.traffic))
    except FederationError as error:
        pipe.send(str(error))


def run_coordinator(told: Told, pipe: Connection) -> None:
    exchange = CoordinatorExchange(told.party(), told.folder / "session", told.patience)
    if told.die in LIES:
        coordinator_exchange.Result = LIES[told.die]  # type: ignore[assignment, misc]
    with Mailbox(exchange.boxes, port=told.port) as mailbox:
        pipe.send(mailbox.address)
        Thread(target=lambda: [exchange.leave_out(name) for name in iter(pipe.recv, "")], daemon=True).start()
        try:
            lineage = exchange.join(PlainTerms(told.consortium, told.terms))  # type: ignore[arg-type]
            totals = []
            for stage, shape in enumerate(told.stages):
                shares = [PlainShare(values) for values in values_of("hub", stage, shape)]
                if told.die == f"before stage {stage}":
                    os.kill(os.getpid(), signal.SIGKILL)
                found = exchange.sum(stage, shares, b"meaning")
                totals.append(([np.array(each) for each in found.sums], found.holders))
            pipe.send((totals, (sorted(lineage), exchange.finish())))
        except FederationError as error:
            pipe.send(str(error))
            sleep(told.patience)  # its mailbox stays


# What a coordinator may state instead of a stage's result.
LIES = {
    "lie about holders": lambda transcript, holders, vector: Result(transcript, holders + 1, vector),
    "lie about totals": lambda transcript, holders, vector: Result(transcript, holders, vector[::-1]),
}


def mortal(die: str) -> None:
    """Kill this process before or after its message of a round is sent, as a power cut would."""
    when, round_ = die.split()
    send = Correspondence.send

    def dying(self: Correspondence, envelope: Envelope) -> None:
        if when == "before" and envelope.round == round_:
            os.kill(os.getpid(), signal.SIGKILL)
        send(self, envelope)
        if when == "after" and envelope.round == round_:
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    Correspondence.send = dying  # type: ignore[method-assign]


@dataclass
class Federation:
    """The folders of all parties, each with its key and the roster."""

    folder: Path
    consortium: Consortium
    stages: Sequence[Shape] = (((5, 8), (3, 4)),)
    patience: float = 60.0

    def __post_init__(self) -> None:
        self.names = [f"h{number}" for number in range(1, self.consortium.holders + 1)]
        members = []
        for name in ("hub", *self.names):
            (self.folder / name).mkdir(parents=True)
            make_key(self.folder / name / "own.key", name, None)
            key = load_key(self.folder / name / "own.key").public_key().public_bytes_raw()
            members.append(Member(name, "coordinator" if name == "hub" else "holder", key))
        for name in ("hub", *self.names):
            (self.folder / name / "roster.toml").write_text(Roster.of(members).text())
        self.running: dict[str, tuple[BaseProcess, Connection]] = {}

    def start(self, name: str, **more: Any) -> None:
        told = Told(self.folder / name, self.consortium, self.stages, **({"patience": self.patience} | more))
        ours, theirs = PROCESSES.Pipe()
        target = run_coordinator if name == "hub" else run_holder
        process = PROCESSES.Process(target=target, args=(told, theirs))
        process.start()
        theirs.close()
        self.running[name] = process, ours

    def start_all(self, die: Mapping[str, str] | None = None, **more: Any) -> str:
        """All of them; the mailbox's address."""
        self.start("hub", die=(die or {}).get("hub", ""))
        address = str(self.running["hub"][1].recv())
        for name in self.names:
            self.start(name, address=address, die=(die or {}).get(name, ""), **more)
        return address

    def end(self, name: str) -> Any:
        """What a process said at its end: its totals, or an error."""
        process, pipe = self.running[name]
        said = pipe.recv()
        if name == "hub" and isinstance(said, str):
            process.kill()
        process.join(60)
        return said

    def killed(self, *names: str, gone: bool = True) -> None:
        """Wait until these processes are dead, and tell the coordinator that they are gone for good."""
        for name in names:
            process, _ = self.running[name]
            process.join(60)
            assert process.exitcode == -signal.SIGKILL
            if gone:
                self.running["hub"][1].send(name)

    def expected(self, names: Sequence[str], stage: int = 0) -> list[np.ndarray]:
        vectors = [values_of(name, stage, self.stages[stage]) for name in names]
        return [np.sum(parts, axis=0, dtype=parts[0].dtype) for parts in zip(*vectors, strict=True)]


def same(one: Sequence[np.ndarray], two: Sequence[np.ndarray]) -> bool:
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
