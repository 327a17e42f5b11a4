"""The goals, and lines that state whether they are met: by the mean over runs, with the worst beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.m2m.tables import HELD_OUT, TIGHT, TUNED

HIGHER_IS_BETTER = ("model",)
COVERAGE = (0.60, 0.80)
MEANS_RATIO = 1.6
AIM_RATIO = 10.0
AHEAD_ON = 4

Figures = Mapping[str, Sequence[float]]
Key = tuple[str, str, float, float]  # table, method, epsilon, delta
Results = Mapping[Key, Figures]


@dataclass(frozen=True)
class Goal:
    table: str
    epsilon: float
    figure: str
    bound: float

    def met(self, value: float) -> bool:
        return value >= self.bound if self.figure in HIGHER_IS_BETTER else value <= self.bound

    @property
    def sign(self) -> str:
        return "≥" if self.figure in HIGHER_IS_BETTER else "≤"


GOALS = (
    Goal("lifesci", 1, "means", 0.002),
    Goal("lifesci", 1, "cov", 0.10),
    Goal("lifesci", 1, "3-way", 0.0055),
    Goal("occupancy", 1, "model", 0.995),
    Goal("occupancy", 1, "3-way", 0.0055),
    Goal("adult", 1, "model", 0.875),
    Goal("adult", 1, "3-way", 0.0037),
    Goal("htru2", 1, "model", 0.972),
    Goal("california_housing", 1, "model", 0.52),
    *(Goal(table, 1, "cdf", 0.005) for table in (*TUNED, *HELD_OUT)),
    Goal("occupancy", 0.1, "model", 0.99),
    Goal("adult", 0.1, "model", 0.81),
)


def worst(figure: str, values: Sequence[float]) -> float:
    return min(values) if figure in HIGHER_IS_BETTER else max(values)


def shown(figure: str, values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} ({worst(figure, values):.4f})"


def verdict(met: bool) -> str:
    return "PASS" if met else "SHORT"


def lines(results: Results) -> Iterator[str]:
    """Every goal that these results cover."""
    yield from _absolute(results)
    yield from _coverage(results)
    yield from _means(results)
    yield from _against_aim(results)


def _absolute(results: Results) -> Iterator[str]:
    for goal in GOALS:
        for table in (goal.table, goal.table + TIGHT):
            values = results.get((table, "ours", goal.epsilon, 0.0), {}).get(goal.figure)
            if values:
                start = f"{table} ε={goal.epsilon:g} {goal.figure} {shown(goal.figure, values)}"
                yield f"{start}, goal {goal.sign} {goal.bound:g}: {verdict(goal.met(float(np.mean(values))))}"


def _coverage(results: Results) -> Iterator[str]:
    low, high = COVERAGE
    for (table, method, epsilon, delta), figures in results.items():
        if method == "ours" and table in (*TUNED, *HELD_OUT):
            start = f"{table} {budget_text(epsilon, delta)} coverage of one standard error, 3-way"
            if "coverage" in figures:
                share = float(np.mean(figures["coverage"]))
                yield f"{start}: {share:.2f}, goal {low:.2f} to {high:.2f}: {verdict(low <= share <= high)}"
            else:
                yield f"{start}: no standard errors, goal {low:.2f} to {high:.2f}: {verdict(False)}"


def _means(results: Results) -> Iterator[str]:
    for (table, method, epsilon, delta), figures in results.items():
        alone = results.get((table, "marginals", epsilon, delta))
        if method == "ours" and alone is not None:
            ratio = float(np.mean(figures["means"]) / np.mean(alone["means"]))
            start = f"{table} {budget_text(epsilon, delta)} means {np.mean(figures['means']):.4f} are {ratio:.2f} times"
            yield f"{start} those of marginals only, goal ≤ {MEANS_RATIO}: {verdict(ratio <= MEANS_RATIO)}"


def _against_aim(results: Results) -> Iterator[str]:
    """Comparison with AIM at the same (ε, δ). Ours with pure ε, a stronger guarantee, is printed too."""
    ahead: dict[tuple[float, float], list[bool]] = {}
    for (table, method, epsilon, delta), figures in results.items():
        mst = results.get((table, "mst", epsilon, delta))
        for ours_delta in (delta, 0.0):
            ours = results.get((table, "ours", epsilon, ours_delta))
            if method != "aim" or ours is None:
                continue
            start = f"{table} AIM δ={delta:g}, ours {budget_text(epsilon, ours_delta)}"
            ratio = float(np.mean(figures["total"]) / np.mean(ours["total"]))
            if ours_delta:
                yield f"{start}: {ratio:.0f} times faster, goal ≥ {AIM_RATIO:g}: {verdict(ratio >= AIM_RATIO)}"
            if mst is not None:
                others = [float(np.mean(each["3-way"])) for each in (mst, figures)]
                value = float(np.mean(ours["3-way"]))
                yield f"{start}: 3-way {value:.4f}, MST {others[0]:.4f}, AIM {others[1]:.4f}"
                if table in TUNED:
                    ahead.setdefault((epsilon, ours_delta), []).append(value < min(others))
    for (epsilon, delta), each in sorted(ahead.items()):
        if epsilon >= 1:
            start = f"ours {budget_text(epsilon, delta)}: 3-way better than MST and AIM on {sum(each)} of {len(each)}"
            yield f"{start} tables, goal ≥ {AHEAD_ON} of {len(TUNED)}: {verdict(sum(each) >= AHEAD_ON)}"


def budget_text(epsilon: float, delta: float) -> str:
    return f"ε={epsilon:g} δ={delta:g}"
