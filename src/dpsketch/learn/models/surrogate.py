"""Surrogate losses of linear models from hashed counters.

A record z on the unit sphere and a query v inside it collide with probability k(z·v), k(s) = (1 − arccos(s)/π)^bits.
Counters at v and −v therefore add up to an estimate of Σ k(z·v) + k(−z·v), which is even and convex in z·v, like a
squared residual. Those at −v alone estimate Σ k(−z·v), which decreases as a margin z·v grows, like a hinge loss.
Source: race §4.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from dpsketch.learn.models.smoothed_descent import Loss, descended
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

# Radius over the largest length: wider means reach past it, narrower ones follow jumps.
_SMOOTHING: Annotated[float, Tuned("airfoil, california", by=BY_HAND)] = 0.2
_BLOCK, _SEED = 1 << 22, 31


class Collisions:
    """Mean counters at queries inside the unit ball: one matrix row per query, one column per column of the records."""

    def __init__(self, race: BoundRace) -> None:
        (projection,) = race.projected
        self._coefficients = projection.coefficients.astype(np.float64)
        self._rows, self._bits, self._dimension = projection.coefficients.shape

    def sums(self, counters: Floats, queries: Floats) -> Floats:
        """Mean counters at the queries. `counters` has one matrix row per row of the table."""
        found = np.empty(len(queries))
        flat, start = counters.ravel(), np.arange(self._rows)[:, None] * counters.shape[1]
        step = max(_BLOCK // (self._rows * self._bits), 1)
        for first in range(0, len(queries), step):
            some = queries[first : first + step]
            rest = np.sqrt(np.maximum(1 - (some**2).sum(axis=1), 0.0))
            complete = np.column_stack([some, np.zeros(len(some)), rest])
            phases = (self._coefficients.reshape(-1, self._dimension) @ complete.T).reshape(self._rows, self._bits, -1)
            signs = phases < 0
            places = sum(signs[:, bit].astype(np.int64) << (self._bits - 1 - bit) for bit in range(self._bits))
            found[first : first + step] = flat[start + places].mean(axis=0)
        return found


def minimum(loss: Loss, size: int, longest: float) -> Floats:
    """Approximate minimiser of `loss`, one number per matrix row, among points of at most length `longest`."""

    def inside(places: Floats) -> Floats:
        lengths = np.linalg.norm(places, axis=-1, keepdims=True)
        return np.asarray(places * np.minimum(1.0, longest / np.maximum(lengths, 1e-300)))

    return descended(loss, np.zeros(size), inside, _SMOOTHING * longest, np.random.default_rng(_SEED))[0]
