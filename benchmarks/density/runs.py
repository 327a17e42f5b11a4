"""Runs of ours that may not be possible yet, and their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.compressive.options import Say
from benchmarks.density.ours import NotThere, Scored
from dpsketch.errors import DpsketchError

Budgets = tuple[tuple[float, float], ...]
DELTA = 1e-6


def attempted(name: str, say: Say, run: Callable[[int], tuple[float, Scored]], runs: int) -> list[float]:
    """A figure of each run; none, and a line with the reason, if the library refuses."""
    figures, scored = [], []
    for seed in range(runs):
        try:
            figure, result = run(seed)
        except (NotThere, DpsketchError) as error:
            fact = error.fact if isinstance(error, DpsketchError) else str(error)
            say(f"  {name}: MISSING: {fact}")
            return []
        figures.append(figure)
        scored.append(result)
    say(f"    {name}: {scored[0].how}; {spent(scored)}")
    return figures


def spent(scored: Sequence[Scored]) -> str:
    """Mean seconds of processor time of every step; microseconds for a query."""
    shown = []
    for step in scored[0].seconds:
        mean = float(np.mean([each.seconds[step] for each in scored]))
        shown.append(f"{step} {mean * 1e6:.1f} µs a row" if step == "query" else f"{step} {mean:.2f} CPU s")
    return ", ".join(shown)
