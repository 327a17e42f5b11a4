from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

import dpsketch as dps
from dpsketch.errors import BudgetError, LedgerError
from dpsketch.privacy.ledger import Ledger

TENTH = Fraction(1, 10)


def reserve(ledger: Ledger, epsilon: Fraction = TENTH, dataset: str = "a") -> str:
    return ledger.reserve(dataset, epsilon, "row", 1, "test")


def test_ten_tenths_make_exactly_one() -> None:
    ledger = Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    for _ in range(10):
        ledger.commit(reserve(ledger))
    (account,) = ledger.accounts()
    assert (account.spent, account.left) == (1, 0)
    with pytest.raises(BudgetError, match=r"needs epsilon 0.1; dataset 'a' has 0 left of 1\."):
        reserve(ledger)


def test_a_new_dataset_may_spend_its_first_release_and_no_more() -> None:
    ledger = Ledger("sqlite://")
    reserve(ledger)
    with pytest.raises(BudgetError, match=r"has 0 left of 0\.1"):
        reserve(ledger, Fraction(1, 1000))
    ledger.grant("a", dps.Budget(0.15))
    with pytest.raises(BudgetError, match=r"pass --epsilon 0\.05 or less"):
        reserve(ledger)
    reserve(ledger, Fraction(5, 100))


def test_a_check_records_nothing() -> None:
    ledger = Ledger("sqlite://")
    ledger.check("a", TENTH, "row", 1)
    assert ledger.accounts() == ()
    reserve(ledger)
    with pytest.raises(BudgetError):
        ledger.check("a", TENTH, "row", 1)
    assert len(ledger.accounts()[0].spends) == 1


def test_an_uncommitted_spend_counts() -> None:
    ledger = Ledger("sqlite://")
    reserve(ledger)
    assert [spend.committed for spend in ledger.accounts()[0].spends] == [False]
    assert ledger.accounts()[0].left == 0


def test_lowering_a_cap_below_what_was_spent_refuses_more() -> None:
    ledger = Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    reserve(ledger, Fraction(1, 2))
    ledger.grant("a", dps.Budget(0.25))
    with pytest.raises(BudgetError, match=r"has 0 left of 0\.25"):
        reserve(ledger)


def test_the_unit_of_a_dataset_is_fixed() -> None:
    ledger = Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    reserve(ledger)
    with pytest.raises(LedgerError, match="accounted per row, this release is per 'id' with up to 3 rows"):
        ledger.reserve("a", TENTH, "id", 3, "test")


@pytest.mark.parametrize("place", ["sqlite://", ":memory:", "sqlite:///:memory:", "file"])
def test_threads_never_exceed_the_cap(place: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l?%20.db" if place == "file" else place)
    ledger.grant("a", dps.Budget(1.0))

    def attempt(_: int) -> bool:
        try:
            ledger.commit(reserve(ledger))
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(32))) == 10
    assert ledger.accounts()[0].left == 0
    assert (tmp_path / "l?%20.db").exists() == (place == "file")


def test_nobody_gives_budget_back() -> None:
    ledger = Ledger("sqlite://")
    for epsilon in (Fraction(-5), Fraction(0)):
        with pytest.raises(BudgetError, match="above 0"):
            reserve(ledger, epsilon)


RACE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from dpsketch.privacy.ledger import Ledger
from dpsketch.errors import BudgetError
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = 0
for _ in range(int(sys.argv[2])):
    try:
        ledger.commit(ledger.reserve("a", Fraction(1, 10), "row", 1, "race"))
        won += 1
    except BudgetError:
        pass
print(won)
"""


def race(path: Path, processes: int, tries: int) -> list[int]:
    """Real processes, started together."""
    command = [sys.executable, "-c", RACE, str(path), str(tries)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [int(process.communicate()[0]) for process in running]


def test_two_processes_race_for_the_last_of_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).grant("a", dps.Budget(0.1))
    assert sorted(race(path, 2, 1)) == [0, 1]


def test_many_racing_spends_never_exceed_the_cap(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).grant("a", dps.Budget(1.5))
    assert sum(race(path, 4, 8)) == 15
    (account,) = Ledger(path).accounts()
    assert account.left == 0
    assert all(spend.committed for spend in account.spends)


KILL = """
import os, signal, sys
import pyarrow as pa
import dpsketch as dps
from dpsketch.privacy.ledger import Ledger
from dpsketch.sketch import release as module
point, folder = sys.argv[1:]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if point == "before the reservation": Ledger.reserve = die
if point == "before the noise": module.noisy_sums = die
if point == "before the commit": Ledger.commit = die
if point == "after the commit": module._released = die
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
