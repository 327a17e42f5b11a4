"""k-means of weighted points."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned

Progress = Callable[[float], None]

# With four, even exact points end 4 % above the least sum of squares.
STARTS: Annotated[int, Tuned("cabs", by=BY_HAND)] = 16
DRAWN: Annotated[int, UNRECORDED] = 20_000  # points that starts are tried on
ALIKE: Annotated[float, UNRECORDED] = 0.01  # relative difference of sums of squares that is small beside the noise
STEPS = 50
_BLOCK = 1 << 14


def lloyd(points: Floats, count: int, start: Floats | None, seed: int) -> Floats:
    """Centres from `start` or, without one, the best of some k-means++ starts."""
    from sklearn.cluster import KMeans

    if start is None:
        return np.asarray(KMeans(count, n_init=STARTS, random_state=seed).fit(points).cluster_centers_)
    return np.asarray(KMeans(count, init=start, n_init=1).fit(points).cluster_centers_)


def nearest(points: Floats, centres: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The nearest centre of each point and the squared distance to it."""
    places, squares = [], []
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        distances = (centres**2).sum(1) - 2 * block @ centres.T
        place = distances.argmin(1)
        places.append(place)
        squares.append(np.maximum(distances[np.arange(len(block)), place] + (block**2).sum(1), 0.0))
    return np.concatenate([*places, np.empty(0, np.int64)]), np.concatenate([*squares, np.empty(0)])


def moved(points: Floats, centres: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """One step: the mean of the points nearest to each centre, and their shares. A centre without points stays."""
    places, _ = nearest(points, centres)
    weights = np.full(len(points), 1 / len(points)) if weights is None else weights
    shares = np.bincount(places, weights, len(centres)).astype(np.float64)
    sums = np.stack([np.bincount(places, weights * column, len(centres)) for column in points.T], axis=1)
    held = shares > 0
    return np.where(held[:, None], sums / np.where(held, shares, 1.0)[:, None], centres), shares


def settled(points: Floats, centres: Floats, weights: Floats, steps: int = STEPS) -> Floats:
    """Centres after at most `steps` steps, or on convergence."""
    for _ in range(steps):
        last, (centres, _) = centres, moved(points, centres, weights)
        if np.array_equal(last, centres):
            break
    return centres


def best_start(
    points: Floats, weights: Floats, count: int, seed: int, progress: Progress | None = None
) -> tuple[Floats, bool, bool]:
    """Centres of the best of some starts, whether two starts agree on them, and whether an interrupt (Ctrl-C) skipped
    some.

    Each start uses the same number of points, drawn by weight.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    generator = np.random.default_rng(seed)
    drawn = points[generator.choice(len(points), DRAWN, p=weights)]
    found: list[tuple[float, Floats]] = []
    interrupted = False
    try:
        for start in range(STARTS):
            with warnings.catch_warnings():  # where fewer points than clusters have a weight, some clusters are empty
                warnings.simplefilter("ignore", ConvergenceWarning)
                fit = KMeans(count, n_init=1, random_state=int(generator.integers(2**31))).fit(drawn)
            found.append((float(fit.inertia_), np.asarray(fit.cluster_centers_)))
            if progress is not None:
                progress((start + 1) / STARTS)
    except KeyboardInterrupt:
        if not found:
            raise
        interrupted = True
    best, centres = min(found, key=lambda each: each[0])
    agree = sum(squares <= best * (1 + ALIKE) for squares, _ in found) > 1
    return centres, agree, interrupted
