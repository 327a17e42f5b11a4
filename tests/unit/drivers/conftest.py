"""A small release on disk, as clients open it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps

ROWS = 4_000
SCHEMA = {
    "privacy": {"rows": ROWS},
    "columns": {
        "age": {"kind": "integer", "lower": 18, "upper": 90},
        "city": {"kind": "category", "values": ["north", "south"]},
        "since": {"kind": "datetime", "lower": "2000-01-01", "upper": "2020-01-01"},
        "member": {"kind": "boolean"},
        "Cost": {"kind": "number", "lower": 0, "upper": 100},
    },
}


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "age": random.integers(18, 91, ROWS),
            "city": random.choice(["north", "south"], ROWS, p=[0.7, 0.3]),
            "since": np.datetime64("2000-01-01") + random.integers(0, 7300, ROWS).astype("timedelta64[D]"),
            "member": random.random(ROWS) < 0.4,
            "Cost": random.uniform(0, 100, ROWS),
        }
    )
    schema = dps.Schema.from_dict(SCHEMA)
    parts = [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.Marginals(bins=16), 0.4),
        dps.Part(dps.Pairs(pool=True, bins=16), 0.5),
    ]
    raw = dps.accumulate(table, schema, dps.Recipe(parts))
    released = dps.release(raw, dps.Budget(20.0), dps.Ledger("sqlite://"), "people")
    path = tmp_path_factory.mktemp("released") / "people.sketch"
    released.save(path)
    return path


@pytest.fixture(scope="session")
def view(path: Path) -> dps.View:
    return dps.open(path)
