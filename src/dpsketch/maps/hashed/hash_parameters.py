"""The parameters of a RACE map's hashes: projections, permutations and weights, drawn from its public seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import RecipeError
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.hashed.embedding import Embedding
from dpsketch.maps.hashed.hashes import Euclidean, Factor, InnerProduct
from dpsketch.maps.moments.ball import clipped
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import HIGHEST, MISSING, SPAN
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.maps.hashed.race import Race

SIGN = -1  # replaces a shift where the projection gives one bit
_STEEPEST = 24  # bits below one bin


class Projection:
    """The random projections of one factor: integer coefficients on int16 inputs, modulo 2^32."""

    def __init__(self, factor: Factor, schema: Schema, race: Race, stream: PublicStream) -> None:
        self._hash, self._embedding = factor.hash, race.embedding
        self._rows = np.array([schema.index(name) for name in factor.columns])
        width = len(factor.columns) if race.embedding is None else race.embedding.outputs
        self.dimension = width + 2 * isinstance(factor.hash, InnerProduct)
        self.hashes = factor.hash.hashes
        shape = (race.rows, self.hashes, self.dimension)
        normals = stream.normals(math.prod(shape)).reshape(shape)
        self.offsets = np.zeros(shape[:2], np.int32)
        if isinstance(factor.hash, Euclidean):
            spans = (
                bandwidth_spans(factor.columns, factor.hash, schema)
                if race.embedding is None
                else _output_spans(race.embedding, factor.hash)
            )
            scales, self.shift = _bin_scales(spans)
            self.coefficients = np.rint(normals * scales).astype(np.int32)
            words = stream.words(race.rows * self.hashes).reshape(shape[:2])
            self.offsets = (words >> np.uint64(64 - self.shift)).astype(np.int32)
        else:
            self.shift = SIGN
            self.coefficients = sign_coefficients(normals)

    def inputs(self, codes: Codes, query: bool) -> Codes:
        """The numbers to project: the codes, with missing ones at the midpoint. For inner products, completed to equal
        length.
        """
        chosen: Codes = codes[self._rows]
        chosen[chosen == MISSING] = 0
        if self._embedding is not None:
            chosen = self._embedding(chosen)
        if not isinstance(self._hash, InnerProduct):
            return chosen
        ball = int(HIGHEST * self._hash.radius)
        numbers = clipped(chosen, np.arange(len(chosen)), ball)
        rest = ball**2 - (numbers**2).sum(axis=0)
        missing = np.floor(np.sqrt(rest.astype(np.float64))).astype(np.int64)  # exact: rest < 2^30
        zero = np.zeros_like(missing)
        return np.concatenate([numbers, [zero, missing] if query else [missing, zero]]).astype(np.int16)


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


def bandwidth_spans(columns: Sequence[str], family: Euclidean, schema: Schema) -> dict[str, float]:
    """Width of each column's bounds in bandwidths."""
    spans = {}
    for name in columns:
        column = schema.column(name)
        if column.scale is not None and not family.scaled:
            raise RecipeError(
                f"Race: column '{name}' is on a {column.scale} scale, where a bandwidth in its units means nothing",
                "give the bandwidth in widths of the bounds: Euclidean(bandwidth=0.1, scaled=True)",
            )
        low, high = (float(number) for number in column.values_of(np.array([-HIGHEST, HIGHEST])))
        width = (high - low) / column.bandwidth_unit
        spans[name] = (1.0 if family.scaled else width) / family.bandwidth
    return spans


def _output_spans(embedding: Embedding, family: Euclidean) -> dict[str, float]:
    return {f"output {index}": 1.0 / family.bandwidth for index in range(embedding.outputs)}


def _bin_scales(spans: Mapping[str, float]) -> tuple[Floats, int]:
    """Units of a projection per code step, and the bits of a bin: one bin is 2^bits units.

    The projection is kept modulo 2^32 units. Bits are chosen so that eight times the columns' whole span fits, because
    otherwise distant records could collide by wrapping around.
    """
    total = 0.0
    for span in spans.values():
        total += span * span
    exponent = math.frexp(8.0 * max(math.sqrt(total), 1.0))[1] if math.isfinite(total) else 1100
    bits = min(_STEEPEST, 32 - exponent)
    lost = SPAN / (2.0**bits * math.sqrt(12.0)) if bits > 0 else math.inf  # rounding error in bins, over the full width
    for name, span in spans.items():
        if lost > 0.05 and lost > 0.1 * span:
            raise RecipeError(
                f"Race: all columns together span {math.sqrt(total):.3g} bandwidths, so only {max(bits, 0)} bits are "
                f"left to resolve one, too few for column '{name}', which spans {span:.3g}",
                "use a wider bandwidth or fewer columns",
            )
    return np.array(list(spans.values())) * 2.0**bits / SPAN, bits


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
