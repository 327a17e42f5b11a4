"""Tables of three columns, and the groups that a release chooses for them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED
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
        {"columns": ["age", "sex", "member"], "groups": [(0, 0), (0, 0), (0, 0)]},
    ],
    ids=repr,
)
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(dps.RecipeError):
        dps.Triples(**wrong).bind(SCHEMA)  # type: ignore[arg-type]


def test_pool_needs_marginals() -> None:
    with pytest.raises(dps.RecipeError, match="needs Marginals"):
        dps.accumulate(numbers(), NUMBERS, dps.Recipe([dps.Part(dps.Triples(pool=True), 1.0)]))
