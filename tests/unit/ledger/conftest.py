"""A new ledger on each backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsketch.ledger.ledger import Ledger


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
