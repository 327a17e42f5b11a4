"""The ledger: what each dataset may spend and has spent. Rows are only ever added."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpsketch.errors import BudgetError, LedgerError
from dpsketch.privacy.account import Account, Accounted, Cap, Plan, Spend, rounded, unit_text
from dpsketch.privacy.accounting import (
    ADD_REMOVE,
    REPLACE_ONE,
    Attempt,
    Cost,
    plan_cost,
)
from dpsketch.privacy.budget import MOST_EPSILON, Budget
from dpsketch.privacy.events import Release
from dpsketch.privacy.ledger_store import Store, damaged
from dpsketch.privacy.ledger_tables import commits, datasets, grants, plans, spends
from dpsketch.privacy.refusals import check_entry, check_plan, check_release, refusal


class Ledger:
    """Caps and spends in an SQLite file or a PostgreSQL database; `Ledger("sqlite://")` keeps them in memory.

    Guarantee: at any time the total of a dataset's spends is within the cap that held when the last was made, also when
    processes race and when one is killed. Source: PRIVACY "Ledger"; docs/proofs/release.md, docs/proofs/accounting.md.
    """

    def __init__(self, path_or_url: str | Path, create: bool = True) -> None:
        self._store = Store(path_or_url, create)

    @property
    def upgraded(self) -> bool:
        """Whether opening it brought it up to date from an earlier version."""
        return self._store.upgraded

    def grant(self, dataset: str, budget: Budget) -> None:
        """Set the cap of a dataset; it may be raised or lowered, never forgotten."""
        if not budget.private:
            raise BudgetError("a cap must be finite", "pass --epsilon with a number")
        _check_name("a dataset's name", dataset, "another DATASET")
        with self._store.transaction() as connection:
            account = _account(connection, dataset)
            if account is not None and budget.rho is None and account.total.epsilon is None:
                raise BudgetError(
                    f"dataset '{dataset}' has releases that only rho can count", "grant rho: --rho with a number"
                )
            if account is not None and budget.rho is not None and account.plans:
                raise BudgetError(
                    f"dataset '{dataset}' has plans, which only epsilon and delta can count", "grant epsilon and delta"
                )
            _add_grant(connection, dataset, Cap.of(budget))

    def check(
        self,
        dataset: str,
        accounted: Accounted,
        release: Release,
        partition: tuple[str, str] | None = None,
        plan: str | None = None,
    ) -> None:
        """Refuse now what `reserve` would refuse, so that no pass over the data is wasted. Records nothing."""
        with self._store.transaction() as connection:
            _room(connection, dataset, accounted, Attempt(release, frozenset(), partition, plan))

    def reserve(
        self,
        dataset: str,
        accounted: Accounted,
        release: Release,
        lineage: frozenset[str],
        partition: tuple[str, str] | None = None,
        plan: str | None = None,
    ) -> str:
        """Record a spend before any noise is drawn, or refuse it. Returns its id.

        `lineage` are the raw sketch's ids: releases of one sample of rows cost more together than apart. `partition`
        says that only rows with that value of that column were read; with units, it must be the same in all rows of
        one. `plan` takes an entry of a declared plan. A dataset that is new to the ledger gets exactly this release as
        its cap: nothing more can be spent until its owner grants it.
        """
        if release.rate is not None and not lineage:
            raise LedgerError("a release of a sample must say of which", "pass the raw sketch's lineage")
        spend = secrets.token_hex(16)
        with self._store.transaction() as connection:
            _check_lineage(connection, dataset, lineage)
            account = _room(connection, dataset, accounted, Attempt(release, lineage, partition, plan))
            if account is None:
                _add_grant(connection, dataset, Cap.of(release.budget))
            if account is None or account.accounted is None:
                _add_dataset(connection, dataset, accounted)
            column, value = partition or (None, None)
            connection.execute(
                spends.insert().values(
                    id=spend,
                    dataset=dataset,
                    release=json.dumps(release.to_dict()),
                    lineage=json.dumps(sorted(lineage)),
                    partition_column=column,
                    partition_value=value,
                    plan=plan,
                    created=_now(),
                )
            )
        return spend

    def commit(self, spend: str) -> None:
        """Record that the reserved release was made."""
        with self._store.transaction() as connection:
            connection.execute(commits.insert().values(spend=spend))

    def declare(self, dataset: str, accounted: Accounted, name: str, budgets: Sequence[Budget], delta: float) -> Plan:
        """Reserve a plan: releases with these budgets, in any order, for what they cost together at `delta`.

        A dataset that is new to the ledger gets exactly this plan as its cap.
        """
        _check_name("a dataset's name", dataset, "another DATASET")
        _check_name("a plan's name", name, "another NAME")
        if not budgets or not all(budget.private for budget in budgets):
            raise BudgetError("a plan must have releases, each with a finite budget", "pass --release epsilon=0.1")
        slack = Budget(1.0, delta).exact_delta  # checked as a budget's
        epsilon = plan_cost(budgets, slack)
        if epsilon > MOST_EPSILON:
            raise BudgetError(
                f"a plan may cost epsilon {MOST_EPSILON} at most, this one costs {rounded(epsilon, up=True)}",
                "declare fewer or smaller releases",
            )
        plan = Plan(name, (), tuple(budgets), epsilon, slack, _now())
        with self._store.transaction() as connection:
            account = _known(connection, dataset, accounted)
            if account is None:
                _add_grant(connection, dataset, Cap(epsilon, slack, None))
            else:
                check_plan(account, name, Cost(epsilon, slack, Fraction(0)))
            if account is None or account.accounted is None:
                _add_dataset(connection, dataset, accounted)
            connection.execute(
                plans.insert().values(
                    dataset=dataset,
                    name=name,
                    budgets=json.dumps([_entry(budget, times) for budget, times in Counter(budgets).items()]),
                    epsilon=str(epsilon),
                    delta=str(slack),
                    created=plan.created,
                )
            )
        return plan

    def accounts(self) -> tuple[Account, ...]:
        """Every dataset that was granted a cap or has spent."""
        with self._store.transaction() as connection:
            names = connection.scalars(sa.select(grants.c.dataset).distinct()).all()
            found = [_account(connection, name) for name in sorted(names)]
        return tuple(account for account in found if account is not None)


def _room(connection: sa.Connection, dataset: str, accounted: Accounted, attempt: Attempt) -> Account | None:
    """The dataset's account, None for a new one, if it has room for the release."""
    check_release(attempt, accounted)
    account = _known(connection, dataset, accounted)
    if attempt.plan is not None:
        check_entry(account, dataset, attempt.plan, attempt)
    if account is not None and not account.cap.covers(account.with_attempts(attempt, relation=accounted[2])):
        raise refusal(account, attempt, accounted[2])
    return account


def _check_lineage(connection: sa.Connection, dataset: str, lineage: frozenset[str]) -> None:
    """Refuse to count the same input under two names: its people would get two budgets."""
    others = sa.select(spends.c.dataset, spends.c.lineage).where(spends.c.dataset != dataset)
    for name, ids in connection.execute(others):
        with _as_written():
            known = _ids(ids)
        if lineage & known:
            raise LedgerError(
                f"this raw sketch holds an input that was released as dataset '{name}'",
                f"release it under that name: --dataset {name}",
            )


def _known(connection: sa.Connection, dataset: str, accounted: Accounted) -> Account | None:
    """The account, if it counts the same units by the same relation."""
    _check_name("a dataset's name", dataset, "--dataset NAME")
    if accounted[2] not in (ADD_REMOVE, REPLACE_ONE):
        raise LedgerError(f"a relation must be {ADD_REMOVE} or {REPLACE_ONE}, got {accounted[2]!r} instead")
    account = _account(connection, dataset)
    known = None if account is None else account.accounted
    if known is not None and known[:2] != accounted[:2]:
        raise LedgerError(
            f"dataset '{dataset}' is accounted per {unit_text(known)}, this release is per {unit_text(accounted)}",
            "use the same privacy unit for every release of a dataset",
        )
    if known is not None and known[2] != accounted[2]:
        raise LedgerError(
            f"dataset '{dataset}' is accounted by the relation {known[2]}, this release is by {accounted[2]}",
            "use the same relation for every release of a dataset",
        )
    return account


@contextmanager
def _as_written() -> Iterator[None]:
    """Whatever goes wrong while rows are read is damage: we check what we write."""
    try:
        yield
    except (ArithmeticError, AttributeError, BudgetError, LookupError, RecursionError, TypeError, ValueError):
        raise damaged() from None


def _account(connection: sa.Connection, dataset: str) -> Account | None:
    newest = sa.select(grants).where(grants.c.dataset == dataset).order_by(grants.c.number.desc()).limit(1)
    grant = connection.execute(newest).one_or_none()
    if grant is None:
        return None
    known = connection.execute(sa.select(datasets).where(datasets.c.name == dataset)).one_or_none()
    accounted = None if known is None else (known.unit, known.max_rows_per_unit, known.relation)
    made = sa.select(spends, commits.c.spend.label("committed")).outerjoin(commits, commits.c.spend == spends.c.id)
    rows = connection.execute(made.where(spends.c.dataset == dataset).order_by(spends.c.number)).all()
    declared = connection.execute(sa.select(plans).where(plans.c.dataset == dataset).order_by(plans.c.number)).all()
    with _as_written():
        cap = Cap(_fraction(grant.epsilon), Fraction(grant.delta), _fraction(grant.rho))
        found = tuple(_spend(row) for row in rows)
        return Account(dataset, accounted, cap, tuple(_plan(row, found) for row in declared), found)


def _spend(row: Any) -> Spend:
    partition = None if row.partition_column is None else (row.partition_column, row.partition_value)
    release = Release.from_dict(json.loads(row.release))
    lineage = _ids(row.lineage)
    return Spend(row.id, release, lineage, partition, row.plan, row.event, row.created, row.committed is not None)


def _ids(text: str) -> frozenset[str]:
    ids = json.loads(text)
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ValueError("lineage")
    return frozenset(ids)


def _plan(row: Any, made: Sequence[Spend]) -> Plan:
    unused: Counter[Budget] = Counter()
    for entry in json.loads(row.budgets):
        times = entry.pop("times", 1)
        if not isinstance(times, int) or times < 1:
            raise ValueError("times")
        unused[Budget(**entry)] += times
    used = [spend.release.budget for spend in made if spend.plan == row.name]
    unused.subtract(used)
    if not unused or min(unused.values()) < 0:
        raise ValueError("budgets")
    left = tuple(unused.elements())
    return Plan(row.name, tuple(used), left, Fraction(row.epsilon), Fraction(row.delta), row.created)


def _add_grant(connection: sa.Connection, dataset: str, cap: Cap) -> None:
    numbers = {"epsilon": _text(cap.epsilon), "delta": str(cap.delta), "rho": _text(cap.rho)}
    connection.execute(grants.insert().values(dataset=dataset, **numbers, created=_now()))


def _add_dataset(connection: sa.Connection, dataset: str, accounted: Accounted) -> None:
    unit, most, relation = accounted
    connection.execute(datasets.insert().values(name=dataset, unit=unit, max_rows_per_unit=most, relation=relation))


def _entry(budget: Budget, times: int) -> dict[str, Any]:
    return {**Release(budget, ()).to_dict()["budget"], "times": times}


def _fraction(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


def _text(number: Fraction | None) -> str | None:
    return None if number is None else str(number)


def _check_name(what: str, name: str, hint: str) -> None:
    if not name.isprintable() or not 1 <= len(name) <= 200:
        raise LedgerError(f"{what} must have 1 to 200 printable characters", f"pass {hint}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
