from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.encoding.records import Records
from dpsketch.maps.registry import map_from_dict
from dpsketch.maps.tables.grid import Grid
from dpsketch.schema.schema import Schema


@pytest.mark.parametrize("cells", [{"age": 64, "height": 2}, {"height": 1, "age": 65536}])
def test_the_kernel_counts_the_cells_that_the_map_names(
    rng: np.random.Generator, schema: Schema, cells: dict[str, int]
) -> None:
    bound = Grid(("age", "sex", "height"), 2, 16, (1, 4, 9), cells=cells).bind(schema)
    codes = rng.integers(-32768, 32768, (len(schema.scalars), 400)).astype(np.int16)
    codes[:, :20] = -32768
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(codes), sums)
    expected = np.zeros(bound.size, np.int64)
    for position, level in enumerate((1, 4, 9)):
        index, signs = bound.counters(bound.cells(codes, level), position)
        np.add.at(expected, index, signs)
    assert (sums == expected).all()


def test_cells_have_one_form(schema: Schema) -> None:
    one = Grid(("age", "height"), cells={"height": 8, "age": 64})
    assert one == Grid(("age", "height"), cells={"age": 64, "height": 8}) == map_from_dict(one.to_dict())
    assert hash(one) == hash(map_from_dict(one.to_dict()))
    assert one.to_dict()["cells"] == {"age": 64, "height": 8}
    assert one.bind(schema).fingerprint() != Grid(("age", "height")).bind(schema).fingerprint()


def test_cells_in_a_recipe_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[[parts]]\nmap = "grid"\nshare = 1.0\ncolumns = ["lat", "lon"]\ncells = {lat = 64, lon = 16}\n')
    [part] = dps.Recipe.load(path).parts
    assert part.map == Grid(("lat", "lon"), cells={"lat": 64, "lon": 16})


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (64, "cells must be a number for each of some columns, got 64 instead"),
        ({"age": 48}, "cells of column 'age' must be a power of two, got 48 instead"),
        ({"age": 0}, "cells of column 'age' must be a whole number from 1 to 65536, got 0 instead"),
        ({"age": 2.0}, "must be a whole number"),
        ({"sex": 2}, "column 'sex' has a number of cells but is not in the grid\nHint: name it among columns"),
    ],
)
def test_cells_are_checked(cells: Any, message: str) -> None:
    with pytest.raises(dps.RecipeError, match=message):
        Grid(("age", "height"), cells=cells)


def test_cells_of_unknown_columns(schema: Schema) -> None:
    with pytest.raises(dps.DpsketchError, match="no column 'nobody'"):
        dps.Recipe([dps.Part(Grid(cells={"nobody": 2}), 1.0)]).bind(schema)
