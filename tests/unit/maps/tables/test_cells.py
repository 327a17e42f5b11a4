"""Cells cover every code once; positions are what rational arithmetic says."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from math import floor, trunc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch.maps.tables.cells import (
    EVERY_CODE,
    GRID,
    MOST_BINS,
    POSITION_GRID,
    Cells,
    cells_of,
    distinct,
    tapered_bins,
)
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Boolean, Category, Column, Datetime, Integer, Number

WHEN = datetime(2020, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
COLUMNS: list[Column] = [
    Number("x", 0, 1),
    Number("x", 1, 1e6, transform="log"),
    Integer("x", 0, 120),
    Integer("x", 0, 9),
    Integer("x", 0, 10**9),
    Datetime("x", *WHEN),
    Category("x", ("a", "b")),
    Boolean("x"),
]
every_column = pytest.mark.parametrize("column", COLUMNS, ids=repr)
bin_numbers = st.one_of(st.integers(1, 300), st.integers(1, MOST_BINS))


@every_column
@given(bins=bin_numbers)
def test_cells_partition_all_codes(column: Column, bins: int) -> None:
    cells = cells_of(column, bins)
    found = cells.cells(EVERY_CODE)
    assert found.dtype == np.int64
    assert found[0] == cells.missing == cells.count - 1
    assert (np.unique(found) == np.arange(cells.count)).all(), "every cell has a code"
    assert (found[1:] == np.searchsorted(cells.firsts, EVERY_CODE[1:], side="right") - 1).all(), (
        "cells are runs of codes"
    )
    assert (np.abs(cells.positions(EVERY_CODE)) <= POSITION_GRID // 2).all()
    if cells.binned:
        assert [int(np.sum(found == cell)) for cell in (0, bins + 1)] == [1, 1], "the bounds are by themselves"
        assert cells.cells(np.array([LOWEST, HIGHEST])).tolist() == [0, bins + 1]
        assert np.ptp(np.diff(cells.firsts)[1:-1]) <= 1
        assert (cells.single == (np.bincount(found, minlength=cells.count) == 1)).all()
    else:
        assert cells.single.all()
        assert (found[1:] == column.levels_of(EVERY_CODE[1:])).all()


@every_column
@given(bins=bin_numbers)
def test_tapered_cells_are_as_many_and_partition_all_codes(column: Column, bins: int) -> None:
    cells, equal = cells_of(column, bins, tapered=True), cells_of(column, bins)
    found = cells.cells(EVERY_CODE)
    assert (cells.count, cells.binned, cells.missing) == (equal.count, equal.binned, found[0])
    assert (np.unique(found) == np.arange(cells.count)).all(), "every cell has a code"
    assert (found[1:] == np.searchsorted(cells.firsts, EVERY_CODE[1:], side="right") - 1).all()
    assert (found[1:] == cells.cells(column.codes_of(column.levels_of(EVERY_CODE[1:])))).all(), "levels are not cut"
    if not cells.binned:
        assert (found == equal.cells(EVERY_CODE)).all()
        assert cells.cut == equal.cut
    else:
        assert cells.cut != equal.cut


def test_tapered_bins_are_narrow_near_the_bounds() -> None:
    """In the middle at most twice as wide as equal ones, most as wide; near a bound about half the distance from it."""
    equal, cells = (cells_of(Number("x", 0, 1), 256, tapered) for tapered in (False, True))
    first, widths = cells.first_levels[1:-2], np.diff(cells.first_levels)[1:-1]
    assert widths.max() <= 512
    assert np.isin(equal.first_levels, cells.first_levels).mean() > 0.75
    assert (np.sort(widths[:20]) == np.sort(widths[:-21:-1])).mean() >= 0.9, "both bounds alike"
    for near in (16, 128, 1024):
        assert 2 <= np.sum((first >= near) & (first < 2 * near)) <= 8


@pytest.mark.parametrize("bins", [1, 2, 3, 64, 255, 256])
def test_edges_of_tapered_bins_divide_equal_ones_by_powers_of_two(bins: int) -> None:
    for length in (bins, bins + 1, 1000, 65533):

        def equal(edge: int, length: int = length) -> bool:
            """Whether one of 2^i times the bins, all equal, begins there: k of them take up ⌈k·length/of⌉."""
            parts = (max(bins // 2, 1) << power for power in range(17))
            return any(-(-(edge * of // length) * length // of) == edge for of in parts)

        found = tapered_bins(length, bins)
        assert len(set(found)) == bins
        assert (found[0], all(equal(int(edge)) for edge in found)) == (0, True)


@given(bins=bin_numbers, codes=st.lists(st.integers(MISSING, HIGHEST), min_size=1))
def test_positions_against_rational_arithmetic(bins: int, codes: list[int]) -> None:
    cells = cells_of(Number("x", 0, 1), bins)
    for code, cell, position in zip(
        codes, cells.cells(np.array(codes)), cells.positions(np.array(codes, np.int16)), strict=True
    ):
        if code in (MISSING, LOWEST, HIGHEST):
            assert (cell, position) == ({MISSING: bins + 2, LOWEST: 0, HIGHEST: bins + 1}[code], 0)
            continue
        own = floor(Fraction((code + 32766) * bins, 65533))
        assert cell == own + 1
        inside = [u for u in range(65533 * own // bins, 65533 * (own + 1) // bins + 1) if u * bins // 65533 == own]
        place = Fraction(2 * (code + 32766 - inside[0]) + 1, 2 * len(inside))
        assert 0 < place < 1
        assert position == trunc(Fraction(GRID, 4) * (place - Fraction(1, 2)))


@given(bins=bin_numbers)
def test_positions_of_a_bin_cancel(bins: int) -> None:
    cells = cells_of(Number("x", 0, 1), bins)
    totals = np.zeros(cells.count, np.int64)
    np.add.at(totals, cells.cells(EVERY_CODE), cells.positions(EVERY_CODE))
    assert not totals.any()


def test_which_columns_are_binned() -> None:
    def facts(cells: Cells) -> tuple[bool, bool, int]:
        return cells.ordered, cells.binned, cells.count

    assert facts(cells_of(Number("x", 0, 1), 16)) == (True, True, 19)
    assert facts(cells_of(Datetime("x", *WHEN), 16)) == (True, True, 19)
    assert facts(cells_of(Integer("x", 0, 18), 16)) == (True, True, 19)
    assert facts(cells_of(Integer("x", 0, 17), 16)) == (True, False, 19)
    assert facts(cells_of(Integer("x", 0, 1), 16)) == (True, False, 3)
    assert facts(cells_of(Category("x", tuple("abcdefghijklmnopqrstuvwxyz")), 16)) == (False, False, 28)
    assert facts(cells_of(Boolean("x"), 16)) == (False, False, 3)


def test_edges_and_centres_in_the_users_units() -> None:
    whole = cells_of(Integer("x", 0, 9), 4)
    assert whole.edges.tolist() == [0, 0.5, 2.5, 4.5, 6.5, 8.5, 9]
    assert np.diff(whole.edges).min() > 0
    for cell in range(whole.count - 1):
        inside = [v for v in range(10) if whole.cells(whole.column.codes_of(np.array([v])))[0] == cell]
        assert whole.centres[cell] == np.mean(inside)
        assert all(whole.edges[cell] <= value <= whole.edges[cell + 1] for value in inside)
    number = cells_of(Number("x", 10, 20), 5)
    assert np.allclose(number.edges, [10, 10, 12, 14, 16, 18, 20, 20], atol=4e-4)
    assert np.allclose(number.centres[:-1], [10, 11, 13, 15, 17, 19, 20], atol=4e-4)
    assert np.isnan(number.centres[-1])
    log = cells_of(Number("x", 1, 1e6, transform="log"), 3)
    assert np.allclose(log.edges, [1, 1, 1e2, 1e4, 1e6, 1e6], rtol=1e-3)
    assert np.allclose(log.centres[1:4], [1e1, 1e3, 1e5], rtol=1e-3)
    assert cells_of(Category("x", ("a", "b")), 5).centres[:-1].tolist() == [0, 1, 2]


@every_column
def test_edges_rise_and_hold_the_centres(column: Column) -> None:
    for bins in (1, 2, 7, 64, 32768):
        cells = cells_of(column, bins)
        assert len(cells.edges) == len(cells.centres) == cells.count
        assert (np.diff(cells.edges) >= 0).all()
        assert (cells.edges[:-1] <= cells.centres[:-1]).all()
        assert (cells.centres[:-1] <= cells.edges[1:]).all()
        assert (cells.edges[[0, -1]] == column.values_of(np.array([LOWEST, HIGHEST]))).all()


def test_columns_that_are_cut_alike_are_told() -> None:
    alike = [cells_of(column, 16) for column in (Number("a", 0, 1), Datetime("b", *WHEN), Integer("c", 0, 120))]
    assert len({cells.cut for cells in alike}) == 1
    assert all((cells.positions(EVERY_CODE) == alike[0].positions(EVERY_CODE)).all() for cells in alike)
    assert cells_of(Boolean("a"), 16).cut == cells_of(Integer("b", 0, 1), 4).cut != cells_of(Integer("b", 0, 2), 4).cut
    firsts, kinds = distinct(["x", "y", "x", "z", "y"])
    assert (firsts, kinds.tolist()) == ([0, 1, 3], [0, 1, 0, 2, 1])
