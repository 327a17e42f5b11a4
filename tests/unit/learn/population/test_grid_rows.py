"""Rows and densities from releases with grids."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from conftest import MIXED, mixed_table
from dpsketch.errors import QueryError
from dpsketch.learn.population.grid_population import GridPopulation
from dpsketch.learn.population.race_rejection import KernelRows
from dpsketch.learn.population.weighted_rows import PointPopulation

COLUMNS = ("age", "sex", "height", "joined")
SQUARE = {"privacy": {"rows": 20_000}, "columns": {name: {"kind": "number", "lower": 0, "upper": 1} for name in "xyz"}}


def released(facts: dict, table: pa.Table, parts: list[dps.Part], epsilon: float = 1.0) -> dps.View:
    raw = dps.accumulate(table, dps.Schema.from_dict(facts), dps.Recipe(parts, rows=table.num_rows))
    return dps.View(dps.release(raw, dps.Budget(epsilon), dps.Ledger("sqlite://"), "made up"))


@pytest.fixture
def mixed(seeded: None) -> dps.View:
    grid = dps.Grid(COLUMNS, width=1 << 16, rows=1, levels=(1, 2, 3, 4))
    return released(MIXED, mixed_table(20_000), [dps.Part(dps.Count(), 0.1), dps.Part(grid, 0.9)], 5.0)


@pytest.fixture
def clusters(rng: np.random.Generator) -> pa.Table:
    centres = np.array([[0.2, 0.3, 0.7], [0.8, 0.6, 0.4]])[rng.integers(0, 2, 20_000)]
    return pa.table(dict(zip("xyz", np.clip(rng.normal(centres, 0.03), 0, 1).T, strict=True)))


def near(rows: pa.Table) -> float:
    """The share of rows in the clusters."""
    points = np.stack([rows[name].to_numpy() for name in "xyz"], axis=1)
    centres = np.array([[0.2, 0.3, 0.7], [0.8, 0.6, 0.4]])
    return float((np.abs(points[:, None] - centres).max(axis=2) < 0.15).any(axis=1).mean())


def test_rows_obey_the_schema(mixed: dps.View) -> None:
    rows = mixed.sample(20_000)
    assert rows.schema.types == [pa.int64(), pa.float64(), pa.string(), pa.timestamp("us", tz="UTC")]
    assert rows.column_names == ["age", "height", "sex", "joined"]  # in the schema's order
    assert 0 <= pc.min(rows["age"]).as_py() <= pc.max(rows["age"]).as_py() <= 120
    assert 1.0 <= pc.min(rows["height"]).as_py() <= pc.max(rows["height"]).as_py() <= 2.5
    assert rows["age"].null_count == pytest.approx(2000, abs=300)
    exact = mixed_table(20_000)
    assert pc.mean(rows["height"]).as_py() == pytest.approx(
        np.clip(exact["height"].to_numpy(), 1, 2.5).mean(), abs=0.02
    )
    for label in ("Female", "Male", "other"):
        assert pc.mean(pc.equal(rows["sex"], label)).as_py() == pytest.approx(1 / 3, abs=0.03)
    assert mixed.sample(50, seed=3).equals(mixed.sample(50, seed=3))
    assert not mixed.sample(50, seed=3).equals(mixed.sample(50, seed=4))


def test_a_column_without_missing_cells_has_none_in_its_rows(mixed: dps.View, seeded: None, clusters: pa.Table) -> None:
    rows = mixed.sample(20_000)
    assert [rows[name].null_count > 0 for name in rows.column_names] == [True, False, False, False]
    few = pa.table({"x": [None] * 100 + clusters["x"].to_pylist()[100:], "y": clusters["y"], "z": [0.1] * 20_000})
    view = released(SQUARE, few, [dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(None, 1, 1 << 14, (3,)), 0.9)])
    assert view.sample(20_000)["x"].null_count == pytest.approx(100, abs=60)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("method", ["cells", "heap"])
def test_cells_of_missing_values_that_share_heavy_counters_stay_empty(
    seeded: None, rng: np.random.Generator, rows: int, method: str
) -> None:
    """One level, so that no other says which cell is heavy: rows then had 3 % of missing values that no record has."""
    table = pa.table({name: np.clip(rng.normal(0.5, 0.15, 200_000), 0, 1) for name in "xyz"})
    view = released(SQUARE, table, [dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(None, rows, 1 << 16, (5,)), 0.9)])
    drawn = view.sample(20_000, method=method)
    assert sum(drawn[name].null_count for name in "xyz") == 0


def test_cells_of_missing_values_are_kept_where_there_are_some(seeded: None, rng: np.random.Generator) -> None:
    x = np.where(rng.random(50_000) < 0.05, np.nan, rng.normal(0.5, 0.15, 50_000))
    table = pa.table({"x": pa.array(x, from_pandas=True), "y": rng.random(50_000), "z": rng.random(50_000)})
    view = released(SQUARE, table, [dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(None, 5, 1 << 15, (3,)), 0.9)])
    assert view.sample(20_000)["x"].null_count == pytest.approx(1000, abs=150)


def test_models_learn_from_the_cells(mixed: dps.View) -> None:
    population = mixed.population
    assert isinstance(population, GridPopulation)
    fit, refit = (population.points(model, 4000).frame.values("height") for model in (0, 1))
    assert abs(np.nanmean(fit) - np.nanmean(refit)) < 0.05
    assert not np.array_equal(fit, refit)
    assert 0 < population.noise < 0.01


def test_sixteen_levels_and_several_parts(seeded: None, clusters: pa.Table) -> None:
    """Levels of two parts are searched together; the finest cells are single values."""
    grids = [dps.Grid(("x", "y"), 1, 1 << 14, levels) for levels in (tuple(range(1, 9)), tuple(range(9, 17)))]
    view = released(SQUARE, clusters, [dps.Part(dps.Count(), 0.1), *(dps.Part(grid, 0.45) for grid in grids)], 20.0)
    rows = view.sample(5000)
    for name in "xy":
        assert pc.mean(rows[name]).as_py() == pytest.approx(clusters[name].to_numpy().mean(), abs=0.02)
    rows = rows.filter(pc.and_(pc.is_valid(rows["x"]), pc.is_valid(rows["y"])))
    assert rows.num_rows > 4900
    assert np.corrcoef(rows["x"], rows["y"])[0, 1] > 0.9


@pytest.mark.parametrize("recovery", ["mean", "median"])
@pytest.mark.parametrize("method", ["cells", "heap"])
def test_every_way_finds_the_clusters(seeded: None, clusters: pa.Table, method: str, recovery: str) -> None:
    grid = dps.Grid(("x", "y", "z"), 3, 1 << 15, (3, 4))
    view = released(SQUARE, clusters, [dps.Part(grid, 1.0)], 4.0)
    model = dps.GridDensity(method, recovery=recovery, heavy=50).fit(view)
    assert near(model.sample(5000)) > (0.9 if method == "cells" else 0.8)
    assert near(view.sample(5000, method=method)) > (0.9 if method == "cells" else 0.5)


@pytest.mark.parametrize("method", ["cells", "heap", "sketch", "normalised"])
def test_densities_and_saved_models(seeded: None, clusters: pa.Table, method: str) -> None:
    grid = dps.Grid(("x", "y"), 1, 1 << 14, (3, 4, 5))
    view = released(SQUARE, clusters, [dps.Part(dps.Count(), 0.1), dps.Part(grid, 0.9)])
    model = dps.GridDensity(method, heavy=200).fit(view)
    grid_points = np.stack(np.meshgrid(*[(np.arange(32) + 0.5) / 32] * 2, indexing="ij")).reshape(2, -1)
    answer = model.density({"x": grid_points[0], "y": grid_points[1]})
    shared = method in ("sketch", "normalised")  # counters, that is, with heavy cells
    # The integral. Noise adds records to a heap, and its densities are not lowered for that.
    assert answer.value.mean() == pytest.approx(1.0, abs=0.2 if shared else 0.1 if method == "heap" else 0.02)
    exact = np.histogram2d(clusters["x"], clusters["y"], 32, [[0, 1]] * 2)[0].ravel() / 20_000 * 1024
    assert np.abs(answer.value - exact)[exact > 5].mean() < (3.0 if shared else 1.5)
    assert (answer.stderr > 0).all()
    assert shared == bool((answer.value < 0).any())
    facts, arrays = model.to_saved()
    again = dps.GridDensity.from_saved(json.loads(json.dumps(facts)), arrays).density(grid_points.T)
    assert np.array_equal(again.value, answer.value)
    assert np.array_equal(again.stderr, answer.stderr)
    scores = model.score_samples(grid_points.T)
    assert np.array_equal(np.isfinite(scores), answer.value > 0)


def test_standard_errors_are_the_size_of_errors(seeded: None, rng: np.random.Generator) -> None:
    """f_C of 1024 cells; with half the noise assumed they would not be."""
    table = pa.table({name: rng.random(5000) for name in "xyz"})
    view = released(SQUARE, table, [dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(("x", "y"), 1, 1 << 10, (5,)), 0.9)])
    points = np.stack(np.meshgrid(*[(np.arange(32) + 0.5) / 32] * 2, indexing="ij")).reshape(2, -1)
    answer = dps.GridDensity("sketch").fit(view).density(points.T)
    exact = np.histogram2d(table["x"], table["y"], 32, [[0, 1]] * 2)[0].ravel() / 5000 * 1024
    assert 0.85 < np.sqrt(np.mean(((answer.value - exact) / answer.stderr) ** 2)) < 1.15


def test_densities_of_labels_and_missing_cells_count_one(mixed: dps.View) -> None:
    ages = [None, 30, 31, 200]
    rest = {"sex": ["Male"] * 4, "height": [1.7] * 4, "joined": [np.datetime64("2022-01-01")] * 4}
    found = dps.GridDensity("cells").fit(mixed).density({"age": ages, **rest}).value
    assert found[1] == found[2]
    assert found[0] > 3 * found[1]  # a tenth of the rows in one value, not spread over some ages
    assert found.shape == (4,)


def test_what_cannot_be_asked(mixed: dps.View, clusters: pa.Table) -> None:
    for call, message in [
        (lambda: mixed.sample(10, method="best"), "method must be one of auto, cells, heap, rejection"),
        (lambda: mixed.sample(10, method="rejection"), "no RACE part"),
        (lambda: mixed.sample(10, heavy=5), "heavy is the number of cells of a heap"),
        (lambda: mixed.sample(10, method="heap", heavy=0), "heavy must be"),
        (lambda: dps.GridDensity("f_C").fit(mixed), "method must be one of"),
        (lambda: dps.GridDensity(recovery="mode").fit(mixed), "recovery must be one of"),
        (lambda: dps.GridDensity(heavy=0).fit(mixed), "heavy must be"),
        (lambda: dps.GridDensity("heap", level=7).fit(mixed), "no level 7"),
        (lambda: dps.GridDensity().density([[1.0]]), "not fitted"),
        (lambda: dps.GridDensity("sketch").fit(mixed).sample(10), "is not a distribution over cells"),
        (lambda: dps.GridDensity("sketch").fit(mixed).density([[1.0]]), "X must have 4 columns"),
    ]:
        with pytest.raises(QueryError, match=message):
            call()
    counts = released(SQUARE, clusters, [dps.Part(dps.Count(), 1.0)])
    with pytest.raises(QueryError, match="holds no grid"):
        dps.GridDensity().fit(counts)


def test_a_grid_too_fine_to_start_from_is_left_to_the_regression(seeded: None, clusters: pa.Table) -> None:
    view = released(
        SQUARE, clusters, [dps.Part(dps.Count(), 0.1), dps.Part(dps.Grid(("x", "y", "z"), 1, 1 << 10, (8,)), 0.9)]
    )
    with pytest.raises(QueryError, match="hold a coarser level"):
        view.sample(10, method="cells")
    assert isinstance(view.population, PointPopulation)


def test_rejection_finds_the_clusters(seeded: None, clusters: pa.Table) -> None:
    race = dps.Race(("x", "y", "z"), rows=20, width=1 << 12, hash=dps.Euclidean(bandwidth=0.1, power=3))
    chosen = [dps.Part(dps.Levels(), 0.1), dps.Part(dps.AdaptiveMarginals(), 0.2)]
    drawn = []
    for others in ([], [dps.Part(dps.Marginals(), 0.3)], chosen):
        view = released(SQUARE, clusters, [dps.Part(race, 0.7), *others])
        rows = view.sample(300, method="rejection")
        assert near(rows) > 0.8
        source = view._sources.rows_by("auto")
        assert isinstance(source, KernelRows)
        codes, _ = source._proposed(10_000, np.random.default_rng(1))
        drawn.append(float(np.std(codes[0])))
    uniform, *others = drawn
    assert uniform == pytest.approx(2**16 / np.sqrt(12), rel=0.05)
    assert others == pytest.approx([0.3 * 2**16] * 2, rel=0.1), "proposals follow one-way tables of every kind"


@pytest.mark.parametrize(("columns", "power"), [("xy", 3), ("xyz", 1)])
def test_wide_kernels_are_left_to_the_regression(seeded: None, clusters: pa.Table, columns: str, power: int) -> None:
    race = dps.Race(tuple(columns), rows=20, width=1 << 12, hash=dps.Euclidean(bandwidth=0.1, power=power))
    assert isinstance(released(SQUARE, clusters, [dps.Part(race, 1.0)])._sources.rows_by("auto"), PointPopulation)


def distance(schema: dps.Schema, one: pa.Table, two: pa.Table) -> float:
    """Mean total variation distance of all tables of two columns with 32 bins each; missing cells are a bin."""
    bins = []
    for table in (one, two):
        own = []
        for column in schema.columns:
            share = (table[column.name].to_numpy().astype(float) - column.lower) / (column.upper - column.lower)
            own.append(np.where(np.isnan(share), 32, np.clip(np.nan_to_num(share) * 32, 0, 31).astype(int)))
        bins.append(own)
    found = []
    for i, j in combinations(range(len(schema.columns)), 2):
        shares = [np.bincount(own[i] * 33 + own[j], minlength=33 * 33) / len(own[i]) for own in bins]
        found.append(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("name", "columns", "bound"),
    [
        ("sf_cabs_2p8m", ["lat_e5", "lon_e5"], 0.007),
        ("skin", ["blue", "green", "red"], 0.025),
        ("california_housing", ["longitude", "latitude", "median_income"], 0.09),
    ],
)
def test_real_tables(seeded: None, dataset_path: Path, name: str, columns: list[str], bound: float) -> None:
    every = dps.Schema.load(dataset_path / "schemas" / f"{name}.toml")
    schema = dps.Schema(tuple(every.column(column) for column in columns), every.rows)
    table, budget = pq.read_table(dataset_path / f"{name}.parquet", columns=columns), dps.Budget(1.0)
    raw = dps.accumulate(table, schema, dps.Recipe.synthetic(schema, budget=budget))
    view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), name))
    assert distance(schema, table, view.sample(200_000)) < bound
    assert distance(schema, table, view.sample(200_000, method="heap")) > 2 * bound  # the paper's way is not enough
