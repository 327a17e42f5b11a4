"""Weights of strata: which mixture of the owners' strata is closest to the target, from released values alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

_STEPS = 3000
# Standard deviations of a noisy count below which a stratum takes no part.
FEWEST: Annotated[float, Tuned("no table: below, a mean is mostly noise", by=BY_HAND, decision=110)] = 5.0
# Weights below this share of the largest are dropped: noise alone gives a few of the strata some weight.
LEAST: Annotated[float, Tuned("MNIST by digits, Allstate by state, seeds from 100", by=BY_HAND, decision=110)] = 0.08
# Deviation of the target's noise, in features of norm 1, from which weights are averaged over draws.
UNSURE: Annotated[float, Tuned("MNIST by digits, Allstate by state, seeds from 100", by=BY_HAND, decision=110)] = 0.02
# Largest variance of the target's shift, in covariances of a record, that the filter considers.
MOST_SHIFT: Annotated[float, Tuned("no table: a shift as large as a record's spread", by=BY_HAND, decision=110)] = 1.0
_PROPOSALS = 16
_SETTLING = 5  # the first of so many parts of the draws is dropped


@dataclass(frozen=True, eq=False)
class NoisyMeans:
    """Means of features with independent noise: one row for each stratum, or one for a target.

    `deviation` is that of each coordinate's noise; `relative` that of the noisy count, relative to it.
    """

    means: Floats
    counts: Floats
    deviation: Floats
    relative: Floats

    @classmethod
    def of_sums(cls, sums: Floats, counts: Floats, noise: float, counting: float) -> NoisyMeans:
        """From noisy sums and counts, with the standard deviations of their noise; strata with few records are left
        with a mean of 0 and no count.
        """
        enough = counts > FEWEST * counting
        divisor = np.where(enough, counts, np.inf)
        return cls(sums / divisor[:, None], np.where(enough, counts, 0.0), noise / divisor, counting / divisor)


def mixture_weights(strata: NoisyMeans, target: NoisyMeans, draws: int = 0, seed: int = 0) -> Floats:
    """Weights w ≥ 0 of sum 1 that minimise ‖target − Σ w_c·mean_c‖², with the noise of the means taken out.

    With `draws`, the average over weights that the noise leaves possible, drawn from their posterior distribution under
    equally likely weights: simulated from released values alone, so nothing is spent. It steadies the weights where the
    target has few records.
    """
    gram = _gram(strata)
    found = _weights(strata, target, gram)
    usable = strata.counts > 0
    if draws and usable.sum() > 1:
        found[usable] = _drawn(
            gram[np.ix_(usable, usable)],
            (strata.means @ target.means[0])[usable],
            found[usable],
            float(target.deviation[0]),
            draws,
            seed,
        )
    kept = np.where(found < LEAST * found.max(), 0.0, found)
    return np.asarray(kept / kept.sum())


def _drawn(gram: Floats, right: Floats, start: Floats, noise: float, sweeps: int, seed: int) -> Floats:
    """Mean of weights w on the simplex with density ∝ exp(−(wᵀGw − 2wᵀr)/2σ²): Gibbs sampling of pairs of weights."""
    rng = np.random.default_rng(seed)
    precision, size = 1 / noise**2, len(start)
    weights = np.maximum(start, 1e-4)
    weights = weights / weights.sum()
    slope = precision * (gram @ weights - right)
    total, counted = np.zeros(size), 0
    for sweep in range(sweeps):
        for one, two in zip(rng.permutation(size), rng.permutation(size), strict=True):
            if one == two:
                continue
            both = weights[one] + weights[two]
            moves = rng.random(_PROPOSALS) * both - weights[one]
            curve = precision * (gram[one, one] + gram[two, two] - 2 * gram[one, two])
            cost = (slope[one] - slope[two]) * moves + 0.5 * curve * moves**2
            chances = np.exp(cost.min() - cost)
            move = moves[rng.choice(_PROPOSALS, p=chances / chances.sum())]
            weights[one] += move
            weights[two] -= move
            slope += precision * move * (gram[:, one] - gram[:, two])
        if sweep >= sweeps // _SETTLING:
            total += weights
            counted += 1
    return np.asarray(total / counted)


def _gram(strata: NoisyMeans) -> Floats:
    """Scalar products of the strata's means without the noise in them, positive semidefinite."""
    products = strata.means @ strata.means.T
    noise = strata.means.shape[1] * strata.deviation**2
    diagonal = np.diag(products).copy()
    np.fill_diagonal(products, np.where(diagonal > 0, np.maximum(diagonal - noise, 0.1 * diagonal), 1.0))
    values, vectors = np.linalg.eigh(products)
    return np.asarray((vectors * np.maximum(values, 1e-6)) @ vectors.T)


def _weights(strata: NoisyMeans, target: NoisyMeans, gram: Floats) -> Floats:
    """Nonnegative weights whose sum may differ from 1 as much as the target's noisy count allows, then scaled to 1.

    A prior of the sum, with the relative deviation of the target's count, joins the squares.
    """
    relative = max(float(target.relative[0]), 1e-3)
    penalty = max(float(target.deviation[0]) ** 2, 1e-12) / relative**2
    usable = strata.counts > 0
    if not usable.any():
        return np.full(len(usable), 1 / len(usable))
    matrix = gram[np.ix_(usable, usable)] + penalty
    right = (strata.means @ target.means[0])[usable] + penalty
    step = 1 / np.linalg.eigvalsh(matrix)[-1]
    weights = np.full(len(right), 1 / len(right))
    ahead, momentum = weights.copy(), 1.0
    for _ in range(_STEPS):
        new = np.maximum(ahead - step * (matrix @ ahead - right), 0)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        weights, momentum = new, following
    every = np.zeros(len(usable))
    every[usable] = weights
    total = every.sum()
    return every / total if total > 0 else np.where(usable, 1 / usable.sum(), 0.0)


@dataclass(frozen=True, eq=False)
class Residual:
    """What a mixture leaves of a target: `shift`, with independent noise of deviation `noise`.

    As the target's count is noisy, it holds an unknown multiple of `mixture`, too, of relative deviation `relative`.
    `records` is that count.
    """

    shift: Floats
    mixture: Floats
    noise: float
    relative: float
    records: float


def residual_of(strata: NoisyMeans, target: NoisyMeans, weights: Floats) -> Residual:
    """The residual of a target against a mixture of strata."""
    mixture = weights @ strata.means
    variance = float(target.deviation[0]) ** 2 + float((weights**2) @ strata.deviation**2)
    noise, relative, records = float(np.sqrt(variance)), float(target.relative[0]), float(target.counts[0])
    return Residual(target.means[0] - mixture, mixture, noise, relative, records)


def filtered(residual: Residual, covariance: Floats) -> Floats:
    """The expected shift of the target against the mixture (a Wiener filter).

    The shift has the prior N(0, κ·covariance), averaged over κ by its likelihood, from 1/records on: a sample of that
    many records shifts by as much. The error e of the target's count has
    the prior N(0, relative²), and adds e·mixture.
    """
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0)
    along, scaled = vectors.T @ residual.shift, vectors.T @ residual.mixture
    variance, rigid = max(residual.noise**2, 1e-15), 1 / max(residual.relative, 1e-9) ** 2
    scales = np.geomspace(min(1 / max(residual.records, 1.0), MOST_SHIFT / 2), MOST_SHIFT, 40)
    spread = scales[:, None] * values[None] + variance
    stretch = (scaled**2 / spread).sum(axis=1)
    fitted = (along * scaled / spread).sum(axis=1)
    error = fitted / (rigid + stretch)  # the posterior mean of e
    logs = (np.log(spread) + along**2 / spread).sum(axis=1) - fitted * error + np.log1p(stretch / rigid)
    chances = np.exp(-0.5 * (logs - logs.min()))
    chances /= chances.sum()
    shifts = (along - error[:, None] * scaled) * scales[:, None] * values / spread
    return np.asarray(vectors @ (chances @ shifts))
