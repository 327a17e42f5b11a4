"""Features of many sums, projected to the few directions that distinguish points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.maps.base import Sums
from dpsketch.numerics.arrays import Floats

_LEAST = 1e-9  # of the largest squared length; shorter directions are rounding error


class Reduction:
    """An orthonormal basis of the span of some points' features: coordinates in it have the noise of single sums.

    A regression on functions at points has its coefficients in the span of the features of these points, so with as
    many landmarks as points nothing is lost. Large tables of counters are never made dense.
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

    def sums(self, sums: Sums, indices: NDArray[np.int64] | None) -> Floats:
        """Coordinates of the sums at `indices` of a part, or of all of them."""
        touched = sums[self._touched if indices is None else indices[self._touched]]
        return np.asarray(self._mix.T @ (self._landmarks @ touched.astype(np.float64)))

    def ones(self) -> Floats:
        """Coordinates of the total of all sums."""
        return np.asarray(self._mix.T @ self._landmarks.sum(axis=1))

    def gradient(self, slopes: Floats, size: int) -> Floats:
        """Slopes with respect to each of `size` sums, from slopes with respect to coordinates."""
        slopes_of_sums = np.zeros((len(slopes), size))
        slopes_of_sums[:, self._touched] = (self._landmarks.T @ (self._mix @ slopes.T)).T
        return slopes_of_sums

    def _restricted(self, features: Any) -> Any:
        """Features restricted to the columns that occur in some landmark: there may be 10^9 columns."""
        from scipy.sparse import csr_array

        indices = np.minimum(np.searchsorted(self._touched, features.indices), len(self._touched) - 1)
        values = np.where(self._touched[indices] == features.indices, features.data, 0.0)
        return csr_array((values, indices, features.indptr), shape=(features.shape[0], len(self._touched)))
