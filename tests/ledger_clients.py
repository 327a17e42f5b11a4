"""Processes that spend from one ledger at once: python ledger_clients.py race PLACE PROCESSES TRIES, or
kill PLACE PROCESSES ROUNDS SEED. They print the id of every spend once it is committed.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time

import psycopg
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite.pysqlite

from dpsketch.errors import BudgetError
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import ADD_REMOVE
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Release

# Imported before the processes part, so that they spend their time with the ledger.
DRIVERS = (psycopg, sqlalchemy.dialects.postgresql.psycopg, sqlalchemy.dialects.sqlite.pysqlite)


def spend(place: str, epsilon: float, tries: int) -> None:
    ledger = Ledger(place)
    for _ in range(tries):
        try:
            made = ledger.reserve("a", ("row", 1, ADD_REMOVE), Release(Budget(epsilon), ()), frozenset(["i"]))
        except BudgetError:
            continue
        ledger.commit(made)
        os.write(1, f"{made}\n".encode())  # in one piece


def start(place: str, epsilon: float, tries: int, gate: tuple[int, int]) -> int:
    """A child that begins when nobody else holds the gate's other end any more."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(gate[1])
        os.read(gate[0], 1)
        spend(place, epsilon, tries)
        code = 0
    finally:
        os._exit(code)


def race(place: str, processes: int, tries: int) -> None:
    gate = os.pipe()
    children = [start(place, 0.1, tries, gate) for _ in range(processes)]
    os.close(gate[1])
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


def kill(place: str, processes: int, rounds: int, seed: int) -> None:
    """Let a few spends pass, kill a client a moment later, start another; or go on after a while without spends."""
    moments = random.Random(seed)
    said, theirs = os.pipe()
    out = os.dup(1)
    os.dup2(theirs, 1)

    def another() -> int:
        gate = os.pipe()
        child = start(place, 0.01, 10**9, gate)
        for end in gate:
            os.close(end)
        return child

    def hear(seconds: float) -> bool:
        if not select.select([said], [], [], seconds)[0]:
            return False
        os.write(out, os.read(said, 1 << 16))
        return True

    children = [another() for _ in range(processes)]
    for _ in range(rounds):
        for _ in range(moments.randrange(3)):
            hear(0.3)
        time.sleep(moments.uniform(0, 0.02))
        victim = children.pop(moments.randrange(len(children)))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        children.append(another())
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    while hear(0):
        pass


if __name__ == "__main__":
    command, address, *numbers = sys.argv[1:]
    {"race": race, "kill": kill}[command](address, *map(int, numbers))
