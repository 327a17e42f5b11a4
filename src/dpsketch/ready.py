"""Maps and shares of ready-made recipes: one function for each, of public numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt

from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap, check_columns, check_whole
from dpsketch.maps.count import Count
from dpsketch.maps.fourier import Fourier
from dpsketch.maps.marginals import Marginals
from dpsketch.maps.pairs import Pairs
from dpsketch.maps.quadratic import Quadratic
from dpsketch.maps.second_moments import SecondMoments
from dpsketch.privacy.budget import Budget
from dpsketch.schema import Datetime, Schema
from dpsketch.sizes import (
    MARGINALS_SHARE,
    PAIRS_SHARE,
    RADII,
    RADII_OF_MORE,
    cluster_frequencies,
    count_share,
    fine_columns,
    fourier_size,
    marginal_bins,
    pair_sizes,
    pca_directions,
    whole_number_bins,
)

Shares = list[tuple[FeatureMap, float]]


def general(schema: Schema, rows: int, budget: Budget, frequencies: int | None) -> Shares:
    """See `Recipe.general`."""
    columns = schema.scalars
    if not columns:
        raise RecipeError(
            "Recipe.general needs a column that is not a set of ids",
            "write a recipe for sets: Recipe([Part(Race(hash=MinHash()), 1.0)])",
        )
    epsilon = min(budget.strength, 1000.0)
    if len(columns) == 1:
        if frequencies:
            raise RecipeError(
                "frequencies tell how columns go together, and this table has a single one",
                "leave out frequencies (--frequencies)",
            )
        return [(Count(), 0.05), (Marginals(bins=marginal_bins(rows * 0.95 * epsilon)), 0.95)]
    bins, most = pair_sizes(rows, budget, len(columns))
    bins, paired = fine_columns(schema, max(bins, whole_number_bins(schema)))
    parts: Shares = [(Count(), 0.03), (Marginals(bins=bins), MARGINALS_SHARE)]
    if len(paired) < 2:
        size = frequencies or fourier_size(rows * PAIRS_SHARE * epsilon)
        return [*parts, (Fourier(size=size), PAIRS_SHARE)]
    if most is not None and most >= comb(len(paired), 2):
        most = None
    named = None if len(paired) == len(columns) else paired
    pairs = Pairs(named, bins, pool=True, most=most)
    if frequencies:
        return [*parts, (pairs, 0.385), (Fourier(size=frequencies), 0.165)]
    return [*parts, (pairs, PAIRS_SHARE)]


def clusters(schema: Schema, rows: int, budget: Budget, n_clusters: int, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.clusters`."""
    check_whole("Recipe.clusters", "n_clusters", n_clusters, 1, 10_000)
    names = check_columns("Recipe.clusters", columns)
    if names is None:
        names = tuple(column.name for column in schema.scalars if column.numeric)
    if not names:
        raise RecipeError("Recipe.clusters needs a column of numbers", "declare one in the schema")
    size = cluster_frequencies(schema, rows, budget, n_clusters, len(names))
    fourier = Fourier(names, size, radii=RADII.get(len(names), RADII_OF_MORE))
    share = count_share(schema, rows, budget, size)
    return [(Count(), share), (fourier, round(1 - share, 4))]


def pca(
    schema: Schema,
    rows: int,
    budget: Budget,
    n_components: int,
    columns: Sequence[str] | None,
    radius: float | None,
    of: str,
) -> Shares:
    """See `Recipe.pca`."""
    if of not in ("covariance", "second_moments"):
        raise RecipeError(f"Recipe.pca: of must be covariance or second_moments, got {of!r} instead")
    names = check_columns("Recipe.pca", columns)
    if names is None:
        names = tuple(c.name for c in schema.scalars if c.numeric and not isinstance(c, Datetime))
    if not names:
        raise RecipeError("Recipe.pca needs a column of numbers", "name booleans or dates in columns")
    check_whole("Recipe.pca", "n_components", n_components, 1, len(names))
    ball = sqrt(len(names)) if radius is None else radius
    size = None if of == "covariance" else pca_directions(rows, budget, len(names), n_components)
    moments: FeatureMap = SecondMoments(names, ball, means=of == "covariance")
    if size is not None:
        moments = Quadratic(names, size, radius=ball, directions="hadamard")
    return [(Count(), 0.03), (moments, 0.97)]
