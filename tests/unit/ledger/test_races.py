"""Threads, processes and crashes: a cap holds, and no spend is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from conftest import SEED
from dpsketch.errors import BudgetError
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import Partition
from dpsketch.privacy.events import Release
from ledger_spends import RATE, noisy, pure, reserve, zero_concentrated

RELEASES = st.one_of(
    st.sampled_from([pure(0.1), pure(0.3), noisy(1e-7), noisy(4e-7, 0.2), pure(0.2, RATE)]),
    st.sampled_from([zero_concentrated(0.05), zero_concentrated(0.01)]),
)
PARTS = st.sampled_from(
    [
        None,
        Partition("c", "x"),
        *[Partition(*part) for part in (("c", "x", "s"), ("c", "y", "s"), ("c", "y", "t"), ("d", "x", "s"))],
    ]
)
CAPS = st.sampled_from([dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.1)])


@given(CAPS, st.lists(st.tuples(RELEASES, st.sampled_from("ij"), PARTS), max_size=25))
def test_no_sequence_of_releases_exceeds_the_cap(
    cap: dps.Budget, tries: list[tuple[Release, str, Partition | None]]
) -> None:
    ledger = Ledger("sqlite://")
    ledger.grant("a", cap)
    for release, lineage, partition in tries:
        try:
            reserve(ledger, release, lineage, partition=partition)
        except BudgetError:
            continue
        (account,) = ledger.accounts()
        assert account.cap.covers(account.total)


@pytest.mark.parametrize("where", ["sqlite://", ":memory:", "sqlite:///:memory:", "file", "postgresql"])
def test_threads_never_exceed_the_cap(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if where == "postgresql":
        where = request.getfixturevalue("postgres").new_database()
    ledger = Ledger(tmp_path / "l.db" if where == "file" else where)
    ledger.grant("a", dps.Budget(1.0))

    def attempt(_: int) -> bool:
        try:
            ledger.commit(reserve(ledger))
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(32))) == 10
    assert ledger.accounts()[0].left.epsilon == 0
    assert (tmp_path / "l.db").exists() == (where == "file")


def clients(*words: object) -> list[str]:
    """Real processes that race; see ledger_clients.py. What they say they committed."""
    command = [sys.executable, str(Path(__file__).parents[2] / "ledger_clients.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_sixteen_processes_race_to_spend(place: str) -> None:
    Ledger(place).grant("a", dps.Budget(3.0))
    won = clients("race", place, 16, 4)
    (account,) = Ledger(place).accounts()
    assert account.left.epsilon == 0
    assert len(won) == len(set(won)) == 30
    assert {spend.id for spend in account.spends if spend.committed} == set(won)
    assert len(account.spends) == 30


def test_sixteen_processes_open_a_new_ledger_at_once(place: str) -> None:
    won = clients("race", place, 16, 1)
    (account,) = Ledger(place).accounts()
    assert [spend.id for spend in account.spends] == won, "the first got its release as cap, the others nothing"


def test_clients_killed_at_any_moment_leave_the_ledger_whole(place: str) -> None:
    Ledger(place).grant("a", dps.Budget(2.0))
    said = clients("kill", place, 4, 60, SEED)
    (account,) = Ledger(place).accounts()
    assert account.total.epsilon == Fraction(len(account.spends), 100) <= 2
    committed = {spend.id for spend in account.spends if spend.committed}
    assert set(said) <= committed
    assert len(said) == len(set(said)) >= 20
    ledger = Ledger(place)  # no lock is left
    ledger.grant("a", dps.Budget(5.0))
    ledger.commit(reserve(ledger, 0.5))


KILL = """
import os, signal, sys
import pyarrow as pa
import dpsketch as dps
from dpsketch.ledger.ledger import Ledger
from dpsketch.sketch import release as module
point, folder = sys.argv[1:]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if point == "before the reservation": Ledger.reserve = die
if point == "before the noise": module._noisy = die
if point == "before the commit": Ledger.commit = die
if point == "after the commit": module.released_sketch = die
if point == "while the file is written": dps.ReleasedSketch.save = die
schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"x": {"kind": "boolean"}}})
raw = dps.accumulate(pa.table({"x": [True]}), schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]))
dps.release(raw, dps.Budget(1.0), Ledger(folder + "/ledger.db"), "a").save(folder + "/a.sketch")
"""
POINTS = {
    "before the reservation": (0, 0),
    "before the noise": (1, 0),
    "before the commit": (1, 0),
    "after the commit": (1, 1),
    "while the file is written": (1, 1),
    "nowhere": (1, 1),
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_the_spend_stays_and_no_file_lacks_a_record(point: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILL, point, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if point == "nowhere" else -signal.SIGKILL), done.stderr
    spends = [spend for account in Ledger(tmp_path / "ledger.db").accounts() for spend in account.spends]
    assert (len(spends), sum(spend.committed for spend in spends)) == POINTS[point]
    assert (tmp_path / "a.sketch").exists() == (point == "nowhere")
