"""Cells that are runs of levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch.maps.tables.cells import Cells, RunCells, cells_of, common_cells, level_cells, run_cells
from dpsketch.maps.tables.column_summaries import parents
from dpsketch.schema.columns import MISSING, Column, Integer, Number

COLUMNS: list[Column] = [Number("x", 0.0, 1.0), Integer("n", 0, 999), Integer("few", 0, 20)]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_every_level_has_the_run_that_begins_before_it(column: Column) -> None:
    last = column.levels - 1
    cells = run_cells(column, np.array([1, 4, 9]), [4, last - 1])
    assert cells.starts == (1, 4, 5, 9, last - 1)
    assert cells.count == len(cells.starts) + 3
    own = cells.cells(column.codes_of(np.arange(column.levels)))
    expected = np.searchsorted([0, *cells.starts, last], np.arange(column.levels), side="right") - 1
    assert (own == expected).all()
    assert cells.cells(np.array([MISSING]))[0] == cells.missing
    single = {0, cells.count - 2, cells.count - 1, *own[[4, last - 1]]}
    assert set(np.flatnonzero(cells.single)) == single
    assert cells.firsts[0] == -32767
    assert (np.diff(cells.edges) >= 0).all()


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_levels_are_cells_of_every_code(column: Column) -> None:
    cells = level_cells(column)
    assert cells.count == column.levels + 1
    assert (cells.cells(column.codes_of(np.arange(column.levels))) == np.arange(column.levels)).all()


@given(
    one=st.lists(st.integers(2, 997), max_size=6),
    two=st.lists(st.integers(2, 997), max_size=6),
    bins=st.sampled_from([None, 3, 16, 500]),
)
def test_common_cells_divide_both(one: list[int], two: list[int], bins: int | None) -> None:
    column = COLUMNS[1]
    first: Cells = run_cells(column, np.array([1, *one]), one[:1])
    second: Cells = run_cells(column, np.array([1, *two])) if bins is None else cells_of(column, bins)
    common = common_cells(first, second)
    codes = column.codes_of(np.append(np.arange(column.levels), -1))
    pairs = {(a, b) for a, b in zip(first.cells(codes), second.cells(codes), strict=True)}
    assert common.count == len(pairs), "no finer than needed"
    for coarse in (first, second):
        assert (parents(coarse, common)[common.cells(codes)] == coarse.cells(codes)).all()
    assert isinstance(common, RunCells) or common is first
