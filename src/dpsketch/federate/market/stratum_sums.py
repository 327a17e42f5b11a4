"""Ordinary releases as the market reads them: the recipes of owners and consumers, and means of features by stratum."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from dpsketch.errors import FileError
from dpsketch.federate.market.feature_hash import FeatureHash
from dpsketch.federate.market.stratum_weights import NoisyMeans
from dpsketch.maps.fourier.fourier import BoundFourier
from dpsketch.maps.grouped import Grouped
from dpsketch.maps.tables.count import BoundCount, Count
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.recipe.recipe import Part, Recipe
from dpsketch.sketch.released import ReleasedSketch

# Share of the squared L2 budget that counts get beside the features: (Σφ, ½·count) under one noise.
COUNTS: Annotated[float, Tuned("MNIST by digits", by=BY_HAND, decision=110)] = 0.2
# The same for a validation set, whose mixture of strata tells its size once more.
TARGET_COUNT: Annotated[float, Tuned("Allstate by state, seeds from 100", by=BY_HAND, decision=110)] = 0.05


def owner_recipe(hashed: FeatureHash) -> Recipe:
    """Features and counts by label: what an owner releases once, for every later consumer.

    Every label of the schema has a stratum, also one without records: that it is empty must not show.
    """
    if hashed.label is None:
        return consumer_recipe(hashed)
    return Recipe(
        [
            Part(Grouped(hashed.feature_map, hashed.label), round(1 - COUNTS, 6)),
            Part(Grouped(Count(), hashed.label), COUNTS),
        ]
    )


def consumer_recipe(hashed: FeatureHash) -> Recipe:
    """Features and a count of the validation set. Where neighbouring sets replace a record, the count is public and
    costs nothing.
    """
    return Recipe([Part(hashed.feature_map, round(1 - TARGET_COUNT, 6)), Part(Count(), TARGET_COUNT)])


def noisy_means(released: ReleasedSketch, hashed: FeatureHash, strata: int = 1) -> NoisyMeans:
    """Means of features in every stratum of a release made by one of the recipes above."""
    sums, noise = _part(released, BoundFourier, hashed)
    counts, counting = _part(released, BoundCount, None)
    if len(counts) != strata or len(sums) != strata * hashed.size:
        raise FileError("the release does not have the market's strata", "release with the label of its terms")
    scale = hashed.scale
    return NoisyMeans.of_sums(sums.reshape(len(counts), -1) / scale, counts, noise / scale, counting)


def _part(
    released: ReleasedSketch, kind: type[BoundFourier] | type[BoundCount], hashed: FeatureHash | None
) -> tuple[Floats, float]:
    """The sums of the release's only part of this kind and the standard deviation of their noise."""
    for part, bound in released.parts_with(kind, grouped=True):
        if hashed is None or bound.fingerprint() == hashed.bound.fingerprint():
            return np.asarray(part.sums, np.float64), float(np.sqrt(part.noise_variance))
    raise FileError(
        "the release does not hold the market's features", "release with the columns, width, size and seed of its terms"
    )
