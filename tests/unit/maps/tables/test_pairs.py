from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.tables.cells import cells_of
from dpsketch.maps.tables.pairs import BoundPairs, Pairs
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


def sums_of(bound: BoundPairs, codes: np.ndarray, kind: type = np.int64) -> np.ndarray:
    sums = np.zeros(bound.size, kind)
    bound.accumulate(Records(codes), sums)
    return sums


@pytest.fixture
def codes(rng: np.random.Generator, schema: Schema) -> np.ndarray:
    return rng.integers(-32768, 32768, (len(schema.scalars), 1300)).astype(np.int16)


def test_tables_match_a_direct_count(codes: np.ndarray, schema: Schema) -> None:
    bound = Pairs(bins=5).bind(schema)
    names = [column.name for column in schema.scalars]
    assert bound.pairs == tuple(combinations(names, 2))
    sums = sums_of(bound, codes)
    for pair, (one, two) in enumerate(bound.pairs):
        expected = np.zeros(bound.shape(pair), np.int64)
        cells = [cells_of(schema.column(n), 5).cells(codes[schema.index(n)]) for n in (one, two)]
        np.add.at(expected, tuple(cells), 1)
        assert (sums[bound.table(pair)] == expected.ravel()).all()
    assert (sums_of(bound, codes, np.int32) == sums).all()


def test_listed_pairs_are_the_only_ones(codes: np.ndarray, schema: Schema) -> None:
    """Columns are those of the pairs, in the schema's order; the first of a pair has the rows of its table."""
    bound = Pairs(pairs=[("sex", "height"), ("member", "sex")], bins=5).bind(schema)
    assert bound.columns == ("height", "sex", "member")
    assert [bound.shape(pair) for pair in (0, 1)] == [(4, 8), (3, 4)]
    every = Pairs(bins=5).bind(schema)
    place = every.pairs.index(("height", "sex"))
    expected = sums_of(every, codes)[every.table(place)].reshape(every.shape(place)).T
    assert (sums_of(bound, codes)[bound.table(0)].reshape(bound.shape(0)) == expected).all()


def random_groups(bound: BoundPairs, most: int, rng: np.random.Generator) -> list[list[int]]:
    every = []
    for cells in bound.cells:
        count = min(most, cells.count)
        groups = np.concatenate([np.arange(count), rng.integers(0, count, cells.count - count)])
        every.append(rng.permutation(groups).tolist())
    return every


@pytest.mark.parametrize("pairs", [None, [("sex", "height"), ("height", "age")]])
@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("most", [1, 2, 7])
def test_coarse_sums_are_those_of_the_coarse_map(
    pairs: Any, kind: type, most: int, codes: np.ndarray, schema: Schema, rng: np.random.Generator
) -> None:
    fine = Pairs(bins=30, pairs=pairs).bind(schema)
    coarse = fine.coarsened(random_groups(fine, most, rng))
    assert (coarse.columns, coarse.pairs) == (fine.columns, fine.pairs)
    assert [coarse.shape(0)[0], coarse.fingerprint() == fine.fingerprint()] == [min(most, coarse.shape(0)[0]), False]
    sums = sums_of(fine, codes, kind)
    found = fine.coarse_sums(sums, coarse)
    assert found.tobytes() == sums_of(coarse, codes, kind).tobytes()
    assert coarse.record_sensitivity(Relation.ADD_REMOVE) == fine.record_sensitivity(Relation.ADD_REMOVE)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_coarse_sums_of_some_pairs(most: int, codes: np.ndarray, schema: Schema, rng: np.random.Generator) -> None:
    """Every column keeps its groups, also one without a table, and the tables are those of the chosen pairs."""
    fine = Pairs(bins=30, pool=True, most=most).bind(schema)
    places = sorted(rng.permutation(len(fine.pairs))[:most])
    chosen = [fine.pairs[place] for place in places]
    coarse = fine.settled(random_groups(fine, 3, rng), chosen)
    assert (coarse.columns, list(coarse.pairs)) == (fine.columns, chosen)
    assert fine.coarsen(sums_of(fine, codes), coarse).tobytes() == sums_of(coarse, codes).tobytes()
    for relation in Relation:
        shown = fine.noised()
        assert len(shown.pairs) == most
        assert coarse.record_sensitivity(relation) == shown.record_sensitivity(relation)
        assert fine.record_sensitivity(relation).l1 > coarse.record_sensitivity(relation).l1
        assert shown.noised() is shown


def test_a_release_keeps_all_pairs_if_most_allows_them(schema: Schema) -> None:
    fine = Pairs(bins=30, pool=True, most=1000).bind(schema)
    assert fine.noised().pairs == fine.pairs
    for wrong in (fine.pairs[:3], [*fine.pairs[1:], ("sex", "age")]):
        with pytest.raises(RecipeError, match=r"^Pairs: a release keeps 15 of the pairs$"):
            fine.settled([[0]] * 6, wrong)


def test_coarse_sums_wrap_as_raw_sums_do(schema: Schema, rng: np.random.Generator) -> None:
    """Four bytes stay four bytes: a sum of sums modulo 2^32 is the sum modulo 2^32."""
    fine = Pairs(bins=9).bind(schema)
    coarse = fine.coarsened(random_groups(fine, 2, rng))
    sums = rng.integers(-(2**31), 2**31, fine.size)
    narrow = fine.coarse_sums(sums.astype(np.int32), coarse)
    assert narrow.dtype == np.int32
    assert (narrow == fine.coarse_sums(sums, coarse).astype(np.int32)).all()


def test_coarse_sums_need_the_fine_map(schema: Schema, rng: np.random.Generator) -> None:
    fine, other = Pairs(bins=9).bind(schema), Pairs(bins=8).bind(schema)
    coarse = fine.coarsened(random_groups(fine, 2, rng))
    message = "^Pairs: coarse sums need a map of fine cells and one that it was coarsened to$"
    for one, two in ((fine, fine), (coarse, coarse), (fine, other.coarsened(random_groups(other, 2, rng)))):
        with pytest.raises(RecipeError, match=message):
            one.coarse_sums(np.zeros(one.size, np.int64), two)


def test_the_summary_counts_groups_instead_of_listing_them(schema: Schema) -> None:
    map_ = Pairs(columns=["sex", "member"], groups=[[0, 1, 0, 1], [0, 0, 0]])
    assert map_.summary() == map_.to_dict() | {"groups": [2, 1]}
    assert replace(map_, groups=None).summary() == replace(map_, groups=None).to_dict()
    assert map_.bind(schema).size == 2


def wide(columns: int) -> Schema:
    return Schema.from_dict({"columns": {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(columns)}})


PAIR_LIST = "Pairs: pairs must be a list of pairs of column names, got {} instead"
GAPS = "Pairs: the groups of a column must be whole numbers 0, 1, …, without gaps"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bins": 0}, "Pairs: bins must be a whole number from 1 to 32768, got 0 instead"),
        ({"columns": "age"}, "Pairs: columns must be a list of column names, got 'age' instead"),
        ({"pairs": "age"}, PAIR_LIST.format("'age'")),
        ({"pairs": ["ab"]}, PAIR_LIST.format("['ab']")),
        ({"pairs": [("age", "age")]}, PAIR_LIST.format("[('age', 'age')]")),
        ({"pairs": [("age", 3)]}, PAIR_LIST.format("[('age', 3)]")),
        ({"pairs": []}, "Pairs: pairs must list at least one pair, each once"),
        ({"pairs": [("age", "sex"), ("sex", "age")]}, "Pairs: pairs must list at least one pair, each once"),
        (
            {"pairs": [("age", "sex")], "columns": ["age", "height"]},
            "Pairs: pairs name 'sex', which is not among columns\nHint: add it, or leave out columns",
        ),
        (
            {"pairs": [(f"a{j}", "b") for j in range(100_001)]},
            "Pairs: 100001 pairs are more than 100000\nHint: list fewer pairs",
        ),
        ({"groups": 3}, "Pairs: groups must list, for each column, the group of each cell"),
        ({"groups": [3]}, "Pairs: groups must list, for each column, the group of each cell"),
        ({"groups": [[0, 2]]}, GAPS),
        ({"groups": [[1, 2]]}, GAPS),
        ({"groups": [[-1, 0]]}, GAPS),
        ({"groups": [[0, 10**30]]}, GAPS),
        ({"groups": [[0, True]]}, GAPS),
        ({"groups": [["a"]]}, GAPS),
        ({"groups": [[]]}, GAPS),
        ({"most": 0, "pool": True}, "Pairs: most must be a whole number from 1 to 100000, got 0 instead"),
        (
            {"most": 3},
            "Pairs: most needs pool: a release chooses pairs as it chooses groups\nHint: pass pool=True, or list pairs",
        ),
        (
            {"hints": ["age"], "pool": True},
            "Pairs: hints say which pairs are kept first when not all are\nHint: pass most, or leave out hints",
        ),
        (
            {"hints": "age", "most": 3, "pool": True},
            "Pairs: hints must be a list of column names, got 'age' instead",
        ),
        ({"columns": ["age"]}, "Pairs needs at least 2 columns, got 1\nHint: name more columns"),
        (
            {"columns": ["sex", "member"], "groups": [[0, 1, 0, 1]]},
            "Pairs: groups must have an entry for each of the 2 columns, got 1",
        ),
        (
            {"columns": ["sex", "member"], "groups": [[0, 1, 0, 1], [0, 1]]},
            "Pairs: the groups of column 'member' must name the group of each of its 3 cells, got 2",
        ),
        (
            {"columns": ["height", "income", "joined"], "bins": 32768},
            "Pairs: the tables would have 3221815323 cells, more than 2147483648\n"
            "Hint: lower bins, name fewer columns, or list pairs",
        ),
    ],
)
def test_bad_parameters_are_refused_in_plain_words(parameters: dict[str, Any], message: str, schema: Schema) -> None:
    with pytest.raises(RecipeError, match=f"^{re.escape(message)}$"):
        Pairs(**parameters).length(schema)


@pytest.mark.parametrize(("columns", "bins"), [(50, 64), (100, 16)])
def test_wide_tables_fit(columns: int, bins: int) -> None:
    assert Pairs(bins=bins, pool=True, most=columns).length(wide(columns)) == comb(columns, 2) * (bins + 3) ** 2


def test_too_many_pairs_are_refused_before_they_are_listed() -> None:
    message = "Pairs: 1000 columns have 499500 pairs, more than 100000\nHint: name fewer columns, or list pairs"
    with pytest.raises(RecipeError, match=f"^{re.escape(message)}$"):
        Pairs().bind(wide(1000))
    assert Pairs(pairs=[("c0", "c999")]).length(wide(1000)) == 67**2


def test_columns_that_do_not_exist_are_named(schema: Schema) -> None:
    hinted = Pairs(columns=["age", "sex"], pool=True, most=1, hints=["height"])
    message = "^Pairs: hints name 'height', which is not among the columns\nHint: add it to columns, or leave it out$"
    with pytest.raises(RecipeError, match=message):
        hinted.bind(schema)
    for map_ in (Pairs(pairs=[("age", "sexx")]), Pairs(columns=["age", "sexx"])):
        with pytest.raises(RecipeError, match=r"^map pairs: there is no column 'sexx'\nHint: did you mean 'sex'\?$"):
            dps.Recipe([dps.Part(map_, 1.0)]).bind(schema)
