"""Structured frequencies: rows of Hadamard matrices with random signs, applied by additions alone.

A block is the matrix T = H·D₃·H·D₂·H·D₁ of `width` rows and columns, a power of two: H is the ±1 Hadamard matrix, each
D a diagonal of public random signs, and T·x takes 3·width·log₂(width) additions per record instead of width². Records
are padded with zeros to `width`. Frequency k is a row of a block, scaled so that its length on the real columns is
exactly the drawn one. Source: compressive (fast structured frequencies); docs/formats/draw.md specifies every bit,
docs/proofs/fourier.md proves that no sum overflows an int32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsketch.maps.base import Sums
from dpsketch.maps.draw import PublicStream
from dpsketch.numerics.arrays import Codes, Floats

LEAST_WIDTH = 64  # a narrower block has few distinct rows, so its directions are far from isotropic
MOST_COLUMNS = 1 << 14  # more columns lose precision: see `precision`
_MULTIPLIER_BITS = 11
_LIMIT = 2**31 - 2**20  # largest number in a stage, with room for the half that rounding adds
_CHUNK = 1 << 22  # size of a temporary array


@dataclass(frozen=True)
class Hadamard:
    """The phase of frequency k is multipliers[k] · round((T·x)[places[k]] / 2^(roundings + shifts[k])) mod 2^32.

    Guarantee: a phase depends on the record's codes alone, by integer arithmetic. `roundings` are the numbers of bits
    that are rounded away after the first and after the second stage, so that every intermediate number fits an int32.
    """

    dimension: int
    signs: NDArray[np.int8]  # indexed by block, stage, column
    edges: NDArray[np.int64]  # frequencies edges[b] .. edges[b+1]-1 are rows of block b
    places: NDArray[np.int64]  # row within the block
    multipliers: NDArray[np.int32]  # in units of 2^-32 turn
    shifts: NDArray[np.int32]

    @property
    def width(self) -> int:
        return int(self.signs.shape[2])

    @property
    def roundings(self) -> tuple[int, int]:
        return stage_roundings(self.dimension)

    def accumulate(self, codes: Codes, rows: NDArray[np.int64], dithers: NDArray[np.int32], sums: Sums) -> None:
        from dpsketch.maps.kernels import structured_sums

        rows_of_blocks = (self.edges, self.places, self.multipliers, self.shifts)
        structured_sums(codes, rows, self.signs, *self.roundings, *rows_of_blocks, dithers, sums)

    def phases(self, codes: Codes) -> NDArray[np.int32]:
        """Phases in units of 2^-32 turn, exactly as they are summed: one matrix row per record."""
        phases = np.empty((len(self.places), codes.shape[1]), np.int32)
        tile = np.empty((self.width, codes.shape[1]), np.int32)
        for block, (first, second, third) in enumerate(self.signs):
            tile[: self.dimension] = codes * first[: self.dimension, None].astype(np.int32)
            tile[self.dimension :] = 0
            for signs, rounding in zip((second, third), self.roundings, strict=True):
                transform(tile)
                _round_away(tile, rounding)
                tile *= signs[:, None]
            transform(tile)
            own = slice(self.edges[block], self.edges[block + 1])
            rows = tile[self.places[own]]
            _round_away(rows, self.shifts[own, None])
            np.multiply(rows, self.multipliers[own, None], out=phases[own])
        return phases.T

    def radians(self, codes: Codes) -> Floats:
        return self.phases(codes).astype(np.float64) * (2 * np.pi / 2.0**32)

    @cached_property
    def matrix(self) -> Floats:
        """The frequencies as real numbers, in units of 2^-32 turn per code step: one per matrix row."""
        matrix = np.empty((len(self.places), self.dimension))
        for block in range(len(self.signs)):
            own = slice(self.edges[block], self.edges[block + 1])
            for columns in _chunks(self.dimension, self.width):
                rows = block_columns(self.signs[block : block + 1], columns)[0]
                matrix[own, columns] = rows[self.places[own]]
        exponents = self.shifts + sum(self.roundings)
        matrix *= np.ldexp(self.multipliers.astype(np.float64), -exponents)[:, None]
        return matrix

    def restricted(self, first: int, last: int) -> Hadamard:
        """A range of consecutive frequencies, with the blocks that contain them."""
        edges = np.clip(self.edges, first, last) - first
        used = edges[1:] > edges[:-1]
        own = slice(first, last)
        return Hadamard(
            self.dimension,
            self.signs[used],
            np.append(edges[:-1][used], last - first),
            self.places[own],
            self.multipliers[own],
            self.shifts[own],
        )

    def parameters(self) -> bytes:
        numbers = (self.edges, self.places, self.multipliers, self.shifts)
        return self.signs.tobytes() + b"".join(part.astype("<i8").tobytes() for part in numbers)


def padded_width(dimension: int) -> int:
    """The smallest power of two that is at least the number of columns and at least LEAST_WIDTH."""
    return max(LEAST_WIDTH, 1 << (dimension - 1).bit_length())


def stage_roundings(dimension: int) -> tuple[int, int]:
    """Bits to round away after the first and the second stage: the fewest that int32 arithmetic allows.

    A record's length is at most 2^15·√dimension. A stage multiplies it by √width, and rounding adds at most √width/2. A
    number of the next stage is at most √width times the length before it.
    """
    root = math.sqrt(padded_width(dimension))
    length = 2.0**15 * math.sqrt(dimension) * root
    roundings = []
    for _ in range(2):
        bits = 0
        while (length / 2**bits + root / 2) * root >= _LIMIT:
            bits += 1
        roundings.append(bits)
        length = (length / 2**bits + root / 2) * root
    return roundings[0], roundings[1]


def precision(dimension: int) -> float:
    """Largest root mean square error of a block's phases from rounding between stages, as an error of the codes.

    In code steps, for every record: none up to 255 columns, 1/64 up to 1024, 1/8 up to 4096, 0.501 up to MOST_COLUMNS.
    For comparison, rounding values to codes has an error of up to 0.5. See docs/proofs/fourier.md.
    """
    width, (first, second) = padded_width(dimension), stage_roundings(dimension)
    after_first = 2.0**first / math.sqrt(width) if first else 0.0
    after_second = 2.0 ** (first + second) / width if second else 0.0
    return (after_first + after_second) / 2 * math.sqrt(width / dimension)


def draw_hadamard(seed: int, lengths: Floats, dimension: int) -> Hadamard:
    """Draw a frequency of each of `lengths`, which are in units of 2^-32 turn per code step. See docs/formats/draw.md.

    Lengths are assigned to rows in a random order, so that a row's index is independent of its length.
    """
    count, width = len(lengths), padded_width(dimension)
    stream = PublicStream("hadamard signs", seed)
    parts, squares = [np.empty((0, 3, width), np.int8)], [np.empty((0, width), np.int64)]
    missing = count
    while missing > 0:
        parts.append(_draw_signs(stream, -(-missing // width), width))
        squares.append(_squared_lengths(parts[-1], dimension))
        missing -= int(np.count_nonzero(squares[-1]))
    square = np.concatenate(squares)
    blocks, places = (chosen[:count] for chosen in np.nonzero(square))  # skip rows of zeros, which depend on no column
    order = np.argsort(PublicStream("hadamard order", seed).words(count), kind="stable")
    scale = lengths[order] * 2.0 ** sum(stage_roundings(dimension)) / np.sqrt(square[blocks, places].astype(np.float64))
    shifts = np.maximum(_MULTIPLIER_BITS - np.frexp(scale)[1], 0)
    used = int(blocks[-1]) + 1
    return Hadamard(
        dimension,
        np.concatenate(parts)[:used],
        np.searchsorted(blocks, np.arange(used + 1)).astype(np.int64),
        places.astype(np.int64),
        np.rint(np.ldexp(scale, shifts)).astype(np.int32),
        shifts.astype(np.int32),
    )


def transform(values: NDArray[np.int32]) -> None:
    """Multiply by the Hadamard matrix in place, along the second-to-last axis."""
    *blocks, width, columns = values.shape
    half = 1
    while half < width:
        pairs = values.reshape(*blocks, width // (2 * half), 2, half, columns)
        low, high = pairs[..., 0, :, :], pairs[..., 1, :, :]
        difference = low - high
        low += high
        high[...] = difference
        half *= 2


def block_columns(signs: NDArray[np.int8], columns: slice) -> NDArray[np.int32]:
    """Compute some columns of every block's matrix T, with one transform instead of three.

    H[i,l]·H[l,j] = H[l,i⊕j], so H·D·H has the entries w[i⊕j] with w = H·d: column j of T is ±H·(d₃ ∘ w[·⊕j]).
    """
    first, second, third = (signs[:, stage, :, None].astype(np.int32) for stage in range(3))
    transform(second)
    which = np.arange(columns.start, columns.stop)
    values = second[:, np.arange(signs.shape[2])[:, None] ^ which, 0]
    values *= third
    transform(values)
    values *= first[:, columns, 0][:, None]
    return values


def _draw_signs(stream: PublicStream, blocks: int, width: int) -> NDArray[np.int8]:
    """Draw one bit per sign, lowest bit of each word first; a set bit is −1."""
    octets = stream.words(blocks * 3 * width // 64).astype("<u8").view(np.uint8)
    bits = np.unpackbits(octets, bitorder="little").reshape(blocks, 3, width)
    return 1 - 2 * bits.astype(np.int8)


def _squared_lengths(signs: NDArray[np.int8], dimension: int) -> NDArray[np.int64]:
    """Squared length of every row of every block on the real columns: exact integers."""
    blocks, _, width = signs.shape
    squares = np.zeros((blocks, width), np.int64)
    for columns in _chunks(dimension, blocks * width):
        squares += np.square(block_columns(signs, columns), dtype=np.int64).sum(axis=2)
    return squares


def _chunks(columns: int, rows: int) -> list[slice]:
    step = max(1, _CHUNK // rows)
    return [slice(start, min(columns, start + step)) for start in range(0, columns, step)]


def _round_away(values: NDArray[np.int32], bits: int | NDArray[np.int32]) -> None:
    """Divide by 2^bits and round to the nearest integer, halves upwards, in place."""
    values += np.left_shift(np.int32(1), np.int32(bits)) >> 1
    values >>= bits
