"""Kernel densities from the rows of a release's joint distribution, for a release that was not made for densities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Annotated

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.joint.unseen import DRAWN
from dpsketch.learn.estimators.radial_kernels import EUCLIDEAN, Radial
from dpsketch.learn.models.density.full_table import codes_at, places_at
from dpsketch.learn.models.density.kernel_choice import KernelChoice
from dpsketch.learn.models.row_kernel import Located, RowKernel, drawn_rows, framed, read_rows, saved_rows, unseen
from dpsketch.learn.population.weighted_rows import Hidden, hidden_in, spread
from dpsketch.learn.saved import Arrays, Facts, Saved, columns_of, real
from dpsketch.maps.hashed.hashes import Euclidean
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.recipe.tasks.density_task import TASK, default_bandwidth
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

_PLAIN_ROWS: Annotated[int, UNRECORDED] = 1 << 12  # for searches with thousands of points


class PopulationKernel:
    """Sums of a kernel over the records at any point, with standard errors: means over rows drawn from the joint
    distribution, times the number of records.

    The standard error covers noise, by refits, the number of rows drawn, and what the distribution cannot show. The
    less the kernel averages over records, the larger the last part (docs/decisions/064).
    """

    def __init__(
        self,
        schema: Schema,
        columns: Sequence[str],
        kernel: Radial,
        fits: Sequence[Codes],
        hidden: Hidden,
        rows: float,
    ) -> None:
        self.schema, self.columns, self.rows, self._fits, self._hidden = schema, tuple(columns), rows, fits, hidden
        self.kernel, self._of_rows = kernel, RowKernel(schema, columns, kernel)

    @cached_property
    def _located(self) -> list[Located]:
        return [self._of_rows.located(framed(self.schema, self.columns, codes)) for codes in self._fits]

    def at(self, places: Floats) -> tuple[Floats, Floats]:
        """Sums and standard errors at points between the bounds, scaled to 0 … 1, one per matrix row. A missing number
        counts as the middle of the bounds.
        """
        points = self._points(places)
        (mean, square), *refits = (self._means(rows, points) for rows in self._located)
        # The difference between two refits contains the sampling error of both; an answer contains one.
        drawn, both = (square * sum(1 / len(rows) for rows in self._located[:count]) for count in (1, 2))
        noise = np.maximum(spread(mean, [refit for refit, _ in refits]) ** 2 - DRAWN**2 * both, 0.0) + drawn
        hidden = unseen(mean, square, self._hidden)
        least = 1 / len(self._located[0])
        return mean * self.rows, np.sqrt(noise + hidden**2 + least**2) * self.rows

    def plain(self, places: Floats) -> Floats:
        """Sums from fewer rows, without errors, for searches."""
        rows = self._located[0]
        few = Located(rows.numbers[:_PLAIN_ROWS], rows.levels[:_PLAIN_ROWS])
        return self._means(few, self._points(places))[0] * self.rows

    def drawn(self, count: int) -> Floats:
        """Points of rows of the last refit, which are not among those of the fit, scaled to 0 … 1."""
        return places_at(self._fits[-1][:, :count])

    @property
    def how(self) -> str:
        return f"{len(self._located[0])} rows of the joint distribution"

    @property
    def least_error(self) -> float:
        """The share of the records that a single row stands for."""
        return self.rows / len(self._located[0])

    def _points(self, places: Floats) -> Located:
        return self._of_rows.located(framed(self.schema, self.columns, codes_at(places)))

    def _means(self, rows: Located, points: Located) -> tuple[Floats, Floats]:
        mean, square = self._of_rows.means(rows, np.full((len(rows), 1), 1 / len(rows)), points)
        return mean[:, 0], square[:, 0]

    def to_saved(self) -> Saved:
        facts, arrays = saved_rows(self._fits, self._hidden)
        own = {"schema": self.schema.to_dict(), "columns": list(self.columns), "rows": self.rows}
        return facts | own | {"kernel": self.kernel.to_dict()}, arrays

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> PopulationKernel:
        schema = Schema.from_dict(facts["schema"])
        columns, kernel = columns_of(schema, facts["columns"]), Radial.from_dict(facts["kernel"])
        if len(kernel.spans) != len(columns):
            raise ValueError("kernel")
        return cls(schema, columns, kernel, *read_rows(facts, arrays, len(columns)), real(facts["rows"], 0))


def population_kernel(view: View, choice: KernelChoice, columns: tuple[str, ...] | None) -> PopulationKernel | None:
    """The kernel on rows of the joint distribution: of these columns or, by default, of all its columns of numbers and
    dates, or of all if there are none. None if the release has no distribution of these columns.
    """
    try:
        population = view.population
    except QueryError:
        return None
    if columns is None:
        numbers = tuple(name for name in population.columns if view.schema.column(name).numeric)
        columns = numbers or population.columns
    if not set(columns) <= set(population.columns):
        return None
    kernel = choice.of_distance(view.schema, columns, Euclidean(default_bandwidth(len(columns))))
    rows = float(view.rows_in_sums().value)
    return PopulationKernel(view.schema, columns, kernel, drawn_rows(population, columns), hidden_in(population), rows)


def better_release(view: View, source: PopulationKernel, error: float) -> str | None:
    """Which release would have more accurate densities than this relative error, and how accurate they are predicted to
    be from public numbers; None if no release is.
    """
    hint = "release by Recipe.density (--for density) for densities"
    releases, kernel = view.released.releases, source.kernel
    if len(releases) != 1 or kernel.name != EUCLIDEAN or len(set(kernel.spans)) > 1:
        return hint
    family = Euclidean(1 / kernel.spans[0], kernel.power)
    found = TASK.predict(view.schema, budget=releases[0].budget, columns=source.columns, hash=family)
    least = min(found.race_error, found.table_error or inf)
    return f"{hint}: its error is predicted to be {least:.2g} of a typical density" if least < error else None
