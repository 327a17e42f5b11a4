"""Caps in epsilon, delta and rho, and what counts towards them: parts of a table, samples."""

from __future__ import annotations

from fractions import Fraction

import dpsketch as dps
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.sql_tables import grants
from dpsketch.privacy.accounting import REPLACE_ONE, Partition, amplified, inner_budget
from dpsketch.privacy.events import Release
from ledger_spends import RATE, ROWS, noisy, pure, refused, reserve, zero_concentrated


def test_delta_has_a_cap_too(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0, 1e-6))
    reserve(ledger, noisy(9e-7))
    assert refused(lambda: reserve(ledger, noisy(2e-7))) == (
        "BudgetError: this release needs delta 2e-07; dataset 'a' has 1e-07 left of 1e-06.\n"
        "Hint: release without --delta, or ask the owner to raise the cap: dpsketch ledger grant …"
    )
    reserve(ledger, noisy(1e-7))
    assert "has 0 left of 1e-06.\nHint: release without --delta, or ask" in refused(
        lambda: reserve(ledger, noisy(1e-7))
    )
    reserve(ledger, 0.1)
    ledger.grant("a", dps.Budget(1.0))
    for release in (noisy(1e-7), pure(0.1)):  # even one without delta is refused
        assert refused(lambda r=release: reserve(ledger, r)) == (
            "BudgetError: dataset 'a' has spent more than its cap: delta 1e-06 of 0\n"
            "Hint: ask the owner to raise the cap: dpsketch ledger grant …"
        )


def test_a_cap_without_delta_says_what_to_grant() -> None:
    ledger = Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    assert refused(lambda: reserve(ledger, noisy(1e-7))) == (
        "BudgetError: this release needs delta 1e-07; dataset 'a' has 0 left of 0.\n"
        "Hint: release without --delta, or ask the owner to grant one: dpsketch ledger grant … --epsilon … --delta …"
    )


def test_a_refusal_names_all_that_is_short() -> None:
    ledger = Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    reserve(ledger, 0.75)
    assert refused(lambda: reserve(ledger, noisy(1e-7, 0.5))) == (
        "BudgetError: this release needs epsilon 0.5 and delta 1e-07; "
        "dataset 'a' has epsilon 0.25 left of 1 and delta 0 left of 0.\n"
        "Hint: pass --epsilon 0.25 or less without --delta, or ask the owner to raise the cap: dpsketch ledger grant …"
    )
    reserve(ledger, 0.25)
    for release in (noisy(1e-7), pure(0.1)):
        words = refused(lambda r=release: reserve(ledger, r))
        assert words.endswith("\nHint: ask the owner to raise the cap: dpsketch ledger grant …")
    ledger.grant("a", dps.Budget(1.0, 1e-6))
    assert refused(lambda: reserve(ledger, noisy(1e-7))) == (
        "BudgetError: this release needs epsilon 0.1; dataset 'a' has 0 left of 1.\n"
        "Hint: ask the owner to raise the cap: dpsketch ledger grant …"
    )
    assert "this plan needs epsilon 0.099982 and delta 1e-05; dataset" in refused(
        lambda: ledger.declare("a", ROWS, "p", [dps.Budget(0.1)], 1e-5)
    )


def test_what_fits_is_a_number_that_can_be_typed() -> None:
    ledger = Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    with ledger._store.writing() as connection:
        connection.execute(grants.insert().values(entry=9, dataset="a", epsilon="1/3", delta="0", created="now"))
    assert "Hint: pass --epsilon 0.333333 or less, or" in refused(lambda: reserve(ledger, 0.5))


def test_a_cap_in_rho_counts_every_release(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(rho=0.125))
    reserve(ledger, zero_concentrated(0.1))
    assert refused(lambda: reserve(ledger, zero_concentrated(0.05))) == (
        "BudgetError: this release needs rho 0.05; dataset 'a' has 0.025 left of 0.125.\n"
        "Hint: pass --rho 0.025 or less, or ask the owner to raise the cap: dpsketch ledger grant …"
    )
    reserve(ledger, pure(0.1))
    reserve(ledger, noisy(1e-6))
    (account,) = ledger.accounts()
    assert account.left.rho == Fraction(125, 1000) - Fraction(1, 10) - 2 * Fraction(5, 1000)
    assert "needs rho 0.5" in refused(lambda: reserve(ledger, pure(1.0)))
    assert "plan saves nothing" in refused(lambda: ledger.declare("a", ROWS, "p", [dps.Budget(0.1)], 1e-6))


def test_a_cap_in_epsilon_cannot_count_rho(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0, 1e-6))
    assert refused(lambda: reserve(ledger, zero_concentrated(0.1))) == (
        "BudgetError: the cap of dataset 'a' is in epsilon, which cannot count a release with rho\n"
        "Hint: release with epsilon and delta, or ask the owner to grant rho: dpsketch ledger grant … --rho"
    )


def test_a_cap_of_the_other_kind_must_count_what_was_spent(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0))
    reserve(ledger, 0.5)
    ledger.grant("a", dps.Budget(rho=0.5))
    assert ledger.accounts()[0].left.rho == Fraction(3, 8)
    ledger.grant("a", dps.Budget(1.0))
    ledger.grant("a", dps.Budget(rho=0.5))
    reserve(ledger, zero_concentrated(0.1))
    assert "has releases that only rho can count" in refused(lambda: ledger.grant("a", dps.Budget(1.0)))
    ledger.declare("b", ROWS, "p", [dps.Budget(0.1)], 1e-6)
    assert "has plans, which only epsilon and delta can count" in refused(
        lambda: ledger.grant("b", dps.Budget(rho=1.0))
    )


def test_parts_of_a_table_are_spent_in_parallel(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0))
    for value in "xyz":
        reserve(ledger, 0.75, partition=Partition("c", value, "s"))
    assert ledger.accounts()[0].total.epsilon == Fraction(3, 4)
    reserve(ledger, 0.25, partition=Partition("c", "x", "s"))
    assert "needs epsilon 0.25; dataset 'a' has 0 left of 1." in refused(
        lambda: reserve(ledger, 0.5, partition=Partition("c", "y", "s"))
    )
    reserve(ledger, 0.25, partition=Partition("c", "y", "s"))
    assert "this release needs epsilon 0.1" in refused(lambda: reserve(ledger, 0.1))


def test_a_replaced_row_meets_two_parts(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0))
    accounted = ("row", 1, REPLACE_ONE)
    for epsilon, value in ((0.5, "x"), (0.25, "y"), (0.5, "z"), (0.25, "w")):
        ledger.reserve("a", accounted, pure(epsilon), frozenset("i"), Partition("c", value, "s"))
    assert ledger.accounts()[0].total.epsilon == 1


def test_releases_of_one_sample_count_together(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(2.0))
    reserve(ledger, pure(0.5, RATE), "one")
    reserve(ledger, pure(0.5, RATE), "one")
    inner = inner_budget(dps.Budget(0.5), RATE)[0]
    assert ledger.accounts()[0].total.epsilon == amplified(2 * inner, RATE)
    again = " sketch the table again for a new sample, or"
    for epsilon, hint in ((0.1, again), (0.5, "")):
        words = refused(lambda e=epsilon: reserve(ledger, pure(e, RATE), "one"))
        assert words.startswith("BudgetError: releases of one sample are counted together: this one costs epsilon ")
        assert "; dataset 'a' has 0.12730047015" in words
        assert words.endswith(f" left of 2.\nHint:{hint} ask the owner to raise the cap: dpsketch ledger grant …")
    assert refused(lambda: reserve(ledger, pure(0.5, RATE), "two")).startswith(
        "BudgetError: this release needs epsilon 0.5; dataset 'a' has"
    )
    reserve(ledger, pure(0.1, RATE), "two")
    assert "must state which" in refused(lambda: ledger.reserve("a", ROWS, pure(0.1, RATE), frozenset()))
    replaced = ("row", 1, REPLACE_ONE)
    assert "add-remove only" in refused(lambda: ledger.check("new", replaced, pure(0.1, RATE)))


def test_a_release_with_delta_must_say_its_noise() -> None:
    assert "must state its noise" in refused(lambda: reserve(Ledger("sqlite://"), Release(dps.Budget(1.0, 1e-6), ())))
