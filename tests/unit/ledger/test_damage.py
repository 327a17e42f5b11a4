"""A damaged ledger allows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import dpsketch as dps
from dpsketch.errors import DpsketchError
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.sql_tables import grants, plans, spends, totals
from ledger_spends import DAMAGED, ROWS, change, refused, reserve

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
