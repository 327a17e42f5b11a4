from __future__ import annotations

import numpy as np
import pytest

from dpsketch.learn.points import ColumnPoints, codes_in_cells, places_to_try, values_between
from dpsketch.maps.tables.cells import Cells, HistogramCells, run_cells
from dpsketch.schema.columns import HIGHEST, MISSING, Category, Column, Integer, Number
from dpsketch.schema.schema import Schema


@pytest.mark.parametrize("kind", [Cells, HistogramCells])
@pytest.mark.parametrize("column", [Number("x", 0, 1), Integer("x", 0, 120), Category("x", ("a", "b"))])
def test_codes_stay_in_their_cell(kind: type[Cells], column: Column) -> None:
    cells = kind(column, 16)
    places = np.arange(cells.count)
    for step in (0.0, 0.5, 1 - 2.0**-53, 1.0):
        codes = codes_in_cells(cells, places, np.full(cells.count, step))
        assert (cells.cells(codes) == places).all()
        assert codes[-1] == MISSING


def test_values_between_levels_meet_those_of_levels() -> None:
    for column in (Number("x", -3, 7), Number("x", 1, 1e6, "log"), Number("x", 0, 1e6, "asinh")):
        levels = np.array([0, 1, 700, column.levels - 1])
        assert (values_between(column, levels.astype(float)) == column.values_of(column.codes_of(levels))).all()
        cells = run_cells(column, np.array([1, 40, 41, 300]), (40,))
        places = places_to_try(cells)
        assert (np.diff(places) > 0).all()
        assert places[-1] == column.values_of(np.array([HIGHEST]))[0]


def test_points_fill_the_cells_of_continuous_columns_evenly() -> None:
    column = Number("x", 0, 65_534)
    points = ColumnPoints(Schema((column,)), run_cells(column, np.array([1, 40, 41, 300])))
    values = points.frame.values("x").reshape(points.places.shape)
    assert values[0] == pytest.approx(0.0), "the bounds are single values"
    assert values[-2] == pytest.approx(65_534.0)
    for cell, (low, high) in enumerate(((0.5, 39.5), (39.5, 40.5), (40.5, 299.5)), start=1):
        assert values[cell].mean() == pytest.approx((low + high) / 2)
        assert values[cell].min() > low
        assert values[cell].max() < high
        assert (values[cell] <= low + (high - low) / 4).mean() == 0.25


def test_cells_that_alternate_may_be_off_their_centres() -> None:
    column = Number("x", 0, 65_534)
    points = ColumnPoints(Schema((column,)), run_cells(column, 1 + 1000 * np.arange(20)))
    empty = np.zeros(points.cells.count)
    even, alternating, rising = empty.copy(), empty.copy(), empty.copy()
    even[1:20] = 0.05
    alternating[1:20] = np.where(np.arange(19) % 2, 0.02, 0.08)
    rising[1:20] = 0.05 * 1.01 ** np.arange(19)
    assert points.off_centre(even)[2:18].max() == 0
    assert (points.off_centre(alternating)[2:18] > 0.05**2).all()
    assert np.sqrt(points.off_centre(rising)[2:18]) == pytest.approx(0.01 / 12, rel=0.02)
