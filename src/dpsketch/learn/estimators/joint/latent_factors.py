"""From contrasts of halved columns to a mixture of products: a few hidden causes behind all columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.estimators.joint.denoised_pairs import common_dependence
from dpsketch.learn.estimators.joint.descent import fit_margins
from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.learn.estimators.joint.refine import shares_inside, split_groups
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

COMPONENTS = 512  # points of hidden causes; a power of two
PARTS: Annotated[int, UNRECORDED] = 6  # of each half
MOST_FACTORS: Annotated[int, UNRECORDED] = 12
MOST_COMMON = 0.97  # of a column's variance that hidden causes explain
LEAST = 1e-3  # share of a half
SMALLEST = 1e-6  # share of a part
SEED = 1
STEPS = 80
BISECTIONS = 24
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def factor_mixture(
    contrasts: Mapping[tuple[int, int], float],
    sd: float,
    marginals: Sequence[Marginal],
    halves: Sequence[NDArray[np.int64]],
    parts: Sequence[NDArray[np.int64]] | None = None,
) -> Mixture:
    """A Gaussian copula of few factors, at points of the factors: given these, columns are independent.

    Contrasts, as shares of the records, are off by `sd`. As many hidden causes are taken as stand out of the noise of
    all contrasts at once. Cells count in their order, labels in that of the schema; where halves do not follow it,
    labels of a half depend on other columns alike. `parts` of the halves are chosen here unless given.
    """
    low = np.clip([own.shares[half == 0].sum() for own, half in zip(marginals, halves, strict=True)], LEAST, 1 - LEAST)
    excess, known = np.zeros((len(low), len(low))), np.zeros((len(low), len(low)), bool)
    for (i, j), contrast in contrasts.items():
        excess[i, j] = excess[j, i] = contrast - (1 - 2 * low[i]) * (1 - 2 * low[j])
        known[i, j] = known[j, i] = True
    loadings = _loadings(low, common_dependence(excess, known, sd))
    points = _factor_points(loadings.shape[1])
    if parts is None:
        parts = [
            split_groups(own.shares, half, PARTS if (np.diff(half) >= 0).all() else 1)
            for own, half in zip(marginals, halves, strict=True)
        ]
    held = [_held(own.shares, part) for own, part in zip(marginals, parts, strict=True)]
    inside = np.hstack([_inside(share, own, points) for share, own in zip(held, loadings, strict=True)])
    weights, lengths = np.full(COMPONENTS, 1 / COMPONENTS), np.array([len(share) for share in held])
    exact = fit_margins(weights, inside.T, np.concatenate(held), lengths)
    shares = [np.ascontiguousarray(part.T) for part in np.split(exact, np.cumsum(lengths)[:-1])]
    within = [shares_inside(own.shares, *each) for own, *each in zip(marginals, parts, lengths, strict=True)]
    return Mixture(weights, tuple(shares), tuple(parts), tuple(within))


def _factor_points(factors: int) -> Floats:
    from scipy.stats import qmc  # takes longer to import than most questions take to answer

    return np.asarray(ndtri(qmc.Sobol(factors, seed=SEED).random(COMPONENTS)))


def _held(shares: Floats, parts: NDArray[np.int64]) -> Floats:
    held = np.maximum(np.bincount(parts, shares), SMALLEST)
    return np.asarray(held / held.sum())


def _inside(held: Floats, loadings: Floats, points: Floats) -> Floats:
    """Shares of a column's parts at each point of the factors."""
    edges = ndtri(np.clip(np.cumsum(held)[:-1], 1e-9, 1 - 1e-9))
    below = ndtr((edges - (points @ loadings)[:, None]) / np.sqrt(1 - loadings @ loadings))
    ends = np.zeros((len(points), 1)), np.ones((len(points), 1))
    return np.maximum(np.diff(np.hstack([ends[0], below, ends[1]]), axis=1), 1e-12)


def _loadings(low: Floats, excess: Floats) -> Floats:
    """How the variables behind columns depend on factors, one row a column, from the excess of contrasts over those of
    independent columns.

    Factors are those of the latent correlations, weighted as noise is: that of a contrast is the same for all pairs,
    and a column whose halves are uneven says less. Source: iterated principal factors (Harman, Modern Factor Analysis).
    """
    count = min(int((np.linalg.eigvalsh(excess) > 1e-9).sum()), MOST_FACTORS)
    if count == 0:
        return np.zeros((len(low), 1))
    edge = ndtri(low)
    one, two = np.triu_indices(len(low), 1)
    below = low[one] * low[two] + excess[one, two] / 4
    correlations = np.zeros((len(low), len(low)))
    correlations[one, two] = tetrachoric(below, edge[one], edge[two])
    scale = 2 * np.exp(-(edge**2) / 2) / np.sqrt(2 * np.pi)
    weighted = (correlations + correlations.T) * np.outer(scale, scale)
    common = np.full(len(low), 0.5)
    for _ in range(STEPS):
        np.fill_diagonal(weighted, common * scale**2)
        values, vectors = np.linalg.eigh(weighted)
        found = vectors[:, -count:] * np.sqrt(np.maximum(values[-count:], 0.0)) / scale[:, None]
        before, common = common, np.minimum((found**2).sum(1), MOST_COMMON)
        if np.abs(common - before).max() < 1e-4:
            break
    length = np.sqrt((found**2).sum(1, keepdims=True))
    return np.asarray(found * np.minimum(1.0, np.sqrt(MOST_COMMON) / np.maximum(length, 1e-12)))


def tetrachoric(below: Floats, one: Floats, two: Floats) -> Floats:
    """Correlations of standard normal variables of which both are below `one` and `two` with these probabilities; the
    nearest possible ones within ±0.98.
    """
    lower, upper = np.full(len(below), -0.98), np.full(len(below), 0.98)
    for _ in range(BISECTIONS):
        middle = (lower + upper) / 2
        more = both_below(one, two, middle) < below
        lower, upper = np.where(more, middle, lower), np.where(more, upper, middle)
    return (lower + upper) / 2


def both_below(one: Floats, two: Floats, correlation: Floats) -> Floats:
    """The probability that correlated standard normal variables are below `one` and `two`.

    Source: its derivative in the correlation is the density at that point (Plackett, Biometrika 41 (1954) 351).
    """
    at = correlation[:, None] * (_NODES + 1) / 2
    h, k, left = one[:, None], two[:, None], 1 - at**2
    density = np.exp(-(h**2 - 2 * at * h * k + k**2) / (2 * left)) / (2 * np.pi * np.sqrt(left))
    return np.asarray(ndtr(one) * ndtr(two) + (density @ _WEIGHTS) * correlation / 2)
