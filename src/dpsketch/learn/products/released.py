"""The joint distribution of a release that holds marginals and pooled pair tables."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.products.fit import Products, fit_products
from dpsketch.learn.release_noise import ReleaseNoise
from dpsketch.maps.marginals import BoundMarginals
from dpsketch.maps.pairs import BoundPairs, marginals_for
from dpsketch.sketch.pooling import column_summaries
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch


@dataclass(frozen=True)
class ReleasedProducts:
    """The fitted distribution over the cells of `columns`, in their order."""

    columns: tuple[str, ...]
    products: Products


def fit_released(released: ReleasedSketch) -> ReleasedProducts:
    """Post-processing of the released sums: deterministic, and free of cost."""
    pairs, marginals = _parts(released)
    bound, cells = pairs.map, marginals.map
    assert isinstance(bound, BoundPairs)
    assert isinstance(cells, BoundMarginals)
    groups = bound.description.groups
    assert groups is not None
    every = column_summaries(cells, marginals.sums, marginals.noise_variance)
    summaries = [every[cells.columns.index(name)] for name in bound.columns]
    place = {name: index for index, name in enumerate(bound.columns)}
    tables = {}
    for pair, (one, two) in enumerate(bound.pairs):
        table = pairs.sums[bound.table(pair)].reshape(bound.shape(pair)).astype(np.float64)
        i, j = place[one], place[two]
        tables[min(i, j), max(i, j)] = table if i < j else table.T
    rows = float(ReleaseNoise(released).rows().value)
    sd = max(sqrt(pairs.noise_variance), 1.0)
    found = fit_products(summaries, rows, [np.array(each) for each in groups], tables, sd)
    return ReleasedProducts(bound.columns, found)


def _parts(released: ReleasedSketch) -> tuple[ReleasedPart, ReleasedPart]:
    """Pair tables in groups, and the marginals with their cells."""
    for pairs in released.parts:
        if not isinstance(pairs.map, BoundPairs) or pairs.map.description.groups is None:
            continue
        place = marginals_for(pairs.map, released.maps)
        if place is not None:
            return pairs, released.parts[place]
    raise QueryError(
        "this release holds no marginals and pair tables of the same cells",
        "add Part(Marginals(), share=0.45) and Part(Pairs(pool=True), share=0.5) to the recipe",
    )
