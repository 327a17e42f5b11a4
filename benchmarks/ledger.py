"""A ledger of 100,000 spends, and one that 64 processes use at once."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import line
from dpsketch.errors import BudgetError
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import ADD_REMOVE
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Release

SPENDS, PROCESSES, TRIES = 100_000, 64, 3
ROWS = ("row", 1, ADD_REMOVE)
EARLIER = """
create table alembic_version (version_num varchar(32) primary key);
insert into alembic_version values ('0002');
create table datasets (name varchar primary key, unit varchar, max_rows_per_unit integer, relation varchar);
insert into datasets values ('a', 'row', 1, 'add-remove');
create table grants (number integer primary key, dataset varchar, epsilon varchar, delta varchar, rho varchar, created varchar);
insert into grants values (1, 'a', '100', '0', null, '');
create table plans (number integer primary key, dataset varchar, name varchar, budgets varchar, epsilon varchar, delta varchar, created varchar);
create table spends (number integer primary key, id varchar unique, dataset varchar, release varchar, lineage varchar,
  partition_column varchar, partition_value varchar, plan varchar, event varchar, created varchar);
create table commits (spend varchar primary key);
"""  # noqa: E501


def write_earlier(path: Path) -> None:
    """Write a ledger of the previous version, which is faster than writing spend by spend."""
    noise = {"mechanism": "discrete Laplace", "sensitivity": 14, "scale": "140000"}
    release = json.dumps({"budget": {"epsilon": 0.0001}, "noises": [noise] * 4})
    ids = [secrets.token_hex(16) for _ in range(SPENDS)]
    with sqlite3.connect(path) as connection:
        connection.executescript(EARLIER)
        rows = ((one, "a", release, json.dumps([secrets.token_hex(16)]), "2026-11-17T12:00:00+00:00") for one in ids)
        connection.executemany(
            "insert into spends (id, dataset, release, lineage, created) values (?, ?, ?, ?, ?)", rows
        )
        connection.executemany("insert into commits values (?)", ((one,) for one in ids))
    connection.close()


def seconds(call: Callable[[], object], times: int = 1) -> float:
    """The median time of a call."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return sorted(taken)[times // 2]


def reserve(ledger: Ledger, epsilon: float = 0.0001) -> str:
    return ledger.reserve("a", ROWS, Release(Budget(epsilon), ()), frozenset([secrets.token_hex(16)]))


def refuse(ledger: Ledger) -> None:
    try:
        reserve(ledger, 100.0)
    except BudgetError:
        return
    raise AssertionError("the ledger allows too much")


def long_ledger(folder: Path) -> None:
    path = folder / "long.db"
    write_earlier(path)
    print(f"upgrade of a ledger with {SPENDS:,} spends: {seconds(lambda: Ledger(path)):.1f} s")
    ledger = Ledger(path)
    line(f"reserve after {SPENDS:,} spends", 1000 * seconds(lambda: reserve(ledger), 21), "ms", 50, at_most=True)
    line(f"refusal after {SPENDS:,} spends", 1000 * seconds(lambda: refuse(ledger), 21), "ms", 50, at_most=True)
    line("opening it, which checks its newest entries", seconds(lambda: Ledger(path), 3), "s", 0.5, at_most=True)
    print(f"`ledger verify` of all of it: {seconds(ledger.verify):.1f} s")


def client(path: Path, gate: int, answer: int) -> None:
    os.read(gate, 1)
    start = time.perf_counter()
    ledger = Ledger(path)
    times = [time.perf_counter() - start]
    for _ in range(TRIES):
        start = time.perf_counter()
        ledger.commit(reserve(ledger))
        times.append(time.perf_counter() - start)
    os.write(answer, (json.dumps(times) + "\n").encode())


def many_processes(folder: Path) -> None:
    path = folder / "shared.db"
    Ledger(path).grant("a", Budget(100.0))
    (gate, opener), (answers, answer) = os.pipe(), os.pipe()
    children = []
    for _ in range(PROCESSES):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(opener)
                client(path, gate, answer)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    start = time.perf_counter()
    os.close(opener)
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    taken = time.perf_counter() - start
    times = [json.loads(text) for text in os.read(answers, 1 << 20).decode().splitlines()]
    spends = sorted(number for each in times for number in each[1:])
    line(f"{PROCESSES} processes, one ledger: failures", failed, "", 0, at_most=True)
    line("their longest opening", max(each[0] for each in times), "s", 5, at_most=True)
    line("99 of 100 spends take at most", spends[int(0.99 * len(spends))], "s", 5, at_most=True)
    print(f"spends a second: {len(spends) / taken:.0f}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        many_processes(Path(name))
        long_ledger(Path(name))


if __name__ == "__main__":
    main()
