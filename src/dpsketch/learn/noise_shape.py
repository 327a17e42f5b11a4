"""The shape of an answer's error: which single noisy sum it is mostly made of, and how that is distributed."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.answer import Estimate
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.privacy.mechanisms import LAPLACE_LIKE
from dpsketch.sketch.released import ReleasedSketch

DOMINATES: Annotated[float, Tuned("no table", by=BY_HAND, decision=25)] = 0.9


class LaplaceCoordinates:
    """The noise coordinates of a release that are single numbers with Laplace noise."""

    def __init__(self, released: ReleasedSketch) -> None:
        single = []
        for part in released.parts:
            laplace = len(part.noises) == 1 and part.noises[0].mechanism in LAPLACE_LIKE
            plain = laplace and not part.map.counter_table and part.map.rate == 1.0
            single.append(np.full(part.map.noise_coordinates(released.maps), plain))
        self._single = np.concatenate(single) if single else np.zeros(0, bool)

    def dominates(self, estimate: Estimate) -> NDArray[np.bool_]:
        """Which estimates have DOMINATES of their variance from one such coordinate."""
        with np.errstate(invalid="ignore", over="ignore"):
            squares = estimate.influence**2
            largest = np.nan_to_num(squares).argmax(-1)
            single = np.append(self._single, np.zeros(squares.shape[-1], bool))[largest]
            return np.asarray(single & (squares.max(-1) >= DOMINATES * squares.sum(-1)) & (squares.max(-1) > 0))
