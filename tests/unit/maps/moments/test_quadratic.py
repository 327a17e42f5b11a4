from __future__ import annotations

import hashlib
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.moments.ball import clipped
from dpsketch.maps.moments.quadratic import BoundQuadratic, Quadratic, draw_mixed_bases
from dpsketch.maps.moments.spectral import eigenvalue_bound, fourths_bound, squares_bound
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


def wide(dimension: int) -> Schema:
    return Schema.from_dict(
        {"columns": {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(dimension)}}
    )


def bind(dimension: int, **parameters: Any) -> BoundQuadratic:
    return Quadratic(**parameters).bind(wide(dimension))


def largest_fourths(directions: np.ndarray, rng: np.random.Generator) -> float:
    """Power iterations of the quartic from many starts: a lower bound on S₄², usually S₄² itself."""
    x = np.vstack([rng.normal(size=(200, directions.shape[1])), directions])
    for _ in range(200):
        x /= np.linalg.norm(x, axis=1)[:, None]
        along = x @ directions.T
        x = (along * along * along) @ directions
    x /= np.linalg.norm(x, axis=1)[:, None]
    return float(((x @ directions.T) ** 4).sum(axis=1).max())


@pytest.mark.parametrize("directions", ["gaussian", "hadamard", "hadamard3"])
@pytest.mark.parametrize(("dimension", "radius"), [(1, 0.01), (4, 1.0), (7, 32.0), (33, 5.7), (64, 32.0)])
def test_sums_are_exact_squares(dimension: int, radius: float, directions: str, rng: np.random.Generator) -> None:
    """Python's integers, record by record, give the same sums as the kernel, also for the longest records."""
    bound = bind(dimension, size=64, radius=radius, directions=directions)
    codes = rng.integers(-32768, 32768, (dimension, 530)).astype(np.int16)
    codes[:, 0], codes[:, 1] = 32767, -32767
    codes[:, 2:66] = (np.sign(bound.matrix) * 32767).T
    sums = np.zeros(64, np.int64)
    bound.accumulate(Records(codes), sums)
    numbers = clipped(codes, np.arange(dimension), bound.ball).astype(object)
    assert ((numbers**2).sum(axis=0) <= bound.ball**2).all()
    projections = abs(bound.matrix.astype(object) @ numbers)
    assert projections.max() < 2**31
    exact = (projections // 2**bound.shift) ** 2
    assert exact.max() <= bound.largest
    assert (exact.sum(axis=1) == sums).all()


def test_hadamard_sums_keep_their_bytes() -> None:
    """A change here needs a new map version; the Gaussian form is in tests/contracts."""
    bound = bind(5, size=16, seed=3, radius=1.5, directions="hadamard")
    codes = (np.arange(5 * 1000).reshape(5, 1000) * 7919 % 65536 - 32768).astype(np.int16)
    sums = np.zeros(16, np.int64)
    bound.accumulate(Records(codes), sums)
    assert hashlib.sha256(sums.astype("<i8").tobytes()).hexdigest()[:16] == "dfb71d65dc7a759e"


def test_sums_of_three_stages_keep_their_bytes() -> None:
    """Likewise, with exact entries and with rounded ones."""
    digests = []
    for dimension, size, radius in ((5, 16, 1.5), (130, 256, 32.0)):
        bound = bind(dimension, size=size, seed=3, radius=radius, directions="hadamard3")
        codes = (np.arange(dimension * 1000).reshape(dimension, 1000) * 7919 % 65536 - 32768).astype(np.int16)
        sums = np.zeros(size, np.int64)
        bound.accumulate(Records(codes), sums)
        digests.append(hashlib.sha256(sums.astype("<i8").tobytes()).hexdigest()[:16])
    assert digests == ["c9c4b7de68e9ff0d", "f6ba7f2d8c20e875"]


@pytest.mark.parametrize("dimension", [1, 5, 8, 30])
def test_three_stages_are_products_of_sign_changes_and_hadamard_matrices(dimension: int) -> None:
    """docs/formats/draw.md, word by word."""
    basis = 1 << (dimension - 1).bit_length()
    words = PublicStream("quadratic stages", 3).words(2 * 3 * basis).reshape(2, 3, basis)
    hadamard = np.array([[1 - 2 * ((i & j).bit_count() % 2) for j in range(basis)] for i in range(basis)])
    expected = []
    for stages in words:
        matrix = np.eye(basis, dtype=int)
        for stage in stages:
            matrix = hadamard @ (np.where(stage >> np.uint64(63), -1, 1)[:, None] * matrix)
        expected.append(matrix[:, :dimension])
    found = bind(dimension, size=2 * basis, seed=3, directions="hadamard3").matrix
    assert (found == np.concatenate(expected)).all()


def test_rounded_entries_fit_and_are_certified() -> None:
    """130 columns in a wide ball: projections would not fit 32 bits, so entries lose two bits, and λ has a
    certificate.
    """
    bound = bind(130, size=256, radius=32.0, directions="hadamard3")
    full = draw_mixed_bases(0, 256, 130, 0)
    assert bound.square is None
    assert (np.abs(4 * bound.matrix - full) <= 2).all()
    assert (bound.matrix[full % 4 == 2] * full[full % 4 == 2] > 0).all()  # halves go away from zero
    longest = max(sum(int(entry) ** 2 for entry in row) for row in bound.matrix.tolist())
    assert longest * bound.ball**2 < 2**62
    largest = float(np.linalg.eigvalsh(bound.matrix.astype(float).T @ bound.matrix)[-1])
    unit = bound.ball**2 / 4**bound.shift
    assert 0.9999 * largest * unit <= bound.sensitivity(Relation.ADD_REMOVE).l1 <= 1.001 * largest * unit
    assert 1 <= bound.sensitivity(Relation.ADD_REMOVE).l1 / bound.grid < 1.05


def test_parts_of_three_stages_take_a_certificate_unless_they_are_whole_bases() -> None:
    bound = bind(8, size=16, directions="hadamard3")
    whole, some = bound.restricted(0, 8), bound.restricted(0, 6)
    assert 2 * whole.sensitivity(Relation.ADD_REMOVE).l1 == bound.sensitivity(Relation.ADD_REMOVE).l1
    assert some.square is None
    assert some.sensitivity(Relation.ADD_REMOVE).l1 <= 1.001 * whole.sensitivity(Relation.ADD_REMOVE).l1


def test_gaussian_directions_have_length_about_one() -> None:
    for radius in (0.01, 1.0, 32.0):
        bound = bind(20, size=2000, radius=radius)
        assert abs((bound.directions**2).sum(axis=1).mean() - 1) < 0.02
        assert bound.largest < 2**40


@pytest.mark.parametrize("dimension", [1, 2, 5, 8, 200])
def test_three_stages_are_orthonormal_bases(dimension: int) -> None:
    basis = 1 << (dimension - 1).bit_length()
    bound = bind(dimension, size=2 * basis, radius=1.0, directions="hadamard3")
    entries = bound.matrix.astype(np.float64)
    assert (entries.T @ entries == 2 * basis**3 * np.eye(dimension, dtype=int)).all()
    assert np.allclose(bound.directions.T @ bound.directions, 2 * np.eye(dimension))
    assert bound.sensitivity(Relation.ADD_REMOVE).l1 == 2 * basis**3 * bound.ball**2 // 4**bound.shift
    assert bound.largest <= 2**40


@pytest.mark.parametrize("dimension", [1, 5, 8, 600])
def test_hadamard_directions_are_orthonormal_bases(dimension: int) -> None:
    basis = 1 << (dimension - 1).bit_length()
    bound = bind(dimension, size=2 * basis, radius=1.0, directions="hadamard")
    assert set(np.unique(bound.matrix)) <= {-1, 1}
    signs = bound.matrix.astype(np.float64)  # products of floats are fast, and exact below 2^53
    assert (signs.T @ signs == 2 * basis * np.eye(dimension, dtype=int)).all()
    assert np.allclose(bound.directions.T @ bound.directions, 2 * np.eye(dimension))
    assert (bound.matrix[:basis] != bound.matrix[basis:]).any() or dimension == 1
    assert bound.sensitivity(Relation.ADD_REMOVE).l1 == 2 * basis * bound.ball**2 // 4**bound.shift


def test_a_row_replaced_counts_twice() -> None:
    """Ω = I, x = e₁, y = e₂: the sums change by 2 in L1 and in L2². Compressive L. 19 and 25 claim 1."""
    bound = bind(2, size=2)
    bound.matrix = np.eye(2, dtype=np.int32) << bound.shift
    ball = bound.ball
    one, two = np.zeros(2, np.int64), np.zeros(2, np.int64)
    bound.accumulate(Records(np.array([[ball], [0]], np.int16)), one)
    bound.accumulate(Records(np.array([[0], [ball]], np.int16)), two)
    change = (one - two).tolist()
    limit = bound.sensitivity(Relation.REPLACE_ONE)
    assert sum(map(abs, change)) == 2 * ball**2 <= limit.l1 <= 2.002 * ball**2
    assert sum(number**2 for number in change) == 2 * ball**4 <= limit.l2_squared <= 2.002 * ball**4


@pytest.mark.parametrize(
    ("dimension", "parameters", "looseness"),
    [
        (10, {"size": 200}, 1.1),
        (3, {"size": 50, "radius": 0.5}, 1.1),
        (50, {"size": 300}, 1.2),
        (10, {"size": 1500}, 1.4),
        (16, {"size": 16, "directions": "hadamard"}, 1.0001),
        (16, {"size": 208, "directions": "hadamard"}, 1.35),
        (11, {"size": 64, "directions": "hadamard"}, 1.5),
        (16, {"size": 16, "directions": "hadamard3"}, 1.0001),
        (20, {"size": 416, "directions": "hadamard3"}, 1.35),
        (130, {"size": 256, "radius": 32.0, "directions": "hadamard3"}, 2.0),
    ],
)
def test_the_l2_bound_is_above_the_largest_and_not_far(
    dimension: int, parameters: dict[str, Any], looseness: float, rng: np.random.Generator
) -> None:
    bound = bind(dimension, **parameters)
    limit = bound.sensitivity(Relation.ADD_REMOVE).l2_squared / bound.grid**2
    found = largest_fourths(bound.directions, rng)
    assert found * (1 - 1e-6) <= limit <= looseness * found


def test_many_directions_have_the_simple_l2_bound() -> None:
    matrix = bind(2, size=5000).matrix
    squares = squares_bound(matrix)
    assert fourths_bound(matrix, squares) == squares * int((matrix.astype(np.int64) ** 2).sum(axis=1).max())


def test_eigenvalue_bounds_are_tight_and_proven(rng: np.random.Generator) -> None:
    for dimension in (1, 2, 30, 200):
        numbers = rng.integers(-1000, 1000, (300, dimension)).astype(np.float64)
        gram = numbers.T @ numbers
        bound = eigenvalue_bound(gram)
        assert isinstance(bound, Fraction)
        assert 1 <= float(bound) / np.linalg.eigvalsh(gram)[-1] < 1.001


def test_a_wrong_guess_cannot_lower_the_bound(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factorisation decides, not the guess."""
    numbers = rng.integers(-1000, 1000, (300, 20)).astype(np.float64)
    gram = numbers.T @ numbers
    honest = np.linalg.eigvalsh(gram)
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda _: 0.9 * honest)
    assert eigenvalue_bound(gram) >= honest[-1]


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"size": 0}, 3, "Quadratic: size must be a whole number from 1 to 10000000, got 0 instead"),
    ({"seed": -1}, 3, "Quadratic: seed must be a whole number from 0 to 18446744073709551615, got -1 instead"),
    ({"radius": 33}, 3, "Quadratic: radius must be a number from 0.01 to 32, got 33 instead"),
    ({"radius": True}, 3, "Quadratic: radius must be a number from 0.01 to 32, got True instead"),
    ({"columns": []}, 3, "Quadratic: columns must name at least one column, each once"),
    (
        {"directions": "fast"},
        3,
        "Quadratic: directions must be one of gaussian, hadamard, hadamard3, got 'fast' instead",
    ),
    (
        {"directions": ["gaussian"]},
        3,
        "Quadratic: directions must be one of gaussian, hadamard, hadamard3, got ['gaussian'] instead",
    ),
    ({"size": 1}, 4097, "Quadratic: 4097 columns are more than 4096\nHint: name fewer columns"),
    (
        {"size": 10**7},
        4,
        "Quadratic: 10000000 directions of 4 columns are more than 33554432 numbers\n"
        "Hint: lower size or name fewer columns",
    ),
    (
        {"size": 200, "directions": "hadamard"},
        10,
        "Quadratic: size must be a multiple of 16 for 10 columns with hadamard directions, got 200 instead\n"
        "Hint: use 192 or 208",
    ),
    (
        {"size": 9, "directions": "hadamard3"},
        4,
        "Quadratic: size must be a multiple of 4 for 4 columns with hadamard3 directions, got 9 instead\n"
        "Hint: use 8 or 12",
    ),
    (
        {"size": 3, "directions": "hadamard"},
        4,
        "Quadratic: size must be a multiple of 4 for 4 columns with hadamard directions, got 3 instead\nHint: use 4",
    ),
]


@pytest.mark.parametrize(("parameters", "dimension", "message"), BAD, ids=lambda value: str(value)[:30])
def test_bad_parameters(parameters: dict[str, Any], dimension: int, message: str) -> None:
    with pytest.raises(RecipeError, match=f"^{re.escape(message)}$"):
        bind(dimension, **parameters)
