"""Every registered map keeps the same promises."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.maps.base import BoundMap, FeatureMap, Relation, Sums
from dpsketch.maps.registry import MAPS, map_from_dict
from dpsketch.records import Records
from dpsketch.schema import Schema
from tests_support import MIXED_SCHEMA

EXAMPLES: list[FeatureMap] = [
    dps.Count(),
    dps.Histogram(bins=8),
    dps.Histogram(ways=2, bins=4),
    dps.Histogram(ways=3, columns=["sex", "member", "age"], bins=4),
    dps.Fourier(size=7, seed=1),
    dps.Fourier(size=4, seed=2, columns=["height"], radii=(1, 100)),
    dps.Fourier(size=70, seed=3, structure="hadamard"),
    dps.OneBitFourier(size=7, seed=1),
    dps.OneBitFourier(size=4, columns=["height", "age"]),
    dps.OneBitFourier(size=70, seed=3, structure="hadamard"),
    dps.SecondMoments(),
    dps.SecondMoments(columns=["height", "age", "sex"], radius=1.5),
    dps.SecondMoments(columns=["height"], radius=0.3),
    dps.Grid(width=64, rows=3),
    dps.Grid(columns=["height", "age"], width=16, rows=2, levels=(1, 2, 16)),
    dps.Grouped(dps.Fourier(size=3), "sex"),
    dps.Grouped(dps.Fourier(size=3, structure="hadamard"), "sex"),
    dps.Grouped(dps.Count(), "sex"),
    dps.Grouped(dps.Histogram(ways=2, columns=["age", "member"], bins=3), "sex"),
]
COLUMNS = len(MIXED_SCHEMA.scalars)
BOUND = [example.bind(MIXED_SCHEMA) for example in EXAMPLES]
every_map = pytest.mark.parametrize("bound", BOUND, ids=lambda bound: repr(bound.description))
record = st.lists(st.integers(-32768, 32767), min_size=COLUMNS, max_size=COLUMNS)


def sums_of(bound: BoundMap, codes: np.ndarray) -> Sums:
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(np.ascontiguousarray(codes, np.int16)), sums)
    return sums


def features_of(bound: BoundMap, *records: list[int]) -> Sums:
    return sums_of(bound, np.array(records).T.reshape(COLUMNS, -1))


def exact_square(change: Sums) -> int:
    """Squared length in Python's integers: fourth powers of codes do not fit 63 bits."""
    return sum(number * number for number in change.tolist())


def test_every_registered_map_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == set(MAPS.values())


@every_map
@given(one=record, two=record)
def test_neighbours_stay_within_the_sensitivity(bound: BoundMap, one: list[int], two: list[int]) -> None:
    first, second = features_of(bound, one), features_of(bound, two)
    for relation, change in ((Relation.ADD_REMOVE, first), (Relation.REPLACE_ONE, first - second)):
        limit = bound.sensitivity(relation)
        assert isinstance(limit.l1, int)
        assert isinstance(limit.l2_squared, int)
        assert np.abs(change).sum() <= limit.l1
        assert exact_square(change) <= limit.l2_squared
    assert np.abs(first).max() <= bound.largest


@every_map
@given(rows=st.lists(record, min_size=1, max_size=3), others=st.lists(record, min_size=0, max_size=3))
def test_units_stay_within_the_sensitivity(bound: BoundMap, rows: list[list[int]], others: list[list[int]]) -> None:
    change = features_of(bound, *rows)
    limit = bound.sensitivity(Relation.ADD_REMOVE, rows_per_unit=3)
    assert np.abs(change).sum() <= limit.l1
    assert exact_square(change) <= limit.l2_squared
    if others:
        change = change - features_of(bound, *others)
    limit = bound.sensitivity(Relation.REPLACE_ONE, rows_per_unit=3)
    assert np.abs(change).sum() <= limit.l1
    assert exact_square(change) <= limit.l2_squared


@pytest.mark.parametrize(
    "bound",
    [b for b in BOUND if b.grid == 1 and not isinstance(b.description, dps.OneBitFourier | dps.Grid)],
    ids=lambda b: repr(b.description),
)
def test_sharp_bounds_are_attained(bound: BoundMap) -> None:
    lowest, highest = [-32767] * COLUMNS, [32767] * COLUMNS
    alone = features_of(bound, lowest)
    limit = bound.sensitivity(Relation.ADD_REMOVE)
    assert (np.abs(alone).sum(), (alone**2).sum()) == (limit.l1, limit.l2_squared)
    unit = features_of(bound, lowest, lowest, lowest)
    limit = bound.sensitivity(Relation.ADD_REMOVE, rows_per_unit=3)
    assert (np.abs(unit).sum(), (unit**2).sum()) == (limit.l1, limit.l2_squared)
    replaced = alone - features_of(bound, highest)
    limit = bound.sensitivity(Relation.REPLACE_ONE)
    assert (np.abs(replaced).sum(), (replaced**2).sum()) == (limit.l1, limit.l2_squared)


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.0])
def test_the_second_moment_bounds_are_attained(radius: float) -> None:
    """L2² by a record along one axis, L1 nearly by the diagonal; replaced, both by records along two axes."""
    bound = dps.SecondMoments(columns=["height", "age"], radius=radius).bind(MIXED_SCHEMA)
    ball = int(32767 * radius)
    axis, other, diagonal = ([0, 0, 0, 0, 0, 0] for _ in range(3))
    axis[1], other[0], diagonal[0], diagonal[1] = ball, ball, int(ball / 2**0.5), int(ball / 2**0.5)
    one, two = features_of(bound, axis), features_of(bound, other)
    assert exact_square(one) == bound.sensitivity(Relation.ADD_REMOVE).l2_squared == ball**4
    assert exact_square(one - two) == bound.sensitivity(Relation.REPLACE_ONE).l2_squared
    l1 = bound.sensitivity(Relation.ADD_REMOVE).l1
    assert 0.99 * l1 <= np.abs(features_of(bound, diagonal)).sum() <= l1


def test_the_grid_bounds_are_attained() -> None:
    """With two counters a row, some pair of records meets in every row with opposite signs."""
    bound = dps.Grid(columns=["height"], width=2, rows=2).bind(MIXED_SCHEMA)
    codes = np.zeros((COLUMNS, 64), np.int16)
    codes[1] = np.linspace(-32767, 32767, 64)
    features = bound.features(Records(codes))
    change = features[:, None] - features[None, :]
    limit = bound.sensitivity(Relation.REPLACE_ONE)
    assert (np.abs(change).sum(axis=2).max(), (change**2).sum(axis=2).max()) == (limit.l1, limit.l2_squared)
    assert set(np.abs(features).sum(axis=1)) == {bound.sensitivity(Relation.ADD_REMOVE).l1}


def test_the_one_bit_bounds_are_attained() -> None:
    """Every record attains the bounds of add/remove; two records half a turn apart attain those of replace-one."""
    bound = dps.OneBitFourier(size=1, columns=["height"], radii=(200, 200)).bind(MIXED_SCHEMA)
    codes = np.zeros((COLUMNS, 65536), np.int16)
    codes[1] = np.arange(-32768, 32768)
    features = bound.features(Records(codes))
    limit = bound.sensitivity(Relation.ADD_REMOVE)
    assert set(np.abs(features).sum(axis=1)) == {limit.l1}
    assert set((features**2).sum(axis=1)) == {limit.l2_squared}
    change = features[np.argmax(features.sum(axis=1))] - features[np.argmin(features.sum(axis=1))]
    limit = bound.sensitivity(Relation.REPLACE_ONE)
    assert (np.abs(change).sum(), (change**2).sum()) == (limit.l1, limit.l2_squared)


def test_the_fourier_bounds_are_attained_by_one_frequency() -> None:
    """One frequency of one turn in 2^32 steps a code: go through every code and find the largest features."""
    bound = dps.Fourier(size=1, columns=["height"], radii=(200, 200)).bind(MIXED_SCHEMA)
    codes = np.zeros((COLUMNS, 65536), np.int16)
    codes[1] = np.arange(-32768, 32768)
    features = np.array([sums_of(bound, codes[:, i : i + 1]) for i in range(0, 65536, 5)])
    limit = bound.sensitivity(Relation.ADD_REMOVE)
    assert 0.9999 * limit.l1 <= np.abs(features).sum(axis=1).max() <= limit.l1
    assert 0.9999 * limit.l2_squared <= (features**2).sum(axis=1).max() <= limit.l2_squared


@every_map
def test_a_record_is_a_pure_function_of_its_codes(bound: BoundMap, rng: np.random.Generator) -> None:
    """Same bytes for every order, batching and merge tree, also across tile edges."""
    codes = rng.integers(-32768, 32768, (COLUMNS, 1100)).astype(np.int16)
    whole = sums_of(bound, codes)
    assert (sums_of(bound, codes[:, rng.permutation(1100)]) == whole).all()
    for size in (1, 7, 511, 512, 513):
        parts = [sums_of(bound, codes[:, start : start + size]) for start in range(0, 1100, size)]
        assert (np.sum(parts, axis=0) == whole).all()


@every_map
def test_features_are_the_real_form_of_the_sums(bound: BoundMap, rng: np.random.Generator) -> None:
    codes = rng.integers(-32768, 32768, (COLUMNS, 300)).astype(np.int16)
    error = np.abs(bound.features(Records(codes)).sum(axis=0) * bound.grid - sums_of(bound, codes))
    inner = getattr(bound.description, "map", bound.description)
    rounding = {"fourier": 0.53 * 300, "second_moments": 1e-12 * 300 * bound.grid}
    assert error.max() <= rounding.get(inner.name, 0)


@every_map
def test_description_survives_the_file(bound: BoundMap) -> None:
    facts = bound.description.to_dict()
    again = map_from_dict(facts)
    assert again == bound.description
    assert again.bind(MIXED_SCHEMA).fingerprint() == bound.fingerprint()
    assert bound.description.length(MIXED_SCHEMA) == bound.size


def test_fingerprints_tell_maps_apart() -> None:
    other = Schema.from_dict(
        {"columns": {"height": {"kind": "number", "lower": 1.0, "upper": 2.6}}, "privacy": {"rows": 10}}
    )
    narrow = dps.Fourier(size=4, seed=2, columns=["height"], radii=(1, 100))
    prints = [bound.fingerprint() for bound in BOUND] + [narrow.bind(other).fingerprint()]
    assert all(one != two for one, two in combinations(prints, 2))


VECTORS = {
    "count": "921ac7f259f86460",
    "histogram": "918e8153197e6a6c",
    "fourier": "dcf5bfc362a114a4",
    "fourier hadamard": "d2cb3f2edd85cfa1",
    "one_bit_fourier": "a27745279020bd9d",
    "one_bit_fourier hadamard": "e84d81ef821f3783",
    "second_moments": "a4e81712e11bf554",
    "grouped": "7fad58ec5f3e2bad",
    "grid": "11ed0ad0cec5b593",
}


@pytest.mark.parametrize("name", VECTORS)
def test_stable_vectors(name: str) -> None:
    """The bytes of each map on a fixed set of records; a change here needs a new map version."""
    import hashlib

    kind, _, structure = name.partition(" ")
    bound = next(
        bound
        for bound in BOUND
        if bound.description.name == kind and structure in ("", getattr(bound.description, "structure", ""))
    )
    codes = (np.arange(COLUMNS * 1000).reshape(COLUMNS, 1000) * 7919 % 65536 - 32768).astype(np.int16)
    digest = hashlib.sha256(sums_of(bound, codes).astype("<i8").tobytes()).hexdigest()[:16]
    assert digest == VECTORS[name]
