"""Clusters and mixtures: a count and Fourier sums, or tables of up to three columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, isqrt, log2
from typing import Annotated

from dpsketch.calibration import affordable
from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_columns, check_whole
from dpsketch.maps.fourier.fourier import Fourier
from dpsketch.maps.tables.count import Count
from dpsketch.maps.tables.histogram import Histogram
from dpsketch.numerics.tuned import BY_HAND, PROTOTYPE, UNRECORDED, Tuned
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.count_share import count_share
from dpsketch.recipe.noise_to_signal import SumsNoise
from dpsketch.recipe.recipe import Part, Recipe
from dpsketch.recipe.tasks.ratio import GOOD, RatioPrediction, Sums, ratio_prediction, sums_size
from dpsketch.recipe.tasks.task import (
    MOST_TABLE_BINS,
    MOST_TABLE_COLUMNS,
    Shares,
    Task,
    schema_counter_noise,
    whole_number,
)
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

_ORIGIN = Tuned("simulated clusters and real tables", by=PROTOTYPE)
LEAST_FREQUENCIES: Annotated[int, _ORIGIN] = 2  # times clusters times columns; compressive sec. 6.6
MOST_FREQUENCIES: Annotated[int, _ORIGIN] = 10  # times clusters times columns
NOISE: Annotated[float, _ORIGIN] = 2.0  # of a normalised sum, in sampling errors
# By columns; in radians per width of the bounds.
RADII: Annotated[dict[int, tuple[float, float]], UNRECORDED] = {1: (4.0, 160.0), 2: (4.0, 160.0), 3: (2.0, 40.0)}
RADII_OF_MORE: Annotated[tuple[float, float], UNRECORDED] = (5.0, 50.0)  # more than three columns
# Times the number of bins with the least linear error.
CLUSTER_BINS: Annotated[float, Tuned("simulated tables", by=BY_HAND)] = 1.4
MOST_CLUSTER_CELLS: Annotated[int, UNRECORDED] = 1 << 18
CELLS_OF_A_CLUSTER: Annotated[int, UNRECORDED] = 2  # least number along each column
# A count, a table, a coarser table.
CLUSTER_SHARES: Annotated[tuple[float, float, float], UNRECORDED] = (0.02, 0.69, 0.29)
# Limit of the noise variance of a table's cells over the squared size of a cluster.
GOOD_OF_A_CLUSTER: Annotated[float, Tuned("simulated tables", by=BY_HAND)] = 0.02


class Clusters(Task):
    """See `Recipe.clusters`."""

    name = "clusters"
    parameter = "n_clusters"

    def parts(
        self, schema: Schema, rows: int, budget: Budget, n_clusters: int = 8, columns: Sequence[str] | None = None
    ) -> Shares:
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

    def predict(
        self,
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        n_clusters: int = 8,
        columns: Sequence[str] | None = None,
    ) -> RatioPrediction:
        """Predict whether clusters or mixtures can be recovered.

        They need m >= 2kd frequencies, a ratio r of at most m/(1000·kd), and at least 1/r rows. In a table of 20·kd
        cells, the noise energy may be a fiftieth of the squared records of one of k clusters. With finer cells it may
        grow in proportion to their number, because the coarser table reduces it.
        """
        rows, budget = self.known(schema, rows, budget)
        recipe = self.recipe(schema, rows=rows, budget=budget, n_clusters=n_clusters, columns=columns)
        planned = _sums(schema, recipe, n_clusters)
        least = _sums(schema, _fewest(schema, recipe, n_clusters, rows, budget), n_clusters)
        if _table(recipe) is not None:
            planned = planned[0], planned[1], least[2]
        return ratio_prediction(self.name, n_clusters, budget, recipe, planned, least)

    def parsed(self, argument: str) -> int:
        return whole_number("clusters", argument, "--for clusters:8")

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit kmeans {sketch} --k {argument}"


TASK = Clusters()


def cluster_tables(names: Sequence[str], bins: int, wider: int) -> Shares:
    """A count, a table with `bins` bins for each of the named columns, and a coarser table."""
    maps = (Count(), *(Histogram(len(names), tuple(names), each) for each in (bins, wider)))
    return list(zip(maps, CLUSTER_SHARES, strict=True))


def cluster_frequencies(schema: Schema, rows: int, budget: Budget, clusters: int, columns: int) -> int:
    """The number of frequencies for clusters, from public numbers.

    The noise of a normalised sum is then NOISE times its sampling error 1/√(2·rows), subject to 2 to 10 frequencies per
    cluster and column. Under pure ε the noise of a sum grows with their number, so more only hurt. Gaussian noise grows
    with its square root, so more gain little. Source: RESEARCH "Clusters, mixtures, PCA"; compressive §6.6 for the
    least.
    """
    least, most = (factor * clusters * columns for factor in (LEAST_FREQUENCIES, MOST_FREQUENCIES))
    if not budget.private:
        return most
    together = schema.rows_per_unit or 1
    if schema.relation is Relation.REPLACE_ONE:
        together *= 2
    wanted = affordable(NOISE**2 * rows / 2, budget, together=together, pure=1.0)  # disc noise under pure ε
    return int(min(max(wanted, least), most))


def cluster_bins(schema: Schema, rows: int, budget: Budget, clusters: int, columns: int) -> tuple[int, int]:
    """Bins per column of a table for clusters, and of a coarser table beside it, both powers of two.

    The first is the power closest to CLUSTER_BINS/h, where the cell width h minimises the errors below, but at least
    CELLS_OF_A_CLUSTER for each cluster along each column. The second is about its square root.

    Squared errors of centres, for each of d columns: a cluster narrower than its cell is placed at its midpoint, an
    error of h²/12. Noise of variance v in each of the 1/(k·h^d) cells of one of k equal parts of the space, which are
    k^(−1/d) wide, moves the mean of its n/k records by v·k^(1−2/d)/(12·n²·h^d). Their sum is smallest where h^(d+2) =
    d/2 · k^(1−2/d) · v/n². The coarser table determines much better which parts of the space are empty. Source:
    docs/clusters.md, with measurements on simulated tables.
    """
    noise = (schema_counter_noise(schema, budget, share=CLUSTER_SHARES[1]) / rows) ** 2
    width = (columns / 2 * clusters ** (1 - 2 / columns) * noise) ** (1 / (columns + 2))
    most = int(log2(min(MOST_CLUSTER_CELLS ** (1 / columns), MOST_TABLE_BINS)))
    least = ceil(log2(CELLS_OF_A_CLUSTER * clusters ** (1 / columns)))
    power = min(max(round(log2(CLUSTER_BINS / width)) if width else most, least), most)
    return 1 << power, 1 << power // 2


def _sums(schema: Schema, recipe: Recipe, k: int) -> Sums:
    """The sums of a recipe, the largest ratio at which clusters succeed, and the rows they need with any budget.

    The rows are needed because the table is itself a random draw: compressive (25). A count beside tables is left out,
    because nothing is divided by it.
    """
    table = _table(recipe)
    if table is not None:
        noise = SumsNoise(schema, Recipe(recipe.parts[1:], recipe.rows))
        limit = GOOD_OF_A_CLUSTER / k**2 * noise.map.size / _coarsest(table, k).length(schema)
    else:
        noise = SumsNoise(schema, recipe)
        limit = GOOD * sums_size(noise) / (k * len(noise.map.columns))
    return noise, limit, ceil(1 / limit)


def _fewest(schema: Schema, recipe: Recipe, k: int, rows: int, budget: Budget) -> Recipe:
    """A recipe with the fewest frequencies or cells from which clusters can be estimated."""
    table = _table(recipe)
    if table is not None:
        table = _coarsest(table, k)
        parts = cluster_tables(table.columns or (), table.bins, isqrt(table.bins))
        return Recipe([Part(*each) for each in parts], rows)
    sums = recipe.parts[1].map
    assert isinstance(sums, Fourier)
    assert sums.columns is not None
    size = LEAST_FREQUENCIES * k * len(sums.columns)
    share = count_share(schema, rows, budget, size)
    return Recipe([Part(Count(), share), Part(replace(sums, size=size), round(1 - share, 4))], rows)


def _table(recipe: Recipe) -> Histogram | None:
    """The finer table of a recipe for few columns, which comes after its count; None where it has frequencies."""
    sums = recipe.parts[1].map
    return sums if isinstance(sums, Histogram) else None


def _coarsest(table: Histogram, k: int) -> Histogram:
    """The table with two cells for each of the largest number of frequencies."""
    return replace(table, bins=ceil((2 * MOST_FREQUENCIES * k * table.ways) ** (1 / table.ways)))
