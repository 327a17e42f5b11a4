"""Goals, and lines that state whether they are met: by the mean of fresh runs, with the worst beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.compressive.goals import budget_text, verdict

__all__ = ["at_least", "at_most", "budget_text", "shown"]


def at_most(name: str, values: Sequence[float], bound: float | None = None) -> str:
    """`name mean (worst)`, with a bound on the mean."""
    mean = float(np.mean(values))
    text = f"{name} {shown(mean)} ({shown(max(values))})"
    return text if bound is None else f"{text}, goal ≤ {bound:g}: {verdict(mean <= bound)}"


def at_least(name: str, values: Sequence[float], bound: float | None = None) -> str:
    mean = float(np.mean(values))
    text = f"{name} {shown(mean)} ({shown(min(values))})"
    return text if bound is None else f"{text}, goal ≥ {bound:g}: {verdict(mean >= bound)}"


def shown(value: float) -> str:
    """The value with four decimal places, or more for small numbers."""
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.2g}"
