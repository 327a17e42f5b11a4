"""Atoms that fit Fourier sums best: Levenberg-Marquardt with weak priors and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsketch.learn.models.clusters.atoms import Atoms, Model
from dpsketch.numerics.arrays import Floats

LEAST_VARIANCE, MOST_VARIANCE = 1e-6, 0.12  # of an atom; a uniform column has 1/12
MOST_LOGIT = 12.0
EDGE = 0.5  # centres lie between −EDGE and EDGE
STEPS = 8  # dampings tried at a point
DAMPING, LEAST_DAMPING = 1e-2, 1e-6
LOGIT_STEP, SPREAD_STEP = 2.0, 1.5


@dataclass(frozen=True)
class Priors:
    """Weak priors for what the sums do not determine, as standard deviations.

    They are on logits and log variances about their means, correlations about 0, and centres about the mean of all
    records.
    """

    logits: float = 0.5
    spreads: float = 0.4
    correlations: float = 0.5
    centre: Floats | None = None
    centre_variance: float = 1.0


@dataclass(frozen=True)
class Fit:
    """Atoms and half their squared residuals, with the priors' part."""

    atoms: Atoms
    cost: float


class Solver:
    """Minimises the cost of a model's residuals and the priors."""

    def __init__(self, model: Model, priors: Priors) -> None:
        self.model, self.priors = model, priors
        self._known: dict[tuple[int, ...], Floats] = {}  # precisions, by the shape of the spreads

    def cost(self, atoms: Atoms) -> float:
        return 0.5 * self.model.chi_squared(atoms) + self.penalty(atoms)

    def costs_without(self, atoms: Atoms) -> Floats:
        """Costs with each of the atoms left out."""
        penalties = [self.penalty(atoms.without(place)) for place in range(atoms.count)]
        return 0.5 * self.model.chi_squared_without(atoms) + np.array(penalties)

    def penalty(self, atoms: Atoms) -> float:
        departures, precisions = self._departures(atoms)
        return 0.5 * float(departures * departures @ precisions)

    def _departures(self, atoms: Atoms) -> tuple[Floats, Floats]:
        """Deviations from the priors' means for each number of `flat()`, and the priors' precisions."""
        first, second = 1 + atoms.count, 1 + atoms.count + atoms.centres.size
        departures = atoms.flat()
        departures[1:first] -= departures[1:first].sum() / atoms.count
        if self.priors.centre is not None:
            departures[first:second].reshape(atoms.centres.shape)[:] -= self.priors.centre
        own = departures[second:].reshape(atoms.spreads.shape)[:, : atoms.dimension]
        own -= own.sum() / own.size
        return departures, self._precisions(atoms)

    def _precisions(self, atoms: Atoms) -> Floats:
        shape = atoms.spreads.shape
        if shape not in self._known:
            priors = self.priors
            each = np.full(shape, priors.spreads**-2)
            each[:, atoms.dimension :] = priors.correlations**-2
            self._known[shape] = np.concatenate(
                [
                    [max(self.model.sums.scale_deviation, 1e-6) ** -2],
                    np.full(atoms.count, priors.logits**-2),
                    np.full(atoms.centres.size, 0.0 if priors.centre is None else 1 / priors.centre_variance),
                    each.ravel(),
                ]
            )
        return self._known[shape]

    def minimise(self, atoms: Atoms, steps: int = 30, tolerance: float = 1e-3) -> Fit:
        """Minimise the cost in at most `steps` steps, or until one gains less than `tolerance`."""
        from scipy.linalg.lapack import dposv

        low, high = _bounds(atoms.count, atoms.dimension, atoms.spreads.shape[1])
        damping, cost = DAMPING, None
        for _ in range(steps):
            residuals, rows = self.model.linearised(atoms)
            departures, precisions = self._departures(atoms)
            if cost is None:
                cost = 0.5 * float(np.vdot(residuals, residuals).real + departures * departures @ precisions)
            hessian = rows @ rows.T
            slope = rows @ residuals.view(np.float64) - departures * precisions
            here = atoms.flat()
            held = ((here <= low + 1e-12) & (slope < 0)) | ((here >= high - 1e-12) & (slope > 0))
            diagonal = np.diag_indices(len(here))
            hessian[diagonal] += precisions
            if held.any():
                hessian[held] = 0.0
                hessian[:, held] = 0.0
                hessian[held, held] = 1.0
                slope[held] = 0.0
            own = hessian[diagonal].copy()
            found = None
            for _ in range(STEPS):
                hessian[diagonal] = own * (1 + damping) + 1e-9 * own.max()
                _, step, failed = dposv(hessian, slope)
                if failed:
                    damping *= 10
                    continue
                tried = atoms.like(np.minimum(np.maximum(here + _limited(step, atoms), low), high))
                reached = self.cost(tried)
                if reached < cost:
                    found = tried
                    damping = max(damping * 0.2, LEAST_DAMPING)
                    break
                damping *= 6
            if found is None:
                break
            gained, cost, atoms = cost - reached, reached, found
            if gained < tolerance:
                break
        return Fit(atoms, self.cost(atoms) if cost is None else cost)

    def covariance(self, atoms: Atoms) -> Floats:
        """Covariance of the numbers of `flat()`, from the curvature of the cost."""
        from scipy.linalg import pinvh

        _, rows = self.model.linearised(atoms)
        hessian = rows @ rows.T
        hessian[np.diag_indices(len(hessian))] += self._departures(atoms)[1]
        return np.asarray(pinvh(hessian))


@lru_cache(256)
def _bounds(count: int, dimension: int, width: int) -> tuple[Floats, Floats]:
    """Bounds of the numbers of `flat()`, for `width` spread parameters per atom."""
    highest = np.full((count, width), np.log(MOST_VARIANCE))
    lowest = np.full((count, width), np.log(LEAST_VARIANCE))
    highest[:, dimension:], lowest[:, dimension:] = 3.0, -3.0
    sides = []
    for sign, spreads in ((-1, lowest), (1, highest)):
        head = np.concatenate([[sign * 1.0], np.full(count, sign * MOST_LOGIT)])
        sides.append(np.concatenate([head, np.full(count * dimension, sign * EDGE), spreads.ravel()]))
    return sides[0], sides[1]


def _limited(step: Floats, atoms: Atoms) -> Floats:
    first, second = 1 + atoms.count, 1 + atoms.count + atoms.centres.size
    for part, most in ((step[1:first], LOGIT_STEP), (step[second:], SPREAD_STEP)):
        np.minimum(np.maximum(part, -most, out=part), most, out=part)
    return step
