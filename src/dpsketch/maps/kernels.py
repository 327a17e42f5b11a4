"""Numba kernels: serial, without the GIL, with explicit signatures; threads are the engine's business.

Everything that reaches a sum is integer arithmetic or a float32 operation that is correctly rounded on every
machine, so the same codes give the same bytes anywhere. Numba widens int32 arithmetic to int64: every
intermediate is therefore wrapped in int32() again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int32, njit, types
from numba.extending import intrinsic

TILE = 512
QUARTER = 1 << 30  # a quarter turn in units of 2^-32 turn
# 32768·sin(2πt) on |t| <= 1/4: odd minimax polynomial, frozen. Changing a digit is a new version of the map.
_TURN = np.float32(2.0**-32)
_C1 = np.float32(205886.71875)
_C3 = np.float32(-1354535.5)
_C5 = np.float32(2665374.25)
_C7 = np.float32(-2326312.75)

_serial = {"nogil": True, "cache": True, "error_model": "numpy"}


@intrinsic
def _fma(_context: Any, _a: Any, _b: Any, _c: Any) -> Any:
    """a·b + c with one rounding, in hardware or not."""

    def generate(_inner: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@njit(inline="always")
def cosine(phase):  # type: ignore[no-untyped-def]
    """round(32768·cos) of an int32 phase in units of 2^-32 turn."""
    folded = phase if phase >= int32(0) else int32(-phase)
    t = float32(int32(int32(QUARTER) - folded)) * _TURN
    u = t * t
    return int32(np.rint(t * _fma(u, _fma(u, _fma(u, _C7, _C5), _C3), _C1)))


@njit("void(int32[:,::1], int32[:,::1], int32[:,::1], int64, int64)", **_serial)
def _phases(tile, frequencies, phases, first, width):  # type: ignore[no-untyped-def]
    """Phases of four frequencies for a tile, modulo one turn; four dimensions a pass."""
    p0, p1, p2, p3 = phases[0], phases[1], phases[2], phases[3]
    f0, f1, f2, f3 = frequencies[first], frequencies[first + 1], frequencies[first + 2], frequencies[first + 3]
    for i in range(width):
        p0[i] = 0
        p1[i] = 0
        p2[i] = 0
        p3[i] = 0
    for j in range(0, tile.shape[0], 4):
        x0, x1, x2, x3 = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
        a0, a1, a2, a3 = f0[j], f0[j + 1], f0[j + 2], f0[j + 3]
        b0, b1, b2, b3 = f1[j], f1[j + 1], f1[j + 2], f1[j + 3]
        c0, c1, c2, c3 = f2[j], f2[j + 1], f2[j + 2], f2[j + 3]
        d0, d1, d2, d3 = f3[j], f3[j + 1], f3[j + 2], f3[j + 3]
        for i in range(width):
            v0, v1, v2, v3 = x0[i], x1[i], x2[i], x3[i]
            p0[i] = int32(p0[i] + v0 * a0 + v1 * a1 + v2 * a2 + v3 * a3)
            p1[i] = int32(p1[i] + v0 * b0 + v1 * b1 + v2 * b2 + v3 * b3)
            p2[i] = int32(p2[i] + v0 * c0 + v1 * c1 + v2 * c2 + v3 * c3)
            p3[i] = int32(p3[i] + v0 * d0 + v1 * d1 + v2 * d2 + v3 * d3)


@njit("UniTuple(int32, 2)(int32[::1], int64)", **_serial)
def _cosines_and_sines(phases, width):  # type: ignore[no-untyped-def]
    """Sums over a tile; 512 · 32769 fits an int32."""
    c = int32(0)
    s = int32(0)
    for i in range(width):
        p = phases[i]
        c = int32(c + cosine(p))
        s = int32(s + cosine(int32(p - int32(QUARTER))))
    return c, s


@njit("void(int16[:,::1], int64[::1], int32[:,::1], int64[::1])", **_serial)
def fourier_sums(codes, rows, frequencies, sums):  # type: ignore[no-untyped-def]
    """Add Σ cos to sums[0::2] and Σ sin to sums[1::2].

    `frequencies` has a multiple of four rows and columns, zero beyond the true ones.
    """
    records = codes.shape[1]
    count = sums.size // 2
    tile = np.zeros((frequencies.shape[1], TILE), np.int32)
    phases = np.zeros((4, TILE), np.int32)
    for start in range(0, records, TILE):
        width = min(records, start + TILE) - start
        for j in range(rows.size):
            source = codes[rows[j]]
            target = tile[j]
            for i in range(width):
                target[i] = source[start + i]
        for first in range(0, frequencies.shape[0], 4):
            _phases(tile, frequencies, phases, first, width)
            for k in range(min(4, count - first)):
                c, s = _cosines_and_sines(phases[k], width)
                sums[2 * (first + k)] += c
                sums[2 * (first + k) + 1] += s


@njit("UniTuple(int64, 3)(int64, int64)", **_serial)
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


@njit("void(int16[:,::1], int64[::1], uint16[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1])", **_serial)
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
