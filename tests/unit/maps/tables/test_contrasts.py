"""Contrasts of halved columns: against counting by hand, from fine tables, and what is refused."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.tables.contrasts import BoundContrasts, Contrasts
from dpsketch.maps.tables.pairs import Pairs
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

ROWS = 500


def random_codes(schema: Schema, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-32768, 32768, (len(schema.columns), ROWS)).astype(np.int16)


def random_halves(pairs: Any, rng: np.random.Generator) -> list[list[int]]:
    return [rng.permutation([0, 1, *rng.integers(0, 2, own.count - 2)]).tolist() for own in pairs.cells]


def sums_of(bound: Any, codes: np.ndarray, kind: type = np.int64) -> np.ndarray:
    sums = np.zeros(bound.size, kind)
    bound.accumulate(Records(codes), sums)
    return sums


def test_contrasts_count_equal_halves_less_different_ones(schema: Schema, rng: np.random.Generator) -> None:
    fine = Pairs(bins=7, pool=True, contrasts=True).bind(schema)
    halves, codes = random_halves(fine, rng), random_codes(schema, rng)
    bound = fine.settled(halves, fine.pairs)
    signs = []
    for name, cells, half in zip(fine.columns, fine.cells, halves, strict=True):
        signs.append(1 - 2 * np.array(half)[cells.cells(codes[schema.index(name)])])
    found = sums_of(bound, codes)
    assert found.tolist() == [int(one @ two) for one, two in combinations(signs, 2)]
    assert bound.features(Records(codes)).sum(0).tolist() == found.tolist()


@pytest.mark.parametrize("most", [None, 4])
@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_coarse_sums_are_what_contrasts_find_themselves(
    schema: Schema, rng: np.random.Generator, most: int | None, kind: type
) -> None:
    """Also where sums wrap around."""
    fine = Pairs(bins=9, pool=True, contrasts=True, most=most).bind(schema)
    kept = fine.pairs if most is None else fine.pairs[3 : 3 + most]
    bound, codes = fine.settled(random_halves(fine, rng), kept), random_codes(schema, rng)
    exact = sums_of(fine, codes, kind)
    assert (fine.coarsen(exact, bound) == sums_of(bound, codes, kind)).all()
    top = np.iinfo(kind).max
    around = fine.coarsen(exact + np.array(top, kind), bound)
    assert around.dtype == kind
    shift = fine.coarsen(np.full(fine.size, top, kind), bound)
    assert (around == sums_of(bound, codes, kind) + shift).all()


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("most", [None, 1, 4, 99])
def test_what_is_shown_has_the_sensitivity_of_any_choice(
    schema: Schema, rng: np.random.Generator, most: int | None, relation: Relation
) -> None:
    fine = Pairs(bins=5, pool=True, contrasts=True, most=most).bind(schema)
    shown, count = fine.noised(), min(most or 15, 15)
    assert isinstance(shown, BoundContrasts)
    chosen = fine.settled(random_halves(fine, rng), list(reversed(fine.pairs))[:count])
    assert len(shown.pairs) == len(chosen.pairs) == shown.size == chosen.size == count
    assert shown.sensitivity(relation) == chosen.sensitivity(relation)
    assert shown.body(relation) == chosen.body(relation)
    assert shown.body(relation, 3) == chosen.body(relation, 3)
    with pytest.raises(RecipeError, match=f"^Pairs: a release keeps {count} of the pairs$"):
        fine.settled(random_halves(fine, rng), fine.pairs[: count - 1])


HALVES = "Contrasts: halves must list, for each column, the half of each cell: 0 or 1, and both"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"halves": 3}, HALVES),
        ({"halves": []}, HALVES),
        ({"halves": [[0, 0, 0, 0], [0, 1, 1]]}, HALVES),
        ({"halves": [[0, 1, 2, 1], [0, 1, 1]]}, HALVES),
        ({"halves": [[False, True, 1, 1], [0, 1, 1]]}, HALVES),
        ({"halves": [[0, 1, 1, 1]]}, "Pairs: groups must have an entry for each of the 2 columns, got 1"),
        (
            {"halves": [[0, 1, 1, 1], [0, 1]]},
            "Pairs: the groups of column 'member' must name the group of each of its 3 cells, got 2",
        ),
    ],
)
def test_refusals(schema: Schema, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=f"^{re.escape(message)}$"):
        Contrasts(columns=("sex", "member"), **parameters).length(schema)


def test_contrasts_of_pairs_need_pool() -> None:
    message = (
        "Pairs: contrasts need pool: a release chooses the halves of columns\n"
        "Hint: pass pool=True, or Contrasts with halves of your own"
    )
    with pytest.raises(RecipeError, match=f"^{re.escape(message)}$"):
        Pairs(contrasts=True)
    with pytest.raises(RecipeError, match=r"^Pairs: contrasts must be true or false, got 1 instead$"):
        Pairs(pool=True, contrasts=1)  # type: ignore[arg-type]
    assert "contrasts" not in Pairs(pool=True).to_dict()
    assert Pairs(pool=True, contrasts=True).to_dict()["contrasts"] is True
