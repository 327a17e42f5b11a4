"""Releases to spend, and what a refusal says: what tests of the ledger share."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import sqlalchemy as sa

import dpsketch as dps
from dpsketch.errors import DpsketchError
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import ADD_REMOVE
from dpsketch.privacy.events import Mechanism, Noise, Release

ROWS = ("row", 1, ADD_REMOVE)
GAUSSIAN = (Noise(Mechanism.GAUSSIAN, 1, Fraction(10)),)
RATE = Fraction(1, 10)


def pure(epsilon: float, rate: Fraction | None = None) -> Release:
    return Release(dps.Budget(epsilon), (), rate)


def noisy(delta: float, epsilon: float = 0.1) -> Release:
    return Release(dps.Budget(epsilon, delta), GAUSSIAN)


def zero_concentrated(rho: float) -> Release:
    return Release(dps.Budget(rho=rho), GAUSSIAN)


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


def change(ledger: Ledger, table: sa.Table, **values: str) -> None:
    with ledger._store.writing() as connection:
        connection.execute(table.update().values(**values))
