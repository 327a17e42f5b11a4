"""What released pair tables say of second moments beyond the distribution that was fitted to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.joint.bootstrap import released_groups
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
    They are as large as the fit's error: singular values are shrunk by those of noise, which is large where labels are
    rare. A distribution that was not fitted to tables has none.
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
        found = _beyond(sums, _grouped(fitted.products.mixture, sums, pair), pair, means[a], means[b])
        if found.any():
            yield Missed(np.arange(ends[a], ends[a + 1]), np.arange(ends[b], ends[b + 1]), found)


def _group_means(groups: NDArray[np.int64], count: int, weights: Floats, matrix: Floats) -> Floats:
    """Means of features in groups: one row a group."""
    sums = np.zeros((count, matrix.shape[1]))
    np.add.at(sums, groups, matrix * weights[:, None])
    return sums / np.maximum(np.bincount(groups, weights, count), 1e-300)[:, None]


def _grouped(mixture: Mixture, sums: NoisySums, pair: tuple[int, int]) -> Floats:
    """The fitted table of the release's groups."""
    one, two = (released_groups(mixture.shares[each], mixture.groups[each], sums.groups[each]) for each in pair)
    return (one * mixture.weights[:, None]).T @ two


def _beyond(sums: NoisySums, fit: Floats, pair: tuple[int, int], one: Floats, two: Floats) -> Floats:
    """Moments of the table less those of the fit, without noise."""
    table, noise = sums.tables[pair] / sums.rows, sums.pair_sd / sums.rows
    if sums.halved:
        one, two = one[:1] - one[1:2], two[:1] - two[1:2]
        return one.T @ _shrunk((table - contrast_of(fit)) / 4, noise / 4) @ two
    (first, one), (second, two) = _orthonormal(one), _orthonormal(two)
    return one.T @ _shrunk(first.T @ (table - fit) @ second, noise) @ two


def _orthonormal(means: Floats) -> tuple[Floats, Floats]:
    """Factors of a matrix, the first with orthonormal columns: noise in what it turns is independent again."""
    vectors, values, others = np.linalg.svd(means, full_matrices=False)
    kept = values > 1e-9 * max(float(values.max(initial=0.0)), 1e-300)
    return vectors[:, kept], values[kept, None] * others[kept]


def _shrunk(table: Floats, noise: float) -> Floats:
    """A table with noise in each entry, without what noise adds to singular values: up to √rows + √columns times as
    much as to a single number.
    """
    vectors, values, others = np.linalg.svd(table, full_matrices=False)
    added = noise * (sum(np.sqrt(table.shape)) - 1)
    return np.asarray((vectors * np.sqrt(np.maximum(values**2 - added**2, 0.0))) @ others)
