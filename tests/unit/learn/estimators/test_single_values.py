"""Where records may be missing cells, or share a value."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.learn.estimators.single_values import ANY_PART, Lump, lumps_asked_about, missing_lump, unresolved
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.maps.tables.cells import HistogramCells
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Category, Integer, Number
from dpsketch.schema.schema import Schema

NUMBER = Number("x", 0, 1)
CELLS = HistogramCells(NUMBER, 64)
EVEN = np.append(np.full(66, 1 / 66), 0.0)
POINTS = np.arange(66)  # a point in each cell


def of_code(codes: np.ndarray) -> np.ndarray:
    return codes[:, None].astype(float)


def in_the_middle(codes: np.ndarray) -> np.ndarray:
    return np.where(codes == MISSING, 0.0, codes.astype(float))[:, None]


def apart(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes, 1e6 * (codes == MISSING)], axis=1).astype(float)


def test_records_with_the_features_of_missing_cells_may_be_missing() -> None:
    first = missing_lump(CELLS, EVEN, POINTS, of_code, 4)
    middle = missing_lump(CELLS, EVEN, POINTS, in_the_middle, 4)
    assert first is not None
    assert middle is not None
    assert first.code == middle.code == MISSING
    assert first.share == pytest.approx(1 / 8, rel=0.15)
    assert middle.share == pytest.approx(2 / 8, rel=0.15)
    assert 0 in first.points
    assert 0 not in middle.points
    assert missing_lump(CELLS, EVEN, POINTS, apart, 4) is None


def test_labels_may_be_missing_cells() -> None:
    cells = HistogramCells(Category("z", ("a", "b", "c")), 64)
    shares = np.zeros(cells.count)
    shares[0], shares[1] = 0.3, 0.7
    found = missing_lump(cells, shares, np.arange(cells.count), of_code, 4)
    assert found is not None
    assert found.share == pytest.approx(0.3)


def test_missing_cells_may_be_in_the_group_asked_about() -> None:
    changes = np.array([[0.0, 0.0, 0.0, -1.0]])
    assert Lump("x", MISSING, POINTS[:4], 0.1).change(changes) == pytest.approx([-0.5 * ANY_PART / 9])
    assert Lump("x", LOWEST, POINTS[:4], 0.1).change(changes) == pytest.approx([-0.025 * ANY_PART])


def test_sums_of_more_columns_resolve_less() -> None:
    assert unresolved(1) == unresolved(3) < unresolved(10) < unresolved(18) <= unresolved(100) == 0.5


def asked(frame: Frame, condition: str) -> list[Lump]:
    factors = condition_factors(frame.schema, parse_condition(condition, frame.schema))
    return [lump for lump, _ in lumps_asked_about(frame.schema, frame, factors, product_at(factors, frame), "x", 1 / 8)]


def test_records_around_round_numbers_and_bounds_may_have_them() -> None:
    frame = Frame(Schema((NUMBER,)), {"x": np.linspace(LOWEST, HIGHEST, 4000).astype(np.int16)})
    [half] = asked(frame, "x <= 0.5")
    assert half.share == pytest.approx(1 / 4, rel=0.01)
    assert half.value == 0.5
    [end] = asked(frame, "x <= 1")
    assert (end.code, end.share) == (HIGHEST, pytest.approx(1 / 8, rel=0.01))
    assert len(asked(frame, "x between 0.25 and 0.5")) == 2
    assert asked(frame, "x <= 0.5123456789") == []
    assert asked(frame, "x <= 3") == []


def test_a_value_of_few_that_a_function_is_about() -> None:
    column = Integer("x", 0, 9)
    codes = column.codes_of(np.repeat(np.arange(10), 20))
    frame = Frame(Schema((column,)), {"x": codes.astype(np.int16)})
    assert [lump.code for lump in asked(frame, "x in (4, 7)")] == [codes[4 * 20], codes[7 * 20]]
    each = [Factor(("x",), lambda frame: frame.values("x") == np.arange(10)[:, None])]
    found = list(lumps_asked_about(frame.schema, frame, each, product_at(each, frame), "x", 1 / 8))
    assert len(found) == 8
    assert all(functions.sum() == 1 for _, functions in found)
