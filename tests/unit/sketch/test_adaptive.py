"""Pair tables that a release pools, and some of which it keeps, by its own noisy marginals."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from conftest import mixed_table
from dpsketch.errors import FileError, MergeError, RecipeError
from dpsketch.maps.base import NoisyPart
from dpsketch.maps.tables.adaptive_pairs import BoundAdaptivePairs
from dpsketch.maps.tables.cells import EVERY_CODE, cells_of
from dpsketch.maps.tables.column_summaries import column_summaries, noisy_totals, parents
from dpsketch.maps.tables.contrasts import BoundContrasts
from dpsketch.maps.tables.pair_map import PairMap
from dpsketch.maps.tables.pairs import BoundPairs
from dpsketch.privacy.events import Mechanism
from dpsketch.schema.columns import MISSING, Integer, Number
from dpsketch.schema.relation import Relation
from dpsketch.sketch.privacy_statement import statement_text
from dpsketch.sketch.release import planned

PAIRS = dps.Pairs(bins=16, pool=True)
SOME = dps.Pairs(bins=16, pool=True, most=5)
HALVED = dps.Pairs(bins=16, pool=True, contrasts=True, most=5)
PARTS = [
    dps.Part(dps.Count(), 0.05),
    dps.Part(PAIRS, 0.5),
    dps.Part(dps.Marginals(bins=16), 0.45),
]
RECIPE = dps.Recipe(PARTS)
BUDGETS = [dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.5)]


def sketch(schema: dps.Schema, rows: int = 5000, seed: int = 1, pairs: dps.Pairs = PAIRS) -> dps.RawSketch:
    recipe = dps.Recipe([PARTS[0], dps.Part(pairs, 0.5), PARTS[2]])
    return dps.accumulate(mixed_table(rows, seed), schema, recipe)


def released(raw: dps.RawSketch, budget: dps.Budget = BUDGETS[0]) -> dps.ReleasedSketch:
    return dps.release(raw, budget, dps.Ledger("sqlite://"), "a")


def found_again(found: dps.ReleasedSketch, fine: dps.Pairs) -> PairMap:
    """What anyone who has the file can find out about how its pairs were chosen."""
    count, pairs, marginals = found.parts
    known = [NoisyPart(part.map, part.sums, part.noise_variance) for part in (count, marginals)]
    return fine.bind(found.schema).settle(known, pairs.noise_variance)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("most", [None, 1, 4, 7, 15, 99])
def test_groups_and_pairs_follow_from_the_released_numbers(
    schema: dps.Schema, budget: dps.Budget, most: int | None, tmp_path: Path
) -> None:
    """Whoever has the file finds the same ones: they tell nothing beyond it."""
    fine = dps.Pairs(bins=16, pool=True, most=most)
    released(sketch(schema, pairs=fine), budget).save(tmp_path / "a.sketch")
    found = dps.ReleasedSketch.load(tmp_path / "a.sketch")
    pairs = found.parts[1].map
    assert isinstance(pairs, BoundPairs)
    assert pairs.fingerprint() == found_again(found, fine).fingerprint()
    assert (type(pairs.description), pairs.description.pool) == (dps.Pairs, False)
    assert pairs.size < fine.length(schema)
    assert len(pairs.pairs) == min(most or 15, 15)


def test_choosing_by_exact_marginals_is_caught(schema: dps.Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted error: the same rule on exact sums. The file does not explain what was chosen."""
    fine = dps.Pairs(bins=16, pool=True, most=7)
    raw = sketch(schema, pairs=fine)
    exact, honest = [raw.parts[0].sums, raw.parts[2].sums], BoundAdaptivePairs.settle

    def leaking(pairs: BoundAdaptivePairs, earlier: list[NoisyPart], variance: float) -> PairMap:
        return honest(pairs, [replace(part, sums=sums) for part, sums in zip(earlier, exact, strict=True)], variance)

    with monkeypatch.context() as planted:
        planted.setattr(BoundAdaptivePairs, "settle", leaking)
        found = released(raw, dps.Budget(0.1))
    assert found.parts[1].map.fingerprint() != found_again(found, fine).fingerprint()


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_noise_is_that_of_the_pairs_that_are_kept(
    schema: dps.Schema, budget: dps.Budget, relation: Relation
) -> None:
    """It is fixed beforehand, whichever pairs are chosen; the statement says so, and the map agrees."""
    facts = replace(schema, relation=relation)
    raw = sketch(facts, pairs=dps.Pairs(bins=16, pool=True, most=4))
    times = 1 if relation is Relation.ADD_REMOVE else 2
    assert raw.parts[1].map.record_sensitivity(relation).l1 == times * 15, "of all that the raw sketch holds"
    event = planned(facts, raw.recipe, budget)
    assert event is not None
    found = released(raw, budget)
    assert found.releases == (event,)
    assert event.noises[1].sensitivity == times * 4 == found.parts[1].map.record_sensitivity(relation).l1
    part = found.statement["parts"][1]
    assert (len(part["pairs"]), part["noise"][0]["sensitivity"]) == (4, times * 4)
    every = planned(facts, RECIPE, budget)
    assert every is not None
    assert event.noises[1].scale < every.noises[1].scale


def test_noise_for_fewer_pairs_than_are_shown_is_not_released(
    schema: dps.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = sketch(schema, pairs=dps.Pairs(bins=16, pool=True, most=4))
    few = dps.Pairs(bins=16, pairs=[("age", "sex")]).bind(schema)
    with pytest.raises(RecipeError, match="a release keeps 4 of the pairs"):
        raw.parts[1].map.settled([[0]] * 6, few.pairs)  # type: ignore[attr-defined]
    monkeypatch.setattr(BoundAdaptivePairs, "noised", lambda self: few)
    with pytest.raises(RuntimeError, match="a bug: the noise is not that of what"):
        released(raw)


@pytest.mark.parametrize("unit", [None, 3])
def test_noise_of_a_thousand_tables_does_not_vouch_for_one_more(unit: int | None) -> None:
    """Certified bounds have a margin of a thousandth; tables are counted."""
    columns: dict[str, Any] = {f"c{place}": {"kind": "boolean"} for place in range(46)}
    privacy: dict[str, Any] = {"rows": 1000}
    if unit is not None:
        privacy |= {"unit": "person", "max_rows_per_unit": unit}
    facts = dps.Schema.from_dict({"privacy": privacy, "columns": columns})
    names = list(combinations(columns, 2))
    few, more = (dps.Recipe([dps.Part(dps.Pairs(pairs=names[:count]), 1.0)]) for count in (1000, 1001))
    for budget in BUDGETS:
        event = planned(facts, few, budget)
        assert event is not None
        assert few.bind(facts).promised(event)
        assert not more.bind(facts).promised(event)


def test_a_file_cannot_claim_less_noise_for_fine_tables(schema: dps.Schema, tmp_path: Path) -> None:
    """All fine tables with the noise of a few of them: `most` does not vouch for it."""
    raw = sketch(schema, pairs=dps.Pairs(bins=16, pool=True, most=4))
    found = released(raw)
    forged = replace(
        found, recipe=raw.recipe, maps=tuple(part.map for part in raw.parts), sums=tuple(p.sums for p in raw.parts)
    )
    forged.save(tmp_path / "forged.sketch")
    with pytest.raises(FileError, match="the header is not valid: release"):
        dps.ReleasedSketch.load(tmp_path / "forged.sketch")


def test_hinted_columns_come_first(schema: dps.Schema) -> None:
    found = released(sketch(schema, pairs=dps.Pairs(bins=16, pool=True, most=5, hints=["sex"])))
    pairs = found.parts[1].map
    assert isinstance(pairs, BoundPairs)
    assert all("sex" in pair for pair in pairs.pairs)
    assert pairs.columns == tuple(column.name for column in schema.scalars)


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


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("most", [None, 4])
def test_contrasts_follow_from_the_released_numbers(
    schema: dps.Schema, budget: dps.Budget, relation: Relation, most: int | None, tmp_path: Path
) -> None:
    """Halves, pairs and noise: the file explains all of them, and pure noise has the shape of a cube."""
    facts, fine = replace(schema, relation=relation), dps.Pairs(bins=16, pool=True, contrasts=True, most=most)
    raw = sketch(facts, pairs=fine)
    released(raw, budget).save(tmp_path / "a.sketch")
    found = dps.ReleasedSketch.load(tmp_path / "a.sketch")
    part = found.parts[1]
    assert isinstance(part.map, BoundContrasts)
    assert part.map.fingerprint() == found_again(found, fine).fingerprint()
    assert part.sums.size == len(part.map.pairs) == (most or 15)
    assert found.releases == (planned(facts, raw.recipe, budget),)
    (noise,) = part.noises
    times = 1 if relation is Relation.ADD_REMOVE else 2
    cube = noise.mechanism is Mechanism.CUBE
    assert cube or (budget != BUDGETS[0] and noise.mechanism is Mechanism.GAUSSIAN)
    assert noise.sensitivity == (times if cube else times**2 * part.sums.size)
    exact = dps.accumulate(mixed_table(5000, 1), facts, dps.Recipe([dps.Part(part.map.description, 1.0)])).parts[0]
    assert 0 < np.abs(part.sums - exact.sums).max() < 6 * np.sqrt(part.noise_variance)
    assert "contrasts v1 (" in statement_text(found.statement)


def test_noise_for_fewer_contrasts_than_are_shown_is_not_released(
    schema: dps.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cube's radius is the same for any number of them, and its noise is drawn for as many as are shown; other
    noise is not.
    """
    raw = sketch(schema, pairs=dps.Pairs(bins=16, pool=True, contrasts=True))
    few = dps.Pairs(bins=16, pool=True, contrasts=True, most=4).bind(schema).noised()
    tables = dps.Pairs(bins=16, pairs=[("age", "sex")]).bind(schema)
    for wrong, budget in ((few, BUDGETS[2]), (tables, BUDGETS[0])):
        monkeypatch.setattr(BoundAdaptivePairs, "noised", lambda bound, wrong=wrong: wrong)
        with pytest.raises(RuntimeError, match="a bug: the noise is not that of what"):
            released(replace(raw), budget)


def test_tables_and_contrasts_do_not_merge(schema: dps.Schema) -> None:
    tables, halves = (sketch(schema, pairs=replace(PAIRS, contrasts=chosen)) for chosen in (False, True))
    with pytest.raises(MergeError, match="different recipes"):
        tables.merge(halves)
    for one, two in ((tables, halves), (halves, tables)):
        with pytest.raises(MergeError, match="groups are taken from has another recipe"):
            dps.release(one, BUDGETS[0], dps.Ledger("sqlite://"), "b", groups_from=released(two))


@pytest.mark.parametrize("pairs", [PAIRS, SOME, HALVED], ids=str)
def test_raw_sketches_merge_and_releases_do_not(schema: dps.Schema, pairs: dps.Pairs) -> None:
    one, two = sketch(schema, 3000, 1, pairs), sketch(schema, 3000, 2, pairs)
    both = released(one.merge(two), dps.Budget(10.0))
    assert both.parts[0].sums[0] == pytest.approx(6000, abs=100)
    with pytest.raises(MergeError, match=r"pair tables of different groups of cells(.|\n)*--groups-from"):
        released(one, dps.Budget(0.5)).merge(released(two, dps.Budget(20.0)))


@pytest.mark.parametrize("pairs", [PAIRS, SOME], ids=str)
def test_raw_sketches_of_different_groups_do_not_merge(schema: dps.Schema, pairs: dps.Pairs) -> None:
    fine = sketch(schema, 3000, 1, pairs)
    settled = [released(fine, dps.Budget(epsilon)).recipe for epsilon in (0.5, 20.0)]
    one, two = (dps.accumulate(mixed_table(3000, 2), schema, recipe) for recipe in settled)
    for other in (two, fine):
        with pytest.raises(MergeError, match=r"pair tables of different groups of cells(.|\n)*--groups-from"):
            one.merge(other)


@pytest.mark.parametrize("pairs", [PAIRS, SOME, HALVED, dps.Pairs(bins=16, pool=True, most=99)], ids=str)
@pytest.mark.parametrize("early", [False, True])
def test_releases_merge_in_the_groups_of_one_of_them(
    schema: dps.Schema, pairs: dps.Pairs, early: bool, tmp_path: Path
) -> None:
    """The second site pools its raw sketch as the first did, or sketches its table so from the start."""
    released(sketch(schema, 3000, 1, pairs), dps.Budget(0.5)).save(tmp_path / "first.sketch")
    first = dps.ReleasedSketch.load(tmp_path / "first.sketch")
    raw = sketch(schema, 3000, 2, pairs)
    if early:
        raw = dps.accumulate(mixed_table(3000, 2), schema, first.recipe)
    budget = dps.Budget(20.0)
    second = dps.release(raw, budget, dps.Ledger("sqlite://"), "b", groups_from=first)
    assert second.recipe == first.recipe
    assert second.maps[1].fingerprint() == first.maps[1].fingerprint()
    first.merge(second).save(tmp_path / "both.sketch")
    both = dps.ReleasedSketch.load(tmp_path / "both.sketch").parts[1]
    assert (both.sums == first.parts[1].sums + second.parts[1].sums).all()
    assert both.noise_variance == first.parts[1].noise_variance + second.parts[1].noise_variance
    exact = dps.accumulate(mixed_table(3000, 2), schema, dps.Recipe([dps.Part(second.maps[1].description, 1.0)]))
    assert np.abs(second.sums[1] - exact.parts[0].sums).max() < 50 * np.sqrt(second.parts[1].noise_variance)


def test_groups_are_taken_only_from_private_releases_that_would_merge(schema: dps.Schema) -> None:
    first = released(sketch(schema, 3000, 1, SOME))
    study = dps.release(sketch(schema, 3000, 1, SOME), dps.Budget(float("inf")))
    with pytest.raises(MergeError, match="groups of a sketch marked NOT PRIVATE follow from exact sums"):
        dps.release(sketch(schema), BUDGETS[0], dps.Ledger("sqlite://"), "b", groups_from=study)
    plain = dps.Pairs(bins=16)
    others = [PAIRS, plain, replace(SOME, most=4), replace(SOME, tapered=True)]
    others += [dps.Pairs(PAIRS.names(schema)[:4], 16, pool=True, most=5)]
    raws = [sketch(schema, pairs=pairs) for pairs in others]
    for parts in (PARTS[1:], [PARTS[0], dps.Part(SOME, 0.4), PARTS[2]], [PARTS[0], PARTS[2], dps.Part(SOME, 0.5)]):
        raws.append(dps.accumulate(mixed_table(100, 2), schema, dps.Recipe(parts)))
    for raw in raws:
        ledger = dps.Ledger("sqlite://")
        with pytest.raises(MergeError, match="groups are taken from has another recipe"):
            dps.release(raw, BUDGETS[0], ledger, "b", groups_from=first)
        assert not ledger.accounts(), "refused before anything is spent"
    facts = replace(schema, relation=Relation.REPLACE_ONE)
    with pytest.raises(MergeError, match="groups are taken from has another schema"):
        dps.release(sketch(facts, pairs=SOME), BUDGETS[0], dps.Ledger("sqlite://"), "b", groups_from=first)
    alone = dps.release(sketch(schema, 2000, 3, SOME), dps.Budget(float("inf")), groups_from=first)
    assert alone.recipe == first.recipe, "a study may take public groups"


def test_pooling_needs_marginals_of_the_same_cells(schema: dps.Schema) -> None:
    for marginals in ([], [dps.Part(dps.Marginals(bins=6), 0.5)], [dps.Part(dps.Marginals(("age",), bins=16), 0.5)]):
        with pytest.raises(RecipeError, match="pool needs Marginals of the same columns with the same number of bins"):
            dps.Recipe([dps.Part(dps.Pairs(bins=16, pool=True), 0.5), *marginals]).bind(schema)
    with pytest.raises(RecipeError, match="groups are either given or chosen by the release"):
        dps.Pairs(groups=((0,),), pool=True)
    with pytest.raises(RecipeError, match="pool must be true or false, got 1 instead"):
        dps.Pairs(pool=1)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="Grouped: map pairs is settled by a release, and cannot be grouped"):
        dps.Recipe([dps.Part(dps.Grouped(PAIRS, "sex"), 0.5), PARTS[2]]).bind(schema)


def test_summaries_are_the_table_in_units_of_the_bounds(schema: dps.Schema) -> None:
    table = pa.table({"age": [0, 30, 60, 120, None], "height": [1.0, 1.75, 2.5, 2.0, None]})
    columns = [column for column in schema.to_dict()["columns"] if column not in table.column_names]
    for name in columns:
        table = table.append_column(name, pa.nulls(5))
    marginals = dps.Marginals(("age", "height"), bins=10)
    raw = dps.accumulate(table, schema, dps.Recipe([dps.Part(marginals, 1.0)]))
    (part,) = raw.parts
    age, height = column_summaries(part.map, part.sums, 0.0, noisy_totals([part.map], [part.sums], [0.0]))
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


def test_pair_tables_divide_the_bins_of_marginals() -> None:
    """Records within one bin of their marginals still come in several groups, and thresholds there have answers."""
    rng = np.random.default_rng(4)
    rows = 20_000
    x = 0.26 + 0.02 * rng.random(rows)
    y = np.where(rng.random(rows) < 0.9, x, 0.26 + 0.02 * rng.random(rows))
    columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in "xy"}
    schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})
    parts = [dps.Part(dps.Marginals(bins=16), 0.5), dps.Part(dps.Pairs(bins=256, pool=True), 0.5)]
    raw = dps.accumulate(pa.table({"x": x, "y": y}), schema, dps.Recipe(parts))
    released = dps.release(raw, dps.Budget(5.0), dps.Ledger("sqlite://"), "t")
    pairs = released.parts[1].map.description
    assert isinstance(pairs, dps.Pairs)
    assert pairs.groups is not None
    inside = {pairs.groups[0][1 + cell] for cell in range(64, 80)}  # of the fifth of sixteen bins
    assert len(inside) > 3
    view = dps.View(released)
    for low in (0.265, 0.27, 0.275):
        answer = view.fraction(f"x <= {low} and y <= {low}")
        assert abs(answer.value - np.mean((x <= low) & (y <= low))) < 0.05


@given(st.integers(1, 40), st.integers(1, 9), st.integers(2, 400))
def test_finer_cells_lie_in_one_cell_each(bins: int, times: int, levels: int) -> None:
    for column in (Number("x", 0.0, 1.0), Integer("x", 0, levels)):
        coarse, fine = cells_of(column, bins), cells_of(column, bins * times)
        codes = EVERY_CODE
        if isinstance(column, Integer):  # which has no other ones
            codes = np.append(column.codes_of(np.arange(column.levels)), MISSING)
        assert (parents(coarse, fine)[fine.cells(codes)] == coarse.cells(codes)).all()
