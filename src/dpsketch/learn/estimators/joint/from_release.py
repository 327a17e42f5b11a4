"""The joint distribution of a release that holds marginals and pair tables or contrasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary
from dpsketch.denoise.heaping import Lumps, lumpiness
from dpsketch.learn.estimators.joint.bootstrap import refits
from dpsketch.learn.estimators.joint.joint_fit import NoisySums, Products
from dpsketch.learn.estimators.release_noise import ReleaseNoise, released_totals
from dpsketch.learn.shared import made_once
from dpsketch.maps.tables.cells import GRID, Cells
from dpsketch.maps.tables.contrasts import BoundContrasts, PairMap, marginals_for
from dpsketch.maps.tables.marginals import BoundMarginals
from dpsketch.maps.tables.pairs import BoundPairs, Groups
from dpsketch.numerics.threads import one_thread
from dpsketch.sketch.adaptive import pair_summaries
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch


@dataclass(frozen=True)
class ReleasedProducts:
    """The distribution fitted over the cells of `columns`, in their order: `products`. Fits to new noise tell how far
    off it is; they take several times as long, so that `refit` makes them when they are first asked for.

    `pairs` are the places i < j of columns with a table, or with a contrast if `halved`. Shares of single cells are
    known up to `cell_sd` from the marginals; `lumps` is each column's `lumpiness`.
    """

    columns: tuple[str, ...]
    cells: tuple[Cells, ...]
    pairs: frozenset[tuple[int, int]]
    products: Products
    refit: Callable[[], tuple[Products, ...]]
    cell_sd: float
    lumps: tuple[Lumps, ...]
    halved: bool = False

    @made_once
    def models(self) -> tuple[Products, ...]:
        """The fit, then its refits."""
        return (self.products, *self.refit())


def product_parts(released: ReleasedSketch) -> tuple[ReleasedPart, ReleasedPart] | None:
    """Pair tables or contrasts, and the marginals that go with them, if the release holds both: of the most columns."""
    found: list[tuple[ReleasedPart, ReleasedPart]] = []
    for pairs in released.parts:
        if isinstance(pairs.map, BoundPairs | BoundContrasts):
            place = marginals_for(pairs.map, released.maps)
            if place is not None:
                found.append((pairs, released.parts[place]))
    return max(found, key=lambda parts: len(parts[0].map.columns), default=None)


def fit_released(released: ReleasedSketch) -> ReleasedProducts:
    """Post-processing of the released sums: deterministic, and free of cost."""
    parts = product_parts(released)
    assert parts is not None
    with one_thread():
        fitted = noisy_sums(released, *parts).fit()
    return with_fit(released, fitted)


def with_fit(
    released: ReleasedSketch, fitted: Products, refit: Callable[[], tuple[Products, ...]] | None = None
) -> ReleasedProducts:
    """A fit of the release's columns, with its refits unless these are still to be made."""
    parts = product_parts(released)
    assert parts is not None
    bound = parts[0].map
    assert isinstance(bound, BoundPairs | BoundContrasts)
    sd = sqrt(parts[1].noise_variance) / GRID / float(ReleaseNoise(released).rows().value)
    lumps = tuple(lumpiness(summary) for summary in _summaries(released, bound, parts[1]))
    refit = refit or partial(_refits, released, fitted)
    halved, places = isinstance(bound, BoundContrasts), frozenset(_places(bound))
    return ReleasedProducts(bound.columns, bound.cells, places, fitted, refit, sd, lumps, halved)


def _refits(released: ReleasedSketch, fitted: Products) -> tuple[Products, ...]:
    parts = product_parts(released)
    assert parts is not None
    with one_thread():
        return refits(noisy_sums(released, *parts), fitted)


def noisy_sums(released: ReleasedSketch, pairs: ReleasedPart, marginals: ReleasedPart) -> NoisySums:
    bound = pairs.map
    assert isinstance(bound, BoundPairs | BoundContrasts)
    summaries = _summaries(released, bound, marginals)
    tables = {}
    for pair, (places, (one, two)) in enumerate(zip(_places(bound), bound.pairs, strict=True)):
        if isinstance(bound, BoundContrasts):
            tables[places] = pairs.sums[pair].astype(np.float64).reshape(1, 1)
            continue
        table = pairs.sums[bound.table(pair)].reshape(bound.shape(pair)).astype(np.float64)
        tables[places] = table if bound.columns.index(one) < bound.columns.index(two) else table.T
    rows = ReleaseNoise(released).rows()
    sd = max(sqrt(pairs.noise_variance), 1.0)
    halved = isinstance(bound, BoundContrasts)
    groups = [np.array(each) for each in _groups(bound)]
    return NoisySums(summaries, float(rows.value), float(rows.stderr), groups, tables, sd, halved)


def _groups(pairs: PairMap) -> Groups:
    if isinstance(pairs, BoundContrasts):
        return pairs.description.halves
    return pairs.description.groups or tuple(tuple(range(own.count)) for own in pairs.cells)


def _places(pairs: PairMap) -> list[tuple[int, int]]:
    """Of the columns of each pair, the lower first."""
    place = {name: index for index, name in enumerate(pairs.columns)}
    return [(min(place[one], place[two]), max(place[one], place[two])) for one, two in pairs.pairs]


def _summaries(released: ReleasedSketch, pairs: PairMap, marginals: ReleasedPart) -> list[ColumnSummary]:
    """What the marginals say about the columns of the pair tables."""
    assert isinstance(marginals.map, BoundMarginals)
    totals = released_totals(released)
    return pair_summaries(pairs, marginals.map, marginals.sums, marginals.noise_variance, totals)
