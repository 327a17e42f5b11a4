from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import BudgetError, FileError, LedgerError, MergeError, RecipeError
from dpsketch.privacy.events import Mechanism, Noise
from dpsketch.schema.relation import Relation
from dpsketch.sketch.privacy_statement import statement_text


@pytest.fixture
def raw(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> dps.RawSketch:
    return dps.accumulate(table, schema, recipe)


def released(raw: dps.RawSketch, epsilon: float = 1.0) -> dps.ReleasedSketch:
    return dps.release(raw, dps.Budget(epsilon), dps.Ledger("sqlite://"), "a")


def test_scales_are_exact(raw: dps.RawSketch) -> None:
    sketch = released(raw, 0.3)
    for part, entry in zip(sketch.parts, raw.recipe.parts, strict=True):
        (noise,) = part.noises
        bound = part.map.sensitivity(Relation.ADD_REMOVE).l1
        if noise.mechanism is not Mechanism.LAPLACE:
            bound = part.map.record_body(Relation.ADD_REMOVE).radius
        assert noise.sensitivity == bound
        assert noise.scale == Fraction(bound) / (Fraction(repr(entry.share)) * Fraction(3, 10))
    assert sum(Fraction(part["noise"][0]["epsilon"]) for part in sketch.statement["parts"]) == Fraction(3, 10)


def test_noise_is_fresh_and_of_the_stated_size(raw: dps.RawSketch) -> None:
    one, two = released(raw), released(raw)
    for exact, first, second in zip(raw.parts, one.parts, two.parts, strict=True):
        assert first.map.size == 1 or (first.sums != second.sums).any()
        if first.map.size > 50:
            spread = np.std(first.sums - exact.sums)
            assert 0.3 < spread / math.sqrt(first.noise_variance) < 3  # 51 numbers: wrong once in 10^7 runs


def test_units_scale_the_noise() -> None:
    facts = {"privacy": {"rows": 10, "unit": "id", "max_rows_per_unit": 5}, "columns": {"x": {"kind": "boolean"}}}
    recipe = dps.Recipe([dps.Part(dps.Histogram(), 1.0)])
    raw = dps.accumulate(pa.table({"id": [1], "x": [True]}), dps.Schema.from_dict(facts), recipe)
    sketch = released(raw)
    assert sketch.parts[0].noises == (Noise(Mechanism.LAPLACE, 5, Fraction(5)),)
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
    assert both.statement["budgets"] == [{"epsilon": "1", "delta": "0"}, {"epsilon": "0.5", "delta": "0"}]
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
        dps.release(raw, dps.Budget(1e-9), ledger, "a", "laplace")
    assert ledger.accounts() == ()


def test_the_largest_epsilon_works(raw: dps.RawSketch) -> None:
    sketch = released(raw, 100.0)
    assert "e^100" in statement_text(sketch.statement)
    assert all(part.noise_variance >= 0 for part in sketch.parts)


MOMENTS = dps.Recipe(
    [
        dps.Part(dps.Count(), 0.1),
        dps.Part(dps.SecondMoments(columns=("age",)), 0.2),
        dps.Part(dps.OneBitFourier(size=20), 0.3),
        dps.Part(dps.Fourier(size=20), 0.4),
    ]
)


@pytest.mark.parametrize(
    ("budget", "mechanism"),
    [
        (dps.Budget(1.0), "auto"),
        (dps.Budget(1.0), "laplace"),
        (dps.Budget(1.0, 1e-6), "auto"),
        (dps.Budget(1.0, 1e-6), "gaussian"),
        (dps.Budget(rho=0.25), "auto"),
    ],
)
def test_every_budget_and_noise_makes_a_file_that_says_so(
    table: pa.Table, schema: dps.Schema, tmp_path: Path, budget: dps.Budget, mechanism: str
) -> None:
    raw = dps.accumulate(table, schema, MOMENTS)
    sketch = dps.release(raw, budget, dps.Ledger("sqlite://"), "a", mechanism)
    sketch.save(tmp_path / "a.sketch")
    again = dps.ReleasedSketch.load(tmp_path / "a.sketch")
    assert again.releases == sketch.releases
    assert again.releases[0].budget == budget
    text = statement_text(again.statement)
    for exact, part in zip(raw.parts, again.parts, strict=True):
        (noise,) = part.noises
        assert f"{noise.mechanism.value}, " in text
        assert (part.sums != exact.sums).any() or part.map.size == 1
        if part.map.size >= 40:
            spread = float(np.std(part.sums - exact.sums))
            assert 0.4 < spread / math.sqrt(part.noise_variance) < 2.5
    assert "Attack risk" in text
    if budget.rho is not None:
        assert "rho = 0.25: zero-concentrated differential privacy" in text
    elif budget.delta:
        assert "plus a probability of delta = 1e-06" in text


def test_each_group_has_noise_of_its_own(table: pa.Table, schema: dps.Schema) -> None:
    """With one random radius for all groups, what one group's noise says of the radius would tell of the others'."""
    recipe = dps.Recipe([dps.Part(dps.Grouped(dps.OneBitFourier(size=500), "sex"), 1.0)])
    raw = dps.accumulate(table.slice(0, 0), schema, recipe)
    radii = []
    for _ in range(20):
        (part,) = released(raw).parts
        radii.append(np.abs(part.sums.reshape(part.map.groups, -1)).max(axis=1))
    spread = np.std(np.array(radii) / 1000, axis=0)
    assert (spread > 0.005).all()
    assert abs(np.corrcoef(np.array(radii).T)[0, 1]) < 0.8


def test_replaced_rows_leave_the_count_exact_and_public(table: pa.Table, schema: dps.Schema) -> None:
    facts = schema.to_dict()
    facts["privacy"]["relation"] = "replace-one"
    raw = dps.accumulate(
        table, dps.Schema.from_dict(facts), dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(), 0.5)])
    )
    sketch = released(raw)
    assert sketch.parts[0].sums[0] == len(table)
    assert sketch.parts[0].noise_variance == 0
    text = statement_text(sketch.statement)
    assert "had been in its place" in text
    assert "the exact number of rows" in text
    assert "none: neighbouring tables have the same sums" in text


def test_a_part_of_a_partition_is_the_table_of_its_rows(table: pa.Table, schema: dps.Schema) -> None:
    parts = [dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(), 0.5)]
    sexes = table.column("sex").to_pylist()
    women = table.filter(pa.array([sex == "Female" for sex in sexes]))
    only = dps.accumulate(table, schema, dps.Recipe(parts, only=dps.Only("sex", "Female")))
    alone = dps.accumulate(women, schema, dps.Recipe(parts))
    assert [part.sums.tolist() for part in only.parts] == [part.sums.tolist() for part in alone.parts]
    assert "only those with 'Female' in column 'sex'" in statement_text(released(only).statement)
    for column, value, fact in (
        ("sex", "femail", "column 'sex' has no value 'femail'"),
        ("age", "3", "'age' is not a category or boolean column"),
    ):
        with pytest.raises(RecipeError, match=fact):
            dps.accumulate(table, schema, dps.Recipe(parts, only=dps.Only(column, value)))


def test_a_rerun_is_a_new_spend(raw: dps.RawSketch) -> None:
    """Fresh noise for the same sums could be averaged: it is paid again, and refused when nothing is left."""
    ledger = dps.Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    one, two = (dps.release(raw, dps.Budget(0.5), ledger, "a") for _ in range(2))
    assert any((first.sums != second.sums).any() for first, second in zip(one.parts, two.parts, strict=True))
    (account,) = ledger.accounts()
    assert (account.spent.epsilon, len(account.spends)) == (1, 2)
    with pytest.raises(BudgetError, match="has 0 left of 1"):
        dps.release(raw, dps.Budget(0.5), ledger, "a")


def sides(values: list[str], **privacy: object) -> dps.Schema:
    facts = {"privacy": {"rows": 10} | privacy, "columns": {"side": {"kind": "category", "values": values}}}
    return dps.Schema.from_dict(facts)


def test_parts_of_other_declarations_are_not_disjoint() -> None:
    """What "other" means depends on the values that are listed."""
    table = pa.table({"side": ["left", "right"]})
    ledger = dps.Ledger("sqlite://")
    ledger.grant("a", dps.Budget(1.0))
    for value in ("left", "right"):
        recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)], only=dps.Only("side", value, "s"))
        dps.release(dps.accumulate(table, sides(["left", "right"]), recipe), dps.Budget(1.0), ledger, "a")
    other = dps.Recipe([dps.Part(dps.Count(), 1.0)], only=dps.Only("side", "other", "s"))
    with pytest.raises(BudgetError, match="has 0 left of 1"):
        dps.release(dps.accumulate(table, sides(["right"]), other), dps.Budget(1.0), ledger, "a")


def test_units_that_may_be_in_several_parts_add_up() -> None:
    table = pa.table({"id": ["a", "b"], "side": ["left", "right"]})
    for constant, fits in (({"constant_per_unit": ["side"]}, True), ({}, False)):
        schema = sides(["left", "right"], unit="id", max_rows_per_unit=1, **constant)
        ledger = dps.Ledger("sqlite://")
        for value in ("left", "right"):
            recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)], only=dps.Only("side", value, "s"))
            raw = dps.accumulate(table, schema, recipe)
            if value == "left" or fits:
                dps.release(raw, dps.Budget(1.0), ledger, "a")
            else:
                with pytest.raises(BudgetError, match="has 0 left of 1"):
                    dps.release(raw, dps.Budget(1.0), ledger, "a")


def test_an_input_has_one_name_in_a_ledger(raw: dps.RawSketch, table: pa.Table) -> None:
    ledger = dps.Ledger("sqlite://")
    dps.release(raw, dps.Budget(1.0), ledger, "a")
    with pytest.raises(LedgerError, match="holds an input that was released as dataset 'a'"):
        dps.release(raw, dps.Budget(1.0), ledger, "b")
    both = raw.merge(dps.accumulate(table, raw.schema, raw.recipe))
    with pytest.raises(LedgerError, match="holds an input that was released as dataset 'a'"):
        dps.release(both, dps.Budget(1.0), ledger, "both")


def test_merged_budgets_of_two_kinds_are_told_apart(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> None:
    one, two = (
        dps.release(dps.accumulate(table, schema, recipe), budget, dps.Ledger("sqlite://"), "a")
        for budget in (dps.Budget(0.5), dps.Budget(rho=5.0))
    )
    both = one.merge(two)
    assert not {"epsilon", "delta", "rho"} & set(both.statement)
    assert both.statement["budgets"] == [{"epsilon": "0.5", "delta": "0"}, {"rho": "5"}]
    text = statement_text(both.statement)
    assert "In one of the merged tables: epsilon = 0.5" in text
    assert "In one of the merged tables: rho = 5" in text
    assert "budgets of two kinds" in text


def test_a_statement_never_says_less_than_the_risk(raw: dps.RawSketch) -> None:
    sketch = released(raw, 0.5)
    assert sketch.statement["attack"]["most_true_positives"] >= 0.01 * math.exp(0.5)
    assert "at most 1.7%" in statement_text(sketch.statement)


def test_a_statement_of_a_sample_warns_of_other_releases(table: pa.Table, schema: dps.Schema) -> None:
    recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)], sampling=dps.RowSampling(rate=0.9))
    raw = dps.accumulate(table, schema, recipe)
    assert "Several releases of one sample reveal more" in statement_text(released(raw).statement)
    concentrated = dps.release(raw, dps.Budget(rho=0.1), dps.Ledger("sqlite://"), "a")
    assert "no amplification is claimed" in statement_text(concentrated.statement)


def test_a_merger_of_units_is_told(table: pa.Table) -> None:
    schema = sides(["left"], unit="id", max_rows_per_unit=1)
    one, two = (
        dps.accumulate(pa.table({"id": [name], "side": ["left"]}), schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]))
        for name in ("a", "b")
    )
    assert "Provided that" not in statement_text(released(one).statement)
    assert "Provided that" in statement_text(released(one.merge(two, disjoint_units=True)).statement)
