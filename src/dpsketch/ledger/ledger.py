"""The ledger: what each dataset may spend and has spent. Rows are only ever added."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

from dpsketch.displays import html_table
from dpsketch.errors import BudgetError, LedgerError
from dpsketch.extras import extra

with extra():
    import sqlalchemy as sa

from dpsketch.ledger.account import Account, Accounted, Cap, Plan, Record, Spend, Standing, rounded, unit_text
from dpsketch.ledger.chain import Entry, Head, as_written, has_checksum
from dpsketch.ledger.refusals import check_entry, check_plan, check_release, check_threshold, refusal
from dpsketch.ledger.running_totals import (
    Totals,
    cost_of,
    cost_value,
    input_key,
    once_key,
    total_key,
    totals_after,
    totals_of,
)
from dpsketch.ledger.sql_tables import commits, datasets, grants, plans, spends, totals
from dpsketch.ledger.store import Store
from dpsketch.ledger.stored import (
    RunningTotals,
    read_account,
    read_plans,
    read_record,
    read_spends,
    read_standing,
    unused_budgets,
)
from dpsketch.privacy.accounting import ADD_REMOVE, REPLACE_ONE, Attempt, Partition
from dpsketch.privacy.budget import MOST_EPSILON, Budget
from dpsketch.privacy.composition import plan_cost
from dpsketch.privacy.events import Release, budget_facts


class Ledger:
    """Caps and spends in an SQLite file or a PostgreSQL database; `Ledger("sqlite://")` keeps them in memory.

    Guarantee: at any time the total of a dataset's spends is within the cap that held when the last one was made, even
    when processes race or one is killed. Source: PRIVACY "Ledger"; docs/proofs/release.md, docs/proofs/accounting.md.
    """

    def __init__(self, path_or_url: str | Path, create: bool = True) -> None:
        self._store = Store(path_or_url, create)

    def __repr__(self) -> str:
        return f"Ledger({self.place})"

    def _repr_html_(self) -> str:
        rows = [(each.dataset, each.cap.text(), each.spent.text(up=True), each.left.text()) for each in self.accounts()]
        return html_table(repr(self), ("dataset", "cap", "spent", "left"), rows)

    @property
    def place(self) -> str:
        """Where it is kept: its file, or "this database", as addresses may hold passwords."""
        return self._store.place

    @property
    def upgraded(self) -> bool:
        """Whether opening the ledger upgraded it from an earlier version."""
        return self._store.upgraded

    def grant(self, dataset: str, budget: Budget) -> None:
        """Set the cap of a dataset. It may be raised or lowered, never removed."""
        if not budget.private:
            raise BudgetError("a cap must be finite", "pass --epsilon with a number")
        _check_name("a dataset's name", dataset, "another DATASET")
        with self._entry() as (connection, entry):
            standing = read_standing(connection, RunningTotals(connection), dataset)
            if standing is not None and budget.rho is None and standing.total.epsilon is None:
                raise BudgetError(
                    f"dataset '{dataset}' has releases that only rho can count", "grant rho: --rho with a number"
                )
            if standing is not None and budget.rho is not None and _has_plan(connection, dataset):
                raise BudgetError(
                    f"dataset '{dataset}' has plans, which only epsilon and delta can count", "grant epsilon and delta"
                )
            if budget.rho is not None and any(
                spend.release.threshold is not None for spend in read_spends(connection, dataset)
            ):
                raise BudgetError(
                    f"dataset '{dataset}' has releases of found labels, which only epsilon and delta can count",
                    "grant epsilon and delta",
                )
            _add_grant(entry, dataset, Cap.of(budget))

    def check(
        self,
        dataset: str,
        accounted: Accounted,
        release: Release,
        partition: Partition | None = None,
        plan: str | None = None,
    ) -> None:
        """Refuse now what `reserve` would refuse, so that no pass over the data is wasted. Records nothing."""
        with self._store.reading() as connection:
            _room(connection, dataset, accounted, Attempt(release, frozenset(), partition, plan), "")

    def reserve(
        self,
        dataset: str,
        accounted: Accounted,
        release: Release,
        lineage: frozenset[str],
        partition: Partition | None = None,
        plan: str | None = None,
    ) -> str:
        """Record a spend before any noise is drawn, or refuse it. Returns its id.

        `lineage` holds the ids of the raw sketch: releases of one sample of rows cost more together than separately.
        `partition` asserts that only rows with that value of that column were read; with units, all rows of a unit must
        have the same value. `plan` uses an entry of a declared plan. A dataset that is new to the ledger gets exactly
        this release as its cap: nothing more can be spent until its owner grants it.
        """
        if release.rate is not None and not lineage:
            raise LedgerError("a release of a sample must state which sample", "pass the raw sketch's lineage")
        if release.once and not lineage:
            raise LedgerError("a release with masks must state of which sketch", "pass the raw sketch's lineage")
        spend = secrets.token_hex(16)
        with self._entry() as (connection, entry):
            standing, changed = _room(connection, dataset, accounted, Attempt(release, lineage, partition, plan), spend)
            if standing is None:
                _add_grant(entry, dataset, Cap.of(release.budget))
            if standing is None or standing.accounted is None:
                _add_dataset(entry, dataset, accounted)
            column, value, snapshot = partition or (None, None, None)
            entry.add(
                spends,
                id=spend,
                dataset=dataset,
                release=json.dumps(release.to_dict() | {"library": version("dpsketch")}),
                lineage=json.dumps(sorted(lineage)),
                partition_column=column,
                partition_value=value,
                partition_snapshot=snapshot,
                plan=plan,
                created=_now(),
            )
            _add_totals(entry, changed)
        return spend

    def commit(self, spend: str) -> None:
        """Record that the reserved release was made, once. If a crash of the machine loses this, the spend still
        counts.
        """
        with self._store.reading() as connection:
            if connection.execute(sa.select(commits).where(commits.c.spend == spend)).first() is not None:
                return
        with self._entry(durable=False) as (_, entry):
            entry.add(commits, spend=spend)

    def reserved(self, dataset: str, spend: str) -> Spend | None:
        """The spend with this id; None if the dataset has none."""
        with self._store.reading() as connection:
            return next((each for each in read_spends(connection, dataset) if each.id == spend), None)

    def declare(self, dataset: str, accounted: Accounted, name: str, budgets: Sequence[Budget], delta: float) -> Plan:
        """Reserve a plan: releases with these budgets, in any order, at their joint cost for `delta`.

        A dataset that is new to the ledger gets exactly this plan as its cap.
        """
        _check_name("a dataset's name", dataset, "another DATASET")
        _check_name("a plan's name", name, "another NAME")
        if not budgets or not all(budget.private for budget in budgets):
            raise BudgetError("a plan must have releases, each with a finite budget", "pass --release epsilon=0.1")
        slack = Budget(1.0, delta).exact_delta  # validated like a budget's delta
        epsilon = plan_cost(budgets, slack)
        if epsilon > MOST_EPSILON:
            raise BudgetError(
                f"a plan may cost epsilon {MOST_EPSILON} at most, this one costs {rounded(epsilon, up=True)}",
                "declare fewer or smaller releases",
            )
        plan = Plan(name, (), tuple(budgets), epsilon, slack, _now())
        with self._entry() as (connection, entry):
            get = RunningTotals(connection)
            standing = _known(connection, get, dataset, accounted)
            if standing is None:
                _add_grant(entry, dataset, Cap(epsilon, slack, None))
            else:
                if _has_plan(connection, dataset, name):
                    raise LedgerError(f"dataset '{dataset}' has a plan '{name}' already", "choose another name")
                check_plan(standing, plan.cost)
            if standing is None or standing.accounted is None:
                _add_dataset(entry, dataset, accounted)
            entry.add(
                plans,
                dataset=dataset,
                name=name,
                budgets=json.dumps(
                    [budget_facts(budget) | {"times": times} for budget, times in Counter(budgets).items()]
                ),
                epsilon=str(epsilon),
                delta=str(slack),
                created=plan.created,
            )
            key = total_key(dataset)
            _add_totals(entry, {key: cost_value(cost_of(get(key)) + plan.cost)})
        return plan

    def standing(self, dataset: str) -> Standing | None:
        """The cap and the total spent of a dataset; None if it is new to the ledger."""
        with self._store.reading() as connection:
            return read_standing(connection, RunningTotals(connection), dataset)

    def record(self, spend: str) -> Record:
        """The place of a spend in its dataset's account, with the totals before and after it."""
        with self._store.reading() as connection:
            return read_record(connection, spend)

    def accounts(self) -> tuple[Account, ...]:
        """Every dataset that was granted a cap or has spent, with all its spends."""
        with self._store.reading() as connection:
            return _accounts(connection)

    def verify(self, checksum: str | None = None) -> Head:
        """Compare all rows with their checksums and all totals with the spends. Raises an error if they differ.

        `checksum`, from an earlier `verify`, reveals whether this ledger is a copy from before it.
        """
        newest = self._store.verify()
        with self._store.reading() as connection:
            if checksum is not None and not has_checksum(connection, checksum):
                raise LedgerError(
                    "the ledger has no entry with that checksum: it is an older copy, or another ledger",
                    "go on with the newest copy, or lower the caps by what was released since this one was made",
                )
            _accounts(connection)
        return newest

    @contextmanager
    def _entry(self, durable: bool = True) -> Iterator[tuple[sa.Connection, Entry]]:
        with self._store.writing(durable) as connection:
            entry = Entry(connection)
            yield connection, entry
            entry.seal()


def _accounts(connection: sa.Connection) -> tuple[Account, ...]:
    names = connection.scalars(sa.select(grants.c.dataset).distinct()).all()
    return tuple(read_account(connection, name) for name in sorted(names))


def _room(
    connection: sa.Connection, dataset: str, accounted: Accounted, attempt: Attempt, spend: str
) -> tuple[Standing | None, Totals]:
    """The dataset's standing (None if it is new) and the totals that the release changes, if there is room for it."""
    check_release(attempt, accounted)
    get = RunningTotals(connection)
    get.read([key(one) for one in sorted(attempt.lineage) for key in (input_key, once_key)])
    _check_lineage(get, dataset, attempt.lineage)
    _check_once(get, attempt)
    standing = _known(connection, get, dataset, accounted)
    if standing is not None:
        check_threshold(standing, attempt)
    if attempt.plan is not None:
        check_entry(unused_budgets(connection, get, dataset, attempt.plan), dataset, attempt.plan, attempt)
    changed = _totals_with(connection, get, dataset, accounted[2], attempt, spend)
    after = cost_of(changed[total_key(dataset)])
    if standing is not None and not standing.cap.covers(after):
        apart = _totals_with(connection, get, dataset, accounted[2], replace(attempt, lineage=frozenset()), spend)
        raise refusal(standing, attempt, after, cost_of(apart[total_key(dataset)]))
    return standing, {key: value for key, value in changed.items() if get(key) != value}


def _totals_with(
    connection: sa.Connection, get: RunningTotals, dataset: str, relation: str, attempt: Attempt, spend: str
) -> Totals:
    """The totals after the release. Where they do not follow from the previous totals, all spends are read."""
    made = Spend(spend, attempt.release, attempt.lineage, attempt.partition, attempt.plan)
    with as_written():
        changed = totals_after(get, dataset, relation, made)
    if changed is not None:
        return changed
    before = read_spends(connection, dataset)
    return totals_of(dataset, relation, [*before, made], read_plans(connection, dataset, before))


def _check_lineage(get: RunningTotals, dataset: str, lineage: frozenset[str]) -> None:
    """Refuse to account for the same input under two names, which would give its people two budgets."""
    for one in sorted(lineage):
        known = get(input_key(one))
        if known is not None and known[0] != dataset:
            raise LedgerError(
                f"this raw sketch holds an input that was released as dataset '{known[0]}'",
                f"release it under that name: --dataset {known[0]}",
            )


def _check_once(get: RunningTotals, attempt: Attempt) -> None:
    """Refuse a second release of masks on which the noise of one of them counts: together they would cost more than
    the sum.
    """
    if any(get(once_key(one)) for one in attempt.lineage):
        raise LedgerError(
            "this raw sketch was released with noise that counts on its masks: it can be released only once",
            "sketch the table again, with new masks",
        )
    if attempt.release.once and any(get(input_key(one)) is not None for one in attempt.lineage):
        raise LedgerError(
            "this raw sketch was released before, and Laplace noise that counts on its masks allows one release only",
            "sketch the table again, with new masks, or add Gaussian noise, which does not count on them: a budget "
            'with delta, and --mechanism gaussian (mechanism="gaussian")',
        )


def _known(connection: sa.Connection, get: RunningTotals, dataset: str, accounted: Accounted) -> Standing | None:
    """The dataset's standing, if it has the same unit and relation."""
    _check_name("a dataset's name", dataset, "--dataset NAME")
    if accounted[2] not in (ADD_REMOVE, REPLACE_ONE):
        raise LedgerError(f"a relation must be {ADD_REMOVE} or {REPLACE_ONE}, got {accounted[2]!r} instead")
    standing = read_standing(connection, get, dataset)
    known = None if standing is None else standing.accounted
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
    return standing


def _has_plan(connection: sa.Connection, dataset: str, *names: str) -> bool:
    """Whether a dataset has a plan of this name, or any plan."""
    declared = sa.select(plans.c.entry).where(plans.c.dataset == dataset).limit(1)
    return connection.scalar(declared.where(plans.c.name.in_(names)) if names else declared) is not None


def _add_grant(entry: Entry, dataset: str, cap: Cap) -> None:
    numbers = {"epsilon": _text(cap.epsilon), "delta": str(cap.delta), "rho": _text(cap.rho)}
    entry.add(grants, dataset=dataset, **numbers, created=_now())


def _add_dataset(entry: Entry, dataset: str, accounted: Accounted) -> None:
    unit, most, relation = accounted
    entry.add(datasets, name=dataset, unit=unit, max_rows_per_unit=most, relation=relation)


def _add_totals(entry: Entry, changed: Totals) -> None:
    for key, value in changed.items():
        entry.add(totals, key=key, value=json.dumps(value))


def _text(number: Fraction | None) -> str | None:
    return None if number is None else str(number)


def _check_name(what: str, name: str, hint: str) -> None:
    if not name.isprintable() or not 1 <= len(name) <= 200:
        raise LedgerError(f"{what} must have 1 to 200 printable characters", f"pass {hint}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
