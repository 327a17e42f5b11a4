"""Answers of a release with a grid come from its cells, with errors that hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.encoding.levels import levels_at
from dpsketch.learn.population.grid_estimator import GridEstimator

SQUARE = {name: {"kind": "number", "lower": 0, "upper": 1} for name in "xy"}
TABLES = {
    "skin": ("blue", "green", "red"),
    "sf_cabs_2p8m": ("lat_e5", "lon_e5"),
    "california_housing": ("longitude", "latitude", "median_income"),
}


def released(schema: dps.Schema, table: pa.Table, parts: list[dps.Part] | None = None) -> dps.View:
    budget = dps.Budget(1.0)
    recipe = dps.Recipe.synthetic(schema, budget=budget) if parts is None else dps.Recipe(parts)
    return dps.View(dps.release(dps.accumulate(table, schema, recipe), budget, dps.Ledger("sqlite://"), "grid"))


@pytest.fixture
def normal(rng: np.random.Generator) -> pa.Table:
    x = rng.normal(0.5, 0.12, 50_000)
    return pa.table({"x": x.clip(0, 1), "y": (0.8 * (x - 0.5) + 0.5 + rng.normal(0, 0.07, 50_000)).clip(0, 1)})


@pytest.fixture
def view(seeded: None, normal: pa.Table) -> dps.View:
    return released(dps.Schema.from_dict({"privacy": {"rows": 50_000}, "columns": SQUARE}), normal)


def test_answers_follow_the_cells(view: dps.View, normal: pa.Table) -> None:
    """The regression on a grid's counters said 0.5 ± 0.3 where rows drawn from its cells had the truth."""
    x, y = (normal[name].to_numpy() for name in "xy")
    corr = view.corr(["x", "y"])
    assert "cells of a grid" in corr.how
    assert corr.value[0, 1] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=0.02)
    assert corr.stderr[0, 1] < 0.03
    rows = view.sample(100_000).to_pandas()
    assert corr.value[0, 1] == pytest.approx(rows.corr().iloc[0, 1], abs=0.02)
    mean, count = view.mean("y", where="x > 0.6"), view.count("x > 0.6 and y <= 0.5")
    assert mean.value == pytest.approx(y[x > 0.6].mean(), abs=0.01)
    assert mean.stderr < 0.01
    assert count.value == pytest.approx(((x > 0.6) & (y <= 0.5)).sum(), rel=0.1)
    [row] = view.sql("select avg(x), corr(x, y), count(*) from sketch where y > 0.5").rows
    assert [cell.value for cell in row] == pytest.approx(
        [x[y > 0.5].mean(), np.corrcoef(x[y > 0.5], y[y > 0.5])[0, 1], (y > 0.5).sum()], rel=0.05
    )
    assert view.quantile("x", 0.5).value == pytest.approx(np.median(x), abs=0.01)
    assert view.count("x > 0.99").stderr > 1  # nothing there, but not for certain


LONG = {"x": {"kind": "number", "lower": 0, "upper": 1}, "y": {"kind": "number", "lower": 0, "upper": 1}}


@pytest.mark.parametrize("levels", [(3, 4, 5, 6), (6,)], ids=["coarse to fine", "one level"])
def test_answers_and_rows_with_fewer_cells_in_one_column(seeded: None, levels: tuple[int, ...]) -> None:
    """One column needs fine cells and the other only two: as much as a grid of equal cells, in fewer counters."""
    random = np.random.default_rng(2)
    y = random.random(30_000)
    x = np.where(y < 0.5, random.normal(0.2, 0.02, 30_000), random.normal(0.7, 0.05, 30_000)).clip(0, 1)
    schema = dps.Schema.from_dict({"privacy": {"rows": 30_000}, "columns": LONG})
    grid = dps.Grid(("x", "y"), rows=3, width=1 << 10, levels=levels, cells={"y": 2})
    parts = [dps.Part(dps.Count(), 0.1), dps.Part(grid, 0.9)]
    view = released(schema, pa.table({"x": x, "y": y}), parts)
    for condition, truth in (
        ("x > 0.5", (x > 0.5)),
        ("y < 0.5", y < 0.5),
        ("x > 0.25 and y >= 0.5", (x > 0.25) & (y >= 0.5)),
    ):
        found = view.fraction(condition)
        assert abs(found.value - truth.mean()) < 3 * found.stderr
        assert found.stderr < 0.05
    drawn = view.sample(5000, seed=1).to_pandas()
    assert ((drawn.x > 0.5) == (drawn.y >= 0.5)).mean() > 0.97
    assert drawn.y.std() == pytest.approx(y.std(), abs=0.02)


def test_errors_of_a_share_and_of_its_part_do_not_cancel(view: dps.View) -> None:
    """A part of a slab and the slab are not off by the same share of themselves."""
    slab, part = view.fraction("x > 0.63"), view.fraction("x > 0.63 and y > 0.63")
    conditional = view.fraction("y > 0.63")
    assert min(slab.stderr, part.stderr, conditional.stderr) > 0
    ratio = view.expect(lambda rows: rows["y"] > 0.63, ["y"], where="x > 0.63")
    assert ratio.value == pytest.approx(part.value / slab.value, rel=0.01)
    assert ratio.stderr > 0.1 * part.stderr / slab.value


def test_the_estimator_with_the_least_error_answers(seeded: None, normal: pa.Table) -> None:
    """Beside a table of one column, which knows more of it, and less of the other."""
    schema = dps.Schema.from_dict({"privacy": {"rows": 50_000}, "columns": SQUARE})
    table = dps.Part(dps.Histogram(columns=("x",), bins=400), 0.5)
    both = released(
        schema, normal, [dps.Part(dps.Count(), 0.05), table, dps.Part(dps.Grid(None, 1, 1 << 12, (3, 4)), 0.45)]
    )
    assert "marginal of x" in both.count("x > 0.6003").how
    assert "cells of a grid" in both.count("x > 0.6003 and y > 0.5").how
    assert len(both.count("x > 0.6003").considered) == 2
    paper = dps.View(both.released, method="ridge-paper")
    assert not any(isinstance(each, GridEstimator) for each in paper.estimators(["x", "y"]))


def questions(schema: dps.Schema, table: pa.Table) -> Iterator[tuple[str, float]]:
    """Statements of one number, each with its truth."""
    data = table.to_pandas()
    for name in data:
        data[name] = data[name].clip(schema.column(name).lower, schema.column(name).upper)
    rng, names = np.random.default_rng(3), list(data)
    for name in names:
        x, y_name = data[name], str(rng.choice([other for other in names if other != name]))
        y = data[y_name]
        yield f"avg({name})", x.mean()
        yield f"stddev({name})", x.std(ddof=0)
        for _ in range(-(-9 // len(names))):
            low, high = np.sort(rng.choice(x, 2)).tolist()
            other = float(rng.choice(y))
            yield f"count_if({name} > {low!r})", (x > low).sum()
            inside = (x > low) & (y <= other)
            yield f"count_if({name} > {low!r} and {y_name} <= {other!r})", inside.sum()
            yield f"count_if({name} between {low!r} and {high!r})", x.between(low, high).sum()
            if (x > low).sum() > 100:
                yield f"avg({y_name}) filter (where {name} > {low!r})", y[x > low].mean()
        yield f"corr({name}, {y_name})", float(np.corrcoef(x, y)[0, 1])


@pytest.mark.parametrize("name", list(TABLES))
def test_intervals_hold(seeded: None, dataset_path: Path, name: str) -> None:
    every = dps.Schema.load(dataset_path / "schemas" / f"{name}.toml")
    schema = dps.Schema(tuple(every.column(column) for column in TABLES[name]), every.rows)
    table = pq.read_table(dataset_path / f"{name}.parquet", columns=list(TABLES[name]))
    asked = list(dict(questions(schema, table)).items())
    held, scaled = [], []
    for _ in range(2):
        view = released(schema, table)
        [row] = view.sql(f"select {', '.join(text for text, _ in asked)} from sketch").rows
        for cell, (_, truth) in zip(row, asked, strict=True):
            low, high = cell.interval(0.95)
            held.append(low <= truth <= high)
            scaled.append((cell.value - truth) / cell.stderr)
    assert len(held) >= 80
    assert np.mean(held) > 0.92
    assert np.median(np.abs(scaled)) > 0.1  # with errors many times as wide it would not be


def test_skin(seeded: None, dataset_path: Path) -> None:
    every = dps.Schema.load(dataset_path / "schemas" / "skin.toml")
    schema = dps.Schema(tuple(every.column(column) for column in TABLES["skin"]), every.rows)
    table = pq.read_table(dataset_path / "skin.parquet", columns=list(TABLES["skin"]))
    data: pd.DataFrame = table.to_pandas()
    found = released(schema, table).corr(["blue", "green"])
    assert found.value[0, 1] == pytest.approx(data["blue"].corr(data["green"]), abs=0.01)
    assert found.stderr[0, 1] < 0.02


def test_a_threshold_just_below_a_shared_value_is_uncertain(seeded: None) -> None:
    """A third of the records have the value at the end of a cell, and none are in the cells around."""
    x = np.concatenate([np.random.default_rng(4).uniform(115, 120, 20_000), np.full(10_000, 120.0)])
    columns = {"x": {"kind": "number", "lower": 60, "upper": 140}, "y": SQUARE["y"]}
    schema = dps.Schema.from_dict({"privacy": {"rows": 30_000}, "columns": columns})
    grid = dps.Grid(("x", "y"), rows=5, width=4096, levels=(3,))
    parts = [dps.Part(dps.Count(), 0.1), dps.Part(grid, 0.9)]
    low, high = released(schema, pa.table({"x": x, "y": x / 200}), parts).fraction("x <= 119.99").interval()
    assert low <= (x <= 119.99).mean() <= high


@pytest.mark.parametrize("condition", ["x >= 120", "x < 120", "x >= 120 and y < 0.9"])
def test_a_threshold_at_a_shared_value_that_no_level_has_is_uncertain(seeded: None, condition: str) -> None:
    """The nearest level to 120 lies just below it, at the end of a cell: that of a ninth of the records."""
    x = np.concatenate([np.random.default_rng(4).uniform(100, 140, 40_000), np.full(5_000, 120.0)])
    columns = {"x": {"kind": "number", "lower": 0, "upper": 240.005}, "y": SQUARE["y"]}
    schema = dps.Schema.from_dict({"privacy": {"rows": 45_000}, "columns": columns})
    own = schema.column("x")
    assert own.values_of(own.codes_of(levels_at(own, np.array([120.0]))))[0] < 120, "the example is too easy"
    table = pa.table({"x": x, "y": x / 200})
    parts = [dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(("x", "y"), width=1 << 14, levels=(3, 4, 5, 6, 7)), 0.9)]
    answer = released(schema, table, parts).fraction(condition)
    low, high = answer.interval()
    assert low <= len(table.to_pandas().query(condition)) / 45_000 <= high
    assert answer.stderr < 0.2


def test_thresholds_elsewhere_are_no_less_certain(seeded: None) -> None:
    """A shared value widens the errors of thresholds in its own cell, not of those in other cells."""
    x = np.concatenate([np.random.default_rng(4).uniform(100, 140, 40_000), np.full(5_000, 120.0)])
    columns = {"x": {"kind": "number", "lower": 0, "upper": 240.005}, "y": SQUARE["y"]}
    schema = dps.Schema.from_dict({"privacy": {"rows": 45_000}, "columns": columns})
    parts = [dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(("x", "y"), width=1 << 14, levels=(3, 4, 5, 6, 7)), 0.9)]
    view = released(schema, pa.table({"x": x, "y": x / 200}), parts)
    assert 3 * view.fraction("x >= 131").stderr < view.fraction("x >= 119").stderr
