"""The Fourier kernel compared with NumPy and with the matrix product alone, Hadamard with dense frequencies; one
thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import dpsketch as dps
from benchmarks.timing import best_together, line
from dpsketch.encoding.records import Records

RECORDS, SIZE = 65_536, 1000
GOALS = {10: (2.3, 45.0, 0.50), 100: (1.1, 11.0, 0.65)}


def numpy_sketch(points: np.ndarray, frequencies: np.ndarray, chunk: int) -> Callable[[], None]:
    """Projection, cosine and sine in reused buffers of `chunk` rows."""
    projected = np.empty((chunk, frequencies.shape[1]), points.dtype)
    features = np.empty_like(projected)
    sums = np.zeros((2, frequencies.shape[1]))

    def run() -> None:
        for start in range(0, len(points), chunk):
            np.matmul(points[start : start + chunk], frequencies, out=projected)
            np.cos(projected, out=features)
            sums[0] += features.sum(axis=0)
            np.sin(projected, out=features)
            sums[1] += features.sum(axis=0)

    return run


def product_alone(points: np.ndarray, frequencies: np.ndarray, chunk: int) -> Callable[[], None]:
    projected = np.empty((chunk, frequencies.shape[1]), points.dtype)

    def run() -> None:
        for start in range(0, len(points), chunk):
            np.matmul(points[start : start + chunk], frequencies, out=projected)

    return run


def kernel(
    dimension: int, kind: type[dps.Fourier | dps.OneBitFourier] = dps.Fourier
) -> tuple[Callable[[], None], Callable[[int], float]]:
    """Time of our kernel on one thread, and its wall time on several."""
    columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(dimension)}
    schema = dps.Schema.from_dict({"privacy": {"rows": RECORDS}, "columns": columns})
    feature_map = kind(size=SIZE, structure="dense").bind(schema)
    codes = np.random.default_rng(1).integers(-32767, 32768, (dimension, RECORDS)).astype(np.int16)
    halves = [np.ascontiguousarray(codes[:, part::2]) for part in range(2)]

    def run(part: np.ndarray = codes) -> None:
        feature_map.accumulate(Records(part), np.zeros(feature_map.size, np.int64))

    def wall(threads: int) -> float:
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            list(pool.map(run, halves * 4))
            return time.perf_counter() - start

    return run, wall


def structures(dimension: int, size: int, kind: type[dps.Fourier | dps.OneBitFourier] = dps.Fourier) -> float:
    """Speed-up of Hadamard frequencies over dense ones."""
    columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(dimension)}
    schema = dps.Schema.from_dict({"columns": columns})
    codes = np.random.default_rng(1).integers(-32767, 32768, (dimension, 4096)).astype(np.int16)

    def work(structure: str) -> Callable[[], None]:
        feature_map = kind(size=size, structure=structure).bind(schema)
        return lambda: feature_map.accumulate(Records(codes), np.zeros(feature_map.size, np.int64))

    dense, structured = best_together(work("dense"), work("hadamard"), repeats=5)
    return dense / structured


def main() -> None:
    line("structured Fourier d=1024, m=1024: against dense", structures(1024, 1024), "x", 8.0)
    line("structured one-bit d=1024, m=1024: against dense", structures(1024, 1024, dps.OneBitFourier), "x", 8.0)
    line("structured Fourier d=128, m=128: where auto takes it", structures(128, 128), "x", 1.0)
    for dimension, (fast, slow, product) in GOALS.items():
        ours, wall = kernel(dimension)
        rng = np.random.default_rng(2)
        points = rng.random((RECORDS, dimension))
        frequencies = rng.normal(size=(dimension, SIZE))
        small = points.astype(np.float32), frequencies.astype(np.float32)
        chunks = (256, 1024, 4096)
        times = best_together(
            ours,
            *[numpy_sketch(*small, chunk) for chunk in chunks],
            *[product_alone(*small, chunk) for chunk in chunks],
        )
        again, double = best_together(ours, numpy_sketch(points, frequencies, 1024), repeats=4)
        name = f"Fourier d={dimension}, m={SIZE}:"
        print(f"{name} {times[0] / RECORDS * 1e6:.2f} CPU-µs a record")
        line(f"{name} against float32 NumPy", min(times[1:4]) / times[0], "x", fast)
        line(f"{name} against float64 NumPy", double / again, "x", slow)
        line(f"{name} share of sgemm's speed", min(times[4:7]) / times[0], "x", product)
        if dimension == 10:
            one_bit, _ = kernel(dimension, dps.OneBitFourier)
            ratio = best_together(one_bit, *[product_alone(*small, chunk) for chunk in chunks])
            line(f"one-bit {name} share of sgemm's speed", min(ratio[1:]) / ratio[0], "x", 0.70)
        pairs = [(wall(1), wall(2)) for _ in range(3)]
        line(f"{name} two threads against one", max(one / two for one, two in pairs), "x", 1.7)
