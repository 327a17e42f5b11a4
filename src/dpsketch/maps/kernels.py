"""Numba kernels: serial, without the GIL, with explicit signatures. Threads are the engine's business.

Everything that reaches a sum is integer arithmetic or a float32 operation that is correctly rounded on every machine,
so the same codes give the same bytes anywhere. Numba widens int32 arithmetic to int64, so every intermediate is wrapped
in int32() again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsketch.maps.fourier.phases import FREQUENCIES, block_phases
from dpsketch.numerics.compiler import float32, int32, intrinsic, ir, njit, types, uint64
from dpsketch.numerics.jit import kernel, part

TILE = 512
LANES = 256  # records in a tile of the Hadamard transform; 512 took 1.3 times as long at 1024 columns
QUARTER = 1 << 30  # a quarter turn in units of 2^-32 turn
# 32768·sin(2πt) on |t| <= 1/4: odd minimax polynomial, frozen. Changing a digit is a new version of the map.
_TURN = np.float32(2.0**-32)
_C1 = np.float32(205886.71875)
_C3 = np.float32(-1354535.5)
_C5 = np.float32(2665374.25)
_C7 = np.float32(-2326312.75)

_MAGIC = np.float32(12582912.0)  # 1.5 · 2^23
_MAGIC_BITS = 0x4B400000


@intrinsic
def _fma(_context: Any, _a: Any, _b: Any, _c: Any) -> Any:
    """a·b + c with a single rounding, with or without hardware support."""

    def generate(_inner: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def _bits(_context: Any, _x: Any) -> Any:
    """The bits of a float32 as an int32."""

    def generate(_inner: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@njit(inline="always")
def _cosine_bits(phase):  # type: ignore[no-untyped-def]
    """_MAGIC_BITS + round(32768·cos) of an int32 phase in units of 2^-32 turn.

    Adding 1.5·2^23 leaves no fraction bits: the last fused multiply-add rounds to the nearest integer.
    """
    folded = phase if phase >= int32(0) else int32(-phase)
    t = float32(int32(int32(QUARTER) - folded)) * _TURN
    u = t * t
    return _bits(_fma(t, _fma(u, _fma(u, _fma(u, _C7, _C5), _C3), _C1), _MAGIC))


@njit(inline="always")
def cosine(phase):  # type: ignore[no-untyped-def]
    """round(32768·cos) of an int32 phase in units of 2^-32 turn. The sine is the cosine of the phase minus a quarter
    turn.
    """
    return int32(_cosine_bits(phase) - int32(_MAGIC_BITS))


@part
def _cosines_and_sines(phases, width):  # type: ignore[no-untyped-def]
    """Sums of cosines and sines over a tile; 512 · 32769 fits an int32, and intermediate overflow cancels."""
    c = int32(0)
    s = int32(0)
    for i in range(width):
        p = phases[i]
        c = int32(c + _cosine_bits(p))
        s = int32(s + _cosine_bits(int32(p - int32(QUARTER))))
    magic = int32(width * _MAGIC_BITS)
    return int32(c - magic), int32(s - magic)


@part
def pack_tile(codes, rows, start, width, tile):  # type: ignore[no-untyped-def]
    """Pack the codes of `width` records, two dimensions in each int32. An odd last dimension is paired with zero."""
    for j in range(tile.shape[0]):
        target = tile[j]
        even = codes[rows[2 * j]]
        for i in range(width):
            target[i] = int32(even[start + i]) & int32(0xFFFF)
        if 2 * j + 1 < rows.size:
            odd = codes[rows[2 * j + 1]]
            for i in range(width):
                target[i] |= int32(int32(odd[start + i]) << int32(16))


@part
def _negative_signs(phases, dither, width):  # type: ignore[no-untyped-def]
    """Minus the numbers of records whose dithered cosine and sine are negative: the sign bit, shifted down."""
    c = int32(0)
    s = int32(0)
    for i in range(width):
        p = int32(phases[i] + dither)
        c = int32(c + int32(int32(p + int32(QUARTER)) >> int32(31)))
        s = int32(s + int32(p >> int32(31)))
    return c, s


@part
def _add_features(phases, dithers, frequency, width, sums):  # type: ignore[no-untyped-def]
    """Add a tile's cosines and sines of one frequency (with dithers, their signs) to its two sums."""
    if dithers.size:
        negative_c, negative_s = _negative_signs(phases, dithers[frequency], width)
        sums[2 * frequency] += width + 2 * np.int64(negative_c)
        sums[2 * frequency + 1] += width + 2 * np.int64(negative_s)
    else:
        c, s = _cosines_and_sines(phases, width)
        sums[2 * frequency] += np.int64(c)
        sums[2 * frequency + 1] += np.int64(s)


@kernel("void(int16[:,::1], int64[::1], int32[:,::1], int32[:,::1], int32[::1], int64[::1])")
def fourier_sums(codes, rows, high, low, dithers, sums):  # type: ignore[no-untyped-def]
    """Add Σ cos to sums[0::2] and Σ sin to sums[1::2]; with dithers, the signs of the dithered cosines and sines.

    `high` and `low` come from `split_frequencies`; `dithers` has one entry per frequency, or none.
    """
    records = codes.shape[1]
    count = sums.size // 2
    tile = np.zeros((high.shape[1], TILE), np.int32)
    phases = np.zeros((FREQUENCIES, TILE), np.int32)
    for start in range(0, records, TILE):
        width = min(records, start + TILE) - start
        pack_tile(codes, rows, start, width, tile)
        for first in range(0, high.shape[0], FREQUENCIES):
            block_phases(tile, high, low, phases, first)
            for k in range(min(FREQUENCIES, count - first)):
                _add_features(phases[k], dithers, first + k, width, sums)


@part
def _transform(tile, width):  # type: ignore[no-untyped-def]
    """Multiply each record, a column of the tile, by the Hadamard matrix: two stages of butterflies at a time."""
    rows = tile.shape[0]
    h = 1
    while 4 * h <= rows:
        for group in range(0, rows, 4 * h):
            for j in range(group, group + h):
                a, b, c, d = tile[j], tile[j + h], tile[j + 2 * h], tile[j + 3 * h]
                for i in range(width):
                    p, q = int32(a[i] + b[i]), int32(a[i] - b[i])
                    r, s = int32(c[i] + d[i]), int32(c[i] - d[i])
                    a[i], b[i], c[i], d[i] = int32(p + r), int32(q + s), int32(p - r), int32(q - s)
        h *= 4
    if h < rows:
        for j in range(h):
            a, b = tile[j], tile[j + h]
            for i in range(width):
                p, q = int32(a[i] + b[i]), int32(a[i] - b[i])
                a[i], b[i] = p, q


@part
def _round_and_sign(tile, shift, signs, width):  # type: ignore[no-untyped-def]
    """Divide by 2^shift, round to the nearest integer, halves upwards, and apply each row's sign."""
    half = int32(int32(1) << int32(shift)) >> int32(1)
    for j in range(tile.shape[0]):
        row, sign = tile[j], int32(signs[j])
        for i in range(width):
            row[i] = int32(int32(int32(row[i] + half) >> (shift & 31)) * sign)


@part
def _round_and_multiply(source, shift, factor, target, width):  # type: ignore[no-untyped-def]
    """Divide by 2^shift, round to the nearest integer, halves upwards, and multiply modulo 2^32."""
    half = int32(int32(1) << shift) >> int32(1)
    for i in range(width):
        target[i] = int32(int32(int32(source[i] + half) >> (shift & 31)) * factor)


@kernel(
    "void(int16[:,::1], int64[::1], int8[:,:,::1], int64, int64, int64[::1], int64[::1], int32[::1], int32[::1],"
    " int32[::1], int64[::1])"
)
def structured_sums(codes, rows, signs, one, two, edges, places, multipliers, shifts, dithers, sums):  # type: ignore[no-untyped-def]
    """Do as `fourier_sums`, with the frequencies of `Hadamard`; `one` and `two` are its roundings."""
    records, size = codes.shape[1], signs.shape[2]
    tile = np.empty((size, LANES + 16), np.int32)  # rows a power of two apart would compete for the same cache lines
    phases = np.empty(LANES, np.int32)
    for start in range(0, records, LANES):
        width = min(records, start + LANES) - start
        for block in range(signs.shape[0]):
            tile[rows.size :] = int32(0)
            for j in range(rows.size):
                source, target, sign = codes[rows[j]], tile[j], int32(signs[block, 0, j])
                for i in range(width):
                    target[i] = int32(int32(source[start + i]) * sign)
            _transform(tile, width)
            _round_and_sign(tile, one, signs[block, 1], width)
            _transform(tile, width)
            _round_and_sign(tile, two, signs[block, 2], width)
            _transform(tile, width)
            for k in range(edges[block], edges[block + 1]):
                _round_and_multiply(tile[places[k]], shifts[k], multipliers[k], phases, width)
                _add_features(phases, dithers, k, width, sums)


@kernel("UniTuple(int64, 3)(int64, int64)")
def cosine_bounds(start, stop):  # type: ignore[no-untyped-def]
    """Largest |cos|, |cos|+|sin| and cos²+sin² over the phases start .. stop-1: the sensitivity, exhaustively."""
    entry, l1, l2_squared = 0, 0, 0
    for phase in range(start, stop):
        p = int32(phase)
        c = np.int64(abs(cosine(p)))
        s = np.int64(abs(cosine(int32(p - int32(QUARTER)))))
        entry = max(entry, c, s)
        l1 = max(l1, c + s)
        l2_squared = max(l2_squared, c * c + s * s)
    return entry, l1, l2_squared


@kernel("void(int16[:,::1], int64[::1], uint16[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1])")
def histogram_sums(codes, rows, lookups, members, strides, offsets, sums):  # type: ignore[no-untyped-def]
    """Add one to the cell of each record in each table."""
    records = codes.shape[1]
    bins = np.zeros((rows.size, TILE), np.int64)
    for start in range(0, records, TILE):
        width = min(records, start + TILE) - start
        for j in range(rows.size):
            source = codes[rows[j]]
            lookup = lookups[j]
            for i in range(width):
                bins[j, i] = lookup[np.int64(source[start + i]) + 32768]
        for t in range(members.shape[0]):
            for i in range(width):
                cell = offsets[t]
                for way in range(members.shape[1]):
                    cell += bins[members[t, way], i] * strides[t, way]
                sums[cell] += 1


@part
def clip_tile(codes, rows, ball, start, width, tile):  # type: ignore[no-untyped-def]
    """Numbers of `width` records, missing as 0, clipped to a ball. Divisions round towards zero, lengths upwards."""
    lengths = np.zeros(TILE, np.int64)
    for j in range(rows.size):
        source = codes[rows[j]]
        target = tile[j]
        for i in range(width):
            x = np.int64(source[start + i])
            x = np.int64(0) if x == -32768 else x
            target[i] = np.int16(x)
            lengths[i] += x * x
    for i in range(width):
        square = lengths[i]
        length = np.int64(np.sqrt(np.float64(square)))
        if length * length < square:
            length += 1
        if length > ball:
            for j in range(rows.size):
                x = np.int64(tile[j, i])
                shortened = abs(x) * ball // length
                tile[j, i] = np.int16(shortened if x >= 0 else -shortened)


@kernel("void(int16[:,::1], int64[::1], int64, int64, int64[::1])")
def second_moment_sums(codes, rows, ball, constant, sums):  # type: ignore[no-untyped-def]
    """Add Σ x_i·x_j, i <= j, of records clipped to a ball. A nonzero constant is appended as the last number."""
    records, dimension = codes.shape[1], rows.size
    tile = np.zeros((dimension, TILE), np.int16)
    for start in range(0, records, TILE):
        width = min(records, start + TILE) - start
        clip_tile(codes, rows, ball, start, width, tile)
        place = 0
        for j in range(dimension):
            left = tile[j]
            for k in range(j, dimension):
                right = tile[k]
                total = np.int64(0)
                for i in range(width):
                    total += np.int64(left[i]) * np.int64(right[i])
                sums[place] += total
                place += 1
            if constant:
                total = np.int64(0)
                for i in range(width):
                    total += np.int64(left[i])
                sums[place] += constant * total
                place += 1
        if constant:
            sums[place] += constant * constant * width


@part
def _squares(projections, shift, width):  # type: ignore[no-untyped-def]
    """Sum of the squares of projections over 2^shift, rounded towards zero before they are squared."""
    total = np.int64(0)
    down = int32(shift)
    for i in range(width):
        p = projections[i]
        size = int32((p if p >= int32(0) else int32(-p)) >> down)
        total += np.int64(size) * np.int64(size)
    return total


@kernel("void(int16[:,::1], int64[::1], int64, int32[:,::1], int32[:,::1], int64, int64[::1])")
def quadratic_sums(codes, rows, ball, high, low, shift, sums):  # type: ignore[no-untyped-def]
    """Add Σ (|ω·x| >> shift)² of records clipped to a ball; `high` and `low` come from `split_frequencies`.

    Projections are below 2^31, so the products modulo 2^32 are the projections themselves.
    """
    records, every = codes.shape[1], np.arange(rows.size)
    tile = np.zeros((rows.size, TILE), np.int16)
    packed = np.zeros((high.shape[1], TILE), np.int32)
    projections = np.zeros((FREQUENCIES, TILE), np.int32)
    for start in range(0, records, TILE):
        width = min(records, start + TILE) - start
        clip_tile(codes, rows, ball, start, width, tile)
        pack_tile(tile, every, 0, width, packed)
        for first in range(0, high.shape[0], FREQUENCIES):
            block_phases(packed, high, low, projections, first)
            for k in range(min(FREQUENCIES, sums.size - first)):
                sums[first + k] += _squares(projections[k], shift, width)


_GRID = "void(int16[:,::1], int64[::1], int64[:,::1], uint64[:,::1], uint64, {}[::1], int64, int64)"


@kernel(_GRID.format("int64"), _GRID.format("int32"))
def grid_sums(codes, columns, levels, salts, shift, sums, first, last):  # type: ignore[no-untyped-def]
    """Add each record's signs to its counters in rows first .. last-1 of the table.

    The table has salts.shape[1] rows per level, each with its own level of every column. Keys are computed level by
    level, then slots are filled row by row.
    """
    records, width = codes.shape[1], np.int64(1) << np.int64(uint64(64) - shift)
    each = salts.shape[1]
    keys = np.empty(TILE, np.uint64)
    slots = np.empty(TILE, np.int64)
    for start in range(0, records, TILE):
        count = min(records, start + TILE) - start
        for position in range(first // each, (last + each - 1) // each):
            for i in range(count):
                keys[i] = uint64(0x9E3779B97F4A7C15)
            for j in range(columns.size):
                source, level = codes[columns[j]], levels[position, j]
                for i in range(count):
                    place = np.int64(source[start + i]) + 32768
                    cell = np.int64(1) << level if place == 0 else place >> (16 - level)
                    key = (keys[i] ^ uint64(cell)) * uint64(0xFF51AFD7ED558CCD)
                    keys[i] = key ^ (key >> uint64(32))
            for row in range(max(first, position * each), min(last, (position + 1) * each)):
                salt = salts[position, row - position * each]
                for i in range(count):
                    hashed = (keys[i] ^ salt) * uint64(0xC4CEB9FE1A85EC53)
                    hashed ^= hashed >> uint64(29)
                    hashed *= uint64(0x9FB21C651E98DF25)
                    slots[i] = np.int64(hashed >> shift) << 1 | np.int64((hashed >> uint64(7)) & uint64(1))
                table = sums[row * width :]
                for i in range(count):
                    table[slots[i] >> 1] += 1 - ((slots[i] & 1) << 1)
