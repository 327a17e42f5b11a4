"""A spend around a release: reserved before any noise is drawn, marked as finished after. A crash costs budget."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from dpsketch.errors import DpsketchError, LedgerError, LedgerWarning, PublicNote
from dpsketch.ledger.account import Cap, Record
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import Partition
from dpsketch.privacy.budget import spend_stands
from dpsketch.privacy.events import Release
from dpsketch.schema.schema import Schema
from dpsketch.sketch.circumstances import Account, schema_digest

_COMMIT_TRIES = 3


def reserve(
    ledger: Ledger,
    dataset: str,
    schema: Schema,
    event: Release,
    lineage: frozenset[str] = frozenset(),
    cut: Partition | None = None,
    plan: str | None = None,
) -> str:
    """Reserve a spend before any noise is drawn. Where it may have been recorded, an error says so."""
    try:
        return ledger.reserve(dataset, schema.accounted, event, lineage, cut, plan)
    except BaseException as error:
        if not isinstance(error, DpsketchError) or (isinstance(error, LedgerError) and error.lost):
            error.add_note(
                PublicNote(f"dpsketch ledger show says whether the spend of dataset '{dataset}' was recorded.")
            )
        raise


@contextmanager
def finished(ledger: Ledger, dataset: str, event: Release, spend: str) -> Iterator[Record]:
    """Commit a reserved spend after the block. Errors state that it stands."""
    try:
        yield ledger.record(spend)
        _commit(ledger, spend)
    except BaseException as error:
        error.add_note(spend_stands(dataset, event.budget))
        raise


def reported(record: Record, schema: Schema) -> bool:
    """Whether exact counts of cells of this dataset were first shown with another schema."""
    return record.first_report not in (None, schema_digest(schema))


def account_of(record: Record) -> Account:
    """A spend's place in its account, as the file states it."""

    def numbers(total: Cap) -> dict[str, Fraction]:
        kinds = {"rho": total.rho} if record.cap.rho is not None else {"epsilon": total.epsilon, "delta": total.delta}
        return {kind: much for kind, much in kinds.items() if much is not None}

    totals = (numbers(each) for each in (record.cap, record.before, record.after))
    return Account(record.dataset, record.number, *totals)


def _commit(ledger: Ledger, spend: str) -> None:
    """Record that the release was made. The spend is safe without it, so a failure must not cost the release."""
    for tries in range(1, _COMMIT_TRIES + 1):
        try:
            ledger.commit(spend)
            return
        except LedgerError as error:
            if tries == _COMMIT_TRIES:
                fact = "the release was made and its spend stands, but the ledger could not mark it as finished"
                warnings.warn(f"{fact}: {error.fact}", LedgerWarning, stacklevel=4)
