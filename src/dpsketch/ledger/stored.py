"""Read accounts, plans and totals from the ledger's rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from dpsketch.ledger.account import Account, Cap, Plan, Record, Spend, Standing
from dpsketch.ledger.chain import as_written, damaged
from dpsketch.ledger.running_totals import Totals, cost_of, plan_key, total_key, totals_of, used_of
from dpsketch.ledger.sql_tables import commits, datasets, grants, plans, reports, spends, totals
from dpsketch.privacy.accounting import ADD_REMOVE, Partition
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Release

_AT_ONCE = 500  # keys in one query


class RunningTotals:
    """The newest value of each key, read on demand."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._known: Totals = {}

    def __call__(self, key: str) -> Any:
        if key not in self._known:
            newest = sa.select(totals.c.value).where(totals.c.key == key).order_by(totals.c.entry.desc()).limit(1)
            text = self._connection.scalar(newest)
            with as_written():
                self._known[key] = None if text is None else json.loads(text)
        return self._known[key]

    def read(self, keys: Sequence[str]) -> None:
        """Read many keys at once, which seldom change."""
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            self._known |= dict.fromkeys(some)
            rows = sa.select(totals.c.key, totals.c.value).where(totals.c.key.in_(some)).order_by(totals.c.entry)
            with as_written():
                self._known |= {key: json.loads(text) for key, text in self._connection.execute(rows)}


def read_standing(connection: sa.Connection, get: RunningTotals, dataset: str) -> Standing | None:
    """The dataset's standing; None if it is new to the ledger."""
    newest = sa.select(grants).where(grants.c.dataset == dataset).order_by(grants.c.entry.desc()).limit(1)
    grant = connection.execute(newest).one_or_none()
    if grant is None:
        return None
    known = connection.execute(sa.select(datasets).where(datasets.c.name == dataset)).one_or_none()
    accounted = None if known is None else (known.unit, known.max_rows_per_unit, known.relation)
    total = get(total_key(dataset))
    if (known is None) != (total is None):  # both are written with the first spend
        raise damaged()
    with as_written():
        return Standing(dataset, accounted, _cap(grant), cost_of(total))


def read_record(connection: sa.Connection, spend: str) -> Record:
    """The place of a spend in its dataset's account, with the totals and the cap of that moment."""
    made = connection.execute(sa.select(spends.c.dataset, spends.c.entry).where(spends.c.id == spend)).one()
    before, after = (_total_at(connection, made.dataset, entry) for entry in (made.entry - 1, made.entry))
    earlier = sa.select(sa.func.count()).where(spends.c.dataset == made.dataset, spends.c.entry <= made.entry)
    granted = sa.select(grants).where(grants.c.dataset == made.dataset, grants.c.entry <= made.entry)
    shown = sa.select(reports.c.schema).where(reports.c.dataset == made.dataset).order_by(reports.c.entry).limit(1)
    grant = connection.execute(granted.order_by(grants.c.entry.desc()).limit(1)).one()
    with as_written():
        cap = _cap(grant)
        number = connection.scalar(earlier) or 0
        spent = [cap.of_kind(cost_of(total)) for total in (before, after)]
        return Record(made.dataset, number, cap, spent[0], spent[1], connection.scalar(shown))


def _total_at(connection: sa.Connection, dataset: str, entry: int) -> Any:
    newest = sa.select(totals.c.value).where(totals.c.key == total_key(dataset), totals.c.entry <= entry)
    text = connection.scalar(newest.order_by(totals.c.entry.desc()).limit(1))
    with as_written():
        return None if text is None else json.loads(text)


def read_account(connection: sa.Connection, dataset: str) -> Account:
    """Everything about a dataset. Its running totals are compared with its spends."""
    get = RunningTotals(connection)
    standing = read_standing(connection, get, dataset)
    if standing is None:
        raise damaged()
    made = read_spends(connection, dataset)
    declared = read_plans(connection, dataset, made)
    expected = totals_of(dataset, standing.relation or ADD_REMOVE, made, declared)
    get.read([key for key in expected if key != total_key(dataset)])
    if standing.accounted is not None and any(get(key) != value for key, value in expected.items()):
        raise damaged()
    return Account(dataset, standing.accounted, standing.cap, standing.total, declared, made)


def read_spends(connection: sa.Connection, dataset: str) -> tuple[Spend, ...]:
    made = sa.select(spends, commits.c.spend.label("committed")).outerjoin(commits, commits.c.spend == spends.c.id)
    rows = connection.execute(made.where(spends.c.dataset == dataset).order_by(spends.c.entry))
    with as_written():
        return tuple(_spend(row) for row in rows)


def read_plans(connection: sa.Connection, dataset: str, made: Sequence[Spend]) -> tuple[Plan, ...]:
    rows = connection.execute(sa.select(plans).where(plans.c.dataset == dataset).order_by(plans.c.entry))
    with as_written():
        return tuple(_plan(row, made) for row in rows)


def unused_budgets(connection: sa.Connection, get: RunningTotals, dataset: str, name: str) -> Counter[Budget] | None:
    """The unused budgets of a plan; None if there is no such plan."""
    text = connection.scalar(sa.select(plans.c.budgets).where(plans.c.dataset == dataset, plans.c.name == name))
    if text is None:
        return None
    with as_written():
        return _unused(text, used_of(get(plan_key(dataset, name))))


def _spend(row: Any) -> Spend:
    partition = None
    if row.partition_column is not None:
        partition = Partition(row.partition_column, row.partition_value, row.partition_snapshot)
    facts = json.loads(row.release)
    library = facts.get("library")
    if library is not None and not isinstance(library, str):
        raise ValueError("library")
    release, lineage, committed = Release.from_dict(facts), _ids(row.lineage), row.committed is not None
    return Spend(row.id, release, lineage, partition, row.plan, row.event, row.created, committed, library)


def _ids(text: str) -> frozenset[str]:
    ids = json.loads(text)
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ValueError("lineage")
    return frozenset(ids)


def _plan(row: Any, made: Sequence[Spend]) -> Plan:
    used = tuple(spend.release.budget for spend in made if spend.plan == row.name)
    left = tuple(_unused(row.budgets, Counter(used)).elements())
    return Plan(row.name, used, left, Fraction(row.epsilon), Fraction(row.delta), row.created)


def _unused(text: str, used: Counter[Budget]) -> Counter[Budget]:
    unused: Counter[Budget] = Counter()
    for entry in json.loads(text):
        times = entry.pop("times", 1)
        if not isinstance(times, int) or times < 1:
            raise ValueError("times")
        unused[Budget(**entry)] += times
    unused.subtract(used)
    if not unused or min(unused.values()) < 0:
        raise ValueError("budgets")
    return unused


def _cap(grant: Any) -> Cap:
    return Cap(_fraction(grant.epsilon), Fraction(grant.delta), _fraction(grant.rho))


def _fraction(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)
