"""Time, memory and traffic of secure sums on loopback: `python -m benchmarks.secure_sums [HOLDERS COUNTERS BYTES]`.

Every party is a process of its own with a folder of its own. Memory is what a process holds itself; pages of mapped
files, which the system drops when it needs memory, are printed beside it.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import line
from dpsketch.federate.coordinator_exchange import CoordinatorExchange
from dpsketch.federate.holder_exchange import HolderExchange
from dpsketch.federate.mail_client import MailClient
from dpsketch.federate.mailbox import Mailbox
from dpsketch.federate.roster import Member, Party, Roster
from dpsketch.files.signatures import load_key, make_key
from dpsketch.privacy.noise_shares import Consortium

GOALS = ((5, 1_000_000, 8, 30.0), (3, 200_000_000, 4, 0.0))  # holders, counters, bytes a counter, seconds
MOST_MEMORY = 1.5  # of a holder's table
PIECE = 1 << 20


@dataclass(frozen=True)
class Terms:
    consortium: Consortium

    def to_bytes(self) -> bytes:
        return b"{}"


@dataclass(frozen=True)
class Share:
    """A table in memory whose noise share is drawn while it is read."""

    table: Any

    @property
    def size(self) -> int:
        return len(self.table)

    @property
    def dtype(self) -> Any:
        return self.table.dtype

    def chunks(self) -> Iterator[Any]:
        rng = np.random.default_rng()
        for first in range(0, self.size, PIECE):
            piece = self.table[first : first + PIECE]
            yield piece + rng.integers(-99, 99, len(piece), self.table.dtype)


def peaks(stop: threading.Event, found: dict[str, int]) -> None:
    """The most kB of own memory, and of mapped files, that this process ever has."""
    while not stop.wait(0.02):
        for text in Path("/proc/self/status").read_text().splitlines():
            if text.startswith(("RssAnon", "RssFile")):
                name, kilobytes, _ = text.split()
                found[name] = max(found.get(name, 0), int(kilobytes))


def holder(folder: Path, group: Consortium, shape: tuple[int, int], address: str, pipe: Connection) -> None:
    party = Party.load(folder / "key", Roster.load(folder / "roster.toml"))
    size, width = shape
    stop, found = threading.Event(), dict[str, int]()
    before = int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])
    threading.Thread(target=peaks, args=(stop, found), daemon=True).start()
    table = np.full(size, 7, np.int32 if width == 4 else np.int64)
    exchange = HolderExchange(party, folder / "session", MailClient(party, address))
    exchange.join(Terms(group), frozenset())  # type: ignore[arg-type]
    totals = exchange.sum(0, [Share(table)], b"")
    assert abs(int(totals.sums[0][size // 2]) - 7 * group.holders) < 100 * group.holders
    stop.set()
    own = (found["RssAnon:"] - before) * 1024
    pipe.send((own, found["RssFile:"] * 1024, time.process_time(), exchange.traffic))


def coordinator(folder: Path, group: Consortium, shape: tuple[int, int], pipe: Connection) -> None:
    party = Party.load(folder / "key", Roster.load(folder / "roster.toml"))
    exchange = CoordinatorExchange(party, folder / "session")
    with Mailbox(exchange.boxes) as mailbox:
        pipe.send(mailbox.address)
        exchange.join(Terms(group))  # type: ignore[arg-type]
        nothing = np.empty(0, np.int32 if shape[1] == 4 else np.int64)
        exchange.sum(0, [_Sized(nothing, shape[0])], b"")
        exchange.finish()
    pipe.send(time.process_time())


@dataclass(frozen=True)
class _Sized(Share):
    length: int = 0

    @property
    def size(self) -> int:
        return self.length


def run(holders: int, size: int, width: int, goal: float) -> None:
    processes, group = multiprocessing.get_context("forkserver"), Consortium.of(holders)
    folder = Path(tempfile.mkdtemp())
    try:
        names, members = ["hub", *(f"h{number}" for number in range(holders))], []
        for name in names:
            (folder / name).mkdir()
            make_key(folder / name / "key", name, None)
            public = load_key(folder / name / "key").public_key().public_bytes_raw()
            members.append(Member(name, "coordinator" if name == "hub" else "holder", public))
        for name in names:
            (folder / name / "roster.toml").write_text(Roster.of(members).text())
        start, pipes = time.perf_counter(), {name: processes.Pipe() for name in names}
        hub = processes.Process(target=coordinator, args=(folder / "hub", group, (size, width), pipes["hub"][1]))
        hub.start()
        address = pipes["hub"][0].recv()
        for name in names[1:]:
            told = (folder / name, group, (size, width), address, pipes[name][1])
            processes.Process(target=holder, args=told).start()
        said = [pipes[name][0].recv() for name in names[1:]]
        spent = pipes["hub"][0].recv()
        took = time.perf_counter() - start
    finally:
        shutil.rmtree(folder)
    table = size * width
    own, mapped = max(each[0] for each in said), max(each[1] for each in said)
    sent, received = said[0][3]
    title = f"secure sum of {holders} × {size:,} counters of {width} bytes"
    line(title, took, "s", goal or took, at_most=True)
    print(f"  CPU: holders {max(each[2] for each in said):.1f} s each, coordinator {spent:.1f} s")
    print(f"  a holder sent {sent:,} bytes and received {received:,}; its table has {table:,}")
    if table > 1 << 26:  # below, buffers of a chunk are larger than the table
        line("  a holder's memory, of its table", own / table, "", MOST_MEMORY, at_most=True)
        print(f"  pages of mapped files at the most: {mapped / table:.2f} of its table")


if __name__ == "__main__":
    chosen = [int(word) for word in sys.argv[1:]]
    for each in [(*chosen, 0.0)] if chosen else GOALS:
        run(*each)
