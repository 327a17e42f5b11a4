"""A small made-up table of every kind of column, released once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import TestStream

ROWS = 20_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "age": {"kind": "integer", "lower": 18, "upper": 90},
            "income": {"kind": "number", "lower": 1, "upper": 1000, "transform": "log"},
            "city": {"kind": "category", "values": ["north", "south", "west"]},
            "since": {"kind": "datetime", "lower": "2000-01-01", "upper": "2020-01-01"},
            "weight": {"kind": "number", "lower": 0, "upper": 10},
            "height": {"kind": "number", "lower": 0, "upper": 10},
            "member": {"kind": "boolean"},
            "grade": {"kind": "integer", "lower": 0, "upper": 1},
        },
    }
)


def make_table(seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    age = random.integers(18, 91, ROWS)
    weight = random.uniform(1, 9, ROWS)
    height = np.clip(weight + random.normal(0, 0.3, ROWS), 0, 10)
    member = random.random(ROWS) < 1 / (1 + np.exp(-(age - 54) / 6))
    income = np.exp(random.normal(3, 0.8, ROWS))
    days = random.integers(0, 7300, ROWS)
    return pa.table(
        {
            "age": pa.array(age),
            "income": pa.array(income, mask=random.random(ROWS) < 0.1),
            "city": np.where(age > 70, "north", random.choice(["south", "west"], ROWS)),
            "since": np.datetime64("2000-01-01") + days.astype("timedelta64[D]"),
            "weight": weight,
            "height": height,
            "member": pa.array(member, mask=random.random(ROWS) < 0.05),
            "grade": np.where(weight > 5, 1, 0),
        }
    )


@pytest.fixture(scope="module", autouse=True)
def fewer_rows() -> Iterator[None]:
    """Small populations, for these modules alone: a patch of the session would reach tests of other folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpsketch.learn.population.weighted_rows.ROWS", 1 << 14)
        patch.setattr("dpsketch.learn.population.weighted_rows.REFIT_ROWS", 1 << 12)
        yield


@pytest.fixture(scope="session")
def view() -> dps.View:
    parts = [
        dps.Part(dps.Count(), 0.03),
        dps.Part(dps.Marginals(bins=32), 0.42),
        dps.Part(dps.Pairs(pool=True, bins=32), 0.55),
    ]
    raw = dps.accumulate(make_table(), SCHEMA, dps.Recipe(parts))
    with pytest.MonkeyPatch.context() as patch:  # in one of fifty releases a missing value stands out by chance
        patch.setattr("dpsketch.sketch.release.Keystream", TestStream)
        return dps.View(dps.release(raw, dps.Budget(2.0), dps.Ledger("sqlite://"), "made-up"))


@pytest.fixture(scope="session")
def held_out() -> pa.Table:
    return make_table(2)


@pytest.fixture(scope="session")
def counts_only() -> dps.View:
    recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    raw = dps.accumulate(make_table(), SCHEMA, recipe)
    return dps.View(dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a"))
