"""Counts of levels, marginals whose cells follow from them, and what a file may say about cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from conftest import MIXED
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import NoisyPart
from dpsketch.maps.registry import map_from_dict
from dpsketch.maps.tables.adaptive_marginals import BoundCellCounts
from dpsketch.maps.tables.level_counts import BoundLevels, DroppedLevels
from dpsketch.schema.relation import Relation

CUT = ((1, 7, 8, 50), (7,), (1.5, 0.5, 9.0))
HUGE = 10**400


def codes_of(schema: dps.Schema, rows: int, rng: np.random.Generator) -> np.ndarray:
    codes = rng.integers(-32768, 32768, (len(schema.scalars), rows)).astype(np.int16)
    codes[:, : rows // 10] = -32768
    codes[1, rows // 2 :] = 1234  # many records share a height
    return codes


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_coarse_sums_are_those_of_the_chosen_cells(schema: dps.Schema, kind: Any, rng: np.random.Generator) -> None:
    """Also modulo 2^32, from counters that wrapped around."""
    fine = dps.AdaptiveMarginals(bins=5).bind(schema)
    settled = dps.CellCounts(None, 5, (CUT, ((1, 9), (), (1, 1, 1)), None, None, None, CUT)).bind(schema)
    codes = codes_of(schema, 3000, rng)
    start = np.zeros(fine.size, kind)
    start[[0, 3, 200, -1]] = np.iinfo(kind).max
    sums, direct = start.copy(), fine.coarsen(start, settled)
    assert direct.dtype == kind
    fine.accumulate(Records(codes), sums)
    settled.accumulate(Records(codes), direct)
    assert (fine.coarsen(sums, settled) == direct).all()


def test_cells_follow_from_noisy_levels_and_public_numbers_alone(schema: dps.Schema, rng: np.random.Generator) -> None:
    levels, count = dps.Levels(bins=5).bind(schema), dps.Count().bind(schema)
    fine = dps.AdaptiveMarginals(bins=5).bind(schema)
    assert isinstance(levels, BoundLevels)
    assert [fine.depends_on(other) for other in (levels, count, fine)] == [True, True, False]
    sums = np.zeros(levels.size, np.int64)
    levels.accumulate(Records(codes_of(schema, 20_000, rng)), sums)
    noisy = [NoisyPart(levels, sums, 4.0, laplace=True), NoisyPart(count, np.array([20_010]), 2.0)]
    found = fine.settle(noisy, 100.0)
    assert isinstance(found, BoundCellCounts)
    assert found.fingerprint() == fine.settle(noisy, 100.0).fingerprint()
    cuts = dict(zip(found.columns, found.description.cuts, strict=True))
    assert [name for name, cut in cuts.items() if cut is None] == ["sex", "member"]
    heavy = schema.column("height").levels_of(np.array([1234]))[0]
    assert heavy in cuts["height"][1]  # type: ignore[index]
    other = replace(noisy[0], sums=sums[::-1].copy())
    assert fine.settle([other, noisy[1]], 100.0).fingerprint() != found.fingerprint()
    for relation in Relation:
        for rows in (None, 3):
            assert found.sensitivity(relation, rows) == fine.sensitivity(relation, rows)


@pytest.mark.parametrize(("coarse", "fine"), [(4, 150), (150, 4), (4, 32_768), (32_768, 32_768)])
def test_levels_and_marginals_may_have_different_bins(
    schema: dps.Schema, coarse: int, fine: int, rng: np.random.Generator
) -> None:
    """Ages have a cell each with 150 bins, and are not cut."""
    levels, marginals = dps.Levels(bins=coarse).bind(schema), dps.AdaptiveMarginals(bins=fine).bind(schema)
    sums = np.zeros(levels.size, np.int64)
    levels.accumulate(Records(codes_of(schema, 2000, rng)), sums)
    found = marginals.settle([NoisyPart(levels, sums, 1.0, laplace=True)], 1.0)
    assert (found.description.cuts[0] is None) == (max(coarse, fine) > 120)
    assert map_from_dict(found.description.to_dict()) == found.description


def test_marginals_without_levels_have_even_bins(schema: dps.Schema) -> None:
    found = dps.AdaptiveMarginals(bins=5).bind(schema).settle([], 1.0)
    assert found.description.cuts == (None,) * 6
    assert [own.count for own in found.cells] == [8, 8, 8, 4, 3, 8]


def test_dropped_levels_count_nothing_and_keep_their_sensitivities(schema: dps.Schema) -> None:
    levels = dps.Levels(bins=5).bind(schema)
    assert isinstance(levels, BoundLevels)
    dropped = levels.published()
    assert isinstance(dropped, DroppedLevels)
    assert dropped.columns == levels.columns == ("age", "height", "income", "joined")
    assert (dropped.size, dropped.description.length(schema)) == (0, 0)
    dropped.accumulate(Records(np.zeros((6, 9), np.int16)), np.zeros(0, np.int64))
    assert dropped.description.unsettled() == levels.description
    for relation in Relation:
        for rows in (None, 3):
            assert dropped.sensitivity(relation, rows) == levels.sensitivity(relation, rows)
    with pytest.raises(RecipeError, match="the other release has no such part"):
        levels.settle_as(levels)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dps.Levels(dropped=1), "dropped must be true or false"),  # type: ignore[arg-type]
        (lambda: dps.Levels(bins=True), "bins must be a whole number"),
        (lambda: dps.Levels(runs=1), "runs must be a whole number"),
        (lambda: dps.AdaptiveMarginals(bins=0), "bins must be a whole number"),
        (lambda: dps.Levels(columns="age"), "must be a list of column names"),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make()


def test_runs_of_levels_choose_cells_beside_single_levels(schema: dps.Schema, rng: np.random.Generator) -> None:
    levels, runs = dps.Levels(bins=5).bind(schema), dps.Levels(bins=5, runs=40).bind(schema)
    fine = dps.AdaptiveMarginals(bins=5).bind(schema)
    codes = rng.integers(-20_000, -17_000, (len(schema.scalars), 4000)).astype(np.int16)
    noisy = []
    for each in (levels, runs):
        sums = np.zeros(each.size, np.int64)
        each.accumulate(Records(codes), sums)
        assert sums.sum() == 4 * 4000, "each record is in one run of each column"
        noisy.append(NoisyPart(each, sums, 200.0**2, laplace=False))
    few, many = (
        fine.settle(parts, 10.0).description.cuts[fine.columns.index("height")] for parts in (noisy[:1], noisy)
    )
    assert few is not None
    assert many is not None
    assert len(few[0]) < 8, "a bin of 13,000 levels has a noise of 23,000 records"
    assert len(many[0]) >= 8
    assert fine.settle(noisy[1:], 10.0).description.cuts == (None,) * 6


def test_runs_without_single_levels_are_refused(schema: dps.Schema) -> None:
    marginals = dps.Part(dps.AdaptiveMarginals(bins=5), 0.5)
    with pytest.raises(RecipeError, match="serve beside counts of single levels"):
        dps.Recipe([dps.Part(dps.Levels(bins=5, runs=40), 0.5), marginals]).bind(schema)
    parts = [dps.Part(dps.Levels(bins=5), 0.2), dps.Part(dps.Levels(bins=5, runs=40), 0.3), marginals]
    assert dps.Recipe(parts).bind(schema).stages == ((0, 1), (2,))


def test_levels_alone_are_refused(schema: dps.Schema) -> None:
    """A release would spend their share on counts that it drops."""
    for others in ([], [dps.Part(dps.Marginals(), 0.5)]):
        recipe = dps.Recipe([dps.Part(dps.Levels(), 0.5), *others])
        with pytest.raises(RecipeError, match="Levels needs AdaptiveMarginals in the same recipe"):
            recipe.bind(schema)
    assert dps.Recipe([dps.Part(dps.Levels(), 0.5), dps.Part(dps.AdaptiveMarginals(), 0.5)]).bind(schema)


def test_levels_need_a_column_that_has_some() -> None:
    facts = MIXED | {"columns": {"sex": {"kind": "category", "values": ["a", "b"]}, "b": {"kind": "boolean"}}}
    with pytest.raises(RecipeError, match="Levels needs a column of numbers with more than 66 values"):
        dps.Levels().bind(dps.Schema.from_dict(facts))


@pytest.mark.parametrize(
    "cut",
    [
        5,
        [],
        [[1], []],
        [[], [], [1, 1, 1]],
        [[2, 3], [], [1, 1, 1]],
        [[1, 3, 3], [], [1, 1, 1]],
        [[1, 5, 3], [], [1, 1, 1]],
        [[1, 2.0], [], [1, 1, 1]],
        [[True, 2], [], [1, 1, 1]],
        [[1, -5], [], [1, 1, 1]],
        [["1"], [], [1, 1, 1]],
        [[1, 4], [4, 4], [1, 1, 1]],
        [[1, 4], [3], [1, 1, 1]],
        [[1, 4], [HUGE], [1, 1, 1]],
        [[1, 4], [], [1, 1]],
        [[1, 4], [], [1, -1, 1]],
        [[1, 4], [], [1, float("nan"), 1]],
        [[1, 4], [], [1, float("inf"), 1]],
        [[1, 4], [], [HUGE, 1, 1]],
        [[1, 4], [], [True, 1, 1]],
        [[1, 4], [], ["1", 1, 1]],
        {"1": 2},
        "cut",
    ],
    ids=lambda cut: str(cut)[:30],
)
def test_cuts_that_are_none_are_refused(cut: object) -> None:
    facts = {"map": "cell_counts", "version": 1, "columns": ["age"], "bins": 4, "cuts": [cut]}
    with pytest.raises(RecipeError, match="cuts must hold, for each column, rising levels"):
        map_from_dict(facts)


@pytest.mark.parametrize(
    ("columns", "cuts", "message"),
    [
        (["age"], [CUT, CUT], "an entry for each of the 1 columns"),
        (["sex"], [CUT], "has a cell for each of its values"),
        (["age"], [((1, 120), (), (1, 1, 1))], "begin beyond its bounds"),
        (["age"], [((1, HUGE), (), (1, 1, 1))], "begin beyond its bounds"),
        (["age"], [((1, 7, 20), (7,), (1, 1, 1))], "do not separate its single values"),
    ],
)
def test_cuts_that_do_not_fit_the_schema_are_refused(
    schema: dps.Schema, columns: list[str], cuts: Any, message: str
) -> None:
    described = dps.CellCounts(columns, 4, cuts)  # type: ignore[arg-type]
    for ask in (described.length, described.bind):
        with pytest.raises(RecipeError, match=message):
            ask(schema)
