"""Noise coordinates: one a sum, or one for a whole table of counters."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import TestStream
from dpsketch.errors import QueryError
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.maps.base import Sensitivity, Sums
from dpsketch.maps.counter_table import BoundTable
from dpsketch.noise.laplace import discrete_laplace
from dpsketch.privacy.events import Mechanism, Noise
from dpsketch.sketch.released import ReleasedPart
from tests_support import MIXED_SCHEMA

SCHEMA = dps.Schema.from_dict({"privacy": {"rows": 3}, "columns": {"x": {"kind": "integer", "lower": 0, "upper": 4}}})


class Plain(BoundTable):
    """A table that adds 1 to one counter of each row for every record."""

    rows, width, largest, unit_increments = 3, 500_000, 1, True

    def __init__(self) -> None:
        super().__init__(dps.Count(), MIXED_SCHEMA, ())
        self.size = self.rows * self.width

    def prepare(self, records: Any) -> Any: ...

    def accumulate_rows(self, prepared: Any, sums: Sums, first: int, last: int) -> None: ...

    def entries(self, records: Any, rows: int) -> Any: ...

    def record_sensitivity(self, relation: Any) -> Sensitivity: ...


def noise_of(*parts: ReleasedPart) -> ReleaseNoise:
    recipe = SimpleNamespace(sampling=None)
    maps = [part.map for part in parts]
    return ReleaseNoise(SimpleNamespace(parts=parts, maps=maps, recipe=recipe, schema=None))  # type: ignore[arg-type]


SCALES = (Fraction(2), Fraction(1, 3))


def plain_part(sums: Sums) -> ReleasedPart:
    return ReleasedPart(Plain(), sums, tuple(Noise(Mechanism.LAPLACE, 3, scale) for scale in SCALES))


def released(*maps: Any) -> dps.ReleasedSketch:
    recipe = dps.Recipe([dps.Part(each, 1 / 8) for each in maps])
    raw = dps.accumulate(pa.table({"x": [1, 2, 3]}), SCHEMA, recipe)
    return dps.release(raw, dps.Budget(100.0), dps.Ledger("sqlite://"), "a")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_table_counts_records_by_the_mean_of_its_rows(dtype: Any) -> None:
    sums = np.zeros((3, 500_000), dtype)
    sums[:, :1000] = 2_000_000
    part = plain_part(sums.ravel())
    noise = noise_of(part)
    assert noise.coordinates == 1
    assert float(noise.rows().value) == 2e9
    assert float(noise.rows().stderr) == pytest.approx(np.sqrt(part.noise_variance * 500_000 / 3))


def test_the_error_of_that_mean_is_the_noise_of_the_table() -> None:
    """Over 40 tables of noise alone, plus 10^6 records: the spread matches within four standard errors."""
    errors, stream = [], TestStream()
    for _ in range(40):
        drawn = sum(discrete_laplace(1_500_000, scale, stream) for scale in SCALES)
        drawn[[0, 500_000, 1_000_000]] += 1_000_000
        rows = noise_of(plain_part(drawn)).rows()
        errors.append(float((rows.value - 1_000_000) / rows.stderr))
    assert abs(np.mean(np.square(errors)) - 1) < 4 * np.sqrt(2 / 40)


def test_a_table_has_one_coordinate_beside_others() -> None:
    grids = (dps.Grid(rows=2, width=64), dps.Grouped(dps.Grid(rows=2, width=64), "x"))
    sketch = released(dps.Count(), *grids, dps.Histogram(bins=4), dps.Grouped(dps.Count(), "x"))
    noise = ReleaseNoise(sketch)
    assert noise.coordinates == 1 + 1 + 1 + sketch.maps[3].size + sketch.maps[4].size
    influence = noise.place(sketch.parts[3], np.ones(2), 1)
    assert np.flatnonzero(influence).tolist() == [4, 5]


def test_signed_tables_do_not_count_records() -> None:
    with pytest.raises(QueryError, match="does not hold the number of rows"):
        ReleaseNoise(released(dps.Grid(rows=2, width=64))).rows()


def test_a_count_is_preferred_to_a_table() -> None:
    count = released(dps.Count()).parts[0]
    noise = noise_of(plain_part(np.zeros(1_500_000, np.int64)), count)
    assert float(noise.rows().value) == max(int(count.sums[0]), 1)
