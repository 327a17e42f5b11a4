"""Derivative-free descent on a smoothed loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

_DIRECTIONS: Annotated[int, UNRECORDED] = 48
_STEPS: Annotated[int, UNRECORDED] = 25
_LENGTHS = 2.0 ** np.arange(-5.0, 2.0)  # of a step, in smoothing radii
Loss = Callable[[Floats], Floats]  # one number per matrix row


def descended(
    loss: Loss, place: Floats, inside: Callable[[Floats], Floats], radius: float, random: np.random.Generator
) -> tuple[Floats, float]:
    """A local minimiser of the loss smoothed over `radius`, and the smoothed loss there.

    Takes steps against the smoothed gradient. Counters are discontinuous, so gradients are of means over random points
    around. The step length is the one that lowers that mean most, or zero if none does. `inside` moves points to where
    they are allowed.
    """
    size, lowest = len(place), np.inf
    for _ in range(_STEPS):
        around = radius / np.sqrt(size) * random.normal(size=(_DIRECTIONS, size))
        around = np.concatenate([around, -around])
        slope = loss(inside(place + around)) @ around
        direction = slope / max(float(np.linalg.norm(slope)), 1e-300)
        tried = inside(place - np.append(0.0, radius * _LENGTHS)[:, None] * direction)
        points = inside((tried[:, None, :] + around).reshape(-1, size))
        means = loss(points).reshape(len(tried), -1).mean(axis=1)
        place, lowest = tried[means.argmin()], float(means.min())
    return place, lowest
