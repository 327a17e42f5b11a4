"""Cells, splits and projections against what maps and plain loops say."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.learn.population.grids.grid_cells import ColumnCells, GridCells
from dpsketch.learn.population.grids.heap import heaviest
from dpsketch.learn.population.grids.heavy_cells import search
from dpsketch.maps.tables.grid import Grid
from dpsketch.numerics.nonnegative import project_to_simplex
from dpsketch.numerics.simplex import project_groups
from tests_support import MIXED_SCHEMA

LEVELS = (1, 3, 4, 9)


@pytest.mark.parametrize("name", [column.name for column in MIXED_SCHEMA.scalars])
def test_cells_are_those_that_records_can_be_in(name: str) -> None:
    column = MIXED_SCHEMA.column(name)
    cells = ColumnCells(column, LEVELS)
    codes = np.full((len(MIXED_SCHEMA.scalars), column.levels + 1), -32768, np.int16)
    codes[MIXED_SCHEMA.index(name)] = column.codes_of(np.append(np.arange(column.levels), -1))
    bound = Grid((name,), levels=LEVELS).bind(MIXED_SCHEMA)
    for position, level in enumerate(LEVELS):
        numbers, counts = np.unique(bound.cells(codes, level)[0], return_counts=True)
        assert np.array_equal(cells.numbers[position], numbers)
        assert np.array_equal(cells.values(position), counts)


def test_a_category_has_as_many_cells_as_labels() -> None:
    assert [ColumnCells(MIXED_SCHEMA.column("sex"), LEVELS).count(position) for position in range(4)] == [3, 4, 4, 4]


def test_a_replaced_missing_value_has_no_cell() -> None:
    column = dps.Schema.from_dict(
        {"columns": {"x": {"kind": "number", "lower": 0, "upper": 1, "missing": 0.5}}}
    ).column("x")
    assert ColumnCells(column, (3,)).count(0) == 8


@pytest.mark.parametrize("name", [column.name for column in MIXED_SCHEMA.scalars])
def test_drawn_values_stay_in_their_cell_and_volumes_fill_the_bounds(name: str, rng: np.random.Generator) -> None:
    column, index = MIXED_SCHEMA.column(name), MIXED_SCHEMA.index(name)
    cells, bound = ColumnCells(column, LEVELS), Grid((name,), levels=LEVELS).bind(MIXED_SCHEMA)
    for position, level in enumerate(LEVELS):
        ranks = np.repeat(np.arange(cells.count(position)), 20)
        codes = np.full((len(MIXED_SCHEMA.scalars), len(ranks)), -32768, np.int16)
        codes[index] = cells.codes(position, ranks, rng.random(len(ranks)))
        assert np.array_equal(bound.cells(codes, level)[0], cells.numbers[position][ranks])
        low, high = column.values_of(np.array([-32767, 32767]))
        whole = high - low if column.numeric and column.kind != "integer" else float(column.levels)
        whole /= 86_400e6 if column.kind == "datetime" else 1
        assert cells.volumes(position)[:-1].sum() == pytest.approx(whole)
        assert (cells.volumes(position) > 0).all()


def test_splits_are_a_partition() -> None:
    cells = GridCells(MIXED_SCHEMA, ("age", "sex", "height"), LEVELS)
    ranks = cells.every(0)
    for position in range(len(LEVELS) - 2):
        below, parents = cells.split(position, ranks)
        assert below.shape[1] == cells.count(position + 1) == len({tuple(cell) for cell in below.T})
        assert np.array_equal(np.bincount(parents), cells.child_counts(position, ranks))
        assert (np.diff(parents) >= 0).all()
        shift = LEVELS[position + 1] - LEVELS[position]
        numbers, above = cells.numbers(position + 1, below), cells.numbers(position, ranks)[:, parents]
        assert np.array_equal(numbers >> shift, above)
        assert np.array_equal(cells.ranks(position + 1, numbers), below)
        sizes = np.bincount(parents, cells.values(position + 1, below))
        assert np.allclose(sizes, cells.values(position, ranks))
        ranks = below


OFFSETS = {"height": 64, "age": 2, "sex": 1}


@pytest.mark.parametrize("levels", [(1, 3, 4, 6), (6,), (2, 3, 4)])
def test_columns_with_other_numbers_of_cells_split_alike(levels: tuple[int, ...], rng: np.random.Generator) -> None:
    """As `BoundGrid` counts them: by plain loops over the bits of codes."""
    description = Grid(("age", "sex", "height"), levels=levels, cells=OFFSETS)
    bound = description.bind(MIXED_SCHEMA)
    cells = GridCells(MIXED_SCHEMA, bound.columns, levels, bound.offsets)
    codes = np.stack(
        [column.codes_of(rng.integers(-1, column.levels, 300)).astype(np.int16) for column in MIXED_SCHEMA.scalars]
    )
    for position, level in enumerate(levels):
        expected = []
        for name in bound.columns:
            finest = OFFSETS[name].bit_length() - 1
            own = min(max(finest - (levels[-1] - level), 0), 16)
            places = (int(code) + 32768 for code in codes[MIXED_SCHEMA.index(name)])
            expected.append([1 << own if place == 0 else place >> (16 - own) for place in places])
        numbers = bound.cells(codes, level)
        assert numbers.tolist() == expected
        assert np.array_equal(cells.numbers(position, cells.ranks(position, numbers)), numbers)
    for position in range(len(levels) - 1):
        every = cells.every(position)
        below, parents = cells.split(position, every)
        assert below.shape[1] == cells.count(position + 1) == len({tuple(cell) for cell in below.T})
        sizes = np.bincount(parents, cells.volumes(position + 1, below))
        assert np.allclose(sizes, cells.volumes(position, every))


def test_equal_levels_stay_what_they_were(rng: np.random.Generator) -> None:
    """Naming the number of cells that a column has anyway changes no counter, and its absence no fingerprint."""
    plain, named = (
        Grid(("age", "sex"), 3, 64, (2, 4), cells=cells).bind(MIXED_SCHEMA) for cells in (None, {"age": 16})
    )
    codes = rng.integers(-32768, 32768, (len(MIXED_SCHEMA.scalars), 500)).astype(np.int16)
    assert (plain.cells(codes, 4) == named.cells(codes, 4)).all()
    assert "cells" not in plain.description.to_dict()
    assert plain.description == Grid(("age", "sex"), 3, 64, (2, 4), cells={})


def test_groups_are_projected_one_by_one(rng: np.random.Generator) -> None:
    groups = rng.integers(0, 50, 2000)
    groups[:50] = np.arange(50)
    values, totals = rng.normal(0, 5, 2000), rng.uniform(0.1, 40, 50)
    totals[7] = 0.0
    found = project_groups(values, groups, totals)
    assert np.allclose(np.bincount(groups, found), totals)
    assert (found[groups == 7] == 0).all()
    for group in (0, 3, 49):
        own = groups == group
        assert np.allclose(found[own], totals[group] * project_to_simplex(values[own] / totals[group]))


PLANE = dps.Schema.from_dict(
    {"columns": {name: {"kind": "number", "lower": 0, "upper": 1, "missing": 0.5} for name in "xy"}}
)


class Level:
    """The part of a table of counters that the search asks, without hashes."""

    rows = 3

    def __init__(self, table: np.ndarray, noise: float) -> None:
        self.table, self.noise = table, noise

    def separated(self, numbers: np.ndarray, recovery: str) -> tuple[np.ndarray, np.ndarray]:
        found = self.table[numbers[0], numbers[1]]
        return found, np.full(len(found), self.noise**2)

    def most(self, numbers: np.ndarray) -> np.ndarray:
        return self.table[numbers[0], numbers[1]]

    def variance(self, recovery: str) -> float:
        return self.noise**2


class Counts:
    """Exact numbers of given records in cells, with noise of each level; and false ones where planted."""

    def __init__(self, records: np.ndarray, levels: tuple[int, ...], noise: float, seed: int = 5) -> None:
        self.cells = GridCells(PLANE, ("x", "y"), levels)
        rng = np.random.default_rng(seed)
        self.tables = [np.zeros((1 << level, 1 << level)) for level in levels]
        for table, level in zip(self.tables, levels, strict=True):
            np.add.at(table, tuple(np.minimum((records * (1 << level)).astype(int), (1 << level) - 1)), 1.0)
            table += rng.laplace(0, noise / np.sqrt(2), table.shape) if noise else 0.0

    def masses(self, noise: float, total: float | None = None, smooth: bool = False) -> np.ndarray:
        """Of the finest cells: what cells that were not split hold is spread evenly."""
        finest = self.cells.levels[-1]
        found = np.zeros((1 << finest, 1 << finest))
        levels = [Level(table, noise) for table in self.tables]
        for leaf in search(self.cells, levels, "mean", total, smooth=smooth):
            size = 1 << (finest - self.cells.levels[leaf.position])
            for (x, y), mass in zip(leaf.ranks.T.tolist(), leaf.masses, strict=True):
                found[x * size : (x + 1) * size, y * size : (y + 1) * size] += mass / size**2
        return found


def planted(rng: np.random.Generator, rows: int = 4000) -> np.ndarray:
    return np.clip(rng.normal(0.3, 0.02, (2, rows)), 0, 0.999)


def test_without_noise_the_search_finds_every_record(rng: np.random.Generator) -> None:
    counts = Counts(planted(rng), (3, 4, 6), 0.0)
    found = counts.masses(0.0)
    assert found.sum() == pytest.approx(4000)
    assert np.abs(found - counts.tables[-1]).sum() < 0.02 * 4000  # cells of a record or less are not split


def test_noise_gets_no_mass_where_clipping_gives_it_most(rng: np.random.Generator) -> None:
    records = planted(rng)
    counts = Counts(records, (3, 4, 5, 6, 7), 20.0)
    found = counts.masses(20.0, total=4000.0)
    exact = Counts(records, (7,), 0.0).tables[0]
    assert found.sum() == pytest.approx(4000, rel=0.02)
    assert 0.5 * np.abs(found / found.sum() - exact / 4000).sum() < 0.35
    clipped = np.maximum(counts.tables[-1], 0)
    assert 0.5 * np.abs(clipped / clipped.sum() - exact / 4000).sum() > 0.9


def test_smooth_masses_are_nearer_in_single_cells(rng: np.random.Generator) -> None:
    records = np.clip(rng.normal(0.5, 0.15, (2, 20_000)), 0, 0.999)
    counts = Counts(records, (3, 4, 5, 6), 12.0)
    exact = Counts(records, (6,), 0.0).tables[0]
    plain, smooth = (np.abs(counts.masses(12.0, 20_000.0, smooth) - exact).sum() for smooth in (False, True))
    assert smooth < 0.8 * plain


def test_a_cell_that_shares_a_heavy_counter_is_found_out(rng: np.random.Generator) -> None:
    """At one level an empty cell seems to hold, or to lack, as many records as there are."""
    records = planted(rng)
    for false in (4000.0, -4000.0):
        counts = Counts(records, (3, 4, 5, 6), 2.0)
        counts.tables[1][12, 12] += false
        found = counts.masses(2.0, total=4000.0)
        assert found[48:52, 48:52].sum() < 40
        assert found[16:24, 16:24].sum() > 3800


def test_the_heap_keeps_the_heaviest(rng: np.random.Generator) -> None:
    counts = Counts(rng.random((2, 3000)), (5,), 3.0)
    found = heaviest(counts.cells, Level(counts.tables[0], 3.0), 0, 100, "mean", [False, False])
    assert np.allclose(found.masses, np.sort(counts.tables[0].ravel())[::-1][:100])
    assert np.array_equal(counts.tables[0][tuple(found.ranks)], found.masses)
