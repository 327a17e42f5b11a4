"""Tables of three columns, and the groups that a release chooses for them."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.denoise.groups import MOST, MOST_SHOWN, TRIPLE_GROUPS, TRIPLE_RESOLUTION, triple_groups_wanted
from dpsketch.maps.base import Sensitivity
from dpsketch.schema.relation import Relation
from map_examples import SCHEMA, records_of

ROWS = 20_000
NUMBERS = dps.Schema.from_dict(
    {"privacy": {"rows": ROWS}} | {"columns": {name: {"kind": "number", "lower": 0, "upper": 1} for name in "xyz"}}
)


def numbers(seed: int = SEED) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({name: rng.random(ROWS) for name in "xyz"})


def recipe() -> dps.Recipe:
    parts = [(dps.Count(), 0.1), (dps.Marginals(bins=16), 0.4), (dps.Triples(bins=8, pool=True), 0.5)]
    return dps.Recipe([dps.Part(*part) for part in parts])


def released(table: pa.Table, **options: object) -> dps.ReleasedSketch:
    raw = dps.accumulate(table, NUMBERS, recipe())
    return dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "numbers", **options)  # type: ignore[arg-type]


def test_sums_are_counts_of_the_cells_of_three_columns() -> None:
    bound = dps.Triples(columns=["age", "sex", "member"], bins=3).bind(SCHEMA)
    codes = np.random.default_rng(SEED).integers(-32768, 32768, (len(SCHEMA.scalars), 500)).astype(np.int16)
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(records_of(codes), sums)
    own = [cells.cells(codes[SCHEMA.index(name)]) for name, cells in zip(bound.columns, bound.cells, strict=True)]
    exact = np.zeros(bound.shape(0), np.int64)
    np.add.at(exact, tuple(own), 1)
    assert (sums.reshape(bound.shape(0)) == exact).all()


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_coarse_sums_are_those_of_the_coarse_map(kind: type) -> None:
    fine = dps.Triples(columns=["height", "sex", "age"], bins=2, pool=True).bind(SCHEMA)
    groups = [(0, 0, 1, 1, 0), (1, 0, 0, 2), (0, 1, 2, 0, 1)]
    coarse = dps.Triples(columns=["height", "sex", "age"], bins=2, groups=groups).bind(SCHEMA)  # type: ignore[arg-type]
    codes = np.random.default_rng(SEED).integers(-32768, 32768, (len(SCHEMA.scalars), 500)).astype(np.int16)
    sums, wanted = np.zeros(fine.size, kind), np.zeros(coarse.size, kind)
    fine.accumulate(records_of(codes), sums)
    coarse.accumulate(records_of(codes), wanted)
    found = fine.coarsen(sums, coarse)
    assert found.dtype == kind
    assert (found == wanted).all()


LISTED = (("age", "sex", "member"), ("height", "age", "sex"))


@pytest.mark.parametrize("pool", [False, True])
def test_listed_triples_have_the_tables_of_all_of_them(pool: bool) -> None:
    every = dps.Triples(bins=2, pool=pool).bind(SCHEMA)
    some = dps.Triples(bins=2, pool=pool, triples=LISTED).bind(SCHEMA)
    assert set(some.columns) == {"age", "sex", "member", "height"}
    codes = np.random.default_rng(SEED).integers(-32768, 32768, (len(SCHEMA.scalars), 500)).astype(np.int16)
    sums, counted = np.zeros(every.size, np.int64), np.zeros(some.size, np.int64)
    every.accumulate(records_of(codes), sums)
    some.accumulate(records_of(codes), counted)
    for number, names in enumerate(LISTED):
        own = some.counts_of(counted, number)
        [place] = [place for place, each in enumerate(every.tables) if set(each) == set(names)]
        order = [every.tables[place].index(name) for name in names]
        assert (own == every.counts_of(sums, place).transpose(order)).all()


def test_sensitivities_of_listed_triples_are_attained() -> None:
    bound = dps.Triples(bins=2, triples=LISTED).bind(SCHEMA)
    assert bound.sensitivity(Relation.ADD_REMOVE) == Sensitivity(2, 2)
    assert bound.sensitivity(Relation.REPLACE_ONE) == Sensitivity(4, 4)
    sums = []
    for code in (-32767, 32767):
        sums.append(np.zeros(bound.size, np.int64))
        bound.accumulate(records_of(np.full((len(SCHEMA.scalars), 1), code, np.int16)), sums[-1])
    for change, limit in ((sums[0], 2), (sums[0] - sums[1], 4)):
        assert np.abs(change).sum() == (change**2).sum() == limit


def test_a_release_of_listed_triples_keeps_them() -> None:
    facts = {"columns": {name: {"kind": "number", "lower": 0, "upper": 1} for name in "wxyz"}}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}} | facts)
    table = numbers().append_column("w", pa.array(np.linspace(0, 1, ROWS)))
    triples = dps.Triples(bins=8, pool=True, triples=(("z", "x", "y"),))
    parts = [(dps.Count(), 0.1), (dps.Marginals(bins=16), 0.4), (triples, 0.5)]
    raw = dps.accumulate(table, schema, dps.Recipe([dps.Part(*part) for part in parts]))
    first, second = (dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "numbers") for _ in range(2))
    found = first.maps[2].description
    assert isinstance(found, dps.Triples)
    assert found.triples == first.statement["parts"][2]["triples"] == triples.triples
    assert first.recipe.parts[2].map.unsettled() == second.recipe.parts[2].map.unsettled()


def test_more_cells_are_shown_where_noise_is_smaller() -> None:
    assert triple_groups_wanted(1e-2, 35) == triple_groups_wanted(TRIPLE_RESOLUTION, 35) == TRIPLE_GROUPS
    wanted = [triple_groups_wanted(sd, 35) for sd in np.geomspace(TRIPLE_RESOLUTION, 1e-7, 30)]
    assert wanted == sorted(wanted)
    assert wanted[-1] == MOST
    assert all(tables * triple_groups_wanted(1e-9, tables) ** 3 <= 1.3 * MOST_SHOWN for tables in range(1, 5000))


def test_a_release_has_about_six_groups_a_column() -> None:
    tables = released(numbers()).maps[2].description
    assert isinstance(tables, dps.Triples)
    assert tables.groups is not None
    assert all(4 <= max(groups) + 1 <= 9 for groups in tables.groups)
    assert not tables.pool


def test_releases_with_the_same_groups_merge() -> None:
    first = released(numbers())
    second = released(numbers(SEED + 1), groups_from=first)
    assert second.recipe == first.recipe
    assert float(dps.View(first.merge(second)).rows().value) == pytest.approx(2 * ROWS, abs=500)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bins": 0},
        {"pool": 1},
        {"columns": ["age", "sex"]},
        {"pool": True, "groups": [(0, 1)]},
        {"groups": [(0, 2)]},
        {"triples": []},
        {"triples": "age"},
        {"triples": [("age", "sex")]},
        {"triples": [("age", "sex", "age")]},
        {"triples": [("age", "sex", "member"), ("sex", "age", "member")]},
        {"triples": [("age", "sex", "nobody")]},
        {"triples": [("age", "sex", "member")], "columns": ["age", "sex", "height"]},
        {"columns": ["age", "sex", "member"], "groups": [(0, 0), (0, 0), (0, 0)]},
    ],
    ids=repr,
)
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((dps.RecipeError, dps.SchemaError)):
        dps.Triples(**wrong).bind(SCHEMA)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("triples", "message"),
    [
        ([("age", "sex")], "Triples: triples must be a list of triples of column names, got [('age', 'sex')] instead"),
        ([], "Triples: triples must list at least one triple, each once"),
        ([("age", "sex", "member"), ("sex", "age", "member")], "must list at least one triple, each once"),
        ([("age", "sex", "member")], "triples name 'member', which is not among columns\nHint: add it, or leave out"),
    ],
)
def test_wrong_triples_are_refused_in_plain_words(triples: object, message: str) -> None:
    with pytest.raises(dps.RecipeError, match=re.escape(message)):
        dps.Triples(columns=("age", "sex", "height"), triples=triples)  # type: ignore[arg-type]


def test_pool_needs_marginals() -> None:
    with pytest.raises(dps.RecipeError, match="needs Marginals"):
        dps.accumulate(numbers(), NUMBERS, dps.Recipe([dps.Part(dps.Triples(pool=True), 1.0)]))
