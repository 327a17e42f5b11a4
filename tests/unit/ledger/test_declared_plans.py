"""Releases that are declared together."""

from __future__ import annotations

import json
from fractions import Fraction

import sqlalchemy as sa

import dpsketch as dps
from dpsketch.ledger.account import Cap
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.sql_tables import plans
from dpsketch.privacy.accounting import Partition
from dpsketch.privacy.composition import plan_cost
from dpsketch.privacy.events import Mechanism, Noise, Release
from ledger_spends import RATE, ROWS, change, noisy, pure, refused, reserve, zero_concentrated


def test_a_plan_costs_less_and_is_spent_at_once(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(5.0, 1e-5))
    budgets = [dps.Budget(0.1)] * 99 + [dps.Budget(0.05, 1e-8)]
    declared = ledger.declare("a", ROWS, "year", budgets, 1e-6)
    (account,) = ledger.accounts()
    assert account.plans == (declared,)
    assert declared.saves
    assert account.total.epsilon == plan_cost(budgets, Fraction(1, 10**6)) < 5
    assert account.total.delta == Fraction(1, 10**6)
    reserve(ledger, 0.1, plan="year")
    reserve(ledger, noisy(1e-8, 0.05), plan="year")
    (after,) = ledger.accounts()
    assert (after.total.epsilon, after.total.delta) == (account.total.epsilon, account.total.delta)
    (plan,) = after.plans
    assert (len(plan.used), plan.unused) == (2, (dps.Budget(0.1),) * 98)
    assert refused(lambda: reserve(ledger, 0.2, plan="year")) == (
        "BudgetError: plan 'year' has no unused release with epsilon 0.2\nHint: unused are: epsilon 0.1 (98 times)"
    )
    assert "this plan needs epsilon" in refused(lambda: ledger.declare("a", ROWS, "more", budgets, 1e-6))
    assert "has a plan 'year' already" in refused(lambda: ledger.declare("a", ROWS, "year", budgets[:1], 1e-6))
    assert "has no plan 'other'" in refused(lambda: reserve(ledger, 0.1, plan="other"))
    for options in ({"partition": Partition("c", "x", "s")}, {"release": pure(0.1, RATE)}):
        fact = refused(lambda o=options: reserve(ledger, **{"release": 0.1, **o}, plan="year"))
        assert "cannot be one of a plan" in fact
    ledger.grant("a", dps.Budget(1.0, 1e-5))
    assert "has spent more than its cap" in refused(lambda: reserve(ledger, 0.1, plan="year"))


def test_a_new_dataset_may_spend_its_first_plan_and_no_more(ledger: Ledger) -> None:
    ledger.declare("a", ROWS, "p", [dps.Budget(rho=0.01)] * 2, 1e-6)
    (account,) = ledger.accounts()
    assert account.left == Cap(Fraction(0), Fraction(0), None)
    laplace = Release(dps.Budget(rho=0.01), (Noise(Mechanism.LAPLACE, 1, Fraction(10)),))
    assert "must have Gaussian noise only" in refused(lambda: reserve(ledger, laplace, plan="p"))
    for _ in range(2):
        reserve(ledger, zero_concentrated(0.01), plan="p")
    assert "all its releases were made" in refused(lambda: reserve(ledger, zero_concentrated(0.01), plan="p"))
    assert "left of" in refused(lambda: reserve(ledger, 0.001))


def test_a_plan_must_be_possible() -> None:
    ledger = Ledger("sqlite://")
    for budgets, delta, fact in (
        ([], 1e-6, "must have releases"),
        ([dps.Budget(float("inf"))], 1e-6, "must have releases"),
        ([dps.Budget(0.1)], 0.02, "delta must be 0, or between 1e-30 and 0.01, got 0.02"),
        ([dps.Budget(0.1)], float("nan"), "delta must be 0, or between 1e-30 and 0.01, got nan"),
        ([dps.Budget(60.0)] * 2, 0.0, "may cost epsilon 100 at most, this one costs 120\nHint: declare fewer"),
        ([dps.Budget(rho=0.1)], 0.0, "no finite epsilon at delta 0"),
    ):
        assert fact in refused(lambda b=budgets, d=delta: ledger.declare("a", ROWS, "p", b, d))
    assert "a plan's name must have" in refused(lambda: ledger.declare("a", ROWS, "", [dps.Budget(0.1)], 0.0))
    assert ledger.accounts() == ()


def test_a_plan_that_saves_nothing_says_so() -> None:
    ledger = Ledger("sqlite://")
    assert not ledger.declare("a", ROWS, "p", [dps.Budget(0.1)], 1e-6).saves
    assert not ledger.declare("b", ROWS, "p", [dps.Budget(0.1)] * 9, 0.0).saves
    assert ledger.declare("c", ROWS, "p", [dps.Budget(rho=0.01)], 1e-6).saves


def test_a_plan_of_many_releases_is_kept_short(ledger: Ledger) -> None:
    ledger.declare("a", ROWS, "p", [dps.Budget(0.001), dps.Budget(0.002)] * 10_000, 1e-6)
    reserve(ledger, 0.001, plan="p")
    with ledger._store.writing() as connection:
        (text,) = connection.scalars(sa.select(plans.c.budgets))
    assert json.loads(text) == [{"epsilon": 0.001, "times": 10_000}, {"epsilon": 0.002, "times": 10_000}]
    (plan,) = ledger.accounts()[0].plans
    assert (len(plan.used), len(plan.unused)) == (1, 19_999)


def test_a_plan_without_counts_can_be_read() -> None:
    ledger = Ledger("sqlite://")
    ledger.declare("a", ROWS, "p", [dps.Budget(0.1)] * 2, 1e-6)
    change(ledger, plans, budgets='[{"epsilon": 0.1}, {"epsilon": 0.1}]')
    assert ledger.accounts()[0].plans[0].unused == (dps.Budget(0.1),) * 2


def test_what_the_releases_would_have_cost_as_one_plan(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(10.0))
    ledger.grant("empty", dps.Budget(1.0))
    for _ in range(20):
        reserve(ledger, 0.1)
    account, empty = ledger.accounts()
    slack = Fraction(1, 10**6)
    assert account.as_one_plan(slack) == plan_cost([dps.Budget(0.1)] * 20, slack) < 2
    assert account.as_one_plan(Fraction(0)) == 2
    assert empty.as_one_plan(slack) == 0
