"""The noise of a release as one vector of independent coordinates, and the noisy number of records."""

from __future__ import annotations

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.maps.count import BoundCount
from dpsketch.maps.histogram import BoundHistogram
from dpsketch.schema import Floats
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch


class ReleaseNoise:
    """Places every part's sums in one vector of noise coordinates."""

    def __init__(self, released: ReleasedSketch) -> None:
        self.parts = released.parts
        self._starts = np.cumsum([0] + [part.map.size for part in self.parts])

    @property
    def coordinates(self) -> int:
        return int(self._starts[-1])

    def place(self, part: ReleasedPart, gradient: Floats, first: int = 0) -> Floats:
        """Influence of a gradient with respect to sums first, first+1, … of a part: one row an estimate."""
        influence = np.zeros((*gradient.shape[:-1], self.coordinates))
        start = self._starts[self.parts.index(part)] + first
        influence[..., start : start + gradient.shape[-1]] = gradient * np.sqrt(part.noise_variance)
        return influence

    def rows(self) -> Estimate:
        """The noisy number of records, from the count or, without one, from the first histogram's table."""
        for part in self.parts:
            if isinstance(part.map, BoundCount):
                return self._total(part, 1)
        for part in self.parts:
            if isinstance(part.map, BoundHistogram):
                return self._total(part, int(part.map.offsets[1]))
        raise QueryError("this release does not hold the number of rows", "add Part(Count(), share=0.03) to the recipe")

    def _total(self, part: ReleasedPart, cells: int) -> Estimate:
        total = max(float(part.sums[:cells].sum()), 1.0)
        return Estimate(np.array(total), self.place(part, np.ones(cells)))
