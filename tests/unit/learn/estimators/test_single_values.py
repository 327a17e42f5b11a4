"""Where records may be missing cells, or share a value, as far as sums tell."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.learn.estimators.single_values import (
    BESIDE,
    PART,
    missing_like,
    peaks_asked_about,
    peaks_of,
)
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.maps.tables.cells import HistogramCells
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Number
from dpsketch.schema.schema import Schema

CELLS = HistogramCells(Number("x", 0, 1), 64)
EVEN = np.append(np.full(66, 1 / 66), 0.0)
LITTLE = 0.02  # windows differ by a cell
POINTS = np.arange(66)  # a point in each cell


def test_a_missing_cell_is_like_the_number_with_its_features() -> None:
    def middle(codes: np.ndarray) -> np.ndarray:
        return np.where(codes == MISSING, 0.0, codes.astype(float))[:, None]

    def own(codes: np.ndarray) -> np.ndarray:
        return np.stack([codes, 1e6 * (codes == MISSING)], axis=1).astype(float)

    assert missing_like(CELLS, lambda codes: codes[:, None].astype(float), 4) == 0
    found = missing_like(CELLS, middle, 4)
    assert found is not None
    assert abs(found - 33) <= 1
    assert missing_like(CELLS, own, 4) is None


def test_an_even_density_has_no_peaks() -> None:
    assert all(peak.share < LITTLE for peak in peaks_of(CELLS, EVEN, POINTS, None, 1.0))
    (peak,) = (each for each in peaks_of(CELLS, EVEN, POINTS, 33, 0.5) if each.code == MISSING)
    assert peak.share == pytest.approx(PART * 0.5 * 2 * BESIDE, rel=0.1)


def test_a_peak_at_a_bound_may_be_values_at_it_or_missing() -> None:
    shares = EVEN * 0.7
    shares[0] += 0.3
    turned = shares[[*range(65, -1, -1), 66]]

    def codes(shares: np.ndarray, like: int | None) -> list[int]:
        return [peak.code for peak in peaks_of(CELLS, shares, POINTS, like, 1.0) if peak.share > LITTLE]

    assert next(peaks_of(CELLS, shares, POINTS, None, 1.0)).share == pytest.approx(PART * 0.3, rel=0.1)
    assert codes(shares, None) == [LOWEST]
    assert codes(shares, 0) == [LOWEST, MISSING]
    assert codes(turned, None) == [HIGHEST]


def test_numbers_asked_about_have_records_around_them() -> None:
    schema = Schema((Number("x", 0, 1),))
    frame = Frame(schema, {"x": np.linspace(LOWEST, HIGHEST, 4000).astype(np.int16)})

    def asked(condition: str) -> list[float]:
        factors = condition_factors(schema, parse_condition(condition, schema))
        return [peak.share for peak in peaks_asked_about(schema, frame, factors, 1.0)]

    assert asked("x <= 0.5") == [pytest.approx(PART * 2 * BESIDE, rel=0.01)]
    assert asked("x <= 0.5123456789") == []
    assert len(asked("x between 0.25 and 0.5")) == 2
    assert asked("x <= 1") == []
