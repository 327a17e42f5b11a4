"""The planted table, sketched once for all tests here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from planted_clusters import FOURIER, SCHEMA, Released, planted


@pytest.fixture(scope="session")
def released() -> Released:
    """A view of the planted table, sketched by a map of columns a, b and c."""
    raws: dict[Any, dps.RawSketch] = {}

    def view(map_: Any, epsilon: float = 1.0, delta: float = 0.0) -> dps.View:
        if map_ not in raws:
            recipe = dps.Recipe([dps.Part(dps.Count(), 0.02), dps.Part(map_, 0.98)])
            raws[map_] = dps.accumulate(pa.table(planted()), SCHEMA, recipe)
        budget = dps.Budget(epsilon, delta)
        ledger = dps.Ledger("sqlite://") if budget.private else None
        return dps.View(dps.release(raws[map_], budget, *(() if ledger is None else (ledger, "planted"))))

    return view


@pytest.fixture(scope="session")
def view(released: Released) -> dps.View:
    return released(FOURIER)
