"""Maps and shares of ready-made recipes: one function for each, of public numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb, sqrt

from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap, check_columns, check_whole
from dpsketch.maps.fourier.fourier import Fourier
from dpsketch.maps.grouped import Grouped
from dpsketch.maps.hashed.hashes import Euclidean, HashFamily, InnerProduct, MinHash, Product, SignedProjection
from dpsketch.maps.hashed.race import Race, bandwidth_spans
from dpsketch.maps.hashed.ramps import ramps, with_one
from dpsketch.maps.moments.quadratic import Quadratic
from dpsketch.maps.moments.second_moments import SecondMoments
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.histogram import Histogram
from dpsketch.maps.tables.marginals import Marginals
from dpsketch.maps.tables.pairs import Pairs
from dpsketch.maps.tables.totals import Totals
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.grid_sizes import GRID_SHARE, best_grid, suits_grid
from dpsketch.recipe.sizes import (
    ANOMALY_BANDWIDTH,
    ANOMALY_POWER,
    ANOMALY_ROWS,
    ANOMALY_THRESHOLD,
    CLUSTER_SHARES,
    CONTRAST_SHARES,
    CONTROL_SHARE,
    DENSITY_RACE_WIDTH,
    FEW_NUMBERS,
    FOURIER_SHARE,
    GAUSSIAN_SHARES,
    GRAPH_RACE_WIDTH,
    HASHED_LINEAR_BITS,
    HASHED_LINEAR_ROWS,
    LINEAR_RADIUS,
    MARGINALS_SHARE,
    MOST_TABLE_COLUMNS,
    OCTAVES,
    PAIRS_SHARE,
    PURE_SHARES,
    RADII,
    RADII_OF_MORE,
    TOTALS_SHARE,
    TYPICAL_DENSITY,
    WIDEST_CELLS,
    classifier_sizes,
    cluster_bins,
    cluster_frequencies,
    count_share,
    default_bandwidth,
    fine_columns,
    fourier_size,
    graph_rows,
    marginal_bins,
    pair_sizes,
    pca_directions,
    race_error,
    race_rows,
    suits_contrasts,
    table_bins,
    whole_number_bins,
)
from dpsketch.schema.columns import Boolean, Category, Datetime, Integer
from dpsketch.schema.schema import Schema

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
    bins, finer, paired = fine_columns(schema, max(bins, whole_number_bins(schema)))
    if len(paired) < 2:
        size = frequencies or fourier_size(rows * PAIRS_SHARE * epsilon)
        return _with_marginals(schema, budget, bins, [(Fourier(size=size), 1.0)])
    if most is not None and most >= comb(len(paired), 2):
        most = None
    named = None if len(paired) == len(columns) else paired
    halved = not frequencies and suits_contrasts(schema, rows, budget, most or comb(len(paired), 2))
    pairs = Pairs(named, finer, pool=True, most=most, contrasts=halved)
    if frequencies:
        both: Shares = [(pairs, 1 - FOURIER_SHARE), (Fourier(size=frequencies), FOURIER_SHARE)]
        return _with_marginals(schema, budget, bins, both)
    return _with_marginals(schema, budget, bins, [(pairs, 1.0)], halved)


def _with_marginals(schema: Schema, budget: Budget, bins: int, rest: Shares, halved: bool = False) -> Shares:
    """A count, marginals, what tells how columns go together, by its parts of the share for it, and sums of columns.

    Sums are a part by themselves: under pure ε their noise then has the shape of a cube, and is much less.
    """
    separate = any(column.numeric for column in schema.scalars)
    if not separate:
        marginals, together = MARGINALS_SHARE, PAIRS_SHARE
    elif budget.pure or not budget.private:
        marginals, together = CONTRAST_SHARES if halved else PURE_SHARES
    else:
        marginals, together = GAUSSIAN_SHARES
    parts: Shares = [(Count(), 0.03), (Marginals(bins=bins, totals=not separate), marginals)]
    parts += [(each, round(part * together, 4)) for each, part in rest]
    return [*parts, (Totals(), TOTALS_SHARE)] if separate else parts


def clusters(schema: Schema, rows: int, budget: Budget, n_clusters: int, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.clusters`."""
    check_whole("Recipe.clusters", "n_clusters", n_clusters, 1, 10_000)
    names = check_columns("Recipe.clusters", columns)
    if names is None:
        names = tuple(column.name for column in schema.scalars if column.numeric)
    if not names:
        raise RecipeError("Recipe.clusters needs a column of numbers", "declare one in the schema")
    if len(names) <= MOST_TABLE_COLUMNS and all(schema.column(name).numeric for name in names):
        return cluster_tables(names, *cluster_bins(schema, rows, budget, n_clusters, len(names)))
    size = cluster_frequencies(schema, rows, budget, n_clusters, len(names))
    fourier = Fourier(names, size, radii=RADII.get(len(names), RADII_OF_MORE))
    share = count_share(schema, rows, budget, size)
    return [(Count(), share), (fourier, round(1 - share, 4))]


def cluster_tables(names: tuple[str, ...], bins: int, wider: int) -> Shares:
    """A count, a table of the named columns with as many bins of each, and a coarser one."""
    maps = (Count(), *(Histogram(len(names), names, each) for each in (bins, wider)))
    return list(zip(maps, CLUSTER_SHARES, strict=True))


def synthetic(schema: Schema, rows: int, budget: Budget, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.synthetic`."""
    names = check_columns("Recipe.synthetic", columns) or tuple(column.name for column in schema.scalars)
    if not names:
        raise RecipeError("Recipe.synthetic needs a column that is not a set of ids", "declare one in the schema")
    chosen = [schema.scalars[schema.index(name)] for name in names]
    if suits_grid(schema, chosen, rows, budget):
        return [(Count(), 0.02), (best_grid(schema, chosen, rows, budget), GRID_SHARE)]
    return _general_of(schema, names, rows, budget)


def _general_of(schema: Schema, names: tuple[str, ...], rows: int, budget: Budget) -> Shares:
    """The general recipe of the named columns."""
    only = replace(schema, columns=tuple(schema.column(name) for name in names))
    return [(_of_columns(schema, each, names), share) for each, share in general(only, rows, budget, None)]


def _of_columns(schema: Schema, each: FeatureMap, names: tuple[str, ...]) -> FeatureMap:
    """A map of all columns as one of the named ones."""
    if isinstance(each, Totals) and each.columns is None:
        return Totals(tuple(name for name in names if schema.column(name).numeric))
    if isinstance(each, Marginals | Pairs | Fourier) and each.columns is None:
        return replace(each, columns=names)
    return each


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


def density(
    schema: Schema,
    rows: int,
    budget: Budget,
    columns: Sequence[str] | None,
    bandwidth: float | None,
    hash: HashFamily | None,
) -> Shares:
    """See `Recipe.density`."""
    names = _numbers("density", schema, columns)
    if hash is not None and bandwidth is not None:
        raise RecipeError("Recipe.density: the bandwidth is part of the hash", "pass one of them")
    family = hash if hash is not None else Euclidean(default_bandwidth(len(names)) if bandwidth is None else bandwidth)
    table, counters = density_choices(schema, rows, budget, names, family)
    return density_shares(table, counters, rows, budget, names)


def density_shares(
    table: tuple[FeatureMap, float] | None,
    counters: tuple[FeatureMap, float],
    rows: int,
    budget: Budget,
    names: tuple[str, ...],
) -> Shares:
    """A count and the better of `density_choices`; with marginals that correct counters, of many columns and a kernel
    of distance. Of few columns that depend on each other, as colours do, marginals correct little.
    """
    chosen = table[0] if table is not None and table[1] < counters[1] else counters[0]
    if not isinstance(chosen, Race) or not isinstance(chosen.hash, Euclidean) or len(names) <= MOST_TABLE_COLUMNS:
        return [(Count(), 0.03), (chosen, 0.97)]
    bins = marginal_bins(rows * CONTROL_SHARE * min(budget.strength, 1000.0) / len(names))
    return [(Count(), 0.03), (Marginals(names, bins), CONTROL_SHARE), (chosen, round(0.97 - CONTROL_SHARE, 4))]


def density_choices(
    schema: Schema, rows: int, budget: Budget, names: tuple[str, ...], family: HashFamily, density: float | None = None
) -> tuple[tuple[FeatureMap, float] | None, tuple[FeatureMap, float]]:
    """A table, if these columns can have one, and hashed counters, each with its predicted relative error at places of
    this density.
    """
    density = TYPICAL_DENSITY if density is None else density
    corrected = isinstance(family, Euclidean) and len(names) > MOST_TABLE_COLUMNS
    size = race_rows(schema, rows, budget, len(names), corrected)
    columns = None if isinstance(family, Product) else names
    race = Race(columns, size, DENSITY_RACE_WIDTH, hash=family)
    counters = race, race_error(schema, rows, budget, size, density, corrected)
    numeric = all(schema.column(name).numeric for name in names)
    if not isinstance(family, Euclidean) or len(names) > MOST_TABLE_COLUMNS or not numeric:
        return None, counters
    spans = tuple(bandwidth_spans(names, family, schema).values())
    bins, error = table_bins(schema, rows, budget, spans, density)
    if max(spans) / bins > WIDEST_CELLS:
        return None, counters
    return (Histogram(len(names), names, bins), error), counters


def anomaly(schema: Schema, rows: int, budget: Budget, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.anomaly`."""
    names = check_columns("Recipe.anomaly", columns) or tuple(column.name for column in schema.scalars)
    if not names:
        raise RecipeError("Recipe.anomaly needs a column that is not a set of ids", "declare one in the schema")
    if len(names) <= MOST_TABLE_COLUMNS and all(schema.column(name).numeric for name in names):
        return density(schema, rows, budget, names, None, None)
    family = Euclidean(ANOMALY_BANDWIDTH * sqrt(len(names)), ANOMALY_POWER)
    race = Race(names, ANOMALY_ROWS, DENSITY_RACE_WIDTH, hash=family)
    threshold = _general_of(schema, names, rows, budget)
    return [(race, 1 - ANOMALY_THRESHOLD), *((part, round(share * ANOMALY_THRESHOLD, 4)) for part, share in threshold)]


def bounds(schema: Schema, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.bounds`."""
    return [(Marginals(_numbers("bounds", schema, columns)), 1.0)]


def graph(schema: Schema, rows: int, budget: Budget) -> Shares:
    """See `Recipe.graph`."""
    if len(schema.sets) != 1:
        raise RecipeError("Recipe.graph needs one column of sets of ids", 'declare neighbours: kind = "set"')
    size = graph_rows(schema, rows, budget)
    return [(Race((schema.sets[0].name,), size, GRAPH_RACE_WIDTH, hash=MinHash()), 1.0)]


def _numbers(name: str, schema: Schema, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The named columns, or every number, integer and date."""
    names = check_columns(f"Recipe.{name}", columns) or tuple(c.name for c in schema.scalars if c.numeric)
    if not names:
        raise RecipeError(f"Recipe.{name} needs a column of numbers", "declare one in the schema, or name columns")
    return names


def classify(schema: Schema, target: str, rows: int, budget: Budget, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.classify`."""
    column = schema.column(target)
    if not (isinstance(column, Category | Boolean) or (isinstance(column, Integer) and column.levels == 2)):
        raise RecipeError(
            f"Recipe.classify: column '{target}' is a {column.kind}, not a class",
            "declare it as a category or a boolean",
        )
    names = check_columns("Recipe.classify", columns)
    if names is None:
        names = tuple(each.name for each in schema.scalars if each.name != target)
    if not names or target in names:
        raise RecipeError(
            f"Recipe.classify needs columns other than the target '{target}'", "name them, without the target"
        )
    classes = len(column.values) if isinstance(column, Category) else 2
    tables, bits = classifier_sizes(schema, rows, budget, classes, 0.97)
    embedding = ramps(schema, names, OCTAVES if len(names) <= FEW_NUMBERS else 0)
    race = Race(names, tables, 1 << bits, hash=SignedProjection(bits), embedding=embedding)
    return [(Grouped(Count(), target), 0.03), (Grouped(race, target), 0.97)]


def linear(schema: Schema, target: str, rows: int, budget: Budget, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.linear`."""
    if not schema.column(target).numeric or isinstance(schema.column(target), Datetime):
        raise RecipeError(f"Recipe.linear: the target '{target}' is not a number", "use Recipe.classify for classes")
    names = check_columns("Recipe.linear", columns)
    if names is None:
        names = tuple(c.name for c in schema.scalars if c.numeric and not isinstance(c, Datetime) and c.name != target)
    if not names or target in names:
        raise RecipeError(f"Recipe.linear needs columns other than the target '{target}'", "name them, without it")
    moments = SecondMoments((*names, target), LINEAR_RADIUS * sqrt(len(names) + 1), means=True)
    return [(Count(), 0.03), (moments, 0.97)]


def hashed_linear(schema: Schema, target: str, rows: int, budget: Budget, columns: Sequence[str] | None) -> Shares:
    """See `Recipe.hashed_linear`."""
    column = schema.column(target)
    classes = len(column.values) if isinstance(column, Category) else 2 if isinstance(column, Boolean) else 0
    if isinstance(column, Datetime) or not (column.numeric or classes == 2):
        raise RecipeError(
            f"Recipe.hashed_linear: the target '{target}' is neither a number nor one of two classes",
            "use Recipe.classify for more classes",
        )
    names = check_columns("Recipe.hashed_linear", columns)
    if names is None:
        names = tuple(c.name for c in schema.scalars if c.numeric and not isinstance(c, Datetime) and c.name != target)
    if not names or target in names:
        raise RecipeError(
            f"Recipe.hashed_linear needs columns other than the target '{target}'", "name them, without it"
        )
    hashed = (*names, target) if column.numeric else names
    race = Race(
        hashed,
        HASHED_LINEAR_ROWS // 10 if budget.pure else HASHED_LINEAR_ROWS,
        1 << HASHED_LINEAR_BITS,
        hash=InnerProduct(HASHED_LINEAR_BITS),
        embedding=with_one(len(hashed)),
    )
    return [(race if column.numeric else Grouped(race, target), 1.0)]
