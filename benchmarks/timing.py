"""CPU time of one thread, best of several runs: ratios of two such times are robust on a noisy machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_together(
    *works: Callable[[], object], repeats: int = 7, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Smallest CPU seconds of each job, run in turns so that all see the same machine."""
    for work in works:
        work()
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for index, work in enumerate(works):
            start = clock()
            work()
            best[index] = min(best[index], clock() - start)
    return best


def line(name: str, figure: float, unit: str, goal: float, at_most: bool = False) -> None:
    """One figure with its goal and verdict."""
    good = figure <= goal if at_most else figure >= goal
    sign = "<=" if at_most else ">="
    print(f"{name:<58} {figure:>9.2f} {unit:<8} goal {sign} {goal:<7g} {'PASS' if good else 'SHORT'}", flush=True)
