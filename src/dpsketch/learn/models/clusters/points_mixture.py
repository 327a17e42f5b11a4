"""Gaussian mixtures of weighted points, by expectation maximisation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dpsketch.learn.models.clusters.atoms import Atoms, below_diagonal
from dpsketch.learn.models.clusters.clouds import Cloud
from dpsketch.learn.models.clusters.lloyd import ALIKE, DRAWN, Progress
from dpsketch.learn.models.clusters.solver import LEAST_VARIANCE
from dpsketch.learn.population.weighted_rows import spread
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned

_ORIGIN = Tuned("california_housing, occupancy", by=BY_HAND, decision=66)
_STARTS: Annotated[int, UNRECORDED] = 5
# Steps of a refit from the fit: with a fifth, refits stop half-way, and errors are too small.
_REFIT_STEPS: Annotated[int, _ORIGIN] = 100
# What a distribution hides of weights and centres, as if a component were drawn from 1/HIDDEN² records in all.
HIDDEN: Annotated[float, _ORIGIN] = 0.07


@dataclass(frozen=True)
class PointsMixture:
    """Atoms by weight, largest first; standard errors of their weights and centres; whether two starts agree on them,
    and whether an interrupt (Ctrl-C) skipped some.
    """

    atoms: Atoms
    weights_stderr: Floats
    centres_stderr: Floats
    agree: bool
    interrupted: bool


def points_mixture(cloud: Cloud, count: int, shape: str, seed: int, progress: Progress | None) -> PointsMixture:
    """The mixture of the most likely of some starts, with errors from refits to new noise and from the sampling of
    records.
    """
    points = _drawn(cloud, 0, seed)
    fits: list[Any] = []
    interrupted = False
    try:
        for start in range(_STARTS):
            fits.append(_fitted(points, count, shape, random_state=seed + start))
            if progress is not None:
                progress((start + 1) / (_STARTS + cloud.refits))
    except KeyboardInterrupt:
        if not fits:
            raise
        interrupted = True
    best = max(fits, key=lambda fit: float(fit.lower_bound_))
    agree = sum(fit.lower_bound_ >= best.lower_bound_ - ALIKE for fit in fits) > 1 or count == 1
    known = {"weights_init": best.weights_, "means_init": best.means_, "precisions_init": best.precisions_}
    refits = [
        _fitted(_drawn(cloud, model, seed), count, shape, max_iter=_REFIT_STEPS, random_state=seed, **known)
        for model in range(1, cloud.refits + 1)
    ]
    order = np.argsort(-best.weights_, kind="stable")
    atoms = _atoms(best, shape).take(order)
    variances = np.diagonal(atoms.covariances, axis1=1, axis2=2) + cloud.inside
    held = np.maximum(best.weights_, 1 / max(cloud.rows, 1.0))
    drawn = 2 / len(points)  # both fits are of drawn points
    weights = _error(best.weights_, [fit.weights_ for fit in refits], held * (1 - held), drawn, cloud.rows)[order]
    centres = _error(
        best.means_[order],
        [fit.means_[order] for fit in refits],
        variances / held[order, None],
        drawn,
        cloud.rows,
    )
    return PointsMixture(atoms, weights, centres, agree, interrupted)


def _drawn(cloud: Cloud, model: int, seed: int) -> Floats:
    """Points of equal weight."""
    points, weights = cloud.points(model)
    generator = np.random.default_rng([seed, model])
    return np.asarray(points[generator.choice(len(points), DRAWN, p=weights)])


def _fitted(points: Floats, count: int, shape: str, **known: Any) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():  # refits take few steps
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GaussianMixture(count, covariance_type=shape, reg_covar=LEAST_VARIANCE, **known).fit(points)


def _atoms(fit: Any, shape: str) -> Atoms:
    """The fit as atoms. The spreads of full covariances are those of their Cholesky factors."""
    logits = np.log(np.maximum(fit.weights_, 1e-12))
    if shape == "full":
        roots = np.linalg.cholesky(fit.covariances_)
        diagonal = np.diagonal(roots, axis1=1, axis2=2)
        below = below_diagonal(fit.means_.shape[1])
        rest = roots[:, below[0], below[1]] / diagonal[:, below[0]]
        spreads = np.hstack([2 * np.log(diagonal), rest])
    else:
        spreads = np.log(fit.covariances_.reshape(len(logits), -1))
    return Atoms(logits - logits.mean(), fit.means_, spreads)


def _error(fit: Floats, refits: list[Floats], sampled: Floats, drawn: float, rows: float) -> Floats:
    """Noise, as refits show it beyond the drawing of points, the sampling of the records, and what the distribution
    hides.
    """
    noise = np.maximum(spread(fit, refits) ** 2 - drawn * sampled, 0.0)
    return np.asarray(np.sqrt(noise + sampled * (1 / max(rows, 1.0) + HIDDEN**2)))
