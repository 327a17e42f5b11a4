"""Exact kernel sums by brute force, as the reference for estimates.

They take long and depend only on rows, queries and width, so they are cached in the folder `DPSKETCH_CACHE`, by default
in the system's temporary folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numba
import numpy as np

import dpsketch as dps
from dpsketch.numerics.arrays import Floats

CACHE = Path(os.environ.get("DPSKETCH_CACHE", Path(tempfile.gettempdir()) / "dpsketch-benchmarks"))
_STEPS = 1 << 15  # of the table over the fourth root of distance, up to the largest distance between rows and queries
_QUERIES = 64


def exact_sums(points: Floats, queries: Floats, width: float) -> Floats:
    """Σ over points of the collision probability of one p-stable hash of this width (race §2.3)."""
    rows, counts = np.unique(points, axis=0, return_counts=True)
    key = hashlib.sha256()
    for each in (rows, counts, queries, np.array([width, _STEPS])):
        key.update(np.ascontiguousarray(each).tobytes() + str(each.shape).encode())
    path = CACHE / f"kernel-sums-{key.hexdigest()[:32]}.npy"
    if path.exists():
        return np.asarray(np.load(path, allow_pickle=False))
    sums = brute_force(rows, counts, queries, width)
    CACHE.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.save(file, sums)
    temporary.replace(path)
    return sums


def brute_force(rows: Floats, counts: np.ndarray, queries: Floats, width: float) -> Floats:
    """The kernel from a table over the fourth root of the distance, with linear interpolation."""
    both = np.vstack([rows, queries])
    farthest = 1.01 * float(np.linalg.norm(np.ptp(both, axis=0))) / width + 1.0
    roots = np.linspace(0.0, farthest**0.25, _STEPS + 1)
    table = np.append(dps.Euclidean(bandwidth=1.0).kernel(roots**4), 0.0)
    scaled = np.ascontiguousarray((rows / width).T, np.float32)
    sums = np.empty(len(queries))
    for start in range(0, len(queries), _QUERIES):
        block = np.ascontiguousarray(queries[start : start + _QUERIES] / width, np.float32)
        _sums(scaled, counts.astype(np.float64), block, table, _STEPS / roots[-1], sums[start : start + _QUERIES])
    return sums


@numba.njit(nogil=True, fastmath=True)
def _sums(columns, counts, queries, table, scale, found):  # type: ignore[no-untyped-def] # pragma: no cover
    dimension, rows = columns.shape
    tile = 2048
    squares = np.empty(tile, np.float32)
    last = len(table) - 2
    for query in range(len(queries)):
        total = 0.0
        for start in range(0, rows, tile):
            stop = min(start + tile, rows)
            squares[:] = 0
            for column in range(dimension):
                place, line = queries[query, column], columns[column, start:stop]
                for row in range(len(line)):
                    away = line[row] - place
                    squares[row] += away * away
            for row in range(stop - start):
                squares[row] = np.sqrt(np.sqrt(np.sqrt(squares[row])))
            for row in range(stop - start):
                position = squares[row] * scale
                entry = min(int(position), last)
                part = min(position - entry, 1.0)
                total += counts[start + row] * (table[entry] + part * (table[entry + 1] - table[entry]))
        found[query] = total
