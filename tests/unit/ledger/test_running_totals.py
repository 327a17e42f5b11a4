"""Running totals are what the spends add up to, and no decision reads the spends."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from conftest import SEED
from dpsketch.errors import BudgetError
from dpsketch.ledger.account import Plan, Spend
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.running_totals import Totals, cost_of, total_key, totals_after, totals_of
from dpsketch.privacy.accounting import ADD_REMOVE, FREE, REPLACE_ONE, Partition, total
from dpsketch.privacy.events import Mechanism, Noise, Release

GAUSSIAN = (Noise(Mechanism.GAUSSIAN, 1, Fraction(10)),)
RATES = [None, Fraction(1, 10), Fraction(1, 3)]
BUDGETS = [dps.Budget(0.1), dps.Budget(0.25), dps.Budget(0.5, 1e-6), dps.Budget(0.5, 0.005), dps.Budget(rho=0.01)]
PARTS = [
    None,
    Partition("c", "x"),
    *[Partition(column, value, snapshot) for column in "cd" for value in "xyz" for snapshot in "st"],
]
spends_of = st.builds(
    lambda budget, rate, lineage, part: Spend("", Release(budget, GAUSSIAN, rate), lineage, part),
    st.sampled_from(BUDGETS),
    st.sampled_from(RATES),
    st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=2),
    st.sampled_from(PARTS),
)
planned = st.builds(
    lambda budget: Spend("", Release(budget, GAUSSIAN), frozenset("p"), None, "p"), st.sampled_from(BUDGETS)
)


def numbered(spends: list[Spend]) -> list[Spend]:
    return [Spend(f"{i}", s.release, s.lineage, s.partition, s.plan) for i, s in enumerate(spends)]


@given(st.lists(st.one_of(spends_of, spends_of, planned), max_size=12), st.sampled_from([ADD_REMOVE, REPLACE_ONE]))
def test_each_spend_changes_the_totals_to_those_of_all_spends(spends: list[Spend], relation: str) -> None:
    plan = Plan("p", (), (), Fraction(1, 3), Fraction(1, 10**6), "")
    totals: Totals = totals_of("a", relation, [], [plan])
    made = numbered(spends)
    for count, spend in enumerate(made, 1):
        expected = totals_of("a", relation, made[:count], [plan])
        changed = totals_after(totals.get, "a", relation, spend)
        totals |= json.loads(json.dumps(expected if changed is None else changed))
        assert {key: totals.get(key) for key in expected} == expected
        assert cost_of(totals[total_key("a")]) == total(made[:count], relation) + plan.cost


def test_only_what_joins_samples_or_lowers_a_sum_needs_all_spends() -> None:
    release, part = Release(dps.Budget(0.1), (), RATES[1]), Partition("c", "x", "s")
    one, two = (Spend(name, release, frozenset([name]), part) for name in "ab")
    totals = totals_of("a", ADD_REMOVE, [one, two], [])
    for lineage, where, needed in (("a", part, False), ("c", part, False), ("ab", part, True), ("a", None, True)):
        changed = totals_after(totals.get, "a", ADD_REMOVE, Spend("new", release, frozenset(lineage), where))
        assert (changed is None) == needed
    cut = Release(dps.Budget(0.1, 0.005), GAUSSIAN, RATES[1])
    small = Release(dps.Budget(0.1, 1e-9), GAUSSIAN, RATES[1])
    totals = totals_of("a", ADD_REMOVE, [Spend("a", cut, frozenset("a"), part)], [])
    assert totals_after(totals.get, "a", ADD_REMOVE, Spend("b", small, frozenset("a"), part)) is None


def test_a_ledger_of_many_kinds_of_spends_adds_up(tmp_path: Path) -> None:
    """Reopened on the way; `verify` compares everything."""
    chance = random.Random(SEED)
    where = tmp_path / "l.db"
    for name, cap, relation in (
        ("a", dps.Budget(9.0, 1e-2), ADD_REMOVE),
        ("b", dps.Budget(rho=0.4), ADD_REMOVE),
        ("c", dps.Budget(9.0, 1e-2), REPLACE_ONE),
    ):
        ledger = Ledger(where)
        ledger.grant(name, cap)
        accounted = ("row", 1, relation)
        if cap.rho is None:
            ledger.declare(name, accounted, "p", [dps.Budget(0.1)] * 3, 1e-6)
        for _ in range(40):
            rate = chance.choice(RATES) if relation == ADD_REMOVE else None
            release = Release(chance.choice(BUDGETS), GAUSSIAN, rate)
            lineage = frozenset(f"{name}{chance.randrange(9)}" for _ in range(chance.choice([1, 1, 2])))
            plan = "p" if chance.random() < 0.1 and cap.rho is None else None
            try:
                ledger.reserve(name, accounted, release, lineage, chance.choice(PARTS), plan)
            except dps.errors.DpsketchError:
                continue
        standing, account = ledger.standing(name), next(each for each in ledger.accounts() if each.dataset == name)
        assert standing is not None
        assert standing.total == total(account.spends, relation) + sum((plan.cost for plan in account.plans), FREE)
        assert len(account.spends) > 10
        ledger.verify()
    assert Ledger(where).verify() == ledger.verify()


class Counting:
    """The statements that a ledger runs."""

    def __init__(self, ledger: Ledger) -> None:
        self.statements: list[str] = []
        sa.event.listen(ledger._store._engine, "before_cursor_execute", self._note)

    def _note(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        self.statements.append(statement.split()[0] + (" IMMEDIATE" if "IMMEDIATE" in statement else ""))

    def during(self, call: object) -> list[str]:
        self.statements.clear()
        call()  # type: ignore[operator]
        return list(self.statements)


def filled(count: int) -> Ledger:
    ledger = Ledger("sqlite://")
    ledger.grant("a", dps.Budget(100.0))
    for number in range(count):
        part = Partition("c", f"{number % 7}", "s") if number % 2 else None
        rate = RATES[1] if number % 3 == 0 else None
        lineage = frozenset([f"{number // 2}"])
        ledger.reserve("a", ("row", 1, ADD_REMOVE), Release(dps.Budget(0.001), (), rate), lineage, part)
    return ledger


def test_a_decision_takes_as_many_statements_whatever_was_spent() -> None:
    counts = []
    for count in (20, 200):
        ledger = filled(count)
        counting = Counting(ledger)

        def attempt(epsilon: float, ledger: Ledger = ledger) -> None:
            part = Partition("c", "1", "s")
            ledger.reserve("a", ("row", 1, ADD_REMOVE), Release(dps.Budget(epsilon), ()), frozenset("n"), part)

        def refuse(ledger: Ledger = ledger) -> None:
            with pytest.raises(BudgetError):
                attempt(100.0, ledger)

        counts.append([len(counting.during(lambda: attempt(0.001))), len(counting.during(refuse))])
    assert counts[0] == counts[1]
    assert max(counts[0]) < 25


def test_no_decision_reads_a_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(30)
    monkeypatch.setattr("dpsketch.ledger.ledger.read_spends", lambda *_: pytest.fail("all spends were read"))
    accounted = ("row", 1, ADD_REMOVE)
    for rate in RATES[:2]:
        release = Release(dps.Budget(0.001), (), rate)
        ledger.check("a", accounted, release)
        ledger.reserve("a", accounted, release, frozenset(["3"]))
        with pytest.raises(BudgetError):
            ledger.check("a", accounted, Release(dps.Budget(100.0), (), rate))


def test_a_spend_waits_for_the_disk_once_and_takes_the_write_lock_twice(tmp_path: Path) -> None:
    where = tmp_path / "l.db"
    Ledger(where).grant("a", dps.Budget(1.0))
    ledger = Ledger(where)
    counting, accounted, release = Counting(ledger), ("row", 1, ADD_REMOVE), Release(dps.Budget(0.1), ())
    assert "BEGIN IMMEDIATE" not in counting.during(lambda: ledger.check("a", accounted, release))
    assert "BEGIN IMMEDIATE" not in counting.during(lambda: ledger.standing("a"))
    assert (
        counting.during(lambda: ledger.reserve("a", accounted, release, frozenset("i"))).count("BEGIN IMMEDIATE") == 1
    )
    noted: list[str] = []
    sa.event.listen(ledger._store._engine, "before_cursor_execute", lambda *words: noted.append(words[2]))
    ledger.commit(ledger.accounts()[0].spends[0].id)
    assert "PRAGMA synchronous = NORMAL" in noted, "a commit may be lost, the spend counts"
    noted.clear()
    ledger.reserve("a", accounted, release, frozenset("i"))
    assert noted[:2] == ["PRAGMA synchronous = FULL", "BEGIN IMMEDIATE"]
