from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.tables.cells import EVERY_CODE, GRID, MOST_BINS
from dpsketch.maps.tables.marginals import BoundMarginals, Marginals
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, SPAN, Integer, Number
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

ONE = Schema((Number("x", 0, 1),), rows=100)
SHARPEST = [1, 2, 3, 7, 16, 64, 128, 1000, 5000, 21844, 21845, 32766, 32767, MOST_BINS]


def sums_of(bound: BoundMarginals, *codes: Any) -> np.ndarray:
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(np.array(codes, np.int16)), sums)
    return sums


def test_sums_lie_where_the_map_says(rng: np.random.Generator, schema: Schema) -> None:
    bound = Marginals(bins=6).bind(schema)
    codes = rng.integers(MISSING, HIGHEST + 1, (len(schema.scalars), 700)).astype(np.int16)
    codes[:, :50], codes[:, 50:90], codes[:, 90:95] = MISSING, LOWEST, HIGHEST
    sums, seen = sums_of(bound, *codes), 0
    for place, (cells, own) in enumerate(zip(bound.cells, codes, strict=True)):
        table, positions, centred = bound.table(place), bound.positions(place), bound.centred(place)
        assert table.start == seen
        assert (table.stop, positions.stop) == (positions.start, centred.start)
        seen = centred.stop
        found = cells.cells(own)
        assert (sums[table] == GRID * np.bincount(found, minlength=cells.count)).all()
        exact = np.zeros(cells.count, np.int64)
        np.add.at(exact, found, cells.positions(own))
        assert (sums[positions] == (exact[1 : cells.bins + 1] if cells.binned else [])).all()
        assert (sums[centred] == ([own[own != MISSING].astype(np.int64).sum()] if cells.ordered else [])).all()
    assert seen == bound.size == bound.description.length(schema)


@given(code=st.integers(LOWEST, HIGHEST))
def test_the_centred_sum_is_the_place_between_the_bounds(code: int) -> None:
    bound = Marginals(bins=3).bind(ONE)
    place = Fraction(code - LOWEST, SPAN)
    added = int(sums_of(bound, [code])[bound.centred(0)][0])
    assert added == SPAN * (place - Fraction(1, 2))
    assert abs(added - GRID * (place - Fraction(1, 2))) <= 1
    assert abs(added) < GRID // 2
    assert sums_of(bound, [MISSING])[bound.centred(0)] == 0


def test_a_mean_and_a_mean_position_can_be_read_off(rng: np.random.Generator) -> None:
    values = rng.beta(2, 5, 5000)
    bound = Marginals(bins=4).bind(ONE)
    sums = sums_of(bound, np.rint(values * SPAN + LOWEST))
    assert abs(sums[bound.centred(0)][0] / SPAN / 5000 + 0.5 - values.mean()) < 1e-6
    inside = values[(values > 0.25) & (values <= 0.5)]
    counts, positions = sums[bound.table(0)] / GRID, sums[bound.positions(0)]
    mean = 0.25 + 0.25 * (0.5 + positions[1] / (GRID / 4) / counts[2])
    assert abs(mean - inside.mean()) < 2e-4


@pytest.mark.parametrize("bins", SHARPEST)
def test_the_bounds_of_a_row_more_are_attained(bins: int) -> None:
    bound = Marginals(bins=bins).bind(ONE)
    cells, limit = bound.cells[0], bound.sensitivity(Relation.ADD_REMOVE)
    position, centred = np.abs(cells.positions(EVERY_CODE)), np.abs(np.where(EVERY_CODE == MISSING, 0, EVERY_CODE))
    for worst, largest, power in (
        (np.argmax(position + centred), limit.l1, 1),
        (np.argmax(position**2 + centred**2), limit.l2_squared, 2),
    ):
        assert (np.abs(sums_of(bound, [EVERY_CODE[worst]])) ** power).sum() == largest
    assert limit.l1 <= GRID * (1 + Fraction(1, 8) + Fraction(1, 2))
    assert limit.l2_squared <= GRID**2 * (1 + Fraction(1, 64) + Fraction(1, 4))


@pytest.mark.parametrize("bins", SHARPEST)
def test_the_bounds_of_a_row_replaced_are_attained_and_hold(bins: int, rng: np.random.Generator) -> None:
    """Every end of an outer cell against all codes, and many pairs at random, by a direct calculation."""
    bound = Marginals(bins=bins).bind(ONE)
    cells, limit = bound.cells[0], bound.sensitivity(Relation.REPLACE_ONE)
    own, position = cells.cells(EVERY_CODE), cells.positions(EVERY_CODE)
    centred = np.where(EVERY_CODE == MISSING, 0, EVERY_CODE)

    def change(one: np.ndarray, two: np.ndarray, power: int) -> np.ndarray:
        apart = np.abs(centred[one] - centred[two]) ** power
        same = np.abs(position[one] - position[two]) ** power
        other = 2 * GRID**power + np.abs(position[one]) ** power + np.abs(position[two]) ** power
        return apart + np.where(own[one] == own[two], same, other)

    firsts = cells.firsts[:-1] - MISSING
    middle = len(firsts) // 2
    some = np.unique(np.concatenate([firsts[:6], firsts[middle : middle + 3], firsts[-6:]]))
    ends = np.unique(np.concatenate([[0, 65535], some, some - 1]))
    one, two = (part.ravel() for part in np.meshgrid(ends, np.arange(65536)))
    random = rng.integers(0, 65536, (2, 500_000))
    for power, largest in ((1, limit.l1), (2, limit.l2_squared)):
        changes = change(one, two, power)
        assert changes.max() == largest
        assert change(*random, power).max() <= largest
        worst = np.argmax(changes)
        features = sums_of(bound, [EVERY_CODE[one[worst]]]) - sums_of(bound, [EVERY_CODE[two[worst]]])
        assert (np.abs(features) ** power).sum() == largest
    assert limit.l1 <= GRID * (2 + Fraction(1, 4) + 1)
    assert limit.l2_squared <= GRID**2 * (2 + Fraction(1, 32) + 1)


def test_sensitivities_are_frozen(schema: Schema) -> None:
    """The numbers that noise is scaled by; categories and booleans have no centred sum, few levels no positions."""
    bound = Marginals(bins=64).bind(schema)
    numbers, labels = 4, 2
    add, replace = bound.sensitivity(Relation.ADD_REMOVE), bound.sensitivity(Relation.REPLACE_ONE)
    assert (add.l1, add.l2_squared) == (numbers * 106486 + labels * GRID, numbers * 5435555908 + labels * GRID**2)
    assert (replace.l1, replace.l2_squared) == (
        numbers * 212971 + labels * 2 * GRID,
        numbers * 13018316961 + labels * 2 * GRID**2,
    )
    few = Marginals(bins=64).bind(Schema((Integer("x", 0, 5),)))
    assert few.sensitivity(Relation.ADD_REMOVE).l1 == GRID + 32767
    assert few.sensitivity(Relation.REPLACE_ONE).l1 == 2 * GRID + SPAN
    assert few.sensitivity(Relation.REPLACE_ONE).l2_squared == 2 * GRID**2 + SPAN**2


def test_bad_parameters_are_refused_in_plain_words(schema: Schema) -> None:
    for parameters, message in (
        ({"bins": 0}, "Marginals: bins must be a whole number from 1 to 32768, got 0 instead"),
        ({"bins": 32769}, "Marginals: bins must be a whole number from 1 to 32768, got 32769 instead"),
        ({"columns": "age"}, "Marginals: columns must be a list of column names, got 'age' instead"),
        ({"columns": []}, "Marginals: columns must name at least one column, each once"),
    ):
        with pytest.raises(RecipeError, match=f"^{re.escape(message)}$"):
            Marginals(**parameters)  # type: ignore[arg-type]
    only_sets = Schema.from_dict({"columns": {"friends": {"kind": "set", "universe": 30}}})
    with pytest.raises(
        RecipeError, match=r"^Marginals needs a column that is not a set of ids\nHint: declare number, cat"
    ):
        Marginals().bind(only_sets)
