"""Hashed counters against the same work in NumPy, one thread each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import dpsketch as dps
from benchmarks.timing import best_together, line
from dpsketch.maps.base import BoundMap
from dpsketch.records import Records

WIDTH = 1000
CASES = {(3, 1000): (5.0, 65_536), (54, 500): (2.2, 65_536)}


def numpy_race(points: np.ndarray, directions: np.ndarray, offsets: np.ndarray, chunk: int) -> Callable[[], np.ndarray]:
    """Projection (1/σ folded in), floor, remainder and one bincount of int32 places in chunks of rows."""
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


def main() -> None:
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
