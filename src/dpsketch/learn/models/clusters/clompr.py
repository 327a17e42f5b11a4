"""The paper's decoder: orthogonal matching pursuit with replacement over weighted points (CL-OMPR).

2k times, a point is added where it explains most of the residual, the least useful of more than k points is dropped,
weights are refitted by non-negative least squares, and points and weights are improved together by gradient descent.
The best of several runs is the one whose sums are closest to the released ones. Source: compressive §2.1, §7 and the
algorithm it refers to (Keriven et al., Compressive K-means).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np

from dpsketch.learn.estimators.fourier_sums import Complex, FourierSums
from dpsketch.learn.models.clusters.atoms import Atoms, Model
from dpsketch.learn.models.clusters.decoder import Decoded, decoded
from dpsketch.learn.models.clusters.lloyd import Progress
from dpsketch.learn.models.clusters.solver import EDGE, Priors, Solver
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import UNRECORDED

POINT = -40.0  # log variance of an atom that is a point
TRIES: Annotated[int, UNRECORDED] = 8  # starts of a new point


@one_thread()
def clompr(
    sums: FourierSums, count: int, generator: np.random.Generator, runs: int, progress: Progress | None = None
) -> Decoded:
    """The points of the best of several runs. An interrupt ends with the best so far, if there is one.

    On one-bit sums, points explain the first harmonic alone, as in the paper. The harmonics of points never decay, but
    those of clusters do, so that the higher ones are about 0 at frequencies that resolve clusters.
    """
    model = Model(replace(sums, harmonics=sums.harmonics[:1]))
    best, least, interrupted = None, np.inf, False
    try:
        for run in range(runs):
            points = _run(model, count, generator)
            distance = _distance(model, *points)
            if best is None or distance < least:
                best, least = points, distance
            if progress is not None:
                progress((run + 1) / runs)
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
    assert best is not None
    centres, weights = best
    logits = np.log(np.maximum(weights, 1e-6 * max(weights.max(), 1e-9)))
    scale = float(np.log(max(weights.sum(), 1e-9)))
    atoms = Atoms(logits - logits.mean(), centres, np.full((len(centres), 1), POINT), scale)
    return decoded(Solver(model, Priors()), atoms, not interrupted, interrupted)


def _run(model: Model, count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Points and their weights."""
    from scipy.optimize import nnls

    centres, weights = np.empty((0, model.sums.dimension)), np.empty(0)
    for _ in range(2 * count):
        left = model.observed - weights @ _waves(model, centres)
        centres = np.vstack([centres, _new_point(model, left, generator)])
        if len(centres) > count:
            normed = _waves(model, centres)
            normed /= np.linalg.norm(normed, axis=1, keepdims=True)
            shares, _ = nnls(_real(normed).T, _real(model.observed))
            centres = centres[np.sort(np.argsort(-shares, kind="stable")[:count])]
        weights, _ = nnls(_real(_waves(model, centres)).T, _real(model.observed))
        centres, weights = _descended(model, centres, weights)
    return centres, weights


def _distance(model: Model, centres: Floats, weights: Floats) -> float:
    """Squared distance of the points' sums to the released ones, in standard deviations."""
    left = model.observed - weights @ _waves(model, centres)
    return float(np.vdot(left, left).real)


def _waves(model: Model, centres: Floats) -> Complex:
    return model.point_waves(centres).plain


def _real(waves: Complex) -> Floats:
    return np.ascontiguousarray(waves).view(np.float64)


def _new_point(model: Model, left: Complex, generator: np.random.Generator) -> Floats:
    """The point whose wave has the largest inner product with the residual."""
    from scipy.optimize import minimize

    def loss(flat: Floats) -> tuple[float, Floats]:
        waves = model.point_waves(flat[None])
        along = left.conj()[None]
        slope = (along * waves.first).imag @ model.sums.frequencies
        return -float((along * waves.plain).real.sum()), slope[0]

    dimension = model.sums.dimension
    starts = generator.uniform(-EDGE, EDGE, (64 * TRIES, dimension))
    gains = (_waves(model, starts) @ left.conj()).real
    best = starts[np.argsort(-gains)[:TRIES]]
    found = [
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-EDGE, EDGE)] * dimension, options={"maxiter": 100})
        for start in best
    ]
    return np.asarray(min(found, key=lambda each: each.fun).x)


def _descended(model: Model, centres: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Points and weights of a local minimum of the squared residual near the given ones."""
    from scipy.optimize import minimize

    count, dimension = centres.shape

    def loss(flat: Floats) -> tuple[float, Floats]:
        own, places = flat[:count], flat[count:].reshape(count, dimension)
        waves = model.point_waves(places)
        left = model.observed - own @ waves.plain
        along = left.conj()
        by_weight = -(waves.plain @ along).real
        by_place = (waves.first * along).imag @ model.sums.frequencies * own[:, None]
        return 0.5 * float(np.vdot(left, left).real), np.concatenate([by_weight, by_place.ravel()])

    bounds = [(0.0, None)] * count + [(-EDGE, EDGE)] * (count * dimension)
    start = np.concatenate([weights, centres.ravel()])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    return found.x[count:].reshape(count, dimension), found.x[:count]
