"""Marginals and tables of pairs on one thread: cells per second, and compared with the same tables as a histogram.

The pass of the general recipe, which counts all levels twice, is compared with one that has marginals instead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import dpsketch as dps
from benchmarks.timing import best_together, line
from dpsketch.encoding.records import Records
from dpsketch.maps.base import FeatureMap

RECORDS, COLUMNS = 1_000_000, 10


def main() -> None:
    columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(COLUMNS)}
    schema = dps.Schema.from_dict({"privacy": {"rows": RECORDS}, "columns": columns})
    codes = np.random.default_rng(4).normal(0, 9000, (COLUMNS, RECORDS)).clip(-32767, 32767).astype(np.int16)

    def work(map_: FeatureMap) -> Callable[[], None]:
        feature_map = map_.bind(schema)
        sums = np.zeros(feature_map.size, np.int64)
        return lambda: feature_map.accumulate(Records(codes), sums)

    for name, ours, theirs, cells, goal in (
        ("marginals", dps.Marginals(), dps.Histogram(), COLUMNS, 50),
        ("pairs", dps.Pairs(), dps.Histogram(ways=2), COLUMNS * (COLUMNS - 1) // 2, 100),
    ):
        mine, other = best_together(work(ours), work(theirs), repeats=3)
        line(f"{name} n=1e6 d={COLUMNS}: increments", cells * RECORDS / mine / 1e6, "M/s", goal)
        line(f"{name} n=1e6 d={COLUMNS}: against a histogram", other / mine, "x", 1)
    one_way = [work(dps.Levels()), work(dps.AdaptiveMarginals())]
    others = [work(dps.Count()), work(dps.Pairs()), work(dps.Totals())]

    def every(works: list[Callable[[], None]]) -> Callable[[], None]:
        def run() -> None:
            for each in works:
                each()

        return run

    marginals = work(dps.Marginals(totals=False))
    mine, other = best_together(every([*one_way, *others]), every([marginals, *others]), repeats=5)
    line(f"general recipe n=1e6 d={COLUMNS}: against marginals", mine / other, "x", 1.2, at_most=True)
    mine, other = best_together(every(one_way), marginals, repeats=5)
    line(f"levels, adaptive marginals n=1e6 d={COLUMNS}: increments", 2 * COLUMNS * RECORDS / mine / 1e6, "M/s", 100)
    line(f"levels, adaptive marginals n=1e6 d={COLUMNS}: against marginals", mine / other, "x", 1.5, at_most=True)
