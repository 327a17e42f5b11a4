"""Where records may be missing cells, or share a value, as far as sums tell."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.learn.estimators.single_values import (
    BESIDE,
    PART,
    Peak,
    missing_like,
    peaks_asked_about,
    peaks_of,
)
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.maps.tables.cells import HistogramCells
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Category, Integer, Number
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


def test_peaks_of_an_even_density_are_those_that_it_may_hide() -> None:
    assert all(peak.share < LITTLE for peak in peaks_of(CELLS, EVEN, POINTS, None, 0.0))
    (peak,) = (each for each in peaks_of(CELLS, EVEN, POINTS, 33, 0.0) if each.code == MISSING)
    assert peak.share == pytest.approx(PART * 2 * BESIDE, rel=0.1)
    absent = np.append(EVEN[:-1] * 0.8, 0.2)
    (peak,) = (each for each in peaks_of(CELLS, absent, POINTS, 33, 0.0) if each.code == MISSING)
    assert peak.share == pytest.approx(PART * (0.8 * 2 * BESIDE + 0.2), rel=0.1)


def test_a_peak_at_a_bound_may_be_values_at_it_or_missing() -> None:
    shares = EVEN * 0.7
    shares[0] += 0.3
    turned = shares[[*range(65, -1, -1), 66]]

    def codes(shares: np.ndarray, like: int | None) -> list[int]:
        return [peak.code for peak in peaks_of(CELLS, shares, POINTS, like, 0.0) if peak.share > LITTLE]

    assert next(peaks_of(CELLS, shares, POINTS, None, 0.0)).share == pytest.approx(PART * 0.3, rel=0.1)
    assert next(peaks_of(CELLS, shares, POINTS, None, 1.0)).share == pytest.approx(PART * (0.3 + 0.7 / 8), rel=0.1)
    assert codes(shares, None) == [LOWEST]
    assert codes(shares, 0) == [LOWEST, MISSING]
    assert codes(turned, None) == [HIGHEST]


def test_labels_may_be_missing_cells() -> None:
    cells = HistogramCells(Category("z", ("a", "b", "c")), 64)
    shares = np.zeros(cells.count)
    shares[0], shares[1] = 0.3, 0.7
    (peak,) = peaks_of(cells, shares, np.arange(cells.count), 0, 1.0)
    assert (peak.code, peak.share) == (MISSING, pytest.approx(PART * 0.3))


def test_missing_cells_may_be_in_the_group_asked_about() -> None:
    changes = np.array([[0.0, 0.0, 0.0, -1.0]])
    assert Peak("x", MISSING, POINTS[:4], 0.1).change(changes) == pytest.approx([-0.5])
    assert Peak("x", LOWEST, POINTS[:4], 0.1).change(changes) == pytest.approx([-0.25])


def test_numbers_asked_about_have_records_around_them() -> None:
    schema = Schema((Number("x", 0, 1),))
    frame = Frame(schema, {"x": np.linspace(LOWEST, HIGHEST, 4000).astype(np.int16)})

    def asked(condition: str) -> list[float]:
        factors = condition_factors(schema, parse_condition(condition, schema))
        found = peaks_asked_about(schema, frame, factors, product_at(factors, frame), 1.0)
        return [peak.share for peak, _ in found]

    assert asked("x <= 0.5") == [pytest.approx(PART * 2 * BESIDE, rel=0.01)]
    assert asked("x <= 0.5123456789") == []
    assert len(asked("x between 0.25 and 0.5")) == 2
    assert asked("x <= 1") == []


def test_a_value_of_few_that_a_function_is_about() -> None:
    column = Integer("x", 0, 9)
    schema, codes = Schema((column,)), column.codes_of(np.repeat(np.arange(10), 20))
    frame = Frame(schema, {"x": codes.astype(np.int16)})

    def asked(condition: str) -> list[int]:
        factors = condition_factors(schema, parse_condition(condition, schema))
        found = peaks_asked_about(schema, frame, factors, product_at(factors, frame), 1.0)
        return [peak.code for peak, _ in found]

    assert asked("x = 4") == asked("x <> 4") == [codes[4 * 20]]
    assert asked("x in (4, 7)") == [codes[4 * 20], codes[7 * 20]]
    each = [Factor(("x",), lambda frame: frame.values("x") == np.arange(10)[:, None])]
    found = list(peaks_asked_about(schema, frame, each, product_at(each, frame), 1.0))
    assert len(found) == 8
    assert all(functions.sum() == 1 for _, functions in found)
