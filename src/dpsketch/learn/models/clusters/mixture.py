"""Gaussian mixtures from a released sketch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.fourier_sums import holds_sums
from dpsketch.learn.models.clusters.atoms import SHAPES, Atoms
from dpsketch.learn.models.clusters.clouds import population_cloud
from dpsketch.learn.models.clusters.decoder import Decoder
from dpsketch.learn.models.clusters.fitting import SketchModel
from dpsketch.learn.models.clusters.lloyd import Progress
from dpsketch.learn.models.clusters.places import Places
from dpsketch.learn.models.clusters.points_mixture import points_mixture
from dpsketch.learn.models.clusters.table import released_table
from dpsketch.learn.models.model import Columns
from dpsketch.learn.saved import Arrays, Facts, Saved, floats, whole
from dpsketch.numerics.arrays import Floats

if TYPE_CHECKING:
    from dpsketch.learn.view import View


class GaussianMixture(SketchModel):
    """A Gaussian mixture of the records of a release with clusters, or of any with a joint distribution: `fit(view)`.

    `means_` (one row per component), `covariances_`, `weights_` and the standard errors of means and weights are in the
    user's units: logarithms or asinh where the schema transforms a column, days since 1970 for dates (`to_table` has
    neither). With
    `covariance_type` "spherical" a component is spherical in widths of the declared bounds; `covariances_` then has the
    variance of every column, as with "diag". With "full" it has one matrix per component. Components are ordered by
    weight. `goodness_of_fit_` is χ² over its degrees of freedom, about 1 or less for a good fit.

    A release with Fourier sums is fitted from these, or from those of a table of up to three columns. Any other is
    fitted by expectation maximisation to rows of its joint distribution, in `columns` or in all its numbers and dates.
    `goodness_of_fit_` is NaN then. Such rows do not resolve what is narrow beside the cells of the release's tables:
    covariances are too large there. Standard errors of means and weights are for the mixture of the records that
    expectation maximisation reaches from the released one; they cover neither another local optimum nor covariances.

    `kernel_width_` is the root mean square distance of records from the mean of their component, in widths of the
    bounds: the width of a Gaussian kernel whose frequencies resolve components (docs/clusters.md).
    """

    _estimator_type = "density_estimator"

    def __init__(
        self,
        n_components: int = 1,
        covariance_type: str = "spherical",
        random_state: int = 0,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.n_components, self.covariance_type, self.random_state = n_components, covariance_type, random_state
        self.columns = columns

    def fit(self, view: View, progress: Progress | None = None) -> GaussianMixture:
        """Fit the mixture. `progress` receives the finished fraction; an interrupt (Ctrl-C) keeps the
        best fit so far.
        """
        if self.covariance_type not in SHAPES:
            raise QueryError(
                f"covariance_type must be one of {', '.join(SHAPES)}, got {self.covariance_type!r} instead"
            )
        count = self._start(view, "n_components")
        if not holds_sums(view.released, self.columns) and released_table(view.released, self.columns) is None:
            return self._fit_rows(view, count, progress)
        sums = self._sums(view)
        decoded = Decoder(sums, count, np.random.default_rng(self.random_state), progress).run(self.covariance_type)
        if decoded.interrupted and decoded.atoms.count < count:
            raise KeyboardInterrupt
        atoms = decoded.atoms.take(np.argsort(-decoded.atoms.weights, kind="stable")).shaped(self.covariance_type)
        self._set_atoms(atoms)
        self.weights_stderr_, centres = _errors(atoms, decoded.solver.covariance(atoms) * max(decoded.quality, 1.0))
        self.means_stderr_ = centres * self._places.widths
        harm = atoms.weights @ (centres**2).sum(1) / (atoms.weights @ atoms.variances * atoms.dimension)
        self._told(decoded, float(harm))
        return self

    def _fit_rows(self, view: View, count: int, progress: Progress | None) -> GaussianMixture:
        """Fit rows of the joint distribution."""
        cloud = population_cloud(view, self.columns)
        self._places = Places(view.schema, cloud.columns)
        fit = points_mixture(cloud, count, self.covariance_type, self.random_state, progress)
        atoms = fit.atoms.shaped(self.covariance_type)
        self._set_atoms(atoms)
        self.weights_stderr_, self.means_stderr_ = fit.weights_stderr, fit.centres_stderr * self._places.widths
        self.goodness_of_fit_ = float("nan")
        harm = atoms.weights @ (fit.centres_stderr**2).sum(1) / (atoms.weights @ atoms.variances * atoms.dimension)
        self._settled(fit.agree, fit.interrupted, float(harm))
        warnings.warn(
            "GaussianMixture: fitted to rows of the joint distribution. Covariances are too large where components are "
            "narrow beside the cells of its tables, and covariances have no standard errors.\nHint: a release "
            "by Recipe.clusters (--clusters K) is made for mixtures; docs/clusters.md compares both",
            FitWarning,
            stacklevel=3,
        )
        return self

    def _set_atoms(self, atoms: Atoms) -> None:
        self._atoms, self._centres, self._sizes, widths = atoms, atoms.centres, atoms.weights, self._places.widths
        self.means_ = self._places.features(atoms.centres)
        covariances = atoms.covariances * widths[:, None] * widths
        full = self.covariance_type == "full"
        self.covariances_: Floats = covariances if full else np.diagonal(covariances, axis1=1, axis2=2).copy()
        self.weights_ = atoms.weights
        self.kernel_width_ = float(np.sqrt(atoms.weights @ atoms.variances * atoms.dimension))
        self._set_features(self._places.schema, self._places.columns)

    def _errors_of_centres(self) -> Floats:
        return np.asarray(self.means_stderr_ / self._places.widths)

    def _weight(self, index: int) -> tuple[Answer]:
        return (Answer(float(self.weights_[index]), float(self.weights_stderr_[index]), possible=(0.0, 1.0)),)

    def to_saved(self) -> Saved:
        self._check_fitted()
        return self._saved({"weights_stderr": self.weights_stderr_, "means_stderr": self.means_stderr_})

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> GaussianMixture:
        model = cls._restored(facts, arrays)
        if whole(model.n_components, 1) != model._atoms.count or model.covariance_type not in SHAPES:
            raise ValueError("parameters")
        model._set_atoms(model._atoms)
        model.weights_stderr_ = floats(arrays, "weights_stderr", model.n_components)
        model.means_stderr_ = floats(arrays, "means_stderr", *model.means_.shape)
        return model

    def scores(self, X: Any) -> Columns:
        logs = self._log_densities(X)
        shares = _shares(logs)
        return {
            "component": shares.argmax(1),
            "probability": shares.max(1),
            "log_density": np.logaddexp.reduce(logs, axis=1),
        }

    def score_samples(self, X: Any) -> Floats:
        """Log density of each row, with columns in the units of `means_`."""
        return np.asarray(np.logaddexp.reduce(self._log_densities(X), axis=1))

    def score(self, X: Any) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each component for each row."""
        return _shares(self._log_densities(X))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The most probable component of each row."""
        return self._log_densities(X).argmax(1)

    def _log_densities(self, X: Any) -> Floats:
        """Log density of each row and component, including its weight."""
        places, atoms = self._located(X), self._atoms
        logs = np.empty((len(places), atoms.count))
        for place, (centre, root) in enumerate(zip(atoms.centres, atoms.roots, strict=True)):
            standard = np.linalg.solve(root, (places - centre).T)
            logs[:, place] = -0.5 * (standard**2).sum(0) - np.log(np.diag(root)).sum()
        constant = 0.5 * atoms.dimension * np.log(2 * np.pi) + np.log(self._places.widths).sum()
        return logs + np.log(np.maximum(atoms.weights, 1e-300)) - constant


def _shares(logs: Floats) -> Floats:
    return np.asarray(np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)))


def _errors(atoms: Atoms, covariance: Floats) -> tuple[Floats, Floats]:
    """Standard errors of weights and centres from the covariance of all parameters."""
    count = atoms.count
    slopes = np.diag(atoms.weights) - np.outer(atoms.weights, atoms.weights)
    weights = np.sqrt(np.maximum(np.diag(slopes @ covariance[1 : 1 + count, 1 : 1 + count] @ slopes), 0.0))
    centres = np.diag(covariance)[1 + count : 1 + count + atoms.centres.size].reshape(atoms.centres.shape)
    return weights, np.sqrt(np.maximum(centres, 0.0))
