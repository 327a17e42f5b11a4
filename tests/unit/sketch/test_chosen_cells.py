"""A release chooses the cells of marginals from its own noisy levels, and drops these."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import mixed_table
from dpsketch.calibration import keeps_budget
from dpsketch.errors import FileError, MergeError, RecipeError
from dpsketch.maps.base import BoundMap, Sums
from dpsketch.maps.tables.adaptive_marginals import BoundCellCounts
from dpsketch.maps.tables.level_counts import DroppedLevels
from dpsketch.privacy.events import Release
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.schema.relation import Relation
from dpsketch.sketch.adaptive import noisy_in_stages

PARTS = [
    dps.Part(dps.AdaptivePairs(bins=32), 0.4),
    dps.Part(dps.AdaptiveMarginals(bins=16), 0.3),
    dps.Part(dps.Levels(bins=16), 0.2),
    dps.Part(dps.Count(), 0.1),
]
RECIPE = dps.Recipe(PARTS)
BUDGETS = [dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.5)]


def sketch(schema: dps.Schema, rows: int = 3000, seed: int = 1, **options: Any) -> dps.RawSketch:
    return dps.accumulate(mixed_table(rows, seed), schema, dps.Recipe(PARTS, **options))


def released(raw: dps.RawSketch, budget: dps.Budget = BUDGETS[0]) -> dps.ReleasedSketch:
    return dps.release(raw, budget, dps.Ledger("sqlite://"), "a")


def test_there_are_three_stages(schema: dps.Schema) -> None:
    assert RECIPE.bind(schema).stages == ((2, 3), (1,), (0,))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("unit", [None, 3])
def test_a_file_states_the_noise_of_levels_and_holds_none(
    schema: dps.Schema, budget: dps.Budget, relation: Relation, unit: int | None, tmp_path: Path
) -> None:
    facts, table = replace(schema, relation=relation), mixed_table(3000, 1)
    if unit:
        facts = replace(facts, unit="id", max_rows_per_unit=unit)
        table = table.append_column("id", pa.array([f"{row // 4}" for row in range(3000)]))
    found = released(dps.accumulate(table, facts, RECIPE), budget)
    found.save(tmp_path / "it.sketch")
    again = dps.ReleasedSketch.load(tmp_path / "it.sketch")
    assert isinstance(again.maps[2], DroppedLevels)
    assert isinstance(again.maps[1], BoundCellCounts)
    assert again.sums[2].size == 0
    (event,) = again.releases
    times = (unit or 1) * (1 if relation is Relation.ADD_REMOVE else 2)
    noise = event.noises[2]
    if noise.mechanism is Mechanism.LAPLACE:
        assert noise.sensitivity == 4 * times
        every = 1 if unit or relation is Relation.ADD_REMOVE else Fraction(1, 1) / Fraction(9, 10)
        assert noise.epsilon == Fraction(2, 10) * every
    else:
        assert noise.sensitivity == 4 * (times**2 if unit else times)
    assert {path.suffix for path in tmp_path.iterdir()} == {".sketch"}


def chosen(raw: dps.RawSketch, exact: bool) -> list[str]:
    """What a release would settle on, with levels as they are or hidden by noise that is the same for every table."""
    event = raw.bound.calibrated(dps.Budget(100.0))

    def add_noise(index: int, own: BoundMap, sums: Sums) -> Sums:
        return sums if exact and index == 2 else np.random.default_rng(index).integers(0, 50, sums.size)

    parts = noisy_in_stages(raw.bound, [part.sums for part in raw.parts], event, add_noise, {})
    return [part.map.fingerprint() for part in parts]


def test_the_choice_follows_from_noisy_sums_alone(schema: dps.Schema) -> None:
    """Noise that hides the levels hides the choice, whatever the exact sums are; without it two tables differ."""
    one, two = sketch(schema, 3000, 1), sketch(schema, 3000, 2)
    assert chosen(one, exact=False) == chosen(two, exact=False)
    assert chosen(one, exact=True)[1] != chosen(two, exact=True)[1]


def test_counts_are_those_of_the_cells(schema: dps.Schema) -> None:
    found = released(sketch(schema), dps.Budget(20.0))
    exact = dps.accumulate(mixed_table(3000, 1), schema, dps.Recipe([dps.Part(found.maps[1].description, 1.0)]))
    sd = np.sqrt(found.parts[1].noise_variance)
    difference = found.sums[1] - exact.parts[0].sums
    assert np.abs(difference).max() < 30 * sd
    assert 0.3 * sd < difference.std() < 2 * sd, "with noise of its own"


def test_a_study_shows_exact_cells_and_no_levels(schema: dps.Schema, tmp_path: Path) -> None:
    found = dps.release(sketch(schema), dps.Budget(float("inf")))
    found.save(tmp_path / "it.sketch")
    again = dps.ReleasedSketch.load(tmp_path / "it.sketch")
    assert again.sums[2].size == 0
    exact = dps.accumulate(mixed_table(3000, 1), schema, dps.Recipe([dps.Part(found.maps[1].description, 1.0)]))
    assert (again.sums[1] == exact.parts[0].sums).all()


def test_raw_sketches_merge_and_releases_of_other_cells_do_not(schema: dps.Schema, tmp_path: Path) -> None:
    one, two = sketch(schema, 3000, 1), sketch(schema, 3000, 2)
    one.save(tmp_path / "one.raw")
    both = dps.RawSketch.load(tmp_path / "one.raw").merge(two)
    assert (both.parts[2].sums == one.parts[2].sums + two.parts[2].sums).all()
    assert released(both, dps.Budget(10.0)).sums[3][0] == pytest.approx(6000, abs=100)
    with pytest.raises(MergeError, match=r"marginals of different cells(.|\n)*--groups-from"):
        released(one, dps.Budget(0.5)).merge(released(two, dps.Budget(20.0)))


@pytest.mark.parametrize("early", [False, True])
def test_releases_merge_in_the_cells_of_one_of_them(schema: dps.Schema, early: bool, tmp_path: Path) -> None:
    first = released(sketch(schema, 3000, 1))
    raw = sketch(schema, 3000, 2)
    if early:
        raw = dps.accumulate(mixed_table(3000, 2), schema, first.recipe)
        assert raw.parts[2].sums.size == 0
        raw.save(tmp_path / "two.raw")
        raw = dps.RawSketch.load(tmp_path / "two.raw")
    second = dps.release(raw, dps.Budget(20.0), dps.Ledger("sqlite://"), "b", groups_from=first)
    assert second.recipe == first.recipe
    first.merge(second).save(tmp_path / "both.sketch")
    both = dps.ReleasedSketch.load(tmp_path / "both.sketch")
    assert (both.sums[1] == first.sums[1] + second.sums[1]).all()
    assert both.sums[2].size == 0
    other = dps.accumulate(mixed_table(100, 2), schema, dps.Recipe([PARTS[1], PARTS[3]]))
    with pytest.raises(MergeError, match="has another recipe"):
        dps.release(other, BUDGETS[0], dps.Ledger("sqlite://"), "b", groups_from=first)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_agreed_cells_leave_the_share_of_levels_to_other_parts(schema: dps.Schema, budget: dps.Budget) -> None:
    first = released(sketch(schema))
    others = RECIPE.bind(schema).calibrated(budget).noises
    for recipe in (RECIPE, first.recipe):
        raw = dps.accumulate(mixed_table(100, 2), schema, recipe)
        found = dps.release(raw, budget, dps.Ledger("sqlite://"), "b", groups_from=first)
        noises = found.releases[0].noises
        assert noises[2].sensitivity == 0 < others[2].sensitivity
        assert all(noises[index].scale < others[index].scale for index in (0, 1, 3))
        assert keeps_budget(found.releases[0])


def test_levels_without_noise_are_not_released(schema: dps.Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells chosen from exact levels would not be private, though a file would not show it."""
    honest = BoundRecipe.calibrated

    def quiet(self: BoundRecipe, budget: dps.Budget, mechanism: str = "auto", agreed: Any = None) -> Release:
        return honest(self, budget, mechanism, {2: DroppedLevels(dps.Levels(bins=16, dropped=True), schema)})

    monkeypatch.setattr(BoundRecipe, "calibrated", quiet)
    with pytest.raises(RuntimeError, match="a bug: the noise does not keep the budget"):
        released(sketch(schema))


@pytest.mark.parametrize(
    "options", [{"only": dps.Only("sex", "Male")}, {"sampling": dps.RowSampling(rate=0.5)}], ids=str
)
def test_parts_and_samples_of_tables(schema: dps.Schema, options: Any, tmp_path: Path) -> None:
    found = released(sketch(schema, **options))
    found.save(tmp_path / "it.sketch")
    assert dps.ReleasedSketch.load(tmp_path / "it.sketch").sums[1].size == found.maps[1].size


def test_wrappers_refuse_what_a_release_settles(schema: dps.Schema) -> None:
    for each in (PARTS[1].map, PARTS[2].map):
        with pytest.raises(RecipeError, match="is settled by a release, and cannot be grouped"):
            dps.Grouped(each, "sex").bind(schema)
        with pytest.raises(RecipeError, match="cannot be subsampled"):
            dps.Subsampled(each, 4)


COLUMNS = {
    "number": {"kind": "number", "lower": 0, "upper": 1},
    "integer": {"kind": "integer", "lower": 0, "upper": 50_000},
    "date": {"kind": "datetime", "lower": "2020-01-01", "upper": "2025-01-01"},
    "few": {"kind": "integer", "lower": 0, "upper": 5},
    "labels": {"kind": "category", "values": ["a", "b"]},
}


@pytest.mark.parametrize("names", [[name] for name in COLUMNS] + [["few", "labels"], list(COLUMNS)], ids=str)
@pytest.mark.parametrize("budget", [*BUDGETS, dps.Budget(0.001), dps.Budget(float("inf"))], ids=str)
def test_the_general_recipe_of_any_columns(names: list[str], budget: dps.Budget, tmp_path: Path) -> None:
    """One column, many levels, dates, a cell for every level; noise that hides everything."""
    rng, rows = np.random.default_rng(3), 500
    table = pa.table(
        {
            "number": rng.random(rows),
            "integer": rng.choice([0, 100, 77, 50_000], rows),
            "date": np.datetime64("2021-01-01") + rng.integers(0, 9, rows).astype("timedelta64[D]"),
            "few": rng.integers(0, 6, rows),
            "labels": rng.choice(["a", "b"], rows),
        }
    ).select(names)
    facts = {"privacy": {"rows": rows}, "columns": {name: COLUMNS[name] for name in names}}
    schema = dps.Schema.from_dict(facts)
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, rows=rows, budget=budget))
    found = released(raw, budget) if budget.private else dps.release(raw, budget)
    found.save(tmp_path / "it.sketch")
    again = dps.ReleasedSketch.load(tmp_path / "it.sketch")
    assert all((one == two).all() for one, two in zip(found.sums, again.sums, strict=True))
    assert sum(part.exact_share for part in again.recipe.parts) <= 1
    assert (tmp_path / "it.sketch").stat().st_size < 3_000_000


def test_a_file_cannot_claim_less_noise_by_dropping(schema: dps.Schema, tmp_path: Path) -> None:
    """The noise of levels that are not there is checked like any other."""
    found = released(sketch(schema))
    (event,) = found.releases
    short = replace(event.noises[2], sensitivity=1)
    noises = (*event.noises[:2], short, event.noises[3])
    replace(found, releases=(replace(event, noises=noises),)).save(tmp_path / "it.sketch")
    with pytest.raises(FileError, match="the header is not valid"):
        dps.ReleasedSketch.load(tmp_path / "it.sketch")
