from __future__ import annotations

import numpy as np
import pytest

from dpsketch.learn.points import codes_in_cells
from dpsketch.maps.tables.cells import Cells, HistogramCells
from dpsketch.schema.columns import MISSING, Category, Column, Integer, Number


@pytest.mark.parametrize("kind", [Cells, HistogramCells])
@pytest.mark.parametrize("column", [Number("x", 0, 1), Integer("x", 0, 120), Category("x", ("a", "b"))])
def test_codes_stay_in_their_cell(kind: type[Cells], column: Column) -> None:
    cells = kind(column, 16)
    places = np.arange(cells.count)
    for step in (0.0, 0.5, 1 - 2.0**-53, 1.0):
        codes = codes_in_cells(cells, places, np.full(cells.count, step))
        assert (cells.cells(codes) == places).all()
        assert codes[-1] == MISSING
