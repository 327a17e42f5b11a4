"""Sums of kernels over rows are those of brute force."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.learn.estimators.radial_kernels import Radial
from dpsketch.learn.models.row_kernel import RowKernel, read_rows, saved_rows, unseen
from dpsketch.learn.points import Frame
from dpsketch.learn.population.weighted_rows import Hidden

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 1000},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 1},
            "y": {"kind": "number", "lower": -5, "upper": 5},
            "kind": {"kind": "category", "values": ["a", "b", "c"]},
        },
    }
)
COLUMNS = ("x", "y", "kind")


def table(rows: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    kinds = np.array(["a", "b", "c", None], object)[random.integers(0, 4, rows)]
    y = np.where(random.random(rows) < 0.1, np.nan, random.uniform(-5, 5, rows))
    return {"x": random.random(rows), "y": y, "kind": kinds}


@pytest.mark.parametrize(("name", "power"), [("euclidean", 1), ("euclidean", 3), ("gaussian", 1), ("laplacian", 1)])
def test_sums_are_those_of_all_pairs(name: str, power: int) -> None:
    kernel, rows, points = Radial(name, power, (4.0, 8.0, 3.0)), table(300, 1), table(20, 2)
    own = RowKernel(SCHEMA, COLUMNS, kernel)
    weights = np.random.default_rng(3).random((300, 2))
    located = (own.located(Frame.read(SCHEMA, COLUMNS, each)) for each in (rows, points))
    values, squares = own.means(next(located), weights, next(located))
    apart = np.zeros((20, 300))
    for column, width, span in (("x", 1, 4.0), ("y", 10, 8.0)):
        one, two = (np.nan_to_num(each[column], nan=0.0 if column == "y" else 0.5) for each in (points, rows))
        apart += ((one[:, None] - two) / width * span) ** 2
    apart += 9.0 * (points["kind"][:, None] != rows["kind"])  # missing labels equal each other
    exact = kernel(apart)
    assert values == pytest.approx(exact @ weights, rel=2e-3)
    assert squares == pytest.approx(exact**2 @ weights, rel=4e-3)


def test_narrow_kernels_hide_more() -> None:
    hidden = Hidden(0.02, 0.015)
    wide, narrow, nothing = unseen(np.array([0.1, 0.1, 0.0]), np.array([0.01, 0.1, 0.0]), hidden)
    assert wide == pytest.approx(0.002)  # a kernel of equal values varies nowhere
    assert narrow == pytest.approx(0.002 + 0.015 * 0.9)
    assert nothing == 0


def test_saved_rows_are_checked() -> None:
    fits = [np.arange(6, dtype=np.int16).reshape(2, 3)]
    facts, arrays = saved_rows(fits, Hidden(0.1, 0.2))
    again, hidden = read_rows(facts, arrays, 2)
    assert np.array_equal(again[0], fits[0])
    assert hidden == (0.1, 0.2)
    for wrong, rows in ((facts | {"fits": []}, arrays), (facts, {"rows0": fits[0].astype(np.int32)})):
        with pytest.raises(ValueError, match="rows"):
            read_rows(wrong, rows, 2)
