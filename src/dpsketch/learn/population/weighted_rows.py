"""Rows to learn from: a fitted joint distribution as weighted points, and its refits to new noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.joint.draws import drawn_frame
from dpsketch.learn.estimators.joint.from_release import ReleasedProducts
from dpsketch.learn.estimators.joint.unseen import DRAWN
from dpsketch.learn.estimators.plain_regression import PlainRegression
from dpsketch.learn.estimators.sum_regression import MomentEstimator
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.points import Frame
from dpsketch.learn.population.copula import Copula
from dpsketch.learn.population.third_order import resampled, third_order_weights
from dpsketch.learn.shared import Memo
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.schema import Schema, nearest

ROWS = 1 << 16
REFIT_ROWS = 1 << 14
# Where rows are weighted: drawn for each that is kept, and in all at least.
OVERDRAWN, FEWEST_DRAWN = 3, 1 << 15
_BLOCK_CELLS = 1 << 21  # cells of the rows that are drawn at once


class Rows(Protocol):
    """A distribution that rows can be drawn from."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def draw(self, rows: int, seed: int) -> Iterator[Frame]:
        """Rows of equal weight, in blocks."""
        ...


class Hidden(NamedTuple):
    """Standard errors of densities that a distribution does not show, relative to a density: `smooth` for any kernel,
    and `narrow` times the relative variance of the kernel's values over the records.
    """

    smooth: float
    narrow: float


_ORIGIN = Tuned("california_housing, adult, occupancy", by=BY_HAND, decision=64)
OF_CELLS: Annotated[Hidden, _ORIGIN] = Hidden(0.015, 0.01)  # of distributions fitted to counts of cells
# Of points with weights that explain sums of waves or hashes.
OF_POINTS: Annotated[Hidden, Tuned("california_housing", by=BY_HAND, decision=64)] = Hidden(0.35, 0.2)
WITH_NOISE: Annotated[Hidden, _ORIGIN] = Hidden(3.0, 2.0)  # beside these, times the noise in a share of the rows


class Population(Rows, Protocol):
    """The joint distribution that a release estimates: everything that models are trained on.

    `noise` is the standard deviation of the release's noise in a share of the rows. It determines how strongly models
    are regularised. `hidden` are the errors of densities that refits do not show, without noise.
    """

    hidden: Hidden

    @property
    def refits(self) -> int: ...

    @property
    def noise(self) -> float: ...

    def points(self, model: int, rows: int | None = None) -> WeightedPoints:
        """Points of the fit (model 0) or a refit (1 .. refits): about `rows`, or `usual_rows`; always the same."""
        ...


def hidden_in(population: Population) -> Hidden:
    """Errors of densities that refits do not show: noise hides dependence from the fit and from its refits alike."""
    without, each = population.hidden, population.noise
    return Hidden(without.smooth + WITH_NOISE.smooth * each, without.narrow + WITH_NOISE.narrow * each)


def usual_rows(model: int) -> int:
    """Default number of rows that are drawn from the fit (model 0) or a refit."""
    return REFIT_ROWS if model else ROWS


def block_sizes(rows: int, columns: int) -> Iterator[int]:
    """Sizes of the blocks in which rows are drawn, so that they need not fit in memory at once."""
    most = max(_BLOCK_CELLS // columns, 1)
    for start in range(0, rows, most):
        yield min(most, rows - start)


class ProductPopulation:
    """Rows of a mixture of products, weighted by what tables of three columns show, and coupled inside its groups of
    cells by a copula.
    """

    hidden = OF_CELLS

    def __init__(self, schema: Schema, fitted: ReleasedProducts, noise: float) -> None:
        self._schema, self.fitted, self.noise = schema, fitted, noise
        self.columns = fitted.columns
        self._copula = Memo(self._coupled)
        self._points = Memo(self._drawn)

    @property
    def refits(self) -> int:
        return len(self.fitted.models) - 1

    def points(self, model: int, rows: int | None = None) -> WeightedPoints:
        return self._points((model, rows or usual_rows(model)))

    def _drawn(self, key: tuple[int, int]) -> WeightedPoints:
        model, count = key
        blocks = list(self._draw(model, count, model))
        codes = {name: np.concatenate([block.codes(name) for block in blocks]) for name in self.columns}
        return WeightedPoints(Frame(self._schema, codes), np.full(count, 1 / count))

    def draw(self, rows: int, seed: int) -> Iterator[Frame]:
        return self._draw(0, rows, seed)

    def _draw(self, model: int, rows: int, seed: int) -> Iterator[Frame]:
        for block, count in enumerate(block_sizes(rows, len(self.columns))):
            yield self._block(model, count, int(np.random.SeedSequence([seed, block]).generate_state(1)[0]))

    def _coupled(self, model: int) -> Copula:
        return Copula(self.fitted.cells, self.fitted.with_mixture(model).mixture)

    def _block(self, model: int, rows: int, seed: int) -> Frame:
        products = self.fitted.with_mixture(model)
        drawn = drawn_frame(self._schema, self.fitted.cells, products, self._places(model, rows, seed), seed)
        codes = [drawn.codes(name) for name in self.columns]
        members = np.stack([own.cells(each) for own, each in zip(self.fitted.cells, codes, strict=True)])
        coupled = self._copula(model).couple(codes, members, np.random.default_rng([seed, 2]))
        return Frame(self._schema, dict(zip(self.columns, coupled, strict=True)))

    def _places(self, model: int, rows: int, seed: int) -> NDArray[np.int64]:
        """Cells of rows, one column a column."""
        mixture = self.fitted.with_mixture(model).mixture
        if self.fitted.triples is None:
            return mixture.sample(rows, seed)
        candidates = mixture.sample(max(OVERDRAWN * rows, FEWEST_DRAWN), seed)
        weights = third_order_weights(self.fitted.triples, candidates, model)
        return candidates[resampled(weights, rows, np.random.default_rng([seed, 4]))]


class PointPopulation:
    """Points of a moment-to-moment regression with positive weights that explain its sums.

    In a refit the weights explain the sums of the fitted weights with new noise.
    """

    refits, hidden = 8, OF_POINTS

    def __init__(self, schema: Schema, estimator: MomentEstimator | PlainRegression) -> None:
        self._schema, self._estimator = schema, estimator
        self.columns, self.noise = estimator.columns, estimator.deviation

    def points(self, model: int, rows: int | None = None) -> WeightedPoints:
        return self._estimator.weighted(model)

    def draw(self, rows: int, seed: int) -> Iterator[Frame]:
        weighted = self._estimator.weighted(0)
        for block, count in enumerate(block_sizes(rows, len(self.columns))):
            chosen = weighted.sample(count, int(np.random.SeedSequence([seed, block]).generate_state(1)[0]))
            yield Frame(self._schema, {name: weighted.frame.codes(name)[chosen] for name in self.columns})


def nothing_to_learn_from() -> QueryError:
    """The error for a release without a joint distribution."""
    return QueryError(
        "this release holds no joint distribution to draw rows from",
        "add Part(Marginals(), share=0.4) and Part(Pairs(pool=True), share=0.5) to the recipe",
    )


def known_columns(population: Population, names: Sequence[str]) -> tuple[str, ...]:
    """`names`, after checking that the population has all of them."""
    for name in names:
        if name not in population.columns:
            raise QueryError(
                f"the joint distribution of this release has no column '{name}'",
                nearest(str(name), list(population.columns)),
            )
    return tuple(names)


def spread(fit: Floats, refits: Sequence[Floats]) -> Floats:
    """The standard error of a quantity from its changes between the fit and its refits; unknown without refits."""
    if not refits:
        return np.full_like(fit, np.nan)
    return DRAWN * np.sqrt(np.mean([(refit - fit) ** 2 for refit in refits], axis=0))
