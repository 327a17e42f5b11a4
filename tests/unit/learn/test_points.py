from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from dpsketch.denoise.heaping import SharedValues
from dpsketch.learn.cell_places import as_round, codes_in_cells, places_to_try, values_between
from dpsketch.learn.points import ColumnPoints, Frame
from dpsketch.maps.tables.cells import Cells, HistogramCells, run_cells
from dpsketch.schema.columns import HIGHEST, MISSING, Category, Column, Datetime, Integer, Number
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
    for cell, (low, high) in enumerate(((0.0, 39.5), (39.5, 40.5), (40.5, 299.5)), start=1):
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


def _below(number: float, points: ColumnPoints, shares: np.ndarray, records: float = 1.0) -> tuple[float, float]:
    """P(x ≤ number) in 10,000 rows of which this many share a value, and its error by what cells hide."""

    def below(frame: Frame) -> np.ndarray:
        return (frame.values("x") <= number)[None, :].astype(float)

    values = points.values_of(below, [number], SharedValues(records), shares, 10_000.0)
    return float((values.by_cell().mean(2) @ shares)[0]), float(values.scattered(shares, 10_000.0, np.zeros(1))[0])


@pytest.mark.parametrize("heavy", [1.0, 0.9, 0.5, 0.0])
def test_a_number_asked_about_is_the_heavy_value_of_its_level_or_another(heavy: float) -> None:
    column = Number("x", 0, 65_534)
    points = ColumnPoints(Schema((column,)), run_cells(column, np.array([1, 990, 1000, 1001, 1011])))
    shares = np.zeros(points.cells.count)
    shares[3], shares[[2, 4]] = 0.04, 10 * 0.04 * (1 - heavy)
    found, error = _below(1000.0, points, shares)
    assert found - shares[2] == pytest.approx(0.02 * (1 + heavy**2), abs=1e-4)
    chance = 0.02 * (1 - heavy**2) / np.sqrt(400)
    assert error == pytest.approx(np.hypot(0.02 * heavy * np.sqrt(1 - heavy**2), chance), abs=1e-5)


def test_sums_over_parts_of_counted_cells() -> None:
    column = Number("x", 0, 65_534)
    points = ColumnPoints(Schema((column,)), run_cells(column, np.array([1, 4001, 8001])), np.array([0, 1, 1, 3, 4, 5]))
    assert points.counted(np.array([[1, 2, 4, 8, 16, 32.0]])).tolist() == [[1, 6, 0, 8, 16, 32]]


def test_what_a_counted_cell_hides_does_not_depend_on_its_parts() -> None:
    column = Number("x", 0, 65_534)
    whole = ColumnPoints(Schema((column,)), run_cells(column, np.array([1, 4001, 8001])))
    parts = ColumnPoints(
        Schema((column,)),
        run_cells(column, np.array([1, 4001, 5001, 6001, 7001, 8001])),
        np.array([0, 1, 2, 2, 2, 2, 3, 4, 5]),
    )
    shares = np.array([0.0, 0.3, 0.4, 0.3, 0.0, 0.0])
    divided = np.array([0.0, 0.3, 0.1, 0.1, 0.1, 0.1, 0.3, 0.0, 0.0])
    for records in (1.0, 100.0):
        assert _below(5000.5, parts, divided, records)[1] == pytest.approx(
            _below(5000.5, whole, shares, records)[1], rel=0.05
        )


def test_round_numbers_are_few_in_a_level() -> None:
    wide, fine = Number("x", 0, 4000), Number("x", 0, 65_534, "asinh")
    assert as_round(wide, np.array([1547.0, 1500.0, 1547.5])) == pytest.approx(1.0)
    assert as_round(wide, np.array([1547.445])) == 61
    assert list(as_round(fine, np.array([60_000.0, 61_234.0]))) == [1, 11]
    days = Datetime("x", datetime(2000, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC))
    moments = np.array([datetime(2010, 5, 4, hour, tzinfo=UTC).timestamp() * 1e6 for hour in (0, 7)])
    assert list(as_round(days, moments)) == [1, 2]


def test_a_number_with_many_digits_may_be_one_of_many() -> None:
    """Half the records are in one level of 0.06: at 1547.445 or spread over the level."""
    column = Number("x", 0, 4000)
    level = int(np.rint(1547.445 / 4000 * 65_534))
    points = ColumnPoints(Schema((column,)), run_cells(column, np.array([1, level, level + 1])))
    shares = np.array([0.0, 0.25, 0.5, 0.25, 0.0, 0.0])
    assert _below(1547.45, points, shares)[1] < 0.01
    found, error = _below(1547.445, points, shares)
    assert error > 0.1
    assert found == pytest.approx(0.75, abs=0.01)


def test_a_heavy_value_beside_a_cell_does_not_say_where_its_records_are() -> None:
    """Records are as near to a bound as its last level, of which a twentieth of them has the value; others may be."""
    column = Number("x", 0, 65_534)
    points = ColumnPoints(Schema((column,)), run_cells(column, np.array([1, 20_000, 40_000, 65_533])))
    shares = np.array([0.0, 0.0, 0.0, 0.2, 0.05, 0.75, 0.0])
    assert _below(65_000.0, points, shares)[1] > 0.05
    shares[4] = 0.2 / 25_533  # the last level is like those before it
    shares[2] = 0.15
    assert _below(65_000.0, points, shares)[1] < 0.01
