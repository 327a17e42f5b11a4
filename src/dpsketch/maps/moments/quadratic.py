"""Random quadratic features: squares of a record's projections on many directions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import BoundMap, FeatureMap, Sensitivity, Sums, check_columns, check_whole, chosen_columns
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.fourier.hadamard import block_columns
from dpsketch.maps.moments.ball import check_dimension, check_radius, clipped
from dpsketch.maps.moments.spectral import FOURTHS_BLOCK, MOST_FOURTHS, fourths_bound, squared_lengths, squares_bound
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

DIRECTIONS = ("gaussian", "hadamard", "hadamard3")
MOST_PARAMETERS = 2**25
# Number of bits of a Gaussian projection of a record on the ball, for a direction of length 1. (No drawn direction is
# longer than 12.2, so 31 bits suffice.) The lowest bits are dropped before squaring.
_BITS, _DROPPED = 27, 11
_CHUNK = 1 << 22  # entries of bases drawn together
_MOST_SQUARE = 2**40  # above this, Hadamard projections drop bits, too


@dataclass(frozen=True)
class Quadratic(FeatureMap):
    """(ω·x)² for `size` directions ω, with x scaled to [-1, 1]^d by the declared bounds and clipped to the ball of
    `radius`.

    "gaussian" directions are independent, of length about 1. "hadamard" and "hadamard3" directions are orthonormal
    bases with random signs: their squares have the same sum for every record, which needs the least noise. `size` is
    then a multiple of the number of columns rounded up to a power of two. All entries of "hadamard" directions have the
    same size, so of the diagonal of second moments they measure only the sum; "hadamard3" goes through three such
    stages, as `Fourier` does, and has directions of every kind. A missing cell counts as the midpoint of its bounds.
    `radius` is in half-widths of a column's bounds, as in `SecondMoments`; features are those of x divided by it.
    """

    columns: tuple[str, ...] | None = None
    size: int = 200
    seed: int = 0
    radius: float = 1.0
    directions: str = "gaussian"

    name: ClassVar[str] = "quadratic"
    good_for: ClassVar[str] = "principal components"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", check_columns("Quadratic", self.columns))
        check_whole("Quadratic", "size", self.size, 1, 10**7)
        check_whole("Quadratic", "seed", self.seed, 0, 2**64 - 1)
        object.__setattr__(self, "radius", check_radius("Quadratic", self.radius))
        if self.directions not in DIRECTIONS:
            raise RecipeError(
                f"Quadratic: directions must be one of {', '.join(DIRECTIONS)}, got {self.directions!r} instead"
            )

    def length(self, schema: Schema) -> int:
        """Number of sums: one per direction."""
        dimension = len(chosen_columns(schema, self.columns))
        check_dimension("Quadratic", dimension)
        if self.size * dimension > MOST_PARAMETERS:
            raise RecipeError(
                f"Quadratic: {self.size} directions of {dimension} columns are more than {MOST_PARAMETERS} numbers",
                "lower size or name fewer columns",
            )
        basis = _padded(dimension)
        if self.directions != "gaussian" and self.size % basis:
            below = self.size // basis * basis
            raise RecipeError(
                f"Quadratic: size must be a multiple of {basis} for {dimension} columns with {self.directions} "
                f"directions, got {self.size} instead",
                f"use {below} or {below + basis}" if below else f"use {basis}",
            )
        return self.size

    def work(self, schema: Schema) -> int:
        """Cost of drawing the directions, and of the eigenvalues for the sensitivity (`maps.moments.spectral`)."""
        dimension = len(chosen_columns(schema, self.columns))
        exact = self.directions == "hadamard" or (
            self.directions == "hadamard3" and not _entry_bits(dimension, self._ball)
        )
        matrices = 0 if exact else min(self.size, dimension) ** 3
        if self.size <= MOST_FOURTHS:
            matrices += 4 * self.size * min(self.size, FOURTHS_BLOCK) ** 2
        return self.size * dimension + matrices // 1000

    @property
    def _ball(self) -> int:
        return int(HIGHEST * self.radius)

    def bind(self, schema: Schema) -> BoundQuadratic:
        return BoundQuadratic(self, schema)


class BoundQuadratic(BoundMap):
    """Guarantee: records have Euclidean norm at most B = ⌊32767·radius⌋, so L1 <= λ_max(ΩᵀΩ)·B² and L2² <= S₄(Ω)²·B⁴
    for adding or removing a row, with proven bounds on both; twice both for replacing a row (features are
    non-negative). Source: compressive L. 9, 13, but not its L. 19, 21 and 25, which are wrong for replacing a row;
    docs/proofs/quadratic.md.
    """

    certified = True

    constant = 0  # appended to a record's numbers; only second moments with means have a nonzero one

    def __init__(self, description: Quadratic, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = description.length(schema)
        self.ball = description._ball
        dimension, basis = len(self.columns), _padded(len(self.columns))
        self.square: int | None = None  # s, where ΩᵀΩ = s·I exactly for each basis
        if description.directions == "gaussian":
            self.matrix = draw_gaussians(description.seed, self.size, dimension, self.ball)
            self.shift, self.grid = _DROPPED, 1 << 2 * (_BITS - _DROPPED)
        else:
            if description.directions == "hadamard":
                self.matrix, bits, length = draw_bases(description.seed, self.size, dimension), 0, dimension
                self.square = square = basis
            else:
                bits = _entry_bits(dimension, self.ball)
                self.matrix = draw_mixed_bases(description.seed, self.size, dimension, bits)
                square = length = basis**3
                self.square = None if bits else square
            self.shift = 0
            while length * self.ball**2 >> 2 * (bits + self.shift) > _MOST_SQUARE:
                self.shift += 1
            self.grid = square * self.ball**2 >> 2 * (bits + self.shift)
        self.largest = _largest(self.matrix, self.ball, self.shift)
        self._rows = np.array([schema.index(name) for name in self.columns])

    @property
    def directions(self) -> Floats:
        """The real ω that multiply a record divided by the radius: one per matrix row, of length about 1."""
        directions: Floats = self.matrix * (self.ball / (2.0**self.shift * self.grid**0.5))
        return directions

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.kernels import quadratic_sums

        quadratic_sums(records.codes, self._rows, self.ball, *self._halves, self.shift, sums)

    @cached_property
    def _halves(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        from dpsketch.maps.fourier.phases import split_frequencies

        return split_frequencies(self.matrix)

    def features(self, records: Records) -> Floats:
        """Squares of the real projections. Integer projections differ by less than 1 before squaring where bits are
        dropped.
        """
        numbers = clipped(records.codes, self._rows, self.ball) / self.ball
        return (numbers.T @ self.directions.T) ** 2

    @cached_property
    def _single(self) -> Sensitivity:
        if self.size == 1:
            return Sensitivity(max(1, self.largest), max(1, self.largest**2))
        if self.square is None:
            squares = squares_bound(self.matrix)
        else:
            squares = Fraction(self.size // _padded(len(self.columns)) * self.square)
        fourths = fourths_bound(self.matrix, squares)
        unit = Fraction(self.ball**2, 4**self.shift)
        return Sensitivity(max(1, int(squares * unit)), max(1, int(fourths * unit**2)))

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        times = 1 if relation is Relation.ADD_REMOVE else 2
        return Sensitivity(times * self._single.l1, times * self._single.l2_squared)

    def restricted(self, first: int, last: int) -> BoundQuadratic:
        """The map with some of its directions. Only whole bases keep a common sum of squares."""
        basis, matrix = _padded(len(self.columns)), self.matrix[first:last]
        whole = first % basis == 0 and last % basis == 0
        largest = _largest(matrix, self.ball, self.shift)
        return self._with(size=last - first, matrix=matrix, square=self.square if whole else None, largest=largest)

    def parameters(self) -> bytes:
        return self.matrix.astype("<i4").tobytes()


def _padded(dimension: int) -> int:
    """The smallest power of two that is at least `dimension`."""
    return 1 << (dimension - 1).bit_length()


def _entry_bits(dimension: int, ball: int) -> int:
    """Bits to round away from entries of three stages, the fewest with which projections of the ball fit an int32.

    A row of three stages of width d' has length √d'³, and rounding adds at most √d/2.
    """
    length, bits = isqrt(_padded(dimension) ** 3) + 1, 0
    while ((length >> bits) + 1 + (isqrt(dimension) + 1 if bits else 0)) * ball >= 2**31:
        bits += 1
    return bits


def _largest(matrix: NDArray[np.int32], ball: int, shift: int) -> int:
    """Upper bound on a feature of a record in the ball, by Cauchy–Schwarz."""
    return (isqrt(squared_lengths(matrix).max().item() * ball**2) >> shift) ** 2


def draw_gaussians(seed: int, size: int, dimension: int, ball: int) -> NDArray[np.int32]:
    """Draw normal entries of variance 1/d in units of ball/2^27, one matrix row per direction. See
    docs/formats/draw.md.
    """
    normals = PublicStream("quadratic directions", seed).normals(size * dimension).reshape(size, dimension)
    entries: Floats = np.rint(normals * (2.0**_BITS / (ball * np.sqrt(float(dimension)))))
    return entries.astype(np.int32)


def draw_bases(seed: int, size: int, dimension: int) -> NDArray[np.int32]:
    """Draw Walsh–Hadamard matrices with random column signs, restricted to the real columns: all entries are ±1."""
    basis = _padded(dimension)
    signs = PublicStream("quadratic signs", seed).words(size // basis * dimension).reshape(
        -1, 1, dimension
    ) >> np.uint64(63)
    common = np.arange(basis)[:, None] & np.arange(dimension)
    negative = (np.bitwise_count(common) + signs.astype(np.uint8)) & 1
    entries: NDArray[np.int32] = 1 - 2 * negative.astype(np.int32)
    return entries.reshape(size, dimension)


def draw_mixed_bases(seed: int, size: int, dimension: int, bits: int) -> NDArray[np.int32]:
    """Draw matrices H·D₃·H·D₂·H·D₁ with random signs D, restricted to the real columns and divided by 2^bits.

    Halves are rounded away from zero, so that rounding has no direction of its own. docs/formats/draw.md specifies
    every bit.
    """
    basis = _padded(dimension)
    words = PublicStream("quadratic stages", seed).words(3 * size).reshape(-1, 3, basis)
    signs = 1 - 2 * (words >> np.uint64(63)).astype(np.int8)
    step = max(1, _CHUNK // (basis * dimension))
    blocks = [block_columns(signs[start : start + step], slice(0, dimension)) for start in range(0, len(signs), step)]
    entries = np.concatenate(blocks).reshape(size, dimension)
    rounded: NDArray[np.int32] = np.sign(entries) * ((np.abs(entries) + ((1 << bits) >> 1)) >> bits)
    return rounded
