"""Questions tell where records are likely to be: plans simulate tables in which the values asked about occur."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.encoding.rows import encode
from dpsketch.planning.compared import compared_levels
from dpsketch.planning.simulation import simulated_table
from dpsketch.schema.columns import SPAN

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 10_000},
        "columns": {
            "age": {"kind": "integer", "lower": 0, "upper": 110},
            "pay": {"kind": "number", "lower": 0, "upper": 1e6, "transform": "asinh"},
            "joined": {"kind": "datetime", "lower": "2020-01-01", "upper": "2021-01-01"},
            "ward": {"kind": "category", "values": ["a", "b", "c"]},
            "smoker": {"kind": "boolean"},
        },
    }
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("age > 40 and Age <= 200", {"age": [40, 110]}),
        ("30 < age", {"age": [30]}),
        ("age between 20 and 30", {"age": [20, 30]}),
        ("pay >= 1000000 or pay <= 0", {"pay": [SPAN, 0]}),
        ("pay >= 999", {"pay": [round(SPAN * np.arcsinh(999) / np.arcsinh(1e6))]}),
        ("joined < '2020-07-02'", {"joined": [round(SPAN * 183 / 366)]}),
        ("ward in ('b', 'c') and smoker", {"ward": [1, 2], "smoker": [1]}),
        ("not smoker", {"smoker": [0]}),
        ("age is null and age + 1 > 5", {}),
    ],
)
def test_levels_that_are_asked_about(condition: str, expected: dict[str, list[int]]) -> None:
    found = compared_levels(SCHEMA, [f"select count(*) from sketch where {condition}"])
    assert {name: sorted(levels) for name, levels in found.items()} == {k: sorted(v) for k, v in expected.items()}


def shares(compared: dict[str, list[int]], name: str, level: int) -> list[tuple[float, float]]:
    """Shares of the records at most at a level, and at it, in some simulated tables."""
    found = []
    for seed in range(20):
        table = simulated_table(SCHEMA, 2000, np.random.default_rng(seed), compared)
        codes = encode(SCHEMA, table.combine_chunks().to_batches()[0]).codes[SCHEMA.index(name)]
        levels = SCHEMA.column(name).levels_of(codes)
        found.append((float(np.mean(levels <= level)), float(np.mean(levels == level))))
    return found


def test_values_that_are_asked_about_lie_among_the_records() -> None:
    asked, others = shares({"pay": [900]}, "pay", 900), shares({}, "pay", 900)
    assert all(0.01 < below < 1 for below, _ in asked)
    assert np.mean([below < 0.01 for below, _ in others]) > 0.3


def test_many_records_lie_at_a_bound_that_is_asked_about() -> None:
    assert all(at > 0.2 for _, at in shares({"pay": [0]}, "pay", 0))
    assert all(at > 0.2 for _, at in shares({"pay": [SPAN]}, "pay", SPAN))
    assert np.mean([at > 0.2 for _, at in shares({}, "pay", 0)]) < 0.6


def test_labels_that_are_asked_about_are_more_frequent() -> None:
    asked, others = (np.mean([at for _, at in shares(each, "ward", 1)]) for each in ({"ward": [1]}, {}))
    assert asked > 1.2 * others


def test_a_forecast_has_the_range_of_its_simulations() -> None:
    query, budget = "select count(*) from sketch where age > 40 and smoker", dps.Budget(1.0)
    (many,) = dps.plan(SCHEMA, [query], [budget], simulations=3).predictions
    assert many.low < many.error < many.high
    assert {"error", "low", "high"} <= set(many.to_dict())
    (one,) = dps.plan(SCHEMA, [query], [budget], simulations=1).predictions
    assert one.low == pytest.approx(one.error) == one.high
