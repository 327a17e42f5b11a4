"""Pair tables that a release pools by its own noisy marginals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import mixed_table
from dpsketch.errors import MergeError, RecipeError
from dpsketch.maps.pairs import BoundPairs
from dpsketch.sketch.calibration import noise_variance
from dpsketch.sketch.pooling import column_summaries, pooled_groups

PARTS = [
    dps.Part(dps.Count(), 0.05),
    dps.Part(dps.Pairs(bins=16, pool=True), 0.5),
    dps.Part(dps.Marginals(bins=16), 0.45),
]
RECIPE = dps.Recipe(PARTS)
BUDGETS = [dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.5)]


def sketch(schema: dps.Schema, rows: int = 5000, seed: int = 1) -> dps.RawSketch:
    return dps.accumulate(mixed_table(rows, seed), schema, RECIPE)


def released(raw: dps.RawSketch, budget: dps.Budget = BUDGETS[0]) -> dps.ReleasedSketch:
    return dps.release(raw, budget, dps.Ledger("sqlite://"), "a")


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_groups_follow_from_the_released_numbers(schema: dps.Schema, budget: dps.Budget, tmp_path: Path) -> None:
    """Whoever has the file finds the same groups: they tell nothing beyond it."""
    released(sketch(schema), budget).save(tmp_path / "a.sketch")
    found = dps.ReleasedSketch.load(tmp_path / "a.sketch")
    count, pairs, marginals = found.parts
    assert isinstance(pairs.map, BoundPairs)
    fine = dps.Pairs(bins=16, pool=True).bind(schema)
    variances = [noise_variance(part.noises[0], part.map) for part in (count, marginals)]
    again = pooled_groups(
        fine, pairs.noise_variance, [count.map, marginals.map], [count.sums, marginals.sums], variances
    )
    assert pairs.map.description.groups == again
    assert not pairs.map.description.pool
    assert pairs.map.size < fine.size


def test_the_tables_are_those_of_the_groups_and_noise(schema: dps.Schema) -> None:
    raw = sketch(schema)
    found = released(raw, dps.Budget(50.0))
    pairs = found.parts[1]
    exact = dps.accumulate(mixed_table(5000, 1), schema, dps.Recipe([dps.Part(pairs.map.description, 1.0)])).parts[0]
    off = pairs.sums - exact.sums
    assert 0.5 < np.std(off) / np.sqrt(pairs.noise_variance) < 2
    assert (off != 0).any()


def test_more_rows_or_budget_make_more_groups(schema: dps.Schema) -> None:
    sizes = [released(sketch(schema, 2000), dps.Budget(epsilon)).parts[1].map.size for epsilon in (0.1, 10.0)]
    assert sizes[0] < sizes[1]


def test_a_study_pools_by_exact_marginals(schema: dps.Schema) -> None:
    study = dps.release(sketch(schema), dps.Budget(float("inf")))
    pairs = study.parts[1]
    assert isinstance(pairs.map, BoundPairs)
    assert pairs.map.description.groups is not None
    assert pairs.sums.sum() == 5000 * len(pairs.map.pairs)


def test_raw_sketches_merge_and_releases_do_not(schema: dps.Schema) -> None:
    one, two = sketch(schema, 3000, 1), sketch(schema, 3000, 2)
    both = released(one.merge(two), dps.Budget(10.0))
    assert both.parts[0].sums[0] == pytest.approx(6000, abs=100)
    with pytest.raises(MergeError, match="different recipes"):
        released(one, dps.Budget(0.5)).merge(released(two, dps.Budget(20.0)))


def test_pooling_needs_marginals_of_the_same_cells(schema: dps.Schema) -> None:
    for marginals in ([], [dps.Part(dps.Marginals(bins=8), 0.5)], [dps.Part(dps.Marginals(("age",), bins=16), 0.5)]):
        with pytest.raises(RecipeError, match="pool needs Marginals of the same columns with as many bins"):
            dps.Recipe([dps.Part(dps.Pairs(bins=16, pool=True), 0.5), *marginals]).bind(schema)
    with pytest.raises(RecipeError, match="groups are either given or chosen by the release"):
        dps.Pairs(groups=((0,),), pool=True)
    with pytest.raises(RecipeError, match="pool must be true or false, got 1 instead"):
        dps.Pairs(pool=1)  # type: ignore[arg-type]


def test_summaries_are_the_table_in_units_of_the_bounds(schema: dps.Schema) -> None:
    table = pa.table({"age": [0, 30, 60, 120, None], "height": [1.0, 1.75, 2.5, 2.0, None]})
    columns = [column for column in schema.to_dict()["columns"] if column not in table.column_names]
    for name in columns:
        table = table.append_column(name, pa.nulls(5))
    marginals = dps.Marginals(("age", "height"), bins=10)
    raw = dps.accumulate(table, schema, dps.Recipe([dps.Part(marginals, 1.0)]))
    (part,) = raw.parts
    age, height = column_summaries(part.map, part.sums, 0.0)  # type: ignore[arg-type]
    assert age.counts.sum() == height.counts.sum() == 5
    assert age.counts[[0, -2, -1]].tolist() == [1, 1, 1]
    assert age.centred == pytest.approx(-0.5 - 0.25 + 0 + 0.5, abs=1e-4)
    assert height.centred == pytest.approx(-0.5 + 0 + 0.5 + (2 / 3 - 0.5), abs=1e-4)
    for summary in (age, height):
        assert summary.centres is not None
        assert summary.widths is not None
        assert summary.positions is not None
        means = summary.counts * (summary.centres - 0.5) + summary.positions * summary.widths
        assert means[:-1].sum() == pytest.approx(summary.centred, abs=1e-3)
        assert summary.widths.sum() == pytest.approx(1, abs=1e-4)
