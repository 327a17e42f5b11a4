"""The joint distribution of a release that holds marginals and pair tables or contrasts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import ColumnSummary
from dpsketch.denoise.cuts import UNKNOWN, Sharing
from dpsketch.denoise.dropped_cells import dropped_shares
from dpsketch.denoise.heaping import Lumps, SharedValues, lumpiness
from dpsketch.denoise.unbiased_error import CellNoise
from dpsketch.learn.estimators.joint.bootstrap import refits
from dpsketch.learn.estimators.joint.joint_fit import NoisySums, Products
from dpsketch.learn.estimators.joint.product_mixture import Mixture
from dpsketch.learn.estimators.release_noise import ReleaseNoise, released_totals
from dpsketch.learn.shared import made_once
from dpsketch.maps.tables.cells import Cells
from dpsketch.maps.tables.column_summaries import joint_cells, pair_summaries, parents
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.maps.tables.pair_map import PairMap
from dpsketch.maps.tables.triple_tables import BoundTriples
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch


@dataclass(frozen=True)
class ReleasedTriples:
    """`tables[i, j, k]`, i < j < k, are noisy joint shares of groups of three columns, off by `sd` each; `groups` the
    group of each cell of the columns that have tables.
    """

    tables: Mapping[tuple[int, int, int], Floats]
    sd: float
    groups: Mapping[int, NDArray[np.int64]]


@dataclass(frozen=True)
class ReleasedProducts:
    """The distribution fitted over the cells of `columns`, in their order: `products`. Fits to new noise tell how far
    off it is; they take several times as long, so that `refit` makes them when they are first asked for. Mixtures are
    made when a question about three columns needs them. Whatever is made is given to `keep`.

    `pairs` are the places i < j of columns with a table, or with a contrast if columns have `halves`: the half of each
    of their cells. Contrasts, and shares of pairs of weight one, are known up to `pair_sd`; `dropped` are the
    `dropped_shares` of each column, `lumps` its `lumpiness`, and `parents` the counted cells that cells are parts of,
    where they are. `triples` are tables of three of the columns, where the release has some, and `noises` the noise of
    each column's own sums, where answers need it.
    """

    columns: tuple[str, ...]
    cells: tuple[Cells, ...]
    pairs: frozenset[tuple[int, int]]
    products: Products
    refit: Callable[[], tuple[Products, ...]]
    dropped: tuple[Floats, ...]
    lumps: tuple[Lumps, ...]
    parents: tuple[NDArray[np.int64] | None, ...]
    halves: tuple[NDArray[np.int64], ...] = ()
    pair_sd: float = 0.0
    triples: ReleasedTriples | None = None
    noises: tuple[CellNoise, ...] = ()
    keep: Callable[[tuple[Products, ...]], None] = lambda _models: None

    @property
    def halved(self) -> bool:
        return bool(self.halves)

    @made_once
    def models(self) -> tuple[Products, ...]:
        """The fit, then its refits."""
        models = (self.products, *self.refit())
        self.keep(models)
        return models

    @made_once
    def mixture(self) -> Mixture:
        """The mixture of the fit."""
        if not self.products.made:
            with one_thread():
                self.products.mixture  # noqa: B018
            self.keep(vars(self).get("models", (self.products,)))
        return self.products.mixture

    @made_once
    def mixtures(self) -> tuple[Mixture, ...]:
        """The mixtures of the fit and of its refits, made on all cores."""
        if not all(model.made for model in self.models):
            with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda model: model.mixture, self.models))
            self.keep(self.models)
        return tuple(model.mixture for model in self.models)

    def with_mixture(self, model: int) -> Products:
        """The fit (model 0), which needs no refits, or a refit; its mixture is made."""
        found, mixture = (self.models[model], self.mixtures[model]) if model else (self.products, self.mixture)
        return replace(found, given=mixture)


class ProductParts(NamedTuple):
    """Pair tables or contrasts, and the marginals that go with them, each with its map."""

    pairs: ReleasedPart
    pair_map: PairMap
    marginals: ReleasedPart
    marginal_map: OneWayMap


def product_parts(released: ReleasedSketch) -> ProductParts | None:
    """Those of the most columns, if the release holds both."""
    found = []
    for part, pairs in released.parts_with(PairMap):  # type: ignore[type-abstract]
        beside = pairs.marginals_in(released.maps)
        if beside is not None:
            place, marginals = beside
            found.append(ProductParts(part, pairs, released.parts[place], marginals))
    return max(found, key=lambda parts: len(parts.pair_map.columns), default=None)


def column_lumps(marginals: OneWayMap, column: int, summary: ColumnSummary) -> Lumps:
    """How many records of a column, given by its index, share a value: as estimated by the release, or else from mean
    positions in bins.
    """
    sharing = marginals.sharing(column)
    if sharing is None and summary.positions is None and summary.widths is not None and summary.widths.any():
        sharing = Sharing(1.0, UNKNOWN, max(float(summary.counts.sum()), 1.0))
    if sharing is None:
        return lumpiness(summary)
    return SharedValues(sharing.expected)


def parents_in(summary: ColumnSummary) -> NDArray[np.int64] | None:
    """The counted cells that the cells of a fit are parts of, where they are."""
    return None if summary.finer is None else summary.finer.parent


def fit_released(released: ReleasedSketch) -> ReleasedProducts:
    """Post-processing of the released sums: deterministic, and free of cost."""
    parts = product_parts(released)
    assert parts is not None
    with one_thread():
        fitted = noisy_sums(released, parts).fit()
    return with_fit(released, fitted)


def with_fit(
    released: ReleasedSketch, fitted: Products, refit: Callable[[], tuple[Products, ...]] | None = None
) -> ReleasedProducts:
    """A fit of the release's columns, with its refits unless these are still to be made."""
    parts = product_parts(released)
    assert parts is not None
    bound = parts.pair_map
    marginals = parts.marginal_map
    rows = float(ReleaseNoise(released).rows().value)
    cells = tuple(joint_cells(bound, marginals))
    summaries = _summaries(released, parts)
    lumps = tuple(
        column_lumps(marginals, marginals.columns.index(name), summary)
        for name, summary in zip(bound.columns, summaries, strict=True)
    )
    whole = tuple(map(parents_in, summaries))
    dropped = tuple(
        dropped_shares(summary, rows, marginal.shares)
        for summary, marginal in zip(summaries, fitted.marginals, strict=True)
    )
    refit = refit or partial(_refits, released, fitted)
    places = frozenset(_places(bound))
    halves = tuple(_groups_of(bound, marginals)) if bound.halved else ()
    pair_sd = sqrt(parts.pairs.noise_variance) / rows
    triples = _triples(released, bound.columns, cells, rows)
    noises = tuple(CellNoise.of(summary, rows) for summary in summaries)
    return ReleasedProducts(
        bound.columns, cells, places, fitted, refit, dropped, lumps, whole, halves, pair_sd, triples, noises
    )


def _triples(
    released: ReleasedSketch, columns: tuple[str, ...], cells: Sequence[Cells], rows: float
) -> ReleasedTriples | None:
    """Released tables of three of these columns; those with a cell that ends inside one of `cells` are left out."""
    for part, bound in released.parts_with(BoundTriples):
        if not set(bound.columns) <= set(columns):
            continue
        place = [columns.index(name) for name in bound.columns]
        own_cells = zip(bound.cells, (cells[column] for column in place), strict=True)
        if not all(np.isin(coarse.first_levels, fine.first_levels).all() for coarse, fine in own_cells):
            continue
        tables = {}
        for number, members in enumerate(bound.members):
            own = [place[member] for member in members]
            order = np.argsort(own)
            one, two, three = (own[axis] for axis in order)
            tables[one, two, three] = bound.counts_of(part.sums, number).transpose(order) / rows
        groups = {
            column: np.array(own)[parents(coarse, cells[column])]
            for column, own, coarse in zip(place, bound.groups_of_cells, bound.cells, strict=True)
        }
        return ReleasedTriples(tables, max(sqrt(part.noise_variance), 1.0) / rows, groups)
    return None


def _refits(released: ReleasedSketch, fitted: Products) -> tuple[Products, ...]:
    parts = product_parts(released)
    assert parts is not None
    with one_thread():
        return refits(noisy_sums(released, parts), fitted)


def noisy_sums(released: ReleasedSketch, parts: ProductParts) -> NoisySums:
    pairs, bound = parts.pairs, parts.pair_map
    tables, weights = {}, {}
    for pair, (places, (one, two)) in enumerate(zip(_places(bound), bound.pairs, strict=True)):
        table = bound.pair_table(pairs.sums, pair)
        if bound.pair_weight(pair) > 1:
            weights[places] = bound.pair_weight(pair)
        tables[places] = table if bound.columns.index(one) < bound.columns.index(two) else table.T
    rows = ReleaseNoise(released).rows()
    sd = max(sqrt(pairs.noise_variance), 1.0)
    groups = _groups_of(bound, parts.marginal_map)
    summaries = _summaries(released, parts)
    return NoisySums(summaries, float(rows.value), float(rows.stderr), groups, tables, sd, bound.halved, weights)


def _groups_of(pairs: PairMap, marginals: OneWayMap) -> list[NDArray[np.int64]]:
    """The group, or half, of each cell of the columns."""
    columns = zip(pairs.groups_of_cells, pairs.cells, joint_cells(pairs, marginals), strict=True)
    return [np.array(own)[parents(coarse, cells)] for own, coarse, cells in columns]


def _places(pairs: PairMap) -> list[tuple[int, int]]:
    """Indices of the columns of each pair, the lower first."""
    place = {name: index for index, name in enumerate(pairs.columns)}
    return [(min(place[one], place[two]), max(place[one], place[two])) for one, two in pairs.pairs]


def _summaries(released: ReleasedSketch, parts: ProductParts) -> list[ColumnSummary]:
    """What the marginals say about the columns of the pair tables."""
    part, totals = parts.marginals, released_totals(released)
    return pair_summaries(parts.pair_map, parts.marginal_map, part.sums, part.noise_variance, totals)
