"""Principal components: a count and second moments, or squares of projections."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from dpsketch.errors import RecipeError
from dpsketch.maps.base import FeatureMap, check_columns, check_whole
from dpsketch.maps.moments.quadratic import BoundQuadratic, Quadratic
from dpsketch.maps.moments.second_moments import SecondMoments
from dpsketch.maps.tables.count import Count
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.noise_to_signal import SumsNoise
from dpsketch.recipe.tasks.ratio import GOOD, RatioPrediction, ratio_prediction
from dpsketch.recipe.tasks.task import Shares, Task, whole_number
from dpsketch.schema.schema import Schema


class Components(Task):
    """See `Recipe.pca`."""

    name = "pca"
    parameter = "n_components"

    def parts(
        self,
        schema: Schema,
        rows: int,
        budget: Budget,
        n_components: int = 2,
        columns: Sequence[str] | None = None,
        radius: float | None = None,
        of: str = "covariance",
    ) -> Shares:
        if of not in ("covariance", "second_moments"):
            raise RecipeError(f"Recipe.pca: of must be covariance or second_moments, got {of!r} instead")
        names = check_columns("Recipe.pca", columns)
        if names is None:
            names = tuple(c.name for c in schema.scalars if c.arithmetic)
        if not names:
            raise RecipeError("Recipe.pca needs a column of numbers", "name booleans or dates in columns")
        check_whole("Recipe.pca", "n_components", n_components, 1, len(names))
        ball = sqrt(len(names)) if radius is None else radius
        size = None if of == "covariance" else pca_directions(rows, budget, len(names), n_components)
        moments: FeatureMap = SecondMoments(names, ball, means=of == "covariance")
        if size is not None:
            moments = Quadratic(names, size, radius=ball, directions="hadamard3")
        return [(Count(), 0.03), (moments, 0.97)]

    def predict(
        self,
        schema: Schema,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        n_components: int = 2,
        columns: Sequence[str] | None = None,
    ) -> RatioPrediction:
        """Predict whether components can be recovered: they may lose about a thousandth of the variance of rank-k
        records.
        """
        rows, budget = self.known(schema, rows, budget)
        recipe = self.recipe(schema, rows=rows, budget=budget, n_components=n_components, columns=columns)
        noise = SumsNoise(schema, recipe)
        limit = _limit(noise, n_components)
        return ratio_prediction(self.name, n_components, budget, recipe, (noise, limit, 1), (noise, limit, 1))

    def parsed(self, argument: str) -> int:
        return whole_number("components", argument, "--for pca:3")

    def next_step(self, sketch: str, argument: str) -> str:
        return f"dpsketch fit pca {sketch} --k {argument}"


TASK = Components()


def pca_directions(rows: int, budget: Budget, columns: int, n_components: int) -> int | None:
    """The number of squares of projections to sketch for principal components; None for second moments themselves.

    Under pure ε, the noise of all d(d+1)/2 second moments has an operator norm of about √2·d^1.5/(rows·ε) of the
    squared radius. That of a low-rank matrix fitted to B bases of squares is only √(B/d) of it, apart from the part
    that is not of low rank. Squares are therefore used where d is at least 8·n_components and that norm is above 2 %;
    from 500 % on, noise dominates everything. Gaussian noise of second moments does not grow with their number: they
    are always better. Source: RESEARCH "Clusters, mixtures, PCA"; docs/models.md has the measurements.
    """
    if not budget.pure:
        return None
    noise = sqrt(2) * columns**1.5 / (rows * budget.strength)
    if columns < 8 * n_components or not 0.02 < noise < 5:
        return None
    basis = 1 << (columns - 1).bit_length()
    return basis * (2 * n_components + 2)


def _limit(noise: SumsNoise, k: int) -> float:
    """The largest noise-to-signal ratio at which k components succeed.

    Noise of variance s² in every direction of symmetric matrices rotates k axes of variance 1/k each towards d−k others
    and loses (d−k)·k²·s² of the variance.
    """
    dimension = len(noise.map.columns)
    loss = GOOD / (max(dimension - k, 1) * k**2)
    if isinstance(noise.map, BoundQuadratic):  # least squares on m squares of unit directions: s² = v·d²/2m
        return loss * 2 * noise.map.size**2 / dimension**2 / noise.energy
    return loss * noise.map.size / noise.energy
