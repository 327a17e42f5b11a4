from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import BudgetError, FileError, MergeError, RecipeError
from dpsketch.maps.base import Relation
from dpsketch.sketch.statement import statement_text


@pytest.fixture
def raw(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> dps.RawSketch:
    return dps.accumulate(table, schema, recipe)


def released(raw: dps.RawSketch, epsilon: float = 1.0) -> dps.ReleasedSketch:
    return dps.release(raw, dps.Budget(epsilon), dps.Ledger("sqlite://"), "a")


def test_scales_are_exact(raw: dps.RawSketch) -> None:
    sketch = released(raw, 0.3)
    for part, entry in zip(sketch.parts, raw.recipe.parts, strict=True):
        l1 = part.map.sensitivity(Relation.ADD_REMOVE).l1
        assert part.noise_scales == (Fraction(l1) / (Fraction(repr(entry.share)) * Fraction(3, 10)),)
    assert sum(Fraction(part["epsilon"][0]) for part in sketch.statement["parts"]) == Fraction(3, 10)


def test_noise_is_fresh_and_of_the_stated_size(raw: dps.RawSketch) -> None:
    one, two = released(raw), released(raw)
    for exact, first, second in zip(raw.parts, one.parts, two.parts, strict=True):
        assert first.map.size == 1 or (first.sums != second.sums).any()
        if first.map.size > 50:
            spread = np.std(first.sums - exact.sums)
            assert 0.6 < spread / math.sqrt(first.noise_variance) < 1.6


def test_units_scale_the_noise() -> None:
    facts = {"privacy": {"rows": 10, "unit": "id", "max_rows_per_unit": 5}, "columns": {"x": {"kind": "boolean"}}}
    recipe = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    raw = dps.accumulate(pa.table({"id": [1], "x": [True]}), dps.Schema.from_dict(facts), recipe)
    sketch = released(raw)
    assert sketch.parts[0].noise_scales == (5,)
    assert sketch.statement["unit"] == "id"


def test_released_files_round_trip(raw: dps.RawSketch, tmp_path: Path) -> None:
    sketch = released(raw)
    sketch.save(tmp_path / "a.sketch")
    again = dps.ReleasedSketch.load(tmp_path / "a.sketch")
    assert again.statement == sketch.statement
    assert [p.sums.tolist() for p in again.parts] == [p.sums.tolist() for p in sketch.parts]
    assert again.schema == sketch.schema
    with pytest.raises(FileError, match="exists already"):
        again.save(tmp_path / "a.sketch")
    again.save(tmp_path / "a.sketch", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.sketch"], "no temporary file stays behind"


def test_raw_files_round_trip_and_stay_raw(raw: dps.RawSketch, tmp_path: Path) -> None:
    raw.save(tmp_path / "a.raw")
    again = dps.RawSketch.load(tmp_path / "a.raw")
    assert [p.sums.tolist() for p in again.parts] == [p.sums.tolist() for p in raw.parts]
    with pytest.raises(FileError, match="raw sketch: unreleased and not private"):
        dps.open(tmp_path / "a.raw")
    with pytest.raises(MergeError, match="both sketches hold the same input"):
        raw.merge(again)
    released(raw).save(tmp_path / "a.sketch")
    with pytest.raises(FileError, match="a raw one is needed"):
        dps.RawSketch.load(tmp_path / "a.sketch")


def test_merged_releases_add_sums_and_noise(
    table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path
) -> None:
    one = released(dps.accumulate(table.slice(0, 500), schema, recipe), 1.0)
    two = released(dps.accumulate(table.slice(500), schema, recipe), 0.5)
    both = one.merge(two)
    assert both.parts[0].noise_variance == pytest.approx(one.parts[0].noise_variance + two.parts[0].noise_variance)
    assert (both.parts[3].sums == one.parts[3].sums + two.parts[3].sums).all()
    assert both.statement["epsilon"] == "1"
    assert both.statement["epsilon_of_each_merged_release"] == ["1", "0.5"]
    both.save(tmp_path / "both.sketch")
    assert dps.ReleasedSketch.load(tmp_path / "both.sketch").statement == both.statement
    with pytest.raises(MergeError, match="the same input"):
        both.merge(two)


def test_two_releases_of_one_table_do_not_merge(raw: dps.RawSketch) -> None:
    with pytest.raises(MergeError, match="the same input"):
        released(raw).merge(released(raw))


def test_merging_checks_recipes_and_schemas(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> None:
    one = dps.accumulate(table, schema, recipe)
    seed = dps.Recipe([*recipe.parts[:3], dps.Part(dps.Fourier(size=10, seed=4), 0.5)])
    with pytest.raises(MergeError, match="different recipes"):
        one.merge(dps.accumulate(table, schema, seed))
    facts = schema.to_dict()
    facts["columns"]["age"]["upper"] = 119
    with pytest.raises(MergeError, match="different schemas"):
        one.merge(dps.accumulate(table, dps.Schema.from_dict(facts), recipe))


def test_not_private_releases_are_marked_and_kept_apart(raw: dps.RawSketch, tmp_path: Path) -> None:
    study = dps.release(raw, dps.Budget(math.inf))
    assert [p.sums.tolist() for p in study.parts] == [p.sums.tolist() for p in raw.parts]
    assert study.statement["warning"] == "NOT PRIVATE: the sums are exact"
    assert study.parts[0].noise_variance == 0
    study.save(tmp_path / "study.sketch")
    assert not dps.open(tmp_path / "study.sketch").released.private
    with pytest.raises(BudgetError, match="never enters a ledger"):
        dps.release(raw, dps.Budget(math.inf), dps.Ledger("sqlite://"), "a")
    other = dps.accumulate(pa.table({n: [None] for n in raw.schema.to_dict()["columns"]}), raw.schema, raw.recipe)
    for one, two in (
        (study, released(other)),
        (released(other), study),
        (study, dps.release(other, dps.Budget(math.inf))),
    ):
        with pytest.raises(MergeError, match="NOT PRIVATE does not merge"):
            one.merge(two)


def test_a_private_release_needs_a_ledger(raw: dps.RawSketch) -> None:
    with pytest.raises(BudgetError, match="needs a ledger and the dataset's name"):
        dps.release(raw, dps.Budget(1.0))
    with pytest.raises(BudgetError, match="needs a ledger and the dataset's name"):
        dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"))


def test_overflow_is_refused_before_reading(schema: dps.Schema) -> None:
    recipe = dps.Recipe([dps.Part(dps.Fourier(size=2), 1.0)], rows=10**15)

    def never() -> object:
        raise AssertionError("the data was read")
        yield

    with pytest.raises(RecipeError, match="declared rows do not fit 63 bits"):
        dps.accumulate(never(), schema, recipe)


def test_noise_that_does_not_fit_is_refused_before_anything_is_spent(schema: dps.Schema, table: pa.Table) -> None:
    recipe = dps.Recipe([dps.Part(dps.Fourier(size=200), 1.0)])
    raw = dps.accumulate(table.slice(0, 1), schema, recipe)
    ledger = dps.Ledger("sqlite://")
    with pytest.raises(RecipeError, match="do not fit 63 bits"):
        dps.release(raw, dps.Budget(1e-9), ledger, "a")
    assert ledger.accounts() == ()


def test_the_largest_epsilon_works(raw: dps.RawSketch) -> None:
    sketch = released(raw, 100.0)
    assert "e^100" in statement_text(sketch.statement)
    assert all(part.noise_variance >= 0 for part in sketch.parts)
