"""Pair tables in which important pairs count a record several times."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from conftest import mixed_table
from dpsketch.encoding.records import Records
from dpsketch.errors import MergeError, RecipeError
from dpsketch.maps.base import Sensitivity
from dpsketch.maps.tables.pairs import BoundPairs
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema
from dpsketch.sketch.raw import sums_dtype

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
IMPORTANT = (("age", "sex"), ("member", "height"))


def sums_of(bound: BoundPairs, codes: np.ndarray) -> np.ndarray:
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(codes), sums)
    return sums


def random_codes(schema: Schema, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-32768, 32768, (len(schema.scalars), 500)).astype(np.int16)


@pytest.mark.parametrize("pool", [False, True])
def test_sensitivities_follow_from_the_weights_and_are_attained(pool: bool, schema: Schema) -> None:
    """Fifteen pairs, two of them of weight five: Σw = 23 and Σw² = 63."""
    bound = dps.Pairs(bins=4, pool=pool, important=IMPORTANT, times=5).bind(schema)
    assert bound.sensitivity(ADD) == Sensitivity(23, 63)
    assert bound.sensitivity(REPLACE) == Sensitivity(46, 126)
    assert bound.sensitivity(ADD, rows_per_unit=3) == Sensitivity(3 * 23, 9 * 63)
    assert bound.largest == 5
    one, two = (sums_of(bound, np.full((len(schema.scalars), 1), code, np.int16)) for code in (-32767, 32767))
    for change, limit in ((one, bound.sensitivity(ADD)), (one - two, bound.sensitivity(REPLACE))):
        assert (np.abs(change).sum(), (change**2).sum()) == (limit.l1, limit.l2_squared)


def test_sums_are_weights_times_counts(schema: Schema, rng: np.random.Generator) -> None:
    codes = random_codes(schema, rng)
    plain, weighted = dps.Pairs(bins=4).bind(schema), dps.Pairs(bins=4, important=IMPORTANT, times=5).bind(schema)
    counts, sums = sums_of(plain, codes), sums_of(weighted, codes)
    important = {frozenset(pair) for pair in IMPORTANT}
    for pair, names in enumerate(plain.pairs):
        weight = 5 if frozenset(names) in important else 1
        assert weighted.pair_weight(pair) == weight
        assert (sums[weighted.table(pair)] == weight * counts[plain.table(pair)]).all()
        assert (weighted.pair_table(sums, pair) == plain.pair_table(counts, pair)).all()


def test_weight_one_changes_nothing(schema: Schema, rng: np.random.Generator) -> None:
    codes = random_codes(schema, rng)
    plain, once = dps.Pairs(bins=4).bind(schema), dps.Pairs(bins=4, important=IMPORTANT).bind(schema)
    assert (sums_of(plain, codes) == sums_of(once, codes)).all()
    assert plain.sensitivity(ADD) == once.sensitivity(ADD)
    assert "important" not in plain.description.to_dict()
    assert "times" not in plain.description.to_dict()


def test_coarse_sums_keep_the_weights(schema: Schema, rng: np.random.Generator) -> None:
    codes = random_codes(schema, rng)
    fine = dps.AdaptivePairs(bins=4, important=IMPORTANT, times=5).bind(schema)
    halves = [[0] + [1] * (cells.count - 1) for cells in fine.cells]
    coarse = fine.settled(halves, fine.pairs)
    assert (fine.coarsen(sums_of(fine, codes), coarse) == sums_of(coarse, codes)).all()
    assert coarse.sensitivity(REPLACE) == fine.noised().sensitivity(REPLACE)
    other = replace(coarse.description, times=2).bind(schema)
    with pytest.raises(RecipeError, match="coarse sums need a map of fine cells"):
        fine.coarse_sums(sums_of(fine, codes), other)


@pytest.mark.parametrize("most", [2, 3, 7, 14])
def test_important_pairs_are_always_kept(most: int, schema: Schema, rng: np.random.Generator) -> None:
    """Hence whatever a release chooses has the sensitivity that noise is made for."""
    important = (("joined", "member"), ("income", "joined"))
    bound = dps.AdaptivePairs(bins=2, most=most, important=important, times=3, hints=("age",)).bind(schema)
    noised = bound.noised()
    assert len(noised.pairs) == most
    assert noised.sensitivity(ADD) == Sensitivity(most + 4, most + 16)
    for _ in range(20):
        chosen = bound._kept(rng.uniform(0, 3, len(bound.columns)).tolist())
        assert {frozenset(pair) for pair in important} <= {frozenset(pair) for pair in chosen}
        settled = bound.settled(bound.groups_of_cells, chosen)
        for relation in Relation:
            assert settled.sensitivity(relation) == noised.sensitivity(relation)
    without = [pair for pair in bound.pairs if "joined" not in pair][:most]
    if len(without) == most:
        with pytest.raises(RecipeError, match="the important ones among them"):
            bound.settled(bound.groups_of_cells, without)


def test_counters_have_room_for_the_weights(schema: Schema) -> None:
    """A raw sketch with four-byte counters and room for the rows may have none for several times as many."""
    plain, weighted = dps.AdaptivePairs(bins=1500), dps.AdaptivePairs(bins=1500, important=IMPORTANT, times=8)
    assert sums_dtype(plain.bind(schema), 500_000_000) is np.int32
    assert sums_dtype(weighted.bind(schema), 500_000_000) is np.int64


def test_sketches_with_the_same_hint_merge_and_with_another_do_not(schema: Schema) -> None:
    def sketched(seed: int, **hint: Any) -> dps.RawSketch:
        pairs = dps.AdaptivePairs(bins=4, **hint)
        recipe = dps.Recipe([dps.Part(dps.Marginals(bins=4), 0.4), dps.Part(pairs, 0.6)])
        return dps.accumulate(mixed_table(100, seed), schema, recipe)

    one, two = (sketched(seed, important=IMPORTANT, times=5) for seed in (1, 2))
    both = one.merge(two)
    assert (both.parts[1].sums == one.parts[1].sums + two.parts[1].sums).all()
    for hint in ({}, {"important": IMPORTANT, "times": 4}, {"important": IMPORTANT[:1], "times": 5}):
        with pytest.raises(MergeError, match="different recipes"):
            one.merge(sketched(3, **hint))


def test_releases_with_the_same_hint_merge(schema: Schema) -> None:
    def sketched(seed: int, times: int) -> dps.RawSketch:
        pairs = dps.AdaptivePairs(bins=4, most=5, important=IMPORTANT, times=times)
        recipe = dps.Recipe([dps.Part(dps.Marginals(bins=4), 0.4), dps.Part(pairs, 0.6)])
        return dps.accumulate(mixed_table(1000, seed), schema, recipe)

    def released(raw: dps.RawSketch, other: dps.ReleasedSketch | None = None) -> dps.ReleasedSketch:
        return dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a", groups_from=other)

    north = released(sketched(1, 5))
    assert north.maps[1].description.times == 5
    south = released(sketched(2, 5), north)
    both = north.merge(south)
    assert (both.sums[1] == north.sums[1] + south.sums[1]).all()
    with pytest.raises(MergeError, match="has another recipe"):
        released(sketched(3, 4), north)


def test_a_hint_of_the_schema_does_not_keep_sketches_from_merging(schema: Schema) -> None:
    recipe = dps.Recipe([dps.Part(dps.Marginals(bins=4), 1.0)])
    other = replace(schema, workload=(("age", "sex"),))
    one, two = (dps.accumulate(mixed_table(100, 1), facts, recipe) for facts in (schema, other))
    assert (one.merge(two).parts[0].sums == 2 * one.parts[0].sums).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"times": 2}, "times is the weight of important pairs"),
        ({"important": IMPORTANT, "times": 0}, "times must be a whole number from 1 to 1000, got 0 instead"),
        ({"important": IMPORTANT, "times": 2.0}, "times must be a whole number from 1 to 1000, got 2.0 instead"),
        ({"important": [["age"]]}, "important must be a list of pairs of column names"),
        ({"important": [("age", "sex"), ("sex", "age")]}, "important must list at least one pair, each once"),
        ({"important": [("age", "sex")], "columns": ["age", "height"]}, "important name 'sex', which is not among"),
        ({"important": [("age", "sex")], "pairs": [("age", "height")]}, "the important pair of 'age' and 'sex' has no"),
        ({"important": [("age", "nobody")]}, "the important pair of 'age' and 'nobody' has no table"),
        ({"important": [("age", "sex")], "pool": True, "contrasts": True}, "contrasts have no weights"),
        (
            {"important": list(combinations(["age", "sex", "height"], 2)), "pool": True, "most": 2},
            "a release keeps 2 pairs, fewer than the 3 important ones",
        ),
    ],
)
def test_bad_parameters_are_refused_in_plain_words(parameters: dict[str, Any], message: str, schema: Schema) -> None:
    with pytest.raises(RecipeError, match=re.escape(message)):
        dps.Pairs(bins=4, **parameters).bind(schema)
