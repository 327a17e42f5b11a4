"""Releases of simulated tables: the columns that are asked about, with the noise of the planned release.

Sums of a column, and of a pair of columns, do not depend on the other columns, and their noise is known before any
release. So a plan sketches only the columns of its questions, with the noise that they get in a release of all columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from dpsketch.calibration import noise_variance, noise_variances
from dpsketch.engines.engine import accumulate
from dpsketch.learn.choice import Sources
from dpsketch.learn.estimators.joint.bootstrap import refits
from dpsketch.learn.estimators.joint.from_release import fit_released, noisy_sums, product_parts, with_fit
from dpsketch.learn.estimators.joint.joint_estimator import ProductEstimator
from dpsketch.learn.estimators.joint.joint_fit import Products
from dpsketch.learn.shared import made_once
from dpsketch.learn.view import View
from dpsketch.maps.base import BoundMap, FeatureMap, Sums
from dpsketch.maps.tables.adaptive_marginals import AdaptiveMarginals
from dpsketch.maps.tables.adaptive_pairs import AdaptivePairs
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.level_counts import Levels
from dpsketch.maps.tables.marginals import Marginals
from dpsketch.maps.tables.pairs import Pairs
from dpsketch.maps.tables.totals import Totals
from dpsketch.maps.tables.triple_tables import Triples
from dpsketch.numerics.threads import one_thread
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.mechanisms import LAPLACE_LIKE, MECHANISMS, Mechanism
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema
from dpsketch.sketch.adaptive import noisy_in_stages
from dpsketch.sketch.agreement import agreed_maps
from dpsketch.sketch.raw import RawSketch
from dpsketch.sketch.release import planned, released_sketch
from dpsketch.sketch.released import ReleasedSketch

MOST_SIMULATIONS = 5
WORK = 500_000  # sum of squared cell counts whose fit takes about four seconds on one core of 2026
REFITS = 4  # of each simulated release; fewer than for an actual answer, as several tables are simulated
_CHUNK = 1 << 20  # sums
ONE_WAY = Marginals | Levels | AdaptiveMarginals | Totals


@dataclass(frozen=True)
class Sharing:
    """How a table is released: by one trusted curator, by a consortium with secure sums, or by `sites` that each hold
    an equal part of the rows, release on their own and merge (local noise).
    """

    consortium: Consortium | None = None
    sites: int = 1


ALONE = Sharing()


@dataclass(frozen=True)
class PlannedRelease:
    """A planned release of some columns: `recipe` is about these columns, and `event` holds the noise that its parts
    have in the recipe of all columns.
    """

    recipe: Recipe
    event: Release
    sites: int = 1

    def simulated(self, table: pa.Table, schema: Schema, copies: int, rng: np.random.Generator) -> ReleasedSketch:
        """A release of a simulated table. Later sites take groups and pairs from the first one, so that all merge."""
        if self.sites == 1:
            return self.of(_accumulated(table, schema, self.recipe, copies), rng)
        rows = -(-declared_rows(schema, self.recipe.rows) // self.sites)
        recipe = Recipe(self.recipe.parts, rows, self.recipe.sampling, self.recipe.only)
        merged = None
        for site in range(self.sites):
            raw = _accumulated(table.take(np.arange(site, len(table), self.sites)), schema, recipe, copies)
            own = self.of(raw, rng, {} if merged is None else agreed_maps(raw.bound, merged))
            merged = own if merged is None else merged.merge(own, disjoint_units=True)
        assert merged is not None
        return merged

    def of(
        self, raw: RawSketch, rng: np.random.Generator, agreed: Mapping[int, BoundMap] = MappingProxyType({})
    ) -> ReleasedSketch:
        """A release of simulated sums with simulated noise. Never for a table of people: the noise is no secret."""

        def add_noise(index: int, feature_map: BoundMap, sums: Sums) -> Sums:
            return _noisy(self.event.noises[index], feature_map, sums, rng)

        parts = noisy_in_stages(raw.bound, [part.sums for part in raw.parts], self.event, add_noise, agreed)
        return released_sketch(raw.bound, (self.event,), parts, raw.lineage)


def planned_release(
    schema: Schema, recipe: Recipe, budget: Budget, names: Sequence[str] | None, sharing: Sharing = ALONE
) -> PlannedRelease:
    """Plan a release of the named columns, or of all. Refuses what a release would refuse."""
    event = planned(schema, recipe, budget, consortium=sharing.consortium)
    assert event is not None, "plans are of private releases"
    if names is None:
        return PlannedRelease(recipe, event, sharing.sites)
    kept = [place for place, part in enumerate(recipe.parts) if _has_tables(part.map, names)]
    parts = [replace(part, map=_of_columns(part.map, schema, names)) for part in (recipe.parts[at] for at in kept)]
    maps = recipe.bind(replace(schema, rows=declared_rows(schema, recipe.rows))).noised
    noises = tuple(_by_itself(event.noises[at], maps[at]) for at in kept)
    return PlannedRelease(Recipe(parts, recipe.rows, None, recipe.only), replace(event, noises=noises), sharing.sites)


def columns_to_simulate(schema: Schema, recipes: Collection[Recipe], asked: Collection[str]) -> tuple[str, ...] | None:
    """The columns that questions are about, at least two of them; None if the recipes need all columns."""
    if not all(_divisible(part.map) for recipe in recipes for part in recipe.parts):
        return None
    if any(recipe.sampling is not None for recipe in recipes):
        return None
    chosen = set(asked)
    totals = any(isinstance(part.map, Totals) for recipe in recipes for part in recipe.parts)
    if totals and not any(schema.column(name).numeric for name in chosen):
        chosen.add(next(column.name for column in schema.scalars if column.numeric))
    for levels in (part.map for recipe in recipes for part in recipe.parts if isinstance(part.map, Levels)):
        if not chosen & set(levels.names(schema)):
            chosen.add(levels.names(schema)[0])
    names = [column.name for column in schema.scalars]
    chosen |= set([name for name in names if name not in chosen][: max(0, 2 - len(chosen))])
    return None if len(chosen) == len(names) else tuple(name for name in names if name in chosen)


def affordable_simulations(schema: Schema, recipes: Sequence[Recipe]) -> int:
    """The number of simulations that take seconds. Nearly all time goes to fitting the columns of pair tables."""
    pairs = [part.map for recipe in recipes for part in recipe.parts if isinstance(part.map, Pairs)]
    work = sum(cells**2 for described in pairs for cells in described.counts(schema).values())
    return int(np.clip(WORK // max(work, 1), 1, MOST_SIMULATIONS))


def _divisible(described: FeatureMap) -> bool:
    """Whether a map of some columns alone has the same sums as this map has for them."""
    if isinstance(described, Pairs):
        whole = not isinstance(described, AdaptivePairs) or described.most is None
        return whole and described.pairs is None and described.groups is None and described.columns is None
    if isinstance(described, Triples):
        return described.groups is None and described.columns is None
    return isinstance(described, Count) or (isinstance(described, ONE_WAY) and described.columns is None)


def _has_tables(described: FeatureMap, names: Sequence[str]) -> bool:
    """Whether anything is left of a map that is restricted to these columns."""
    if not isinstance(described, Triples):
        return True
    if described.triples is None:
        return len(names) > 2
    return any(set(triple) <= set(names) for triple in described.triples)


def _of_columns(described: FeatureMap, schema: Schema, names: Sequence[str]) -> FeatureMap:
    if isinstance(described, Totals):
        return replace(described, columns=tuple(name for name in names if schema.column(name).numeric))
    if isinstance(described, Pairs) and described.important is not None:
        kept = tuple(pair for pair in described.important if set(pair) <= set(names))
        described = replace(described, important=kept or None, times=described.times if kept else 1)
    if isinstance(described, Triples) and described.triples is not None:
        described = replace(described, triples=tuple(each for each in described.triples if set(each) <= set(names)))
    return described if isinstance(described, Count) else replace(described, columns=tuple(names))  # type: ignore


def _by_itself(noise: Noise, feature_map: BoundMap) -> Noise:
    """Noise of the same variance that does not depend on the number of sums."""
    if noise.sensitivity == 0 or MECHANISMS[noise.mechanism].shape is None:
        return noise
    return Noise(Mechanism.GAUSSIAN, noise.sensitivity, Fraction(noise_variance(noise, feature_map) ** 0.5))


def _noisy(noise: Noise, feature_map: BoundMap, sums: Sums, rng: np.random.Generator) -> Sums:
    """Add discrete Laplace noise, alone or in shares, or for other mechanisms normal noise of the same variance."""
    if noise.sensitivity == 0:
        return sums
    result = np.empty_like(sums)
    deviations = np.sqrt(np.broadcast_to(noise_variances(noise, feature_map), feature_map.size // feature_map.groups))
    deviations = np.broadcast_to(deviations, (feature_map.groups, deviations.size)).reshape(-1)
    for start in range(0, len(sums), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        size = len(sums[chunk])
        if noise.mechanism in LAPLACE_LIKE:
            share = -np.expm1(-1 / float(noise.scale))
            if noise.shares is None:
                drawn = np.subtract(*rng.geometric(share, (2, size)))
            else:
                drawn = np.subtract(*rng.negative_binomial(float(noise.shares.times), share, (2, size)))
        else:
            drawn = np.rint(deviations[chunk] * rng.normal(size=size)).astype(np.int64)
        np.add(sums[chunk], drawn.astype(sums.dtype), out=result[chunk])
    return result


def _accumulated(table: pa.Table, schema: Schema, recipe: Recipe, copies: int) -> RawSketch:
    """The sums of all copies of a table: those of one copy times `copies`, unless records are sampled or masked."""
    if recipe.sampling is not None or any(feature_map.secret for feature_map in recipe.bind(schema).maps):
        return accumulate(_batches(table, schema, copies), schema, recipe)
    raw = accumulate(table, schema, recipe)
    for part in raw.parts:
        np.multiply(part.sums, copies, out=part.sums)
    return raw


def _batches(table: pa.Table, schema: Schema, copies: int) -> Iterator[pa.RecordBatch]:
    """Every row `copies` times, each as a unit of its own."""
    for copy in range(copies):
        if schema.unit_column is not None:
            index = table.column_names.index(schema.unit_column)
            units = pa.array(np.arange(copy * len(table), (copy + 1) * len(table)))
            table = table.set_column(index, schema.unit_column, units)
        yield from table.to_batches()


class _FewRefits(Sources):
    """Estimators of a simulated release, with fewer refits than those of an actual release."""

    @made_once
    def products(self) -> ProductEstimator | None:
        parts = product_parts(self._released)
        if parts is None:
            return None
        fitted = fit_released(self._released).products

        def refit() -> tuple[Products, ...]:
            with one_thread():
                return refits(noisy_sums(self._released, parts), fitted, REFITS)

        return ProductEstimator(self._released.schema, self._noise, with_fit(self._released, fitted, refit))


class SimulatedView(View):
    """The view of a simulated release."""

    def __init__(self, released: ReleasedSketch) -> None:
        super().__init__(released)
        self._sources = _FewRefits(released, self._noise)
