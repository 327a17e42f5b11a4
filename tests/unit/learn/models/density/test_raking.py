"""Weights of simulated records from released counters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.models.density.raking import raked
from dpsketch.numerics.arrays import Floats

ROWS, WIDTH = 30, 200


def places_of(values: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Cells of a line, cut at another place in each row."""
    offsets = rng.uniform(0, 1, ROWS)
    cells = np.floor(values[:, None] * 20 + offsets).astype(np.int64)
    return cells + 50 + np.arange(ROWS) * WIDTH


def test_points_from_elsewhere_get_the_weights_of_records() -> None:
    """Records lie where a third of the points do; the noise of a counter is a third of what is in it."""
    values = np.random.default_rng(1).uniform(0, 1, 30_000)
    points = np.random.default_rng(2).uniform(-1, 2, 3000)
    places, deviation = places_of(values, np.random.default_rng(3)), 500.0
    counters = np.bincount(places.ravel(), minlength=ROWS * WIDTH) + deviation * np.random.default_rng(4).normal(
        size=ROWS * WIDTH
    )
    weights = raked(places_of(points, np.random.default_rng(3)), counters, deviation, 30_000.0)
    inside = (points > 0) & (points < 1)
    assert weights[inside].sum() / weights.sum() > 0.9  # 0.33 without weights
    assert np.std(weights[inside]) < 0.4 * np.mean(weights[inside])


def test_noise_alone_says_nothing() -> None:
    points = np.random.default_rng(2).uniform(-1, 2, 3000)
    counters = 1e6 * np.random.default_rng(4).normal(size=ROWS * WIDTH)
    weights = raked(places_of(points, np.random.default_rng(3)), counters, 1e6, 100.0)
    assert abs(np.average(points, weights=weights) - points.mean()) < 0.2
