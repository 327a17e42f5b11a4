"""What clusters and mixtures share: checks before a fit, and what a fit tells about itself."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.clusters.atoms import Atoms
from dpsketch.learn.clusters.decoder import Decoded
from dpsketch.learn.clusters.places import Places
from dpsketch.learn.clusters.sums import FourierSums, fourier_sums
from dpsketch.schema import Floats

if TYPE_CHECKING:
    from dpsketch.learn.view import View

MOST_CLUSTERS = 1000
MOST_HARM = 0.05


class SketchModel:
    """`random_state` seeds the search: the same release gives the same fit."""

    random_state: int
    converged_: bool
    goodness_of_fit_: float
    _places: Places
    _atoms: Atoms
    _centres: Floats  # places of what is drawn, and their shares of the records
    _sizes: Floats
    _asked: int  # clusters

    def __init__(self, **parameters: Any) -> None:
        for name, value in parameters.items():
            setattr(self, name, value)
        self._parameters = tuple(parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As scikit-learn does."""
        return {name: getattr(self, name) for name in self._parameters}

    def _start(self, view: View, name: str) -> tuple[FourierSums, int]:
        """The sums to fit, and how many clusters: checked."""
        count = getattr(self, name)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= MOST_CLUSTERS:
            raise QueryError(f"{name} must be a whole number from 1 to {MOST_CLUSTERS}, got {count!r} instead")
        sums = fourier_sums(view.released)
        self._places = Places(view.schema, sums.columns)
        self.feature_names_in_ = np.array(sums.columns, object)
        self.n_features_in_ = len(sums.columns)
        self._asked = int(count)
        return sums, self._asked

    def _told(self, decoded: Decoded, harm: float) -> None:
        """Keep what the search says of itself, and warn where the result should not be relied on. `harm` is by how much
        of themselves the errors of the centres are expected to raise squared distances to them.
        """
        self.converged_, self.goodness_of_fit_ = decoded.converged, decoded.quality
        name = type(self).__name__
        if decoded.interrupted:
            _warn(f"{name}: interrupted; this is the best fit so far.", "fit again for a better one")
        elif not decoded.useful:
            _warn(
                f"{name}: the fit leaves out {decoded.unexplained:.0%} of what tells clusters from a single one: sums "
                f"are {decoded.quality:.1f} times as far from it as their noise explains.",
                "try more clusters or freer covariances; or release with a larger epsilon or more frequencies",
            )
        elif harm > MOST_HARM:
            _warn(
                f"{name}: noise has moved the centres: squared distances to them are about {harm:.0%} larger by it.",
                "ask for fewer clusters, or release with a larger epsilon; dpsketch plan --task says which",
            )
        elif not decoded.converged and decoded.atoms.count == self._asked:
            _warn(f"{name}: no two searches agree on the best fit.", "try another random_state, or fewer clusters")

    def plot(self, path: str | Path) -> None:
        """Centres over the density of the fit in the two columns in which they differ most, as a PNG file."""
        self._check_fitted()
        from dpsketch.learn.clusters.plot import plot_clusters

        plot_clusters(path, self._places, self._atoms, self._centres, self._sizes)

    def _check_fitted(self) -> None:
        if not hasattr(self, "_atoms"):
            raise QueryError(f"this {type(self).__name__} is not fitted", "call fit(view) first")

    def _located(self, X: Any) -> Floats:
        self._check_fitted()
        return self._places.of(X)


def _warn(fact: str, hint: str) -> None:
    warnings.warn(f"{fact}\nHint: {hint}", FitWarning, stacklevel=4)
