"""The parameters of a RACE map's hashes: projections, permutations and weights, drawn from its public seed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import RecipeError
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.hashed.hash_inputs import HashInputs
from dpsketch.maps.hashed.hashes import Binned, Factor, Hamming, InnerProduct, Manhattan
from dpsketch.maps.moments.ball import clipped
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import HIGHEST, MISSING, SPAN
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.maps.hashed.race import Race

SIGN = -1  # replaces a shift where the projection gives one bit


class Projection:
    """The random projections of one factor: integer coefficients on int16 inputs, modulo 2^32."""

    def __init__(self, factor: Factor, schema: Schema, race: Race, stream: PublicStream) -> None:
        self._hash = factor.hash
        self._inputs = HashInputs(factor, schema, race)
        self.dimension = self._inputs.size + 2 * isinstance(factor.hash, InnerProduct)
        self.hashes = factor.hash.hashes
        shape = (race.rows, self.hashes, self.dimension)
        self.offsets = np.zeros(shape[:2], np.int32)
        if isinstance(factor.hash, Hamming):
            self.shift = 0  # the bin is the code itself
            self.coefficients = _sampled(stream.words(math.prod(shape[:2])), self.dimension).reshape(shape)
            return
        if not isinstance(factor.hash, Binned):
            self.shift = SIGN
            self.coefficients = sign_coefficients(stream.normals(math.prod(shape)).reshape(shape))
            return
        scales, self.shift = self._inputs.bin_scales(factor.hash)
        if isinstance(factor.hash, Manhattan):
            self.coefficients = _wrapped(stream.cauchys(math.prod(shape)).reshape(shape) * scales)
        else:
            normals = stream.normals(math.prod(shape)).reshape(shape)
            self.coefficients = np.rint(normals * scales).astype(np.int32)
        words = stream.words(race.rows * self.hashes).reshape(shape[:2])
        self.offsets = (words >> np.uint64(64 - self.shift)).astype(np.int32)

    def inputs(self, codes: Codes, query: bool) -> Codes:
        """The numbers to project. For inner products, completed to equal length."""
        chosen = self._inputs(codes)
        if not isinstance(self._hash, InnerProduct):
            return chosen
        ball = int(HIGHEST * self._hash.radius)
        numbers = clipped(chosen, np.arange(len(chosen)), ball)
        rest = ball**2 - (numbers**2).sum(axis=0)
        missing = np.floor(np.sqrt(rest.astype(np.float64))).astype(np.int64)  # exact: rest < 2^30
        zero = np.zeros_like(missing)
        return np.concatenate([numbers, [zero, missing] if query else [missing, zero]]).astype(np.int16)

    def positions(self, codes: Codes) -> Floats:
        """Positions of records in bandwidths: collision probabilities are those of their distances."""
        assert isinstance(self._hash, Binned)
        return self._inputs(codes) * (self._inputs.spans(self._hash)[:, None] / SPAN)


class Permutations:
    """Multipliers and masks of MinHash: one matrix row per concatenated hash, one entry per row of the table."""

    def __init__(self, factor: Factor, rows: int, stream: PublicStream) -> None:
        (self.column,) = factor.columns
        words = stream.words(rows * factor.hash.hashes).reshape(factor.hash.hashes, rows)
        self.factors = (words >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
        self.masks = (words & np.uint64(0xFFFFFFFF)).astype(np.uint32)


class Weigher:
    """Integer weights of records from one column."""

    def __init__(self, description: Race, schema: Schema) -> None:
        name = str(description.weight)
        self._row, self._column = schema.index(name), schema.column(name)
        if description.weights is None:
            if not self._column.numeric:
                raise RecipeError(
                    f"Race: column '{name}' has labels, so each needs a weight",
                    f"pass weights=[…], one for each of its {self._column.levels} labels",
                )
            self._table = None
            self.largest, self.grid, self.spread = HIGHEST, HIGHEST, 2 * HIGHEST
            return
        if self._column.numeric or len(description.weights) != self._column.levels:
            raise RecipeError(
                f"Race: column '{name}' takes {0 if self._column.numeric else self._column.levels} weights, "
                f"got {len(description.weights)}",
                "give one for each label, 'other' included; a number column takes none",
            )
        self._table = np.array([*description.weights, 0], np.int32)  # level -1, a missing cell, adds nothing
        self.largest, self.grid = int(np.abs(self._table).max()), 1
        self.spread = int(self._table.max()) - int(self._table.min())

    def __call__(self, codes: Codes) -> NDArray[np.int32]:
        own = codes[self._row]
        if self._table is None:
            return np.where(own == MISSING, 0, own).astype(np.int32)
        return self._table[self._column.levels_of(own)]


def _sampled(words: NDArray[np.uint64], dimension: int) -> NDArray[np.int32]:
    """A one at a random input of each projection, by the top half of its word."""
    chosen = (words >> np.uint64(32)) * np.uint64(dimension) >> np.uint64(32)
    coefficients = np.zeros((len(words), dimension), np.int32)
    coefficients[np.arange(len(words)), chosen.astype(np.int64)] = 1
    return coefficients


def _wrapped(real: Floats) -> NDArray[np.int32]:
    """Rounded to integers modulo 2^32, exactly: Cauchy numbers exceed any fixed range."""
    return np.fmod(np.rint(real), 2.0**32).astype(np.int64).astype(np.uint32).view(np.int32)


def sign_coefficients(normals: Floats) -> NDArray[np.int32]:
    """Integer directions whose projections of int16 numbers always fit 32 bits, so that signs are exact."""
    longest = np.zeros(normals.shape[:2])
    for j in range(normals.shape[2]):
        longest = longest + np.abs(normals[:, :, j])
    room = 65535 - normals.shape[2]  # Σ|a|·32768 < 2^31, with one unit of rounding per number
    scale = min(room / float(longest.max()), 8192.0)
    if scale < 4:
        raise RecipeError(
            f"Race: with {normals.shape[2]} columns the directions of signed projections keep fewer than 2 bits",
            "name fewer columns, or hash a public embedding of them",
        )
    directions: Floats = np.rint(normals * scale)
    return directions.astype(np.int32)
