"""k-means from a released sketch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.fourier_sums import FourierSums, holds_sums
from dpsketch.learn.models.clusters.atoms import Atoms
from dpsketch.learn.models.clusters.clompr import clompr
from dpsketch.learn.models.clusters.clouds import Cloud, TableCloud, population_cloud
from dpsketch.learn.models.clusters.decoder import Decoded, Decoder
from dpsketch.learn.models.clusters.fitting import SketchModel
from dpsketch.learn.models.clusters.lloyd import Progress, best_start, lloyd, moved, nearest, settled
from dpsketch.learn.models.clusters.places import Places
from dpsketch.learn.models.clusters.solver import LEAST_VARIANCE, MOST_VARIANCE
from dpsketch.learn.models.clusters.table import released_table
from dpsketch.learn.models.model import Columns
from dpsketch.learn.population.weighted_rows import spread
from dpsketch.learn.saved import Arrays, Facts, Saved, finite, floats, whole
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import PROTOTYPE, UNRECORDED, Tuned

if TYPE_CHECKING:
    from dpsketch.learn.view import View

METHODS = ("gaussian", "clompr")
MOST_RUNS = 10_000
POINTS: Annotated[int, UNRECORDED] = 20_000
TWO_ATOMS: Annotated[int, UNRECORDED] = 2  # for each cluster of few columns
# For each cluster that fewer do not describe.
MORE_ATOMS: Annotated[int, Tuned("simulated clusters and real tables", by=PROTOTYPE)] = 4
FEW_COLUMNS: Annotated[int, UNRECORDED] = 3
REFIT_STEPS: Annotated[int, UNRECORDED] = 3
REDRAWS: Annotated[int, UNRECORDED] = 24  # fits within their errors
REDRAWN: Annotated[int, UNRECORDED] = 4000  # points of each


class KMeans(SketchModel):
    """k-means of the records of a release with clusters, or of any with a joint distribution: `fit(view)`.

    Distances are in widths of the declared bounds, so every column counts by its width. `cluster_centers_` and
    `cluster_centers_stderr_` are in the user's units (dates: days since 1970; `to_table` has them as dates);
    `weights_` are shares of the records, the largest first. `goodness_of_fit_` is χ² over its degrees of freedom, about
    1 or less for a good fit.

    "gaussian" fits a mixture of Gaussian atoms to Fourier sums, with more atoms than clusters where needed, and runs
    Lloyd's algorithm on it. For a release without Fourier sums, Lloyd's algorithm runs on the cells of a table of up to
    three columns, or on rows of the joint distribution of a general release, in all its numbers and dates. No sums are
    fitted then, and `goodness_of_fit_` is NaN. `columns` names the columns to cluster: those of a part with Fourier
    sums, those of a table, or any of the joint distribution.

    "clompr" is the greedy algorithm of the paper, with points for clusters; for comparison. It runs `n_init` times, and
    the result whose sums are closest to the released ones is kept. Points suit sums of frequencies of similar lengths:
    docs/clusters.md.
    """

    _estimator_type = "clusterer"

    def __init__(
        self,
        n_clusters: int = 8,
        method: str = "gaussian",
        random_state: int = 0,
        n_init: int = 10,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.n_clusters, self.method, self.random_state, self.n_init = n_clusters, method, random_state, n_init
        self.columns = columns

    def fit(self, view: View, progress: Progress | None = None) -> KMeans:
        """Fit clusters. `progress` receives the finished fraction; an interrupt (Ctrl-C) keeps the best fit so far."""
        if self.method not in METHODS:
            raise QueryError(f"method must be one of {', '.join(METHODS)}, got {self.method!r} instead")
        runs = self.n_init
        if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or not 1 <= runs <= MOST_RUNS:
            raise QueryError(f"n_init must be a whole number from 1 to {MOST_RUNS}, got {runs!r} instead")
        count = self._start(view, "n_clusters")
        if self.method != "clompr" and not holds_sums(view.released, self.columns):
            return self._fit_cloud(view, count, progress)
        sums = self._sums(view)
        generator = np.random.default_rng(self.random_state)
        if self.method == "clompr":
            decoded = clompr(sums, count, generator, int(runs), progress)
            found, weights = decoded.atoms.centres, decoded.atoms.weights
            errors, harm = np.full_like(found, np.nan), 0.0
        else:
            decoded = _decoded(sums, count, generator, progress)
            points = decoded.atoms.drawn(POINTS, generator)
            start = decoded.atoms.centres if decoded.atoms.count == count else None
            found = lloyd(points, count, start, self.random_state)
            weights = moved(points, found)[1]
            errors = _errors(decoded, found, generator)
            harm = float(weights @ (errors**2).sum(1) / max(nearest(points, found)[1].mean(), 1e-12))
        order = np.argsort(-weights, kind="stable")
        self._atoms = decoded.atoms
        self._set_clusters(found[order], errors[order], weights[order])
        self._told(decoded, harm)
        return self

    def _fit_cloud(self, view: View, count: int, progress: Progress | None) -> KMeans:
        """Run Lloyd's algorithm on points that represent the records."""
        table = released_table(view.released, self.columns)
        cloud: Cloud = population_cloud(view, self.columns) if table is None else TableCloud(table, self.random_state)
        self._places = Places(view.schema, cloud.columns)
        points, weights = cloud.points(0)
        start, agree, interrupted = best_start(points, weights, count, self.random_state, progress)
        found = settled(points, start, weights)
        own, squares = nearest(points, found)
        shares = np.bincount(own, weights, count).astype(np.float64)
        held = np.maximum(shares, 1 / max(cloud.rows, 1.0))  # at least one record
        aside = [np.bincount(own, weights * column, count) / held for column in ((points - found[own]) ** 2).T]
        variances = np.stack(aside, axis=1)
        refits = [settled(*_changed(cloud, found, model)) for model in range(1, cloud.refits + 1)]
        crowded = np.bincount(own, weights**2, count) / held**2  # one over the effective number of points
        sampled = variances / held[:, None]
        noise = np.maximum(spread(found, refits) ** 2 - cloud.chance * sampled, 0.0)
        errors = np.sqrt(noise + sampled / cloud.rows + np.outer(crowded, cloud.inside))
        harm = float(shares @ (errors**2).sum(1) / max(float(weights @ squares), 1e-12))
        order = np.argsort(-shares, kind="stable")
        bounded = np.clip(variances[order], LEAST_VARIANCE, MOST_VARIANCE)
        self._atoms = Atoms(np.log(held[order]), found[order], np.log(bounded))
        self._set_clusters(found[order], errors[order], shares[order])
        self.goodness_of_fit_ = float("nan")
        self._settled(agree, interrupted, harm)
        return self

    def _set_clusters(self, centres: Floats, errors: Floats, weights: Floats) -> None:
        self._centres, self._errors = centres, errors
        self.cluster_centers_ = self._places.units(centres)
        self.cluster_centers_stderr_ = errors * self._places.unit_slopes(centres)
        self.weights_ = self._sizes = weights
        self._set_features(self._places.schema, self._places.columns)

    def _errors_of_centres(self) -> Floats:
        return self._errors

    def _weight(self, index: int) -> tuple[float]:
        return (float(self.weights_[index]),)

    def to_saved(self) -> Saved:
        self._check_fitted()
        return self._saved({"places": self._centres, "errors": self._errors, "weights": self.weights_})

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> KMeans:
        model = cls._restored(facts, arrays)
        shape = whole(model.n_clusters, 1), len(model._places.columns)
        if model.method not in METHODS:
            raise ValueError("method")
        whole(model.n_init, 1)
        places, errors = finite(arrays, "places", *shape), floats(arrays, "errors", *shape)
        model._set_clusters(places, errors, finite(arrays, "weights", shape[0]))
        return model

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The nearest cluster of each row of a mapping, table or matrix in the user's units."""
        return nearest(self._located(X), self._centres)[0]

    def transform(self, X: Any) -> Floats:
        """Distances to the centres, in widths of the bounds."""
        places = self._located(X)
        return np.sqrt(((places[:, None, :] - self._centres) ** 2).sum(2))

    def scores(self, X: Any) -> Columns:
        distances = self.transform(X)
        return {"cluster": distances.argmin(1), "distance": distances.min(1)}

    def score(self, X: Any) -> float:
        """Minus the sum of squared distances to the nearest centres, in widths of the bounds."""
        return -float(nearest(self._located(X), self._centres)[1].sum())


def _changed(cloud: Cloud, centres: Floats, model: int) -> tuple[Floats, Floats, Floats, int]:
    """Centres for `settled`: a few steps from those of the fit, on a refit of the points."""
    points, weights = cloud.points(model)
    return points, centres, weights, REFIT_STEPS


def _decoded(sums: FourierSums, count: int, generator: np.random.Generator, progress: Progress | None) -> Decoded:
    """The atoms for `count` clusters, with only as many parameters as half of the sums determine.

    Starts with one spherical atom per cluster. If noise cannot explain the residuals, atoms get a variance per column;
    if that is not enough either, there are several atoms per cluster. Clusters in few columns are seldom spherical, and
    noise that hides this biases the centres: they always get two atoms.
    """
    decoder = Decoder(sums, count, generator, _part(progress, 0.0, 0.4))
    first = decoded = decoder.run()
    few = sums.dimension <= FEW_COLUMNS
    round_, aligned = sums.dimension + 2, 2 * sums.dimension + 1  # parameters per atom
    if not decoded.fits and not decoded.interrupted and not few and count * aligned <= sums.size:
        decoded = decoder.freed(decoded, "diag")
    for times in (TWO_ATOMS, MORE_ATOMS) if few else (MORE_ATOMS,):
        more = min(times * count, sums.size // round_)
        if decoded.interrupted or (decoded.fits and times == MORE_ATOMS) or more <= count:
            break
        shape = "diag" if times == MORE_ATOMS and more * aligned <= sums.size else "spherical"
        found = Decoder(sums, more, generator, _part(progress, 0.2 + 0.1 * times, 0.4 + 0.15 * times)).run(shape, 2)
        if found.quality < decoded.quality or found.interrupted:
            decoded = replace(found, converged=first.converged and not found.interrupted)
    _part(progress, 0.0, 1.0)(1.0)
    return decoded


def _part(progress: Progress | None, start: float, end: float) -> Progress:
    return lambda share: None if progress is None else progress(start + (end - start) * share)


@one_thread()
def _errors(decoded: Decoded, centres: Floats, generator: np.random.Generator) -> Floats:
    """Standard errors of centres.

    They are the changes from two steps of Lloyd's algorithm when the atoms vary within their errors, on points from
    common random numbers. They are larger in proportion where the fit is poor.
    """
    solver, atoms = decoded.solver, decoded.atoms
    values, vectors = np.linalg.eigh(solver.covariance(atoms))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    seed = int(generator.integers(2**31))

    def reached(changed: Atoms) -> Floats:
        points = changed.drawn(REDRAWN, np.random.default_rng(seed))
        return moved(points, moved(points, centres)[0])[0]

    base, flat = reached(atoms), atoms.flat()
    changes = [reached(atoms.like(flat + root @ generator.normal(size=len(flat)))) - base for _ in range(REDRAWS)]
    return np.sqrt(np.mean(np.square(changes), axis=0) * max(decoded.quality, 1.0))
