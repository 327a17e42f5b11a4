from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.learn.models.grid_density import GridDensity

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 20_000},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 1, "missing": 0.5},
            "y": {"kind": "number", "lower": 0, "upper": 2, "missing": 0.5},
        },
    }
)
STEPS = (np.arange(32) + 0.5) / 32


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """The density rises along x alone: y needs two cells."""
    random = np.random.default_rng(3)
    return pa.table({"x": np.sqrt(random.random(20_000)), "y": 2 * random.random(20_000)})


@pytest.fixture(scope="module")
def view(table: pa.Table) -> dps.View:
    grid = dps.Grid(("x", "y"), rows=3, width=1 << 10, levels=(3, 4), cells={"x": 32, "y": 2})
    raw = dps.accumulate(table, SCHEMA, dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(grid, 0.9)]))
    return dps.View(dps.release(raw, dps.Budget(2.0), dps.Ledger("sqlite://"), "grid"))


@pytest.mark.parametrize("method", ["cells", "heap", "sketch", "normalised"])
def test_densities_of_columns_with_other_numbers_of_cells(
    table: pa.Table, view: dps.View, method: str, tmp_path: Path
) -> None:
    model = GridDensity(method).fit(view)
    places = np.meshgrid(STEPS, [0.3, 1.7])
    points = {name: values.ravel() for name, values in zip("xy", places, strict=True)}
    found = model.density(points)
    counts = np.histogram2d(*(table[name].to_numpy() for name in "yx"), bins=(2, 32), range=((0, 2), (0, 1)))[0]
    truth = counts.ravel() * 32 / 20_000
    assert np.mean(np.abs(found.value - truth) < 2 * found.stderr) > 0.9
    assert np.mean(found.value) * 2 == pytest.approx(1, abs=0.05), "the integral: the mean over the area of two"
    dps.save_model(model, tmp_path / "grid.model")
    again = dps.load_model(tmp_path / "grid.model")
    assert (again.density(points).value == found.value).all()
    if method in ("cells", "heap"):
        rows = again.sample(4000, seed=2).to_pandas()
        assert rows.x.mean() == pytest.approx(2 / 3, abs=0.03)
        assert rows.y.mean() == pytest.approx(1, abs=0.06)


def test_cells_of_one_column_are_alike_inside(view: dps.View) -> None:
    model = GridDensity().fit(view)
    here = model.density({"x": [0.8, 0.8, 0.8], "y": [0.05, 0.95, 1.05]}).value
    assert here[0] == here[1] != here[2]
