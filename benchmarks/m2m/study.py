"""The figures of one run: true values of a table, and the errors of a method's answers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.m2m.answers import Answers
from benchmarks.m2m.models import score
from benchmarks.m2m.ours import Ours
from benchmarks.m2m.questions import draw_questions, shares
from benchmarks.m2m.tables import Table, load
from dpsketch.numerics.arrays import Floats

CDF_POINTS = 20
FIGURES = ("means", "cov", "cdf", "3-way", "3-way-u", "coverage", "not known", "model", "seconds", "total")


def relative(estimate: Floats, true: Floats) -> float:
    return float(np.mean(np.abs(estimate - true) / np.abs(true)))


class Study:
    """Truth about a table's training rows, with questions drawn from `seed`."""

    def __init__(self, table: Table, seed: tuple[int, ...]) -> None:
        self.table = table
        generator = np.random.default_rng(seed)
        rows = table.rows
        self.at_quantiles = draw_questions(table, generator, at_quantiles=True)
        self.in_bounds = draw_questions(table, generator, at_quantiles=False)
        self.quantile_shares, self.bound_shares = shares(rows, self.at_quantiles), shares(rows, self.in_bounds)
        numbers = rows[:, table.numeric]
        self.mean, self.covariance = numbers.mean(0), np.cov(numbers.T, bias=True)
        self.points = np.linspace(0, 1, CDF_POINTS + 2)[1:-1]
        self.cdf = self.cdf_at(self.points)

    def cdf_at(self, points: Floats) -> Floats:
        known = [self.table.known[j] for j in self.table.numeric]
        return np.array([np.searchsorted(values, points, side="right") / len(values) for values in known])

    def figures(self, answers: Answers) -> dict[str, float]:
        values, stderr = answers.conjunctions(self.at_quantiles)
        off = np.abs(values - self.quantile_shares)
        found: dict[str, Any] = {
            "means": relative(answers.means(), self.mean),
            "cov": np.linalg.norm(answers.covariance() - self.covariance) / np.linalg.norm(self.covariance),
            "cdf": np.mean(np.abs(answers.cdf(self.points) - self.cdf)),
            "3-way": np.mean(off),
            "3-way-u": np.mean(np.abs(answers.conjunctions(self.in_bounds)[0] - self.bound_shares)),
        }
        if not np.isnan(stderr).any():
            found["coverage"] = np.mean(off <= stderr)
        if isinstance(answers, Ours):
            found["not known"] = answers.not_known / answers.asked
        training = answers.training()
        if training is not None:
            found["model"] = score(self.table, training)
        elif isinstance(answers, Ours) and (model := answers.model()) is not None:
            found["model"] = model
        found["seconds"] = answers.seconds
        if (total := getattr(answers, "total_seconds", None)) is not None:
            found["total"] = total
        return {key: float(value) for key, value in found.items()}


@lru_cache(12)
def study(name: str, seed: tuple[int, ...]) -> Study:
    return Study(load(name), seed)
