"""Spends of a dataset, and what the ledger keeps of them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.errors import BudgetError, LedgerError
from dpsketch.ledger.account import Cap, rounded
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import ADD_REMOVE, REPLACE_ONE, Partition
from dpsketch.privacy.events import Mechanism, Noise, Release
from ledger_spends import GAUSSIAN, RATE, ROWS, noisy, pure, refused, reserve, zero_concentrated


def test_ten_tenths_make_exactly_one(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0))
    for _ in range(10):
        ledger.commit(reserve(ledger))
    (account,) = ledger.accounts()
    assert (account.total.epsilon, account.left.epsilon) == (1, 0)
    assert refused(lambda: reserve(ledger)) == (
        "BudgetError: this release needs epsilon 0.1; dataset 'a' has 0 left of 1.\n"
        "Hint: ask the owner to raise the cap: dpsketch ledger grant …"
    )


def test_a_new_dataset_may_spend_its_first_release_and_no_more(ledger: Ledger) -> None:
    reserve(ledger)
    with pytest.raises(BudgetError, match=r"has 0 left of 0\.1"):
        reserve(ledger, 0.001)
    ledger.grant("a", dps.Budget(0.15))
    with pytest.raises(BudgetError, match=r"pass --epsilon 0\.05 or less"):
        reserve(ledger)
    reserve(ledger, 0.05)


@pytest.mark.parametrize("release", [noisy(1e-6), zero_concentrated(0.1), pure(0.5, RATE)])
def test_so_may_one_of_another_kind(release: Release) -> None:
    ledger = Ledger("sqlite://")
    reserve(ledger, release)
    (account,) = ledger.accounts()
    assert account.cap == Cap.of(release.budget)
    assert account.left == account.cap.after(account.total)
    with pytest.raises(BudgetError, match="left of"):
        reserve(ledger, release)


def test_a_check_records_nothing(ledger: Ledger) -> None:
    ledger.check("a", ROWS, pure(0.1))
    assert ledger.accounts() == ()
    reserve(ledger)
    with pytest.raises(BudgetError):
        ledger.check("a", ROWS, pure(0.1))
    assert len(ledger.accounts()[0].spends) == 1


def test_an_uncommitted_spend_counts(ledger: Ledger) -> None:
    reserve(ledger)
    assert [spend.committed for spend in ledger.accounts()[0].spends] == [False]
    assert ledger.accounts()[0].left.epsilon == 0


def test_spends_are_kept_as_they_were(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0, 1e-5))
    release = Release(dps.Budget(0.1, 1e-7), (*GAUSSIAN, Noise(Mechanism.LAPLACE, 3, Fraction(30, 7))), None)
    spend = reserve(ledger, release, partition=Partition("sex", "Female", "2026-11"))
    ledger.commit(spend)
    (found,) = ledger.accounts()[0].spends
    assert (found.id, found.release, found.lineage) == (spend, release, frozenset("i"))
    assert (found.partition, found.plan, found.committed) == (Partition("sex", "Female", "2026-11"), None, True)


def test_only_a_reserved_spend_is_committed_and_only_once(ledger: Ledger) -> None:
    spend = reserve(ledger)
    ledger.commit(spend)
    ledger.commit(spend)  # tried again because the first answer was lost
    assert [spend.committed for spend in ledger.accounts()[0].spends] == [True]
    with pytest.raises(LedgerError, match="the ledger cannot be used"):
        ledger.commit("0" * 32)


def test_lowering_a_cap_below_what_was_spent_refuses_more(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0))
    reserve(ledger, 0.5)
    ledger.grant("a", dps.Budget(0.25))
    assert ledger.accounts()[0].left.epsilon == Fraction(-1, 4)
    assert refused(lambda: reserve(ledger)) == (
        "BudgetError: dataset 'a' has spent more than its cap: epsilon 0.5 of 0.25\n"
        "Hint: ask the owner to raise the cap: dpsketch ledger grant …"
    )


def test_the_unit_and_relation_of_a_dataset_are_fixed(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0))
    reserve(ledger)
    for accounted, fact in (
        (("id", 3, ADD_REMOVE), "accounted per row, this release is per 'id' with up to 3 rows"),
        (("row", 1, REPLACE_ONE), "accounted by the relation add-remove, this release is by replace-one"),
    ):
        assert fact in refused(lambda a=accounted: ledger.reserve("a", a, pure(0.1), frozenset("i")))
        assert fact in refused(lambda a=accounted: ledger.check("a", a, pure(0.1)))
        assert fact in refused(lambda a=accounted: ledger.declare("a", a, "p", [dps.Budget(0.1)], 1e-6))
    assert "must be add-remove or replace-one, got 'x' instead" in refused(
        lambda: ledger.check("b", ("row", 1, "x"), pure(0.1))
    )


def test_an_infinite_budget_is_neither_cap_nor_spend() -> None:
    ledger = Ledger("sqlite://")
    assert "a cap must be finite" in refused(lambda: ledger.grant("a", dps.Budget(float("inf"))))
    assert "never enters a ledger" in refused(lambda: reserve(ledger, float("inf")))


@given(st.fractions(-10, 10**6))
def test_rounded_numbers_are_short_and_on_the_safe_side(number: Fraction) -> None:
    low, high = rounded(number, up=False), rounded(number, up=True)
    assert Fraction(low) <= number <= Fraction(high)
    assert max(len(low), len(high)) <= 12
    assert Fraction(high) - Fraction(low) <= abs(number) / 10**5
    assert (rounded(Fraction(1, 8), up=True), rounded(Fraction(1, 10**6), up=False)) == ("0.125", "1e-06")


def test_an_accounts_parts_and_samples_are_counted(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(9.0))
    for value in "xyx":
        reserve(ledger, 0.1, partition=Partition("c", value, "s"))
    for lineage in ("one", "one", "two"):
        reserve(ledger, pure(0.1, RATE), lineage)
    (account,) = ledger.accounts()
    assert (account.parts, account.samples) == (2, 2)
