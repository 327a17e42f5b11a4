"""Every map goes all the way: a recipe as text, sums that merge, a raw file, a release and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED, mixed_table
from dpsketch.maps.base import FeatureMap
from map_examples import EXAMPLES, SCHEMA

ROWS = 400
FIRST_OF_A_KIND = list({type(example): example for example in reversed(EXAMPLES)}.values())


def people() -> pa.Table:
    rng = np.random.default_rng(SEED)
    friends = [rng.choice(30, 3, replace=False).tolist() for _ in range(ROWS)]
    return mixed_table(ROWS).append_column("friends", pa.array(friends))


@pytest.mark.parametrize("example", FIRST_OF_A_KIND, ids=repr)
def test_a_map_is_sketched_merged_saved_and_released(example: FeatureMap, tmp_path: Path) -> None:
    parts = [dps.Part(example, 0.5), dps.Part(dps.Count(), 0.1)]
    if isinstance(example, dps.AdaptivePairs) or (isinstance(example, dps.Triples) and example.pool):
        parts.append(dps.Part(dps.Marginals(bins=example.bins), 0.4))
    if isinstance(example, dps.Levels):
        parts.append(dps.Part(dps.AdaptiveMarginals(bins=example.bins), 0.4))
    recipe = dps.Recipe.from_dict(dps.Recipe(parts).to_dict())
    assert recipe.parts[0].map == example
    table = people()
    halves = [dps.accumulate(table.slice(start, ROWS // 2), SCHEMA, recipe) for start in (0, ROWS // 2)]
    merged, whole = halves[0].merge(halves[1]), dps.accumulate(table, SCHEMA, recipe)
    if not whole.parts[0].map.secret:
        assert all((one.sums == two.sums).all() for one, two in zip(merged.parts, whole.parts, strict=True))
    merged.save(tmp_path / "it.raw")
    again = dps.RawSketch.load(tmp_path / "it.raw")
    assert all((one.sums == two.sums).all() for one, two in zip(merged.parts, again.parts, strict=True))
    ledger = dps.Ledger("sqlite://")
    released = dps.release(again, dps.Budget(1.0), ledger, "people")
    released.save(tmp_path / "it.sketch")
    found = dps.ReleasedSketch.load(tmp_path / "it.sketch")
    assert [each.fingerprint() for each in found.maps] == [each.fingerprint() for each in released.maps]
    assert all((one == two).all() for one, two in zip(found.sums, released.sums, strict=True))
    assert float(dps.View(found).rows().value) == pytest.approx(ROWS, abs=400)
