"""Features of many sums in the few directions that points can tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.maps.base import Sums
from dpsketch.numerics.arrays import Floats

_LEAST = 1e-9  # of the largest squared length; shorter directions are rounding


class Reduction:
    """An orthonormal basis of the span of some points' features: coordinates in it have the noise of single sums.

    A regression that knows functions at points only has its coefficients in the span of these points' features, so
    with as many landmarks as points nothing would be lost. Large tables of counters are never made dense.
    """

    def __init__(self, landmarks: Any) -> None:
        self._touched = np.unique(landmarks.indices)
        self._landmarks = self._restricted(landmarks)
        squares, vectors = np.linalg.eigh((self._landmarks @ self._landmarks.T).toarray())
        kept = squares > _LEAST * max(float(squares[-1]), 1e-300)
        self._mix = vectors[:, kept] / np.sqrt(squares[kept])

    @property
    def size(self) -> int:
        return self._mix.shape[1]

    def of(self, features: Any) -> Floats:
        """Coordinates of the features of points, one row each."""
        return np.asarray((self._restricted(features) @ self._landmarks.T).toarray() @ self._mix)

    def sums(self, sums: Sums, places: NDArray[np.int64] | None) -> Floats:
        """Coordinates of the sums at `places` of a part, or of all of them."""
        found = sums[self._touched if places is None else places[self._touched]]
        return np.asarray(self._mix.T @ (self._landmarks @ found.astype(np.float64)))

    def ones(self) -> Floats:
        """Coordinates of the total of all sums."""
        return np.asarray(self._mix.T @ self._landmarks.sum(axis=1))

    def gradient(self, slopes: Floats, size: int) -> Floats:
        """Slopes with respect to each of `size` sums from those with respect to coordinates."""
        found = np.zeros((len(slopes), size))
        found[:, self._touched] = (self._landmarks.T @ (self._mix @ slopes.T)).T
        return found

    def _restricted(self, features: Any) -> Any:
        """Only the columns that some landmark has: there may be 10^9 columns."""
        from scipy.sparse import csr_array

        places = np.minimum(np.searchsorted(self._touched, features.indices), len(self._touched) - 1)
        values = np.where(self._touched[places] == features.indices, features.data, 0.0)
        return csr_array((values, places, features.indptr), shape=(features.shape[0], len(self._touched)))
