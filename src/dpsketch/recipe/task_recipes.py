"""`Recipe.<task>`: the recipe of each task in `recipe/tasks`, with its arguments spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsketch.maps.hashed.hashes import HashFamily
from dpsketch.privacy.budget import Budget
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.recipe.recipe import Recipe


class TaskRecipes:
    """Ready-made recipes. `rows` is a public order of magnitude; sizes follow from it, the budget and the columns."""

    @staticmethod
    def general(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        frequencies: int | None = None,
    ) -> Recipe:
        """Count, marginals and tables of pairs of columns: answers most questions.

        `rows` is a public order of magnitude; sizes follow from it, the budget and the columns. `frequencies` adds as
        many Fourier frequencies, with three tenths of the pairs' share. Tables too wide for pairs get them instead;
        a table of one column is refused any.
        """
        return _task_recipe("general", schema, rows=rows, budget=budget, frequencies=frequencies)

    @staticmethod
    def clusters(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        n_clusters: int = 8,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """For `KMeans` and `GaussianMixture` of the named columns, by default of every number, integer and date: a
        count and Fourier sums; of up to three columns a count, a table and a coarser one.

        The number of frequencies or bins follows from declared rows, budget,
        clusters and columns.
        """
        return _task_recipe("clusters", schema, rows=rows, budget=budget, n_clusters=n_clusters, columns=columns)

    @staticmethod
    def pca(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        n_components: int = 2,
        columns: Sequence[str] | None = None,
        radius: float | None = None,
        of: str = "covariance",
    ) -> Recipe:
        """Count, second moments and means of number columns, for `PCA(n_components, of=of)`; for "second_moments" no
        means.

        Records are clipped to a ball of `radius` half-widths of their bounds; by default nothing is. A smaller one
        needs less noise, in proportion to its square. Uncentred second moments of many columns give way to squares of
        projections where they would be lost in noise (`pca_directions`).
        """
        return _task_recipe(
            "pca", schema, rows=rows, budget=budget, n_components=n_components, columns=columns, radius=radius, of=of
        )

    @staticmethod
    def density(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
        bandwidth: float | None = None,
        hash: HashFamily | None = None,
    ) -> Recipe:
        """For `KernelDensity` and `find_modes` of the named columns, by default of every number, integer and date: a
        count, and a table of up to three columns or hashed counters, whichever is predicted to be more
        accurate (`density_plan` shows by how much). Of more columns, with a Euclidean kernel, also marginals: records
        simulated from them correct the hashes.

        `bandwidth` is in widths of the declared bounds, by default 0.05·√columns; `hash` is any other kernel in its
        place, as Euclidean(5000, scaled=False). Cells of tables (`table_bins`) and rows of hashed counters
        (`race_rows`) follow from declared rows, budget and bandwidth.
        """
        return _task_recipe(
            "density", schema, rows=rows, budget=budget, columns=columns, bandwidth=bandwidth, hash=hash
        )

    @staticmethod
    def anomaly(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """For `AnomalyScorer` of the named columns, by default of all that are not sets: hashed counters, and with
        three tenths of the budget the general recipe, which thresholds are found from; of up to three columns of
        numbers, as `Recipe.density`.
        """
        return _task_recipe("anomaly", schema, rows=rows, budget=budget, columns=columns)

    @staticmethod
    def bounds(
        schema: Schema,
        *,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """For `tighten`: the marginals of the named columns, by default of all numbers, integers and dates. A tenth of
        the budget is usually enough; the rest is for a second release, by the tighter schema.
        """
        return _task_recipe("bounds", schema, columns=columns)

    @staticmethod
    def graph(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
    ) -> Recipe:
        """For Jaccard densities of nodes by their neighbour sets: MinHash counters. `schema` is that of
        `engines.graph.graph_schema`, with one column of sets. What is protected is one list of neighbours, not a node.
        """
        return _task_recipe("graph", schema, rows=rows, budget=budget)

    @staticmethod
    def synthetic(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Count and a grid of the named columns, by default of all: for rows that are as the table's in all columns
        together (`view.sample`, `GridDensity`). Levels and width follow from the predicted error: `dps.plan_grid`.

        With more than four columns of numbers, or with few rows for the budget, a grid's cells hold too few records
        each: the recipe then has the parts of `Recipe.general` for these columns (`recipe.tasks.synthetic_task`).
        """
        return _task_recipe("synthetic", schema, rows=rows, budget=budget, columns=columns)

    @staticmethod
    def classify(
        schema: Schema,
        *,
        target: str,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Counts and hashed counters of each class, for `DensityClassifier(target)`: by default of all columns but the
        target.

        A record is in one class, so that classes share no budget. Numbers of tables and counters follow from declared
        rows, budget and classes (`classifier_sizes`). Hashes are signs of projections; what they see of few columns,
        booleans and categories: `maps.ramps`.
        """
        return _task_recipe("classify", schema, target=target, rows=rows, budget=budget, columns=columns)

    @staticmethod
    def linear(
        schema: Schema,
        *,
        target: str,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Count, second moments and means, for `LinearRegression(target)` on the named columns, by default on every
        number and integer. Records longer than three quarters of the longest possible one are shortened.
        """
        return _task_recipe("linear", schema, target=target, rows=rows, budget=budget, columns=columns)

    @staticmethod
    def hashed_linear(
        schema: Schema,
        *,
        target: str,
        rows: int | None = None,
        budget: Budget | None = None,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """Hashed counters of inner products for `HashedLinear(target)`: of the named columns, by default every number
        and integer, with a one and a numeric target; or of the columns by the two classes of the target. For comparison
        with the race paper: `Recipe.linear` and `Recipe.classify` are more accurate.
        """
        return _task_recipe("hashed_linear", schema, target=target, rows=rows, budget=budget, columns=columns)


def _task_recipe(name: str, schema: Schema, **options: Any) -> Recipe:
    from dpsketch.recipe.tasks.task_registry import task_named

    return task_named(name).recipe(schema, **options)
