"""Numba kernels of hashed counters: projections to hash codes, sets to hash codes, codes to counters.

A row's key starts as its salt. Every hash code is mixed into it, and the key's position in [0, 2^32) selects the
counter. All arithmetic is on integers: the same bytes on every machine, in any order. For style and reasons see
`kernels`.
"""

from __future__ import annotations

import numpy as np

from dpsketch.maps.fourier.phases import FREQUENCIES, RECORDS, block_phases
from dpsketch.maps.hashed.hash_parameters import SIGN
from dpsketch.maps.kernels import TILE, pack_tile
from dpsketch.numerics.compiler import boolean, float64, int16, int32, int64, njit, types, uint32, uint64
from dpsketch.numerics.jit import kernel, part


@njit(inline="always")
def _mixed(key, code):  # type: ignore[no-untyped-def]
    """One round of a 32-bit finaliser. Its high bits are well mixed, and the next round starts by folding them down."""
    h = uint32(key ^ code)
    h = uint32(h ^ uint32(h >> uint32(16)))
    h = uint32(h * uint32(0x7FEB352D))
    h = uint32(h ^ uint32(h >> uint32(15)))
    return uint32(h * uint32(0x846CA68B))


@njit(inline="always")
def _place(key, width):  # type: ignore[no-untyped-def]
    return uint32((uint64(key) * uint64(width)) >> uint64(32))


@part
def _fold_bins(phases, offset, shift, keys, count):  # type: ignore[no-untyped-def]
    for i in range(count):
        keys[i] = _mixed(keys[i], uint32(int32(int32(phases[i] + offset) >> shift)))


@part
def _shift_in_signs(phases, bits, count):  # type: ignore[no-untyped-def]
    for i in range(count):
        bits[i] = uint32(uint32(bits[i] << uint32(1)) | uint32(uint32(phases[i]) >> uint32(31)))


@part
def _fold_bits(bits, keys, count):  # type: ignore[no-untyped-def]
    for i in range(count):
        keys[i] = _mixed(keys[i], bits[i])
        bits[i] = uint32(0)


@part
def _keys_to_places(keys, width, count):  # type: ignore[no-untyped-def]
    for i in range(count):
        keys[i] = _place(keys[i], width)


@part
def _fold(phases, direct, offset, shift, last, bits, keys, count):  # type: ignore[no-untyped-def]
    """Mix one projection into the keys: a bin at once, a sign when all signs of its family are complete."""
    if shift != SIGN:
        _fold_bins(phases, offset, shift, keys, count)
        return
    _shift_in_signs(phases, bits, count)
    if last:
        if direct:
            for i in range(count):
                keys[i] = bits[i]
                bits[i] = uint32(0)
        else:
            _fold_bits(bits, keys, count)


@part
def _take(phases, projection, offsets, shifts, ends, salts, width, direct, bits, keys, count):  # type: ignore[no-untyped-def]
    """Mix one projection of a tile into the keys.

    After the last projection of a row of the table, the keys become the records' counters in the row, and the row is
    returned; before that, −1.
    """
    each = shifts.size
    row = projection // each
    j = projection - row * each
    if j == 0:
        keys[:count] = salts[row]
    _fold(phases, direct, offsets[projection], shifts[j], ends[j], bits, keys, count)
    if j < each - 1:
        return -1
    if not direct:
        _keys_to_places(keys, width, count)
    return row


@part
def _scatter(places, weights, start, count, row):  # type: ignore[no-untyped-def]
    if weights.size:
        for i in range(count):
            row[places[i]] += weights[start + i]
        return
    whole = count // 4 * 4
    for i in range(0, whole, 4):
        a, b, c, d = places[i], places[i + 1], places[i + 2], places[i + 3]
        row[a] += 1
        row[b] += 1
        row[c] += 1
        row[d] += 1
    for i in range(whole, count):
        row[places[i]] += 1


_PROJECTIONS = "int16[:,::1], int32[:,::1], int32[:,::1], int32[::1], int32[::1], boolean[::1], uint32[::1], int64"


@kernel(
    f"void({_PROJECTIONS}, boolean, int32[::1], int64, int64, int32[::1])",
    f"void({_PROJECTIONS}, boolean, int32[::1], int64, int64, int64[::1])",
)
def projected_sums(inputs, high, low, offsets, shifts, ends, salts, width, direct, weights, first, last, table):  # type: ignore[no-untyped-def]
    """Add every record's weight (one, if there are no weights) to its counter in rows first .. last-1 of the table.

    Row r has the projections r·P .. r·P+P-1 of `high` and `low` (see `phases.split_frequencies`). Projection j of a row
    is a bin of 2^shifts[j] or, with SIGN, one bit; ends[j] marks where the bits of a family are complete.
    """
    records, each = inputs.shape[1], shifts.size
    tile = np.zeros((high.shape[1], TILE), np.int32)
    phases = np.zeros((FREQUENCIES, TILE), np.int32)
    keys = np.zeros(TILE, np.uint32)
    bits = np.zeros(TILE, np.uint32)
    every = np.arange(inputs.shape[0])
    for start in range(0, records, TILE):
        count = min(records, start + TILE) - start
        pack_tile(inputs, every, start, count, tile)
        for block in range(first * each, last * each, FREQUENCIES):
            block_phases(tile, high, low, phases, block)
            for k in range(min(FREQUENCIES, last * each - block)):
                row = _take(phases[k], block + k, offsets, shifts, ends, salts, width, direct, bits, keys, count)
                if row >= 0:
                    _scatter(keys, weights, start, count, table[row * width : (row + 1) * width])


@kernel(
    "void(int16[:,::1], int32[:,::1], int32[::1], int32[::1], boolean[::1], uint32[::1], boolean, int64, uint32[:,::1])"
)
def projected_keys(inputs, coefficients, offsets, shifts, ends, salts, direct, first, out):  # type: ignore[no-untyped-def]
    """Write the key (with `direct`, the counter) of every record in rows first, first+1, … to out[record, row].

    Processes one record at a time, which is faster than tiles for few queries, and needed for products with sets.
    """
    dimension, each = inputs.shape[0], shifts.size
    record = np.empty(dimension, np.int32)
    for i in range(inputs.shape[1]):
        for d in range(dimension):
            record[d] = int32(inputs[d, i])
        for row in range(out.shape[1]):
            key = salts[first + row]
            bits = uint32(0)
            for j in range(each):
                projection = (first + row) * each + j
                phase = offsets[projection]
                own = coefficients[projection]
                for d in range(dimension):
                    phase = int32(phase + int32(own[d] * record[d]))
                if shifts[j] != SIGN:
                    key = _mixed(key, uint32(int32(phase >> shifts[j])))
                    continue
                bits = uint32(uint32(bits << uint32(1)) | uint32(uint32(phase) >> uint32(31)))
                if ends[j]:
                    key = bits if direct else _mixed(key, bits)
                    bits = uint32(0)
            out[i, row] = key


@part
def _least(element, factors, masks, least):  # type: ignore[no-untyped-def]
    for k in range(least.size):
        h = uint32(uint32(element ^ masks[k]) * factors[k])
        h = uint32(h ^ uint32(h >> uint32(15)))
        h = uint32(h * uint32(0x846CA68B))
        least[k] = h if h < least[k] else least[k]


@part
def _fold_least(least, keys):  # type: ignore[no-untyped-def]
    for k in range(least.size):
        keys[k] = _mixed(keys[k], least[k])
        least[k] = uint32(0xFFFFFFFF)


@kernel("void(int64[::1], int32[::1], uint32[::1], uint32[::1], uint32[:,::1])")
def fold_sets(offsets, ids, factors, masks, keys):  # type: ignore[no-untyped-def]
    """Mix the MinHash of every record's set, one for each column of `keys`, into the record's keys."""
    least = np.full(keys.shape[1], 0xFFFFFFFF, np.uint32)
    for i in range(keys.shape[0]):
        for e in range(offsets[i], offsets[i + 1]):
            element = _mixed(uint32(0x9E3779B9), uint32(ids[e]))
            _least(uint32(element ^ uint32(element >> uint32(16))), factors, masks, least)
        _fold_least(least, keys[i])


@kernel("void(uint32[:,::1], int64, int64, uint32[:,::1])")
def keys_to_places(keys, width, start, places):  # type: ignore[no-untyped-def]
    """Write the counters of some records to places[:, start:]: one matrix row per row of the table."""
    for k in range(0, keys.shape[1], 16):
        rows = min(16, keys.shape[1] - k)
        for i in range(keys.shape[0]):
            for j in range(rows):
                places[k + j, start + i] = _place(keys[i, k + j], width)


@kernel(
    "void(uint32[:,::1], int64, int64, int32[::1], int64, int32[::1])",
    "void(uint32[:,::1], int64, int64, int32[::1], int64, int64[::1])",
)
def scatter_places(places, records, width, weights, first, table):  # type: ignore[no-untyped-def]
    """Add every record to its counter in rows first, first+1, …, row by row, so that a row stays in the cache."""
    for k in range(places.shape[0]):
        row = (first + k) * width
        _scatter(places[k], weights, 0, records, table[row : row + width])


@kernel("void(float64[:,:], float64[::1], float64[::1], float64[::1], int64[::1], int16[:,::1])")
def number_codes(numbers, low, high, missing, steps, codes):  # type: ignore[no-untyped-def]
    """Codes of the numbers of several columns (matrix rows), by the rule of `levels.spread` and `Column.codes_of`.

    `missing` replaces numbers that are not finite. Where it is NaN itself, the code is that of a missing cell.
    """
    for j in range(numbers.shape[0]):
        for i in range(numbers.shape[1]):
            number = numbers[j, i] if np.isfinite(numbers[j, i]) else missing[j]
            if np.isnan(number):
                codes[j, i] = -32768
                continue
            clamped = min(max(number, low[j]), high[j])
            level = int64(np.rint((clamped - low[j]) / (high[j] - low[j]) * np.float64(steps[j])))
            if steps[j] == 65534:
                level = min(max(level, int64(clamped > low[j])), steps[j] - int64(clamped < high[j]))
            codes[j, i] = (2 * 65534 * level + steps[j]) // (2 * steps[j]) - 32767


_TABLES = [types.Array(kind, 1, "C", readonly=True) for kind in (int32, int64)]


@part
def _read(places, row, start, totals, squares, count):  # type: ignore[no-untyped-def]
    for i in range(count):
        counter = np.int64(row[places[i]])
        totals[start + i] += counter
        squares[start + i] += np.float64(counter) * np.float64(counter)


@kernel(*[
        types.void(
            types.Array(int16, 2, "C"), int32[:, ::1], int32[:, ::1], int32[::1], int32[::1], boolean[::1], uint32[::1],
            int64, boolean, table, int64[:, ::1], float64[::1],
        )
        for table in _TABLES
    ])  # fmt: skip
def projected_totals(inputs, high, low, offsets, shifts, ends, salts, width, direct, table, totals, squares):  # type: ignore[no-untyped-def]
    """Sum each point's counters over consecutive groups of rows into totals[group, point], and all their squares."""
    records, each, rows = inputs.shape[1], shifts.size, salts.size
    lanes = min(TILE, (records + RECORDS - 1) // RECORDS * RECORDS)
    tile = np.zeros((high.shape[1], lanes), np.int32)
    phases = np.zeros((FREQUENCIES, lanes), np.int32)
    keys = np.zeros(lanes, np.uint32)
    bits = np.zeros(lanes, np.uint32)
    every = np.arange(inputs.shape[0])
    for start in range(0, records, lanes):
        count = min(records, start + lanes) - start
        pack_tile(inputs, every, start, count, tile)
        for block in range(0, rows * each, FREQUENCIES):
            block_phases(tile, high, low, phases, block)
            for k in range(min(FREQUENCIES, rows * each - block)):
                row = _take(phases[k], block + k, offsets, shifts, ends, salts, width, direct, bits, keys, count)
                if row >= 0:
                    group = row * totals.shape[0] // rows
                    _read(keys, table[row * width : (row + 1) * width], start, totals[group], squares, count)


@kernel(*[types.void(uint32[:, ::1], int64, boolean, table, int64[:, ::1], float64[::1]) for table in _TABLES])
def key_totals(keys, width, direct, table, totals, squares):  # type: ignore[no-untyped-def]
    """Do as `projected_totals`, from keys."""
    rows = keys.shape[1]
    counters = np.empty(rows, np.int64)
    for i in range(keys.shape[0]):
        for k in range(rows):
            place = keys[i, k] if direct else _place(keys[i, k], width)
            counters[k] = table[k * width + np.int64(place)]
        for k in range(rows):
            totals[k * totals.shape[0] // rows, i] += counters[k]
            squares[i] += np.float64(counters[k]) * np.float64(counters[k])
