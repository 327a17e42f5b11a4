"""The density sketch compared with the same work in NumPy, one thread each."""

from __future__ import annotations

import numpy as np

import dpsketch as dps
from benchmarks.timing import best_together, line
from dpsketch.encoding.records import Records

RECORDS, COLUMNS, ROWS = 1_000_000, 5, 5


def main() -> None:
    columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(COLUMNS)}
    feature_map = dps.Grid(rows=ROWS).bind(dps.Schema.from_dict({"privacy": {"rows": RECORDS}, "columns": columns}))
    codes = np.random.default_rng(4).normal(0, 9000, (COLUMNS, RECORDS)).clip(-32767, 32767).astype(np.int16)

    def ours() -> np.ndarray:
        sums = np.zeros(feature_map.size, np.int64)
        feature_map.accumulate(Records(codes), sums)
        return sums

    def numpy() -> np.ndarray:
        index, sign = feature_map.counters(feature_map.cells(codes, 5), 0)
        return np.bincount(index.ravel(), sign.ravel(), feature_map.size).astype(np.int64)

    assert (ours() == numpy()).all()
    mine, theirs = best_together(ours, numpy, repeats=3)
    line(f"density sketch n=1e6 d={COLUMNS} K={ROWS}: against NumPy", theirs / mine, "x", 5)
