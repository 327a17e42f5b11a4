"""Sums over few rows of hashed counters of one column, and their errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.learn.estimators.row_weights import RowWeights, can_weigh
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.numerics.arrays import Floats

ROWS = 20_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "pay": {"kind": "number", "lower": 0, "upper": 600_000},
            "age": {"kind": "number", "lower": 0, "upper": 100},
            "grade": {"kind": "category", "values": ["a", "b"]},
        },
    }
)
FAMILY = dps.Euclidean(5000, scaled=False)
GRID = np.linspace(0, 300_000, 60)


def pay() -> Floats:
    """Most records in two heaps, far from most queries; a few dozen values that repeat."""
    rng = np.random.default_rng(3)
    repeated = rng.choice(rng.uniform(20_000, 120_000, 30), ROWS // 2)
    return np.concatenate([repeated, np.abs(rng.normal(0, 3000, ROWS // 4)), rng.normal(70_000, 20_000, ROWS // 4)])


def deviations(records: Floats, rows: int, method: str = "mean") -> tuple[Floats, Floats]:
    """Errors of sums at GRID over their standard errors, and over the largest sum: one matrix row a seed."""
    truth = np.array([FAMILY.kernel(np.abs(records - point)).sum() for point in GRID])
    table = pa.table({"pay": records})
    found = []
    for seed in range(8):
        recipe = dps.Recipe([dps.Part(dps.Race(["pay"], rows, 1000, seed, FAMILY), 1.0)])
        schema = dps.Schema.from_dict(
            {"privacy": {"rows": ROWS}, "columns": {"pay": SCHEMA.to_dict()["columns"]["pay"]}}
        )
        released = dps.release(dps.accumulate(table, schema, recipe), dps.Budget(1.0), dps.Ledger("sqlite://"), "d")
        answer = dps.View(released).kernel_sum(GRID[:, None], method)
        found.append((answer.value - truth, answer.stderr))
    errors, stderrs = (np.array(each) for each in zip(*found, strict=True))
    return errors / stderrs, errors / truth.max()


def root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("rows", [30, 100, 400])
def test_errors_are_those_stated(rows: int) -> None:
    """All queries of a release share its hashes: a sample without rows of small slopes made all of them too small."""
    records = np.clip(pay(), 0, 600_000)
    scaled, relative = deviations(records, rows)
    assert 0.4 < root_mean_square(scaled) < 1.3
    assert np.abs(scaled.mean(axis=1)).max() < 1.5
    assert np.mean(np.abs(scaled) < 1.96) > 0.93
    assert root_mean_square(relative) < 0.4 / np.sqrt(rows)


@pytest.mark.usefixtures("seeded")
def test_medians_know_of_rare_rows_too() -> None:
    scaled, _ = deviations(np.clip(pay(), 0, 600_000), 100, "median")
    assert root_mean_square(scaled) < 1.3


def bound(race: dps.Race) -> BoundRace:
    return race.bind(SCHEMA)


def test_weights_give_the_kernel_at_every_distance() -> None:
    """Expected counters of records at one distance, given the slopes, from the definition of the hash."""
    for power in (1, 2):
        race = bound(dps.Race(["pay"], 2000, 1000, hash=dps.Euclidean(5000, power, scaled=False)))
        weights = RowWeights(SCHEMA, race, 2.0, ROWS)
        (projection,) = race.projected
        slopes = np.abs(projection.coefficients[:, :, 0]) / 2.0**projection.shift * 65534 / 600_000
        distances = np.array([0.0, 1000.0, 5000.0, 40_000.0, 300_000.0])
        counters = np.maximum(1 - slopes[:, :, None] * distances, 0).prod(axis=1).T * ROWS
        value, _ = weights.sums(counters, ROWS)
        kernel = race.euclidean.kernel(distances) if race.euclidean is not None else np.zeros(5)
        assert value[0] == pytest.approx(ROWS)
        assert value / ROWS == pytest.approx(kernel, abs=0.003)


def test_only_distances_in_one_column_of_numbers_are_weighed() -> None:
    assert can_weigh(SCHEMA, bound(dps.Race(["age"], 10, 50)))
    for race in (
        dps.Race(["age", "pay"], 10, 50),
        dps.Race(["grade"], 10, 50),
        dps.Race(["age"], 10, 50, hash=dps.SignedProjection(3)),
        dps.Race(["age"], 10, 50, weight="pay"),
    ):
        assert not can_weigh(SCHEMA, bound(race))
