"""What released pair tables say of second moments beyond the distribution that was fitted to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.joint.denoised_pairs import contrast_of
from dpsketch.learn.estimators.joint.from_release import noisy_sums, product_parts
from dpsketch.learn.estimators.joint.joint_fit import NoisySums
from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.population.weighted_rows import Population, ProductPopulation
from dpsketch.numerics.arrays import Floats
from dpsketch.sketch.released import ReleasedSketch


@dataclass(frozen=True)
class Missed:
    """Moments of the features `one` of a column and `two` of another that the fit lacks, as far as noise lets tell."""

    one: NDArray[np.int64]
    two: NDArray[np.int64]
    moments: Floats


def missed_moments(
    released: ReleasedSketch, population: Population, points: WeightedPoints, features: Mapping[str, Floats]
) -> Iterator[Missed]:
    """For each pair of columns with a table that differs from the fit's by more than its noise.

    `features` has a matrix of features of `points` for each column; features are numbered one column after the other.
    A pair's moments are shrunk by the part of their squares that is noise, so that they are as large as the fit's
    error. A distribution that was not fitted to tables has none.
    """
    parts = product_parts(released)
    if not isinstance(population, ProductPopulation) or parts is None:
        return
    sums, fitted = noisy_sums(released, parts), population.fitted
    ends = np.cumsum([0, *(matrix.shape[1] for matrix in features.values())])
    places = [fitted.columns.index(name) for name in features]
    means = []
    for (name, matrix), place in zip(features.items(), places, strict=True):
        groups = sums.groups[place][fitted.cells[place].cells(points.frame.codes(name))]
        means.append(_group_means(groups, int(sums.groups[place].max()) + 1, points.weights, matrix))
    for a, b in combinations(np.argsort(places), 2):
        pair = places[a], places[b]
        if pair not in sums.tables:
            continue
        found, noise = _beyond(sums, _grouped(fitted.products.mixture, sums, pair), pair, means[a], means[b])
        squares = float((found**2).sum())
        if squares > noise:
            kept = np.sqrt(1 - noise / squares)
            yield Missed(np.arange(ends[a], ends[a + 1]), np.arange(ends[b], ends[b + 1]), kept * found)


def _group_means(groups: NDArray[np.int64], count: int, weights: Floats, matrix: Floats) -> Floats:
    """Means of features in groups: one row a group."""
    sums = np.zeros((count, matrix.shape[1]))
    np.add.at(sums, groups, matrix * weights[:, None])
    return sums / np.maximum(np.bincount(groups, weights, count), 1e-300)[:, None]


def _grouped(mixture: Mixture, sums: NoisySums, pair: tuple[int, int]) -> Floats:
    """The fitted table of the release's groups, which a mixture's own groups are parts of."""
    sides = []
    for column in pair:
        coarse = np.zeros((mixture.shares[column].shape[1], int(sums.groups[column].max()) + 1))
        coarse[mixture.groups[column], sums.groups[column]] = 1.0
        sides.append(coarse)
    return sides[0].T @ mixture.grouped_pair(*pair) @ sides[1]


def _beyond(sums: NoisySums, fit: Floats, pair: tuple[int, int], one: Floats, two: Floats) -> tuple[Floats, float]:
    """Moments of the table less those of the fit, and the sum of squares that noise alone would have."""
    table, variance = sums.tables[pair] / sums.rows, (sums.pair_sd / sums.rows) ** 2
    if not sums.halved:
        return one.T @ (table - fit) @ two, variance * float((one**2).sum() * (two**2).sum())
    contrast = np.outer(one[0] - one[1], two[0] - two[1]) / 4
    return contrast * (table - contrast_of(fit)), variance * float((contrast**2).sum())
