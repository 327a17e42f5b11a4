"""Upgrade the tables of an earlier version."""

from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa

from dpsketch.errors import LedgerError
from dpsketch.extras import extra
from dpsketch.ledger.chain import newest_row, seal_rows
from dpsketch.ledger.running_totals import Totals, totals_of
from dpsketch.ledger.sql_tables import CHAINED_SINCE, FIRST_VERSION, VERSION, datasets, totals
from dpsketch.ledger.stored import read_plans, read_spends
from dpsketch.privacy.accounting import ADD_REMOVE

_MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: sa.Connection, version: str | None, target: str = VERSION) -> None:
    """Run the migrations from `version`. None means a ledger from before versions, or an empty database.

    Ledgers with totals and checksums keep them; others get them after the last migration.
    """
    with extra():
        from alembic import command
        from alembic.config import Config
        from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    known = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    if version is not None and version not in known:
        raise LedgerError("the ledger was written by a newer dpsketch", "pip install --upgrade dpsketch")
    if version is None and sa.inspect(connection).has_table("spends"):
        command.stamp(config, FIRST_VERSION)
    command.upgrade(config, target)
    if target == VERSION and (version is None or version < CHAINED_SINCE):
        _add_totals(connection)
        seal_rows(connection)


def _add_totals(connection: sa.Connection) -> None:
    """Write the totals of all datasets, each in its own entry, because opening a ledger reads whole entries."""
    by_key: Totals = {}
    for name, relation in connection.execute(sa.select(datasets.c.name, datasets.c.relation)).all():
        made = read_spends(connection, name)
        by_key |= totals_of(name, relation or ADD_REMOVE, made, read_plans(connection, name, made))
    numbered = enumerate(by_key.items(), newest_row(connection) + 1)
    rows = [{"key": key, "entry": number, "value": json.dumps(value)} for number, (key, value) in numbered]
    if rows:
        connection.execute(totals.insert(), rows)
