from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from conftest import SEED
from dpsketch.errors import BudgetError, DpsketchError, LedgerError
from dpsketch.ledger.account import Cap, rounded
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.sql_tables import grants, plans, spends, totals
from dpsketch.privacy.accounting import ADD_REMOVE, REPLACE_ONE, Partition, amplified, inner_budget
from dpsketch.privacy.composition import plan_cost
from dpsketch.privacy.events import Mechanism, Noise, Release
from postgres_server import Server

ROWS = ("row", 1, ADD_REMOVE)
GAUSSIAN = (Noise(Mechanism.GAUSSIAN, 1, Fraction(10)),)
RATE = Fraction(1, 10)


def pure(epsilon: float, rate: Fraction | None = None) -> Release:
    return Release(dps.Budget(epsilon), (), rate)


def noisy(delta: float, epsilon: float = 0.1) -> Release:
    return Release(dps.Budget(epsilon, delta), GAUSSIAN)


def zero_concentrated(rho: float) -> Release:
    return Release(dps.Budget(rho=rho), GAUSSIAN)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new ledger's address, on each backend."""
    if request.param == "sqlite":
        return str(tmp_path / "l?%20.db")
    url: str = request.getfixturevalue("postgres").new_database()
    return url


@pytest.fixture
def ledger(place: str) -> Ledger:
    return Ledger(place)


def reserve(ledger: Ledger, release: Release | float = 0.1, lineage: str = "i", **options: object) -> str:
    made = release if isinstance(release, Release) else pure(release)
    return ledger.reserve("a", ROWS, made, frozenset([lineage]), **options)  # type: ignore[arg-type]


DAMAGED = (
    "LedgerError: the ledger is damaged\n"
    "Hint: restore a backup, and lower the caps by what was released since it was made"
)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(DpsketchError) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


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
    assert "must state which sample" in refused(lambda: ledger.reserve("a", ROWS, pure(0.1, RATE), frozenset()))
    replaced = ("row", 1, REPLACE_ONE)
    assert "add-remove only" in refused(lambda: ledger.check("new", replaced, pure(0.1, RATE)))


def test_a_release_with_delta_must_say_its_noise() -> None:
    assert "must state its noise" in refused(lambda: reserve(Ledger("sqlite://"), Release(dps.Budget(1.0, 1e-6), ())))


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


def change(ledger: Ledger, table: sa.Table, **values: str) -> None:
    with ledger._store.writing() as connection:
        connection.execute(table.update().values(**values))


DAMAGE = [
    *[(spends, "release", text) for text in ("", "{", "{}", "[]", "null", '{"budget": {"epsilon": 0}, "noises": []}')],
    (spends, "release", '{"budget": {"x": 1}, "noises": []}'),
    (spends, "release", '{"budget": {"epsilon": 1}, "noises": [{}]}'),
    (spends, "release", "[" * 100_000),
    (spends, "lineage", "{}"),
    (spends, "lineage", "[[]]"),
    *[(plans, "budgets", text) for text in ("", "{", "{}", "[]", "[1]", '[{"epsilon": 0.1, "times": 0}]')],
    (plans, "budgets", '[{"epsilon": 0.3}]'),
    (plans, "epsilon", "x"),
    (grants, "epsilon", "1/0"),
]


@pytest.mark.parametrize(("table", "column", "text"), DAMAGE, ids=lambda value: str(value)[:20])
def test_damage_is_told(table: sa.Table, column: str, text: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.declare("a", ROWS, "p", [dps.Budget(0.1)] * 2, 1e-6)
    reserve(ledger, 0.1, plan="p")
    change(ledger, table, **{column: text})
    for call in (ledger.accounts, ledger.verify, lambda: Ledger(tmp_path / "l.db")):
        assert refused(call) == DAMAGED


@pytest.mark.parametrize("value", ["", "{", "[1]", "null", '["0", "0", "x"]'])
def test_damaged_totals_allow_nothing(value: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    reserve(ledger, 0.1)
    change(ledger, totals, value=value)
    for call in (ledger.accounts, ledger.verify, lambda: Ledger(tmp_path / "l.db")):
        assert refused(call) == DAMAGED
    with pytest.raises(DpsketchError):
        reserve(ledger, 0.1)


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


def test_an_infinite_budget_is_neither_cap_nor_spend() -> None:
    ledger = Ledger("sqlite://")
    assert "a cap must be finite" in refused(lambda: ledger.grant("a", dps.Budget(float("inf"))))
    assert "never enters a ledger" in refused(lambda: reserve(ledger, float("inf")))


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


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@127.0.0.1:1/db",
        "postgresql://me:hu%40sh@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=hush",
        "postgresql://me:hush@127.0.0.1:hush/db",
        "postgresql://me:hu@hush/hush@host/db",
        "postgresql://me:x@hush@127.0.0.1:1/db",
        "postgresql://me:hush@127.0.0.1:1/db?hush=1",
        "postgresql:/u:hunter2@h/db",
        "postgresql//u:hunter2@h/db",
        "postgres://u:hunter2@h/db",
        "host=localhost password=hunter2 dbname=x",
        "host=localhost PASSWORD = hunter2 dbname=x",
        "postgresql://u:hun@ter2?x@localhost:1/db",
        "postgresql://u:hunter2?x@localhost:1/db",
        "postgresql://u:hunter2@localhost:1/db?connect_timeout=hunter2",
        "postgresql://u:hunter2@localhost:1/db?plugin=hunter2",
        "mysql://u:hunter2@localhost:1/db",
    ],
)
def test_a_password_is_in_no_error(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        words = refused(lambda c=create: Ledger(url, create=c))
        assert words.startswith(("LedgerError: the ledger", "LedgerError: that is not", "LedgerError: a ledger is"))
        for secret in ("hush", "hu@sh", "hu%40sh", "hunter2", "hun@", "ter2"):
            assert secret not in words
        assert "\n" not in words.replace("\nHint: ", "")
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_none_gets_an_example() -> None:
    for text in ("postgresql:/h/db", "postgres-ledger.db", "password=x"):
        assert refused(lambda t=text: Ledger(t)) == (
            "LedgerError: that is not a ledger's address\nHint: write postgresql://user@host/database, "
            "with the password in ~/.pgpass or PGPASSWORD, or a file as ./name"
        )


def test_whatever_a_driver_says_is_masked(postgres: Server) -> None:
    """A URL that it repeats, too."""
    ledger = Ledger(postgres.new_database())
    error = sa.exc.OperationalError("", None, Exception("no  way\n in postgresql://a:b@c@d/e, sorry"))
    assert str(ledger._store._explained(error)).startswith(
        "the ledger cannot be used: no way in postgresql://***@d/e, sorry\n"
    )


def test_each_refusal_of_a_server_has_its_hint(postgres: Server, tmp_path: Path) -> None:
    place = postgres.new_database()
    schema = place.rsplit("%3D", 1)[1]
    Ledger(place)
    with Ledger(place)._store.writing() as connection:
        connection.exec_driver_sql(f"create role stranger_{schema} login")
    stranger = place.replace("owner@", f"stranger_{schema}@")
    cases = {
        place.replace("owner@", "nobody_at_all@"): ("role", "check the user's name and password"),
        place.replace("/postgres?", "/none?"): ("database", "create the database first, or check its name"),
        f"postgresql://me@/db?host={tmp_path}": ("", "check the address and that the server runs"),
        "postgresql://me@127.0.0.1:1/db": ("", "check the address and that the server runs"),
    }
    for url, (word, hint) in cases.items():
        words = refused(lambda u=url: Ledger(u))
        assert words.startswith("LedgerError: the ledger cannot be used: ")
        assert word in words
        assert words.count("\n") == 1
        assert f"\nHint: {hint}" in words
    with Ledger(place)._store.writing() as connection:
        connection.exec_driver_sql(f"grant usage on schema {schema} to stranger_{schema}")
    words = refused(lambda: Ledger(stranger))
    assert "permission denied for table" in words
    assert "Hint: the role must be allowed to select and insert in the ledger's tables" in words


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ('FATAL:  password authentication failed for user "me"', "check the user's name and password"),
        ("fe_sendauth: no password supplied", "check the user's name and password"),
        ("canceling statement due to lock timeout", "try again when they are done"),
        ("database is locked", "try again when they are done"),
        ("connection refused", "check the path and its permissions"),
    ],
)
def test_what_databases_say_has_a_hint(said: str, hint: str) -> None:
    error = sa.exc.OperationalError("", None, Exception(said))
    assert f"\nHint: {hint}" in str(Ledger("sqlite://")._store._explained(error))


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert refused(lambda: Ledger("postgresql://host/db")) == (
        "LedgerError: a ledger in PostgreSQL needs the driver psycopg\nHint: pip install 'dpsketch[postgres]'"
    )


def test_a_ledger_to_read_must_exist(place: str, tmp_path: Path) -> None:
    assert "there is no ledger" in refused(lambda: Ledger(place, create=False))
    assert "there is no ledger" in refused(lambda: Ledger(f"sqlite:///{tmp_path}/none.db", create=False))
    Ledger(place)
    assert Ledger(place, create=False).accounts() == ()
    for memory in ("sqlite://", ":memory:"):
        assert "a ledger in memory has nothing to read" in refused(lambda m=memory: Ledger(m, create=False))


def test_reading_makes_no_ledger_of_another_file(tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    for content, fact in ((b"", f"{file} exists but is not a ledger"), (b"x" * 5000, f"{file} is not a ledger")):
        file.write_bytes(content)
        assert fact in refused(lambda: Ledger(file, create=False))
        assert [(one, one.read_bytes()) for one in tmp_path.iterdir()] == [(file, content)]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    Ledger(tmp_path / "new.db").grant("a", dps.Budget(1.0))
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    (tmp_path / "new.db").chmod(0o640)
    Ledger(tmp_path / "new.db").grant("a", dps.Budget(1.0))
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o640


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
