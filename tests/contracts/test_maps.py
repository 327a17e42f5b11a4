"""Every registered map keeps the same promises."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from conftest import SEED, TestStream
from dpsketch.maps.base import Body, BoundMap, Shape, Sums
from dpsketch.maps.counter_table import BoundTable
from dpsketch.maps.registry import MAPS, map_from_dict
from dpsketch.privacy.mechanisms import triangle_dimension
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema
from map_examples import EXAMPLES, SCHEMA, records_of

COLUMNS = len(SCHEMA.scalars)
BOUND = [example.bind(SCHEMA) for example in EXAMPLES]
# Maps with secret masks give other bytes each time: tests of same bytes leave them out. What they promise instead is
# in tests/unit/maps/test_subsampled.py.
PURE = [bound for bound in BOUND if not bound.secret]
every_pure_map = pytest.mark.parametrize("bound", PURE, ids=lambda bound: repr(bound.description))
every_map = pytest.mark.parametrize("bound", BOUND, ids=lambda bound: repr(bound.description))
record = st.lists(st.integers(-32768, 32767), min_size=COLUMNS, max_size=COLUMNS)


def sums_of(bound: BoundMap, codes: np.ndarray, masks: int = SEED) -> Sums:
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(records_of(codes, TestStream(masks) if bound.secret else None), sums)
    return sums


def features_of(bound: BoundMap, *records: list[int], masks: int = SEED) -> Sums:
    """Features of records; of a map with secret masks, under the masks that come with `masks`."""
    return sums_of(bound, np.array(records).T.reshape(COLUMNS, -1), masks)


def exact_square(change: Sums) -> int:
    """Squared length in Python's integers: fourth powers of codes do not fit 63 bits."""
    return sum(number * number for number in change.tolist())


def test_every_registered_map_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == {*MAPS.values(), dps.AdaptivePairs}


def inside(bound: BoundMap, body: Body | None, change: np.ndarray) -> bool:
    """Whether the norms of the groups' changes add up to at most the radius; integers, up to the roots."""
    if body is None:
        return True
    groups = [[int(number) for number in group] for group in change.reshape(bound.groups, -1)]
    if body.shape is Shape.CUBE:
        return sum(max(abs(number) for number in group) for group in groups) <= body.radius
    if body.shape is Shape.DISC:
        squares = [max(u * u + v * v for u, v in zip(group[0::2], group[1::2], strict=True)) for group in groups]
    else:
        on = np.equal(*np.triu_indices(triangle_dimension(len(groups[0])))).tolist()
        squares = [
            sum(n * n * (1 if diagonal else 2) for n, diagonal in zip(group, on, strict=True)) for group in groups
        ]
    changed = [square for square in squares if square]
    if len(changed) == 1:
        return changed[0] <= body.radius**2
    return sum(math.sqrt(square) for square in changed) <= body.radius * (1 + 1e-12)


@every_map
@given(one=record, two=record, masks=st.integers(0, 1000))
def test_neighbours_stay_within_the_sensitivity(bound: BoundMap, one: list[int], two: list[int], masks: int) -> None:
    """Also for all masks of a map that draws some: the same for both records, and independent ones."""
    first, second = features_of(bound, one, masks=masks), features_of(bound, two, masks=masks)
    other = features_of(bound, two, masks=masks + 1001)
    for relation, change in (
        (Relation.ADD_REMOVE, first),
        (Relation.REPLACE_ONE, first - second),
        (Relation.REPLACE_ONE, first - other),
    ):
        limit = bound.sensitivity(relation)
        assert isinstance(limit.l1, int)
        assert isinstance(limit.l2_squared, int)
        assert np.abs(change).sum() <= limit.l1
        assert exact_square(change) <= limit.l2_squared
        assert inside(bound, bound.body(relation), change)
    assert np.abs(first).max(initial=0) <= bound.largest


@every_map
@given(rows=st.lists(record, min_size=1, max_size=3), others=st.lists(record, min_size=0, max_size=3))
def test_units_stay_within_the_sensitivity(bound: BoundMap, rows: list[list[int]], others: list[list[int]]) -> None:
    change = features_of(bound, *rows)
    limit = bound.sensitivity(Relation.ADD_REMOVE, rows_per_unit=3)
    assert np.abs(change).sum() <= limit.l1
    assert exact_square(change) <= limit.l2_squared
    assert inside(bound, bound.body(Relation.ADD_REMOVE, rows_per_unit=3), change)
    if others:
        change = change - features_of(bound, *others)
    limit = bound.sensitivity(Relation.REPLACE_ONE, rows_per_unit=3)
    assert np.abs(change).sum() <= limit.l1
    assert exact_square(change) <= limit.l2_squared
    assert inside(bound, bound.body(Relation.REPLACE_ONE, rows_per_unit=3), change)


@pytest.mark.parametrize(
    "bound",
    [
        b
        for b in PURE
        if b.size and b.grid == 1 and not isinstance(b.description, dps.OneBitFourier | dps.Grid | dps.Race)
    ],
    ids=lambda b: repr(b.description),
)
def test_sharp_bounds_are_attained(bound: BoundMap) -> None:
    """By records at the ends or in the middle of all bounds."""
    records = [features_of(bound, [code] * COLUMNS) for code in (-32767, 0, 32767)]
    pairs = [one - two for one, two in combinations(records, 2)]
    for changes, limit in (
        (records, bound.sensitivity(Relation.ADD_REMOVE)),
        ([3 * alone for alone in records], bound.sensitivity(Relation.ADD_REMOVE, rows_per_unit=3)),
        (pairs, bound.sensitivity(Relation.REPLACE_ONE)),
    ):
        assert max(np.abs(change).sum() for change in changes) == limit.l1
        assert max((change**2).sum() for change in changes) == limit.l2_squared


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.0])
def test_the_second_moment_bounds_are_attained(radius: float) -> None:
    """L2² by a record along one axis, L1 nearly by the diagonal; replaced, both by records along two axes."""
    bound = dps.SecondMoments(columns=["height", "age"], radius=radius).bind(SCHEMA)
    ball = int(32767 * radius)
    axis, other, diagonal = ([0, 0, 0, 0, 0, 0] for _ in range(3))
    axis[1], other[0], diagonal[0], diagonal[1] = ball, ball, int(ball / 2**0.5), int(ball / 2**0.5)
    one, two = features_of(bound, axis), features_of(bound, other)
    assert exact_square(one) == bound.sensitivity(Relation.ADD_REMOVE).l2_squared == ball**4
    assert exact_square(one - two) == bound.sensitivity(Relation.REPLACE_ONE).l2_squared
    assert inside(bound, Body(Shape.BALL, ball**2), one)
    assert not inside(bound, Body(Shape.BALL, ball**2 - 1), one)
    replaced = bound.body(Relation.REPLACE_ONE)
    assert replaced is not None
    assert inside(bound, replaced, one - two)
    assert not inside(bound, Body(Shape.BALL, replaced.radius - 1), one - two)
    l1 = bound.sensitivity(Relation.ADD_REMOVE).l1
    assert 0.99 * l1 <= np.abs(features_of(bound, diagonal)).sum() <= l1


@pytest.mark.parametrize("radius", [0.1, 1.0])
def test_the_second_moment_bounds_with_means_are_attained(radius: float) -> None:
    """L2² and the ball by a record along one axis, whose constant comes on top."""
    bound = dps.SecondMoments(columns=["height", "age"], radius=radius, means=True).bind(SCHEMA)
    ball = int(32767 * radius)
    axis = [0, ball, 0, 0, 0, 0]
    one, limit = features_of(bound, axis), bound.body(Relation.ADD_REMOVE)
    assert exact_square(one) == bound.sensitivity(Relation.ADD_REMOVE).l2_squared
    assert limit is not None
    assert limit.radius == ball**2 + (ball // 2) ** 2
    assert inside(bound, limit, one)
    assert not inside(bound, Body(Shape.BALL, limit.radius - 1), one)


@pytest.mark.parametrize("means", [False, True])
def test_the_second_moment_bounds_of_a_large_ball_are_attained_in_a_corner(means: bool) -> None:
    """No code is above 32767, so a record of length 2·32767 has four of them, not one: less than B⁴."""
    corner = [32767, -32767, 32767, 32767, 0, 0]
    columns = [column.name for column in SCHEMA.scalars[:4]]
    bound = dps.SecondMoments(columns=columns, radius=2.0, means=means).bind(SCHEMA)
    assert bound.ball == 2 * 32767
    assert exact_square(features_of(bound, corner)) == bound.sensitivity(Relation.ADD_REMOVE).l2_squared
    assert bound.sensitivity(Relation.ADD_REMOVE).l2_squared < 0.8 * (bound.ball**4 + means * 5 * bound.ball**4 // 16)


def test_the_quadratic_l1_bound_is_attained_by_the_top_eigenvector() -> None:
    bound = dps.Quadratic(size=40, radius=0.9).bind(SCHEMA)
    top = np.linalg.eigh(bound.directions.T @ bound.directions)[1][:, -1]
    l1 = bound.sensitivity(Relation.ADD_REMOVE).l1
    assert 0.999 * l1 <= features_of(bound, list(top * bound.ball)).sum() <= l1


def test_the_quadratic_bounds_of_a_basis_are_attained() -> None:
    """Records along two vectors of one orthonormal basis: nothing is shared, so a row replaced counts twice.

    Compressive L. 19, 21 and 25 claim that it counts once.
    """
    bound = dps.Quadratic(columns=["height", "age"], size=2, directions="hadamard").bind(SCHEMA)
    half = int(bound.ball / 2**0.5)
    one, two = [0] * COLUMNS, [0] * COLUMNS
    for record_codes, row in ((one, bound.matrix[0]), (two, bound.matrix[1])):
        record_codes[1], record_codes[0] = (half * row).tolist()
    first, second = features_of(bound, one), features_of(bound, two)
    assert (np.sort(first) == [0, (2 * half) ** 2]).all()
    for relation, change in ((Relation.ADD_REMOVE, first), (Relation.REPLACE_ONE, first - second)):
        limit = bound.sensitivity(relation)
        assert 0.9998 * limit.l1 <= np.abs(change).sum() <= limit.l1
        assert 0.9998 * limit.l2_squared <= exact_square(change) <= limit.l2_squared


def test_the_grid_bounds_are_attained() -> None:
    """With two counters a row, some pair of records meets in every row with opposite signs."""
    bound = dps.Grid(columns=["height"], width=2, rows=2).bind(SCHEMA)
    codes = np.zeros((COLUMNS, 64), np.int16)
    codes[1] = np.linspace(-32767, 32767, 64)
    features = bound.features(records_of(codes))
    change = features[:, None] - features[None, :]
    limit = bound.sensitivity(Relation.REPLACE_ONE)
    assert (np.abs(change).sum(axis=2).max(), (change**2).sum(axis=2).max()) == (limit.l1, limit.l2_squared)
    assert set(np.abs(features).sum(axis=1)) == {bound.sensitivity(Relation.ADD_REMOVE).l1}


def test_the_one_bit_bounds_are_attained() -> None:
    """Every record attains the bounds of add/remove; two records half a turn apart attain those of replace-one."""
    bound = dps.OneBitFourier(size=1, columns=["height"], radii=(200, 200)).bind(SCHEMA)
    codes = np.zeros((COLUMNS, 65536), np.int16)
    codes[1] = np.arange(-32768, 32768)
    features = bound.features(records_of(codes))
    limit = bound.sensitivity(Relation.ADD_REMOVE)
    assert set(np.abs(features).sum(axis=1)) == {limit.l1}
    assert set((features**2).sum(axis=1)) == {limit.l2_squared}
    change = features[np.argmax(features.sum(axis=1))] - features[np.argmin(features.sum(axis=1))]
    limit = bound.sensitivity(Relation.REPLACE_ONE)
    assert (np.abs(change).sum(), (change**2).sum()) == (limit.l1, limit.l2_squared)
    assert inside(bound, bound.body(Relation.REPLACE_ONE), change)
    assert not inside(bound, Body(Shape.CUBE, 1), change)


def test_the_contrast_bounds_are_attained() -> None:
    """The cube of a row replaced is attained where one column turns in every pair; three pairs of three columns cannot
    all turn, so that what is stated of them is a bound.
    """
    lowest, highest = [-32767] * COLUMNS, [32767] * COLUMNS
    stars = [b for b in BOUND if isinstance(b.description, dps.Contrasts)]
    assert stars
    for bound in stars:
        change = features_of(bound, lowest) - features_of(bound, highest)
        assert bound.body(Relation.REPLACE_ONE) == Body(Shape.CUBE, 2)
        assert inside(bound, Body(Shape.CUBE, 2), change)
        assert not inside(bound, Body(Shape.CUBE, 1), change)
        assert not inside(bound, Body(Shape.CUBE, 0), features_of(bound, lowest))
        assert set(np.abs(change)) == {2}
    halves = [(0, 1, 1, 1), (0, 1, 1), (0, 1, 1, 1, 1)]
    triangle = dps.Contrasts(halves, columns=["sex", "member", "height"], bins=2).bind(SCHEMA)
    every = [
        [member, height, 0, sex, 0, 0] for member in (-32767, 32767) for height in (-32767, 0) for sex in (-32767, 0)
    ]
    changes = [np.abs(features_of(triangle, a) - features_of(triangle, b)).sum() for a, b in combinations(every, 2)]
    assert max(changes) <= triangle.sensitivity(Relation.REPLACE_ONE).l1 == 6


def test_the_bounds_of_totals_are_attained() -> None:
    every = [b for b in BOUND if isinstance(b.description, dps.Totals)]
    assert every
    for bound in every:
        low, high = (features_of(bound, [end] * COLUMNS) for end in (-32767, 32767))
        for change, relation in ((high, Relation.ADD_REMOVE), (high - low, Relation.REPLACE_ONE)):
            limit, body = bound.sensitivity(relation), bound.body(relation)
            assert (np.abs(change).sum(), (change**2).sum()) == (limit.l1, limit.l2_squared)
            assert inside(bound, body, change)
            assert not inside(bound, Body(Shape.CUBE, body.radius - 1), change)


def test_the_fourier_bounds_are_attained_by_one_frequency() -> None:
    """One frequency of one turn in 2^32 steps a code: go through every code and find the largest features."""
    bound = dps.Fourier(size=1, columns=["height"], radii=(200, 200)).bind(SCHEMA)
    codes = np.zeros((COLUMNS, 65536), np.int16)
    codes[1] = np.arange(-32768, 32768)
    features = np.array([sums_of(bound, codes[:, i : i + 1]) for i in range(0, 65536, 5)])
    limit = bound.sensitivity(Relation.ADD_REMOVE)
    assert 0.9999 * limit.l1 <= np.abs(features).sum(axis=1).max() <= limit.l1
    assert 0.9999 * limit.l2_squared <= (features**2).sum(axis=1).max() <= limit.l2_squared
    longest = features[np.argmax((features**2).sum(axis=1))]
    assert inside(bound, bound.body(Relation.ADD_REMOVE), longest)
    assert not inside(bound, Body(Shape.DISC, 32767), longest)


@every_pure_map
def test_a_record_is_a_pure_function_of_its_codes(bound: BoundMap, rng: np.random.Generator) -> None:
    """Same bytes for every order, batching and merge tree, also across tile edges."""
    codes = rng.integers(-32768, 32768, (COLUMNS, 1100)).astype(np.int16)
    whole = sums_of(bound, codes)
    assert (sums_of(bound, codes[:, rng.permutation(1100)]) == whole).all()
    for size in (1, 7, 511, 512, 513):
        parts = [sums_of(bound, codes[:, start : start + size]) for start in range(0, 1100, size)]
        assert (np.sum(parts, axis=0) == whole).all()


@pytest.mark.parametrize(
    "bound", [b for b in BOUND if isinstance(b, BoundTable)], ids=lambda bound: repr(bound.description)
)
def test_tables_fill_by_rows_and_in_four_bytes(bound: BoundTable, rng: np.random.Generator) -> None:
    """Any split of the rows gives the same sums, and four bytes give them modulo 2^32."""
    codes = rng.integers(-32768, 32768, (COLUMNS, 1100)).astype(np.int16)
    whole = sums_of(bound, codes)
    assert bound.size == bound.rows * bound.width
    prepared = bound.prepare(records_of(codes))
    for split in ([0, bound.rows], [0, 1, bound.rows], range(bound.rows + 1)):
        start = rng.integers(-(2**31), 2**31, bound.size)
        start[:2] = 2**31 - 1, -(2**31)
        narrow, wide = start.astype(np.int32), start.copy()
        for first, last in pairwise(split):
            outside = np.delete(narrow, slice(first * bound.width, last * bound.width))
            bound.accumulate_rows(prepared, narrow, first, last)
            bound.accumulate_rows(prepared, wide, first, last)
            assert (np.delete(narrow, slice(first * bound.width, last * bound.width)) == outside).all()
        assert (wide == start + whole).all()
        assert (narrow == wide.astype(np.int32)).all()
    if bound.unit_increments:
        assert (whole.reshape(bound.rows, -1).sum(axis=1) == 1100).all()


@every_pure_map
def test_features_are_the_real_form_of_the_sums(bound: BoundMap, rng: np.random.Generator) -> None:
    codes = rng.integers(-32768, 32768, (COLUMNS, 300)).astype(np.int16)
    error = np.abs(bound.features(records_of(codes)).sum(axis=0) * bound.grid - sums_of(bound, codes))
    inner = getattr(bound.description, "map", bound.description)
    rounding = {
        "fourier": 0.53 * 300,
        "second_moments": 1e-12 * 300 * bound.grid,
        # a projection loses less than one step: (p + 1)² − p² before the square
        "quadratic": 300 * (2 * bound.largest**0.5 + 1),
        "race": 1e-6,
    }
    assert error.max(initial=0) <= rounding.get(inner.name, 0)


@every_map
def test_description_survives_the_file(bound: BoundMap) -> None:
    facts = bound.description.to_dict()
    again = map_from_dict(facts)
    assert again == bound.description
    assert again.bind(SCHEMA).fingerprint() == bound.fingerprint()
    assert bound.description.length(SCHEMA) == bound.size


def test_fingerprints_tell_maps_apart() -> None:
    other = Schema.from_dict(
        {"columns": {"height": {"kind": "number", "lower": 1.0, "upper": 2.6}}, "privacy": {"rows": 10}}
    )
    narrow = dps.Fourier(size=4, seed=2, columns=["height"], radii=(1, 100))
    prints = [bound.fingerprint() for bound in BOUND] + [narrow.bind(other).fingerprint()]
    assert all(one != two for one, two in combinations(prints, 2))


VECTORS = {
    "count": "921ac7f2",
    "histogram": "918e8153 e6186144 dc008c1d 818837a5 aed11bc4",
    "marginals": "14964ea7 5d6e3d0d aa983492 bf1eda0b ba3ce1de",
    "levels": "b494f586 067f5d28 e3b0c442 58cef97f",
    "adaptive_marginals": "07113ae5 332cc28b",
    "cell_counts": "1547af23 dd299a30",
    "totals": "ab4c33ec 339895eb",
    "pairs": "4f79aecd af215d01 96ec96bb e03d2149 4f79aecd 9ce524c7 9ce524c7 a866ee64 8e084009 88fa8639",
    "contrasts": "62c2df19 af5570f5 e3532f12",
    "triples": "a952d76c 02910be1 50c5f2cf",
    "fourier": "dcf5bfc3 bb79708d d2cb3f2e 898f7b78 2d54a58d 68caa464",
    "one_bit_fourier": "a2774527 9f098381 e84d81ef 7dea1083 7455151f",
    "quadratic": "2af5d117 42a9b7cc 121fc6a5 dba43dc9 21b326c9",
    "second_moments": "a4e81712 07b9a375 7a6896e4 474e514e",
    "grid": "11ed0ad0 948ee38f",
    "race": "49d886a6 9f607439 f597bc2d 67a32dc2 26d0db72 76f6e450 aaad2f84 44543d6e 54d303a3 9b8b2fba 60c4fb1a "
    "326d8636 81d125d6 bc3449f3 1ddd4e2e",
    "grouped": "7fad58ec c86f556e 658d73e4 56d316bb 1fada20d 155db317 b612a2c0 81c9a0a2 7f199bb0 57259e2b",
}


@pytest.mark.parametrize("name", VECTORS)
def test_stable_vectors(name: str) -> None:
    """The bytes of each map on a fixed set of records; a change here needs a new map version."""
    import hashlib

    codes = (np.arange(COLUMNS * 1000).reshape(COLUMNS, 1000) * 7919 % 65536 - 32768).astype(np.int16)
    every = [sums_of(bound, codes) for bound in PURE if bound.description.name == name]
    digests = [hashlib.sha256(sums.astype("<i8").tobytes()).hexdigest()[:8] for sums in every]
    assert " ".join(digests) == VECTORS[name]
