"""The ledger: what each dataset may spend and has spent. Rows are only ever added."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from dpsketch.errors import BudgetError, LedgerError
from dpsketch.privacy.budget import Budget, decimal_text

_tables = sa.MetaData()
_datasets = sa.Table(
    "datasets",
    _tables,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("max_rows_per_unit", sa.Integer, nullable=False),
)
_grants = sa.Table(
    "grants",
    _tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("dataset", sa.String, nullable=False),
    sa.Column("cap", sa.String, nullable=False),
    sa.Column("created", sa.String, nullable=False),
)
_spends = sa.Table(
    "spends",
    _tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String, unique=True, nullable=False),
    sa.Column("dataset", sa.ForeignKey("datasets.name"), nullable=False),
    sa.Column("epsilon", sa.String, nullable=False),
    sa.Column("event", sa.String, nullable=False),
    sa.Column("created", sa.String, nullable=False),
)
_commits = sa.Table("commits", _tables, sa.Column("spend", sa.ForeignKey("spends.id"), primary_key=True))


@dataclass(frozen=True)
class Spend:
    """One reserved ε; `committed` says that its noise was added and handed over."""

    dataset: str
    epsilon: Fraction
    event: str
    created: str
    committed: bool


@dataclass(frozen=True)
class Account:
    """A dataset's cap and everything spent from it, committed or not."""

    dataset: str
    unit: str | None
    cap: Fraction
    spends: tuple[Spend, ...]

    @property
    def spent(self) -> Fraction:
        return sum((spend.epsilon for spend in self.spends), Fraction(0))

    @property
    def left(self) -> Fraction:
        return self.cap - self.spent


class Ledger:
    """Caps and spends in SQLite; `Ledger("sqlite://")` keeps them in memory.

    Guarantee: at any time Σε of a dataset's spends is at most its cap, also when processes race and when one is
    killed. Source: PRIVACY "Ledger"; docs/proofs/release.md.
    """

    def __init__(self, path_or_url: str | Path, create: bool = True) -> None:
        text = str(path_or_url)
        if "://" not in text:
            if not create and not Path(text).exists():
                raise LedgerError(
                    f"there is no ledger {text}", "the first release, or dpsketch ledger grant, creates it"
                )
            url = sa.URL.create("sqlite", database=text)
        elif text.startswith("sqlite:"):
            url = sa.make_url(text)
        else:
            raise LedgerError("a ledger is a file or an sqlite:// URL", "pass --ledger ledger.db")
        options: dict[str, Any] = {"poolclass": StaticPool} if url.database in (None, "", ":memory:") else {}
        self._turn = threading.Lock()  # an in-memory ledger has one connection for all threads
        self._engine = sa.create_engine(url, connect_args={"timeout": 60, "check_same_thread": False}, **options)
        sa.event.listen(self._engine, "connect", _plain_connection)
        sa.event.listen(self._engine, "begin", _lock)
        with self._transaction() as connection:
            _tables.create_all(connection)

    def grant(self, dataset: str, epsilon: Budget) -> None:
        """Set the cap of a dataset; it may be raised or lowered, never forgotten."""
        if not epsilon.private:
            raise BudgetError("a cap must be finite", "pass --epsilon with a number")
        with self._transaction() as connection:
            _check_name(dataset)
            connection.execute(_grants.insert().values(dataset=dataset, cap=str(epsilon.exact_epsilon), created=_now()))

    def check(self, dataset: str, epsilon: Fraction, unit: str, max_rows_per_unit: int) -> None:
        """Refuse now what `reserve` would refuse, so that no pass over the data is wasted. Records nothing."""
        with self._transaction() as connection:
            self._room(connection, dataset, epsilon, unit, max_rows_per_unit)

    def reserve(self, dataset: str, epsilon: Fraction, unit: str, max_rows_per_unit: int, event: str) -> str:
        """Record a spend before any noise is drawn, or refuse it. Returns its id.

        A dataset that is new to the ledger gets exactly this release as its cap: nothing more can be spent
        until its owner grants it.
        """
        spend = secrets.token_hex(16)
        with self._transaction() as connection:
            cap = self._room(connection, dataset, epsilon, unit, max_rows_per_unit)
            if cap is None:
                connection.execute(_grants.insert().values(dataset=dataset, cap=str(epsilon), created=_now()))
            if connection.scalar(sa.select(_datasets.c.name).where(_datasets.c.name == dataset)) is None:
                connection.execute(
                    _datasets.insert().values(name=dataset, unit=unit, max_rows_per_unit=max_rows_per_unit)
                )
            connection.execute(
                _spends.insert().values(id=spend, dataset=dataset, epsilon=str(epsilon), event=event, created=_now())
            )
        return spend

    def _room(
        self, connection: sa.Connection, dataset: str, epsilon: Fraction, unit: str, max_rows_per_unit: int
    ) -> Fraction | None:
        """The dataset's cap, None for a new one, if it has room for `epsilon`."""
        if not epsilon > 0:
            raise BudgetError("a spend must be above 0")
        _check_name(dataset)
        known = connection.execute(sa.select(_datasets).where(_datasets.c.name == dataset)).one_or_none()
        if known is not None and (known.unit, known.max_rows_per_unit) != (unit, max_rows_per_unit):
            raise LedgerError(
                f"dataset '{dataset}' is accounted per {_unit_text(known.unit, known.max_rows_per_unit)}, "
                f"this release is per {_unit_text(unit, max_rows_per_unit)}",
                "use the same privacy unit for every release of a dataset",
            )
        cap = self._cap(connection, dataset)
        if cap is None:
            return None
        left = cap - self._spent(connection, dataset)
        if epsilon > left:
            grant = "ask the owner to raise the cap: dpsketch ledger grant …"
            raise BudgetError(
                f"this release needs epsilon {decimal_text(epsilon)}; "
                f"dataset '{dataset}' has {decimal_text(max(left, Fraction(0)))} left of {decimal_text(cap)}.",
                f"pass --epsilon {decimal_text(left)} or less, or {grant}" if left > 0 else grant,
            )
        return cap

    def commit(self, spend: str) -> None:
        """Record that the reserved release was made."""
        with self._transaction() as connection:
            connection.execute(_commits.insert().values(spend=spend))

    def accounts(self) -> tuple[Account, ...]:
        """Every dataset that was granted a cap or has spent."""
        with self._transaction() as connection:
            names = connection.scalars(sa.select(_grants.c.dataset).distinct().order_by(_grants.c.dataset)).all()
            return tuple(self._account(connection, name) for name in names)

    def _account(self, connection: sa.Connection, dataset: str) -> Account:
        known = connection.execute(sa.select(_datasets).where(_datasets.c.name == dataset)).one_or_none()
        committed = set(connection.scalars(sa.select(_commits.c.spend)).all())
        rows = connection.execute(
            sa.select(_spends).where(_spends.c.dataset == dataset).order_by(_spends.c.number)
        ).all()
        spends = tuple(
            Spend(dataset, Fraction(row.epsilon), row.event, row.created, row.id in committed) for row in rows
        )
        unit = None if known is None else _unit_text(known.unit, known.max_rows_per_unit)
        return Account(dataset, unit, self._cap(connection, dataset) or Fraction(0), spends)

    def _cap(self, connection: sa.Connection, dataset: str) -> Fraction | None:
        newest = sa.select(_grants.c.cap).where(_grants.c.dataset == dataset).order_by(_grants.c.number.desc()).limit(1)
        cap = connection.scalar(newest)
        return None if cap is None else Fraction(cap)

    def _spent(self, connection: sa.Connection, dataset: str) -> Fraction:
        spends = connection.scalars(sa.select(_spends.c.epsilon).where(_spends.c.dataset == dataset)).all()
        return sum((Fraction(epsilon) for epsilon in spends), Fraction(0))

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._turn, self._engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or type(error).__name__)
            raise LedgerError(f"the ledger cannot be used: {reason}", "check the path and its permissions") from None


def _plain_connection(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions by itself
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _lock(connection: sa.Connection) -> None:
    """Take the write lock before reading: what a reservation reads is still true when it writes."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _check_name(dataset: str) -> None:
    if not dataset.isprintable() or not 1 <= len(dataset) <= 200:
        raise LedgerError("a dataset's name must have 1 to 200 printable characters", "pass --dataset NAME")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _unit_text(unit: str, most: int) -> str:
    return unit if unit == "row" or most == 0 else f"'{unit}' with up to {most} rows"
