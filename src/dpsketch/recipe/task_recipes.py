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
        important: Sequence[Sequence[str]] | None = None,
    ) -> Recipe:
        """Count, marginals and tables of pairs of columns: answers most questions.

        `rows` is a public order of magnitude; sizes follow from it, the budget and the columns. `frequencies` adds this
        number of Fourier frequencies, with three tenths of the pairs' share. Tables with too many columns for pairs get
        them instead. A table of one column cannot have any.

        `important` lists groups of columns that questions will be about together, such as [["age", "cost"], ["ward",
        "outcome"]]; by default those of the schema's workload. Tables of all pairs inside the groups get less noise,
        and the other tables up to one and a half times as much. All triples inside them get tables of three columns
        where noise allows, even if the other triples have none. Warns where this has no effect.
        """
        sizes = {"frequencies": frequencies, "important": important}
        return _task_recipe("general", schema, rows=rows, budget=budget, **sizes)

    @staticmethod
    def clusters(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        n_clusters: int = 8,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """A recipe for `KMeans` and `GaussianMixture` on the named columns, by default on every number, integer and
        date.

        It has a count and Fourier sums; for up to three columns, a count, a table and a coarser table. The number of
        frequencies or bins follows from declared rows, budget, clusters and columns.
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
        """Count, second moments and means of number columns, for `PCA(n_components, of=of)`; no means for
        "second_moments".

        Records are clipped to a ball of `radius` half-widths of their bounds; by default nothing is clipped. A smaller
        radius needs less noise, in proportion to its square. Uncentred second moments of many columns are replaced by
        squares of projections where noise would dominate them (`pca_directions`).
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
        """A recipe for `KernelDensity` and `find_modes` on the named columns, by default on every number, integer and
        date.

        It has a count, and a table of up to three columns or hashed counters, whichever is predicted to be more
        accurate (`density_plan` gives the difference). With more columns and a Euclidean kernel, it also has marginals:
        records simulated from them correct the hashes.

        `bandwidth` is in widths of the declared bounds, by default 0.05·√columns. `hash` replaces it by any other
        kernel, such as Euclidean(5000, scaled=False). Cells of tables (`table_bins`) and rows of hashed counters
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
        """A recipe for `AnomalyScorer` on the named columns, by default on all that are not sets.

        It has hashed counters and, with three tenths of the budget, the general recipe, from which thresholds are
        estimated. For up to three columns of numbers, it is that of `Recipe.density`.
        """
        return _task_recipe("anomaly", schema, rows=rows, budget=budget, columns=columns)

    @staticmethod
    def bounds(
        schema: Schema,
        *,
        columns: Sequence[str] | None = None,
    ) -> Recipe:
        """A recipe for `tighten`: the marginals of the named columns, by default of all numbers, integers and dates.

        A tenth of the budget is usually enough; the rest is for a second release with the tighter schema.
        """
        return _task_recipe("bounds", schema, columns=columns)

    @staticmethod
    def graph(
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
    ) -> Recipe:
        """A recipe for Jaccard densities of nodes by their neighbour sets: MinHash counters.

        `schema` is that of `engines.graph.graph_schema`, with one column of sets. It protects one list of neighbours,
        not a node.
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
        """Count and a grid of the named columns, by default of all, for synthetic rows (`view.sample`, `GridDensity`).

        The rows follow the joint distribution of all columns. Levels and width follow from the predicted error:
        `dps.plan_grid`. With more than four columns of numbers, or with few rows for the budget, a grid's cells contain
        too few records. The recipe then has the parts of `Recipe.general` for these columns
        (`recipe.tasks.synthetic_task`).
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
        """Counts and hashed counters of each class, for `DensityClassifier(target)`; by default of all columns but the
        target.

        A record is in one class, so every class gets the whole budget. Numbers of tables and counters follow from
        declared rows, budget and classes (`classifier_sizes`). Hashes are signs of projections; `maps.hashed.ramps`
        describes how they treat few columns, booleans and categories.
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
        """Count, second moments and means for `LinearRegression(target)` on the named columns.

        The default is every number and integer. Records longer than three quarters of the longest possible one are
        clipped.
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
        """Hashed counters of inner products for `HashedLinear(target)`.

        They cover the named columns, by default every number and integer, with a constant one and a numeric target; or
        the columns by the two classes of the target. This recipe is for comparison with the race paper: `Recipe.linear`
        and `Recipe.classify` are more accurate.
        """
        return _task_recipe("hashed_linear", schema, target=target, rows=rows, budget=budget, columns=columns)


def _task_recipe(name: str, schema: Schema, **options: Any) -> Recipe:
    from dpsketch.recipe.tasks.task_registry import task_named

    return task_named(name).recipe(schema, **options)
