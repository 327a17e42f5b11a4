"""Definitions of the compressive study."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.compressive import goals
from benchmarks.compressive.sketches import best_error, error_of
from benchmarks.compressive.tables import simulated_mixture


def test_a_line_passes_by_its_median_and_its_worst() -> None:
    assert goals.at_most("a", [1.0, 1.1, 1.3], 1.1) == "a 1.1000 (1.3000), goal ≤ 1.1: PASS"
    assert goals.at_most("a", [1.0, 1.1, 1.3], 1.1, 1.2).endswith("goal ≤ 1.1, worst ≤ 1.2: SHORT")
    assert goals.at_most("a", [1.0]) == "a 1.0000 (1.0000)"
    assert goals.at_least("a", [0.9, 0.8, 1.0], 0.95) == "a 0.9000 (0.8000), goal ≥ 0.95: SHORT"


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "unbalanced", "0.03"])
def test_a_mixtures_own_density_scores_its_rows_best(kind: str) -> None:
    generator = np.random.default_rng(1)
    mixture = simulated_mixture(kind, 4, 3, generator)
    points = mixture.drawn(20_000, generator)
    spread = np.log(mixture.deviations).sum(1) @ mixture.weights
    entropy = spread + 1.5 * (1 + np.log(2 * np.pi)) - mixture.weights @ np.log(mixture.weights)
    assert -mixture.score(points) < entropy + 0.05  # equal where components do not overlap
    assert mixture.weights.sum() == pytest.approx(1)
    assert mixture.weights.min() > 0.015


def test_errors_are_relative_to_the_best_centres() -> None:
    generator = np.random.default_rng(2)
    mixture = simulated_mixture("0.01", 3, 2, generator)
    points = mixture.drawn(3000, generator)
    least = best_error(points, 3, 0, mixture.centres, most=1000)
    assert error_of(points, mixture.centres) / least == pytest.approx(1, abs=0.01)
    assert error_of(points, mixture.centres + 0.01) / least == pytest.approx(2, abs=0.2)
