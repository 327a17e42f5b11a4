"""Points of a joint distribution by groups of cells, and what denoised pair tables hold beyond them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.joint.unseen import dependence
from dpsketch.learn.population.weighted_rows import Population, ProductPopulation
from dpsketch.numerics.arrays import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class GroupedPoints:
    """The groups of all columns are numbered one column after the other, from `starts`.

    `member` has a row for each point with a one at each of its groups, `joint` the points' shares of pairs of groups,
    and `beyond` what the pair tables have more than that. `ordered` says whether the cells of each column have an
    order, `strength` how strongly two columns usually depend on each other, from 0 to 1.
    """

    columns: tuple[str, ...]
    starts: NDArray[np.int64]
    member: csr_array
    weights: Floats
    joint: Floats
    beyond: Floats
    ordered: tuple[bool, ...]
    strength: float

    def own(self, column: str) -> slice:
        """The groups of a column."""
        place = self.columns.index(column)
        return slice(self.starts[place], self.starts[place + 1])

    @cached_property
    def shares(self) -> Floats:
        return np.maximum(np.diag(self.joint), 1e-300)

    def means(self, values: Floats, columns: Sequence[str]) -> Floats:
        """Means of functions of a column each in its groups, zero in groups of others: one row a group. `columns` names
        the column of each function.
        """
        every = (self.member.T @ (values * self.weights[:, None])) / self.shares[:, None]
        found = np.zeros_like(every)
        for place, column in enumerate(columns):
            found[self.own(column), place] = every[self.own(column), place]
        return found


def grouped_points(population: Population, model: int) -> GroupedPoints | None:
    """Points of the fit (model 0) or a refit; None for a distribution that is not fitted to pair tables."""
    from scipy.sparse import csr_array, diags_array

    if not isinstance(population, ProductPopulation):
        return None
    fitted, points = population.fitted, population.points(model)
    products = fitted.with_mixture(model)
    mixture = products.mixture
    starts = np.cumsum([0, *(shares.shape[1] for shares in mixture.shares)])
    places = [
        starts[j] + mixture.groups[j][cells.cells(points.frame.codes(name))]
        for j, (name, cells) in enumerate(zip(fitted.columns, fitted.cells, strict=True))
    ]
    rows, width = len(points.weights), len(places)
    ends = np.arange(0, rows * width + 1, width)
    member = csr_array((np.ones(rows * width), np.stack(places, 1).ravel(), ends), shape=(rows, starts[-1]))
    joint = (member.T @ diags_array(points.weights) @ member).toarray()
    beyond, strengths = np.zeros_like(joint), [0.0]
    for i, j in combinations(range(width), 2):
        table = mixture.grouped_pair(i, j)
        if (i, j) in fitted.pairs:
            strengths.append(dependence(table))
        one, two = (slice(starts[each], starts[each + 1]) for each in (i, j))
        beyond[one, two] = products.pairs.get((i, j), table) - joint[one, two]
        beyond[two, one] = beyond[one, two].T
    strength = float(np.sqrt(np.mean(np.square(strengths[1:] or strengths))))
    ordered = tuple(cells.ordered for cells in fitted.cells)
    return GroupedPoints(fitted.columns, starts, member, points.weights, joint, beyond, ordered, strength)
