"""Hashed counters compared with the same work in NumPy, one thread each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import dpsketch as dps
from benchmarks.data import slashdot
from benchmarks.timing import best_together, line
from dpsketch.encoding.records import IdSets, Records, concatenated
from dpsketch.encoding.rows import encode
from dpsketch.engines.graph import neighbour_sets
from dpsketch.maps.base import BoundMap

WIDTH = 1000
CASES = {(3, 1000): (5.0, 65_536), (54, 500): (2.2, 65_536)}


def numpy_race(points: np.ndarray, directions: np.ndarray, offsets: np.ndarray, chunk: int) -> Callable[[], np.ndarray]:
    """Projection (1/σ folded in), floor, remainder and one bincount of int32 indices in chunks of rows."""
    rows = directions.shape[1]
    first = np.arange(rows, dtype=np.int32) * WIDTH
    projected = np.empty((chunk, rows), np.float32)

    def run() -> np.ndarray:
        table = np.zeros(rows * WIDTH, np.int64)
        for start in range(0, len(points), chunk):
            part = projected[: len(points[start : start + chunk])]
            np.matmul(points[start : start + chunk], directions, out=part)
            part += offsets
            np.floor(part, out=part)
            places = part.astype(np.int32)
            places %= np.int32(WIDTH)
            places += first
            table += np.bincount(places.ravel(), minlength=table.size)
        return table

    return run


def numpy_minhash(sets: IdSets, seeds: np.ndarray, width: int) -> Callable[[], np.ndarray]:
    """Hash every id, take each set's minimum with `minimum.reduceat`, mix, and count, one repetition after another."""
    element = (sets.ids.astype(np.uint32) + np.uint32(1)) * np.uint32(0x9E3779B1)
    starts = sets.offsets[:-1]
    hashed, shifted = np.empty_like(element), np.empty_like(element)

    def run() -> np.ndarray:
        table = np.zeros((len(seeds), width), np.int32)
        for row, (factor, mask) in enumerate(seeds):
            np.bitwise_xor(element, mask, out=hashed)
            np.multiply(hashed, factor, out=hashed)
            np.right_shift(hashed, 15, out=shifted)
            np.bitwise_xor(hashed, shifted, out=hashed)
            np.multiply(hashed, np.uint32(0x846CA68B), out=hashed)
            least = np.minimum.reduceat(hashed, starts)
            least = (least ^ (least >> np.uint32(16))) * np.uint32(0x7FEB352D)
            places = (least.astype(np.uint64) * np.uint64(width)) >> np.uint64(32)
            table[row] = np.bincount(places.astype(np.int64), minlength=width)
        return table

    return run


def minhash() -> None:
    edges, nodes, rows, width = slashdot(), 82_168, 256, 100_000
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": nodes}, "columns": {"neighbours": {"kind": "set", "universe": nodes}}}
    )
    sets = concatenated([encode(schema, batch) for batch in neighbour_sets(edges, nodes)]).sets["neighbours"]
    bound = dps.Race(rows=rows, width=width, hash=dps.MinHash()).bind(schema)
    records = Records(np.empty((0, len(sets.offsets) - 1), np.int16), {"neighbours": sets})
    seeds = np.random.default_rng(6).integers(0, 2**32, (rows, 2), dtype=np.uint32) | np.uint32(1)
    mine, theirs = best_together(
        lambda: bound.accumulate(records, np.zeros(bound.size, np.int32)),
        numpy_minhash(sets, seeds, width),
        repeats=3,
    )
    name = "MinHash, Slashdot, W=100k:"
    print(f"{name} {mine / rows / len(sets.ids) * 1e9:.2f} CPU-ns an edge and row")
    line(f"{name} against NumPy reduceat", theirs / mine, "x", 3.5)


def main() -> None:
    euclidean()
    minhash()


def euclidean() -> None:
    for (dimension, rows), (goal, records) in CASES.items():
        columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(dimension)}
        schema = dps.Schema.from_dict({"privacy": {"rows": records}, "columns": columns})
        bound = dps.Race(rows=rows, width=WIDTH, hash=dps.Euclidean(bandwidth=0.1)).bind(schema)
        rng = np.random.default_rng(5)
        codes = rng.integers(-32767, 32768, (dimension, records)).astype(np.int16)
        points = rng.random((records, dimension)).astype(np.float32)
        directions = (rng.normal(size=(dimension, rows)) / 0.1).astype(np.float32)
        offsets = rng.random(rows).astype(np.float32)

        def ours(bound: BoundMap = bound, codes: np.ndarray = codes) -> None:
            bound.accumulate(Records(codes), np.zeros(bound.size, np.int64))

        chunks = (500, 2000, 8000)
        mine, *theirs = best_together(
            ours, *[numpy_race(points, directions, offsets, chunk) for chunk in chunks], repeats=4
        )
        name = f"RACE Euclidean d={dimension} R={rows} W={WIDTH}:"
        print(f"{name} {mine / records / rows * 1e9:.2f} CPU-ns a record and row")
        line(f"{name} against float32 NumPy", min(theirs) / mine, "x", goal)
