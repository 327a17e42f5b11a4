"""Sketches merge where they count the same, whatever their descriptions say to readers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import MergeError

PINNED = Path(__file__).parents[2] / "pinned" / "two-density-pure.sketch"
SCHEMA = dps.Schema.from_dict(
    {"privacy": {"rows": 100}, "columns": {name: {"kind": "number", "lower": -1, "upper": 1} for name in "xy"}}
)


def sketched(feature_map: dps.Histogram, seed: int, share: float = 1.0) -> dps.RawSketch:
    random = np.random.default_rng(seed)
    table = pa.table({name: random.uniform(-1, 1, 100) for name in "xy"})
    return dps.accumulate(table, SCHEMA, dps.Recipe([dps.Part(feature_map, share)]))


def test_a_density_table_of_an_earlier_version_merges() -> None:
    """It has no kernel of its own, and those of today have one: both hold the same counts."""
    old = dps.ReleasedSketch.load(PINNED)
    today = dps.Recipe.density(old.schema, rows=old.schema.rows, budget=dps.Budget(1.0))
    [count, table] = today.parts
    kernel = getattr(table.map, "kernel", None)
    assert kernel is not None, "the recipe of today says which kernel is meant"
    [_, own] = old.recipe.parts
    assert isinstance(own.map, dps.Histogram)
    recipe = dps.Recipe([count, replace(own, map=replace(own.map, kernel=kernel))], rows=today.rows)
    random = np.random.default_rng(5)
    raw = dps.accumulate(pa.table({name: random.uniform(-1, 1, 500) for name in "xy"}), old.schema, recipe)
    new = dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a")
    one, two = old.merge(new), new.merge(old)
    assert one.recipe == two.recipe == recipe, "the kernel stays"
    assert all((mine == theirs).all() for mine, theirs in zip(one.sums, two.sums, strict=True))
    assert dps.KernelDensity().fit(dps.View(one)).density(np.zeros((1, 2))).value[0] > 0


@pytest.mark.parametrize("merged_first", [True, False])
def test_a_kernel_changes_no_count(tmp_path: Path, merged_first: bool) -> None:
    plain, kernel = dps.Histogram(ways=2, bins=4), dps.Histogram(ways=2, bins=4, kernel=dps.Euclidean(0.1))
    parts = [sketched(each, seed) for seed, each in enumerate([plain, kernel, plain])]
    both = parts[0].merge(parts[1]).merge(parts[2]) if merged_first else parts[2].merge(parts[0]).merge(parts[1])
    assert both.recipe.parts[0].map == kernel
    assert both.parts[0].map.description == kernel
    assert (both.parts[0].sums == sum(part.parts[0].sums for part in parts)).all()
    both.save(tmp_path / "both.raw")
    assert dps.RawSketch.load(tmp_path / "both.raw").recipe == both.recipe


@pytest.mark.parametrize(
    "other",
    [
        dps.Histogram(ways=2, bins=4, kernel=dps.Euclidean(0.2)),
        dps.Histogram(ways=2, bins=5),
        dps.Histogram(ways=2, bins=4, edges={"x": [0.5]}),
        dps.Histogram(ways=1, bins=4),
    ],
    ids=["another kernel", "other bins", "edges", "one column"],
)
def test_what_differs_does_not_merge(other: dps.Histogram) -> None:
    mine = sketched(dps.Histogram(ways=2, bins=4, kernel=dps.Euclidean(0.1)), 1)
    for one, two in ((mine, sketched(other, 2)), (sketched(other, 2), mine)):
        with pytest.raises(MergeError, match="different recipes\nHint: use the same recipe, sizes and seeds"):
            one.merge(two)


def test_other_shares_do_not_merge() -> None:
    one, two = sketched(dps.Histogram(bins=4), 1), sketched(dps.Histogram(bins=4, kernel=dps.Euclidean(0.1)), 2, 0.5)
    with pytest.raises(MergeError, match="different recipes"):
        one.merge(two)
