"""Losses made of kernel sums are minimised: peaks, differences of classes, robust centres."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError
from dpsketch.learn.models.loss_search import KernelSum
from dpsketch.numerics.arrays import Floats

ROWS = 20_000
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "age": {"kind": "number", "lower": 0, "upper": 100},
            "dose": {"kind": "number", "lower": 0, "upper": 1},
            "sick": {"kind": "boolean"},
        },
    }
)
BOUNDS = [(0.0, 100.0), (0.0, 1.0)]


@pytest.fixture(scope="module")
def view() -> dps.View:
    """Healthy records around (20, 0.3), fewer sick ones around (70, 0.8)."""
    rng = np.random.default_rng(3)
    healthy, sick = rng.normal([20, 0.3], [5, 0.05], (14_000, 2)), rng.normal([70, 0.8], [6, 0.08], (6_000, 2))
    points = np.concatenate([healthy, sick])
    table = pa.table({"age": points[:, 0], "dose": points[:, 1], "sick": np.arange(ROWS) >= 14_000})
    race = dps.Race(("age", "dose"), 200, 1000, hash=dps.Euclidean(0.1))
    recipe = dps.Recipe([dps.Part(race, 0.5), dps.Part(dps.Grouped(race, "sick"), 0.5)])
    budget = dps.Budget(2.0)
    return dps.View(dps.release(dps.accumulate(table, SCHEMA, recipe), budget, dps.Ledger("sqlite://"), "patients"))


@pytest.mark.parametrize("random_state", [0, 1])
def test_the_densest_point(view: dps.View, random_state: int) -> None:
    best = dps.minimise(view, lambda kernel_sum, p: -kernel_sum(p, part=0), BOUNDS, random_state=random_state)
    assert best.parameters == pytest.approx([20, 0.3], abs=2)
    assert best.parameters[1] == pytest.approx(0.3, abs=0.02)
    assert best.loss == pytest.approx(-float(view.kernel_sum([best.parameters], part=0).value[0]))
    assert best.loss <= best.loss_around


def test_a_difference_of_two_classes(view: dps.View) -> None:
    """Where the sick outnumber the healthy most: the smaller peak, although the density is higher at the other."""

    def loss(kernel_sum: KernelSum, places: Floats) -> Floats:
        return kernel_sum(places, part=1, group="false") - kernel_sum(places, part=1, group="true")

    best = dps.minimise(view, loss, BOUNDS)
    assert best.parameters[0] == pytest.approx(70, abs=4)
    assert best.parameters[1] == pytest.approx(0.8, abs=0.05)
    assert best.loss < -1500


def test_several_points_for_each_candidate(view: dps.View) -> None:
    """A line dose = a + b·(age − 45) through both groups, by the records near it at two ages."""

    def loss(kernel_sum: KernelSum, places: Floats) -> Floats:
        each = [
            np.column_stack([np.full(len(places), age), places[:, 0] + places[:, 1] * (age - 45)])
            for age in (20.0, 70.0)
        ]
        sums = kernel_sum(np.concatenate(each), part=0).reshape(2, -1)
        return -np.sqrt(np.maximum(sums, 0.0)).sum(axis=0)

    best = dps.minimise(view, loss, [(0, 1), (-0.02, 0.02)])
    assert best.parameters == pytest.approx([0.55, 0.01], abs=0.02)
    assert best.parameters[1] == pytest.approx(0.01, abs=0.001)


def test_bounds_are_kept(view: dps.View) -> None:
    best = dps.minimise(view, lambda kernel_sum, p: -kernel_sum(p, part=0), [(30, 100), (0, 1)], starts=1)
    assert 30 <= best.parameters[0] <= 34
    assert best.parameters[1] == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize(
    ("loss", "bounds", "starts", "message"),
    [
        (lambda _, p: p, BOUNDS, 4, "one finite number for each row of parameters"),
        (lambda _, p: np.full(len(p), np.nan), BOUNDS, 4, "one finite number for each row"),
        (lambda _, p: p[:, 0], [(1, 0)], 4, "finite number below the next"),
        (lambda _, p: p[:, 0], [0, 1], 4, "bounds must be a list of 1 to 1000 pairs"),
        (lambda _, p: p[:, 0], [], 4, "bounds must be a list"),
        (lambda _, p: p[:, 0], BOUNDS, 0, "starts must be a whole number from 1"),
        (lambda kernel_sum, p: kernel_sum(p), BOUNDS, 1, "several RACE parts"),
    ],
)
def test_wrong_losses_are_refused(view: dps.View, loss: object, bounds: object, starts: int, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        dps.minimise(view, loss, bounds, starts)  # type: ignore[arg-type]
