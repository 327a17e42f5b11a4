"""Goals, and lines that state whether they are met: by the median of fresh runs, with the worst beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def verdict(met: bool) -> str:
    return "PASS" if met else "SHORT"


def at_most(name: str, values: Sequence[float], bound: float | None = None, worst: float | None = None) -> str:
    """`name median (worst)`, with a bound on the median and optionally one on the worst."""
    median, most = float(np.median(values)), float(np.max(values))
    shown = f"{name} {median:.4f} ({most:.4f})"
    if bound is None:
        return shown
    goal = f"goal ≤ {bound:g}" + ("" if worst is None else f", worst ≤ {worst:g}")
    return f"{shown}, {goal}: {verdict(median <= bound and (worst is None or most <= worst))}"


def at_least(name: str, values: Sequence[float], bound: float | None = None) -> str:
    median, least = float(np.median(values)), float(np.min(values))
    shown = f"{name} {median:.4f} ({least:.4f})"
    return shown if bound is None else f"{shown}, goal ≥ {bound:g}: {verdict(median >= bound)}"


def budget_text(epsilon: float, delta: float) -> str:
    return f"ε={epsilon:g}" + (f" δ={delta:g}" if delta else "")
