"""Moment-to-moment regression: any expectation from the sums of any map.

Points are drawn from a product of distributions of single columns, a function is regressed on the map's features at
these points, and the regression's coefficients are applied to the noisy sums. Source: m2m §3, with an unpenalised
intercept and λ = σ²/(n·τ)² (Theorem 1 supports σ²/n², not σ²/n). Columns come from noisy marginals where the release
has them: the marginals then enter as unpenalised features, which explain all functions of single columns. Other
columns start uniform on their bounds, and are redrawn from the shares that the regression estimates.

Errors: the distribution of the records is modelled as that of the points plus white noise of variance τ², estimated
from the sums. The posterior variance of an expectation is then the variance of the noise propagated through the
coefficients, plus τ² times the mean square of the residual of the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.block_moments import BlockMoments, MomentsAtPoints, drawn_codes, white_noise
from dpsketch.learn.estimators.release_noise import UNRESOLVED, ReleaseNoise
from dpsketch.learn.estimators.small_table import TableEstimator
from dpsketch.learn.estimators.sum_blocks import Block
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.cells import Cells, HistogramCells
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.nonnegative import project_to_simplex
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned
from dpsketch.schema.schema import Schema

POINTS: Annotated[int, UNRECORDED] = 1 << 14
MOST_REDRAWN = 1024  # sums of a dense map, up to which points are redrawn: time
FEW: Annotated[int, UNRECORDED] = 32  # points in a bin, below which its effect is not estimated
UNIFORM: Annotated[float, UNRECORDED] = 0.05  # uniform share of the points' marginals, so that no bin is without points
BINS: Annotated[int, UNRECORDED] = 64
BOUND_SHARE: Annotated[float, UNRECORDED] = 0.04  # of a column's first points: clamped values pile up at the bounds
MISSING_SHARE: Annotated[float, UNRECORDED] = 0.01  # of a column's first points
ROUNDS: Annotated[int, UNRECORDED] = 3  # in which points are redrawn
COARSE: Annotated[int, UNRECORDED] = 10  # shares of a column, from which points are redrawn
MIX: Annotated[float, UNRECORDED] = 0.1  # weight of uniform points among redrawn ones
# Least τ² of directions that the sums do not determine.
PRIOR: Annotated[float, Tuned("real tables", by=BY_HAND)] = 0.5
ERRORS: Annotated[int, UNRECORDED] = 256  # coordinates of the approximation error

Distribution = tuple[Cells, Floats]  # cells of a column and their shares among the points


class MomentEstimator:
    """Expectations of functions of a block's columns. `marginals` holds one-way tables of the columns that have one."""

    def __init__(
        self, schema: Schema, noise: ReleaseNoise, block: Block, marginals: Mapping[str, TableEstimator]
    ) -> None:
        self._schema, self._noise, self._block = schema, noise, block
        self.columns = block.columns
        self._marginals = {name: marginals[name] for name in self.columns if name in marginals}
        self._sums = BlockMoments(schema, noise, block)
        self.weighted = Memo(self._weighted)
        self.how = f"moment-to-moment regression on {block.name}" + (" and the marginals" if self._marginals else "")

    @property
    def separates_points(self) -> bool:
        """Whether the sums distinguish points, apart from the marginals."""
        return self._block.separates_points

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each moment."""
        return float(np.sqrt(self._sums.variance))

    @property
    def frame(self) -> Frame:
        """The points."""
        return self._points.at.frame

    def cells_of(self, column: str) -> None:
        return None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        return self.expect_values(np.concatenate([product_at(each, self.frame) for each in products]))

    @made_once
    @one_thread()
    def _points(self) -> _Points:
        few = self._block.size > 2 * MOST_REDRAWN or not self._marginals  # memory and time
        count = POINTS // 2 if few else POINTS
        self._block.check_size(count)
        start = {name: self._start(name) for name in self.columns}
        if not self._redraws:
            return self._drawn(start, count)
        points = self._drawn(start, count // 4)
        for step in range(ROUNDS):
            fit = self._fit(points)
            again = {name: self._again(name, fit) for name in self.columns}
            points = self._drawn(again, count if step == ROUNDS - 1 else count // 4)
        return points

    @property
    def _redraws(self) -> bool:
        """Whether points are redrawn: the sums distinguish points, and are few enough for this to be fast."""
        unknown = len(self._marginals) < len(self.columns)
        small = self._block.sparse or self._block.size <= MOST_REDRAWN
        return unknown and self._block.separates_points and small

    def _start(self, name: str) -> Distribution:
        """The noisy marginal of a column, else uniform, with some points at the bounds and some missing."""
        if name in self._marginals:
            table = self._marginals[name]
            return table.table.cells[0], (1 - UNIFORM) * table.marginal.positive + UNIFORM / table.table.size
        cells = HistogramCells(self._schema.column(name), BINS)
        shares = np.append(np.diff(cells.first_levels) / cells.first_levels[-1], 0.0)
        if cells.binned:
            shares[[0, -2]] = BOUND_SHARE
        shares[-1] = MISSING_SHARE * shares.sum()
        return cells, shares / shares.sum()

    def _again(self, name: str, fit: _Fit) -> Distribution:
        """The estimated shares of coarse bins of a column without a marginal, truncated at zero."""
        cells, last = fit.points.distributions[name]
        if name in self._marginals:
            return cells, last
        together = np.arange(cells.count) * min(cells.count, COARSE) // cells.count
        bins = together[fit.points.bins[name]]
        indicators = (bins[None, :] == np.arange(together[-1] + 1)[:, None]).astype(np.float64)
        value = self._expect(fit, indicators)[0].value
        now = np.bincount(together, last)
        shares = last * (project_to_simplex(value) / now)[together]
        return cells, (1 - MIX) * shares + MIX * self._start(name)[1]

    def _drawn(self, distributions: dict[str, Distribution], count: int) -> _Points:
        """Points drawn from the product of distributions, with their features."""
        import scipy.sparse

        codes, bins = drawn_codes(distributions, count)
        groups, indicators = {}, [scipy.sparse.csr_array((count, 0))]
        for name in self._marginals:
            groups[name] = _groups(np.bincount(bins[name], minlength=distributions[name][0].count))
            ones = (np.ones(count), (np.arange(count), groups[name][bins[name]]))
            indicators.append(scipy.sparse.csr_array(ones, shape=(count, groups[name].max() + 1)))
        every = scipy.sparse.hstack(indicators, format="csr")
        return _Points(self._sums.at(codes), distributions, bins, groups, every)

    def _weighted(self, model: int) -> WeightedPoints:
        return self._sums.weighted(self._points.at, self.weighted(0) if model else None, model)

    def _shifts(self, points: _Points, effects: Floats) -> tuple[Floats, Floats]:
        """Change of each function's mean from the points' marginals to the noisy ones, and its influence."""
        change, influence = np.zeros(len(effects)), np.zeros((len(effects), self._noise.coordinates))
        start = 0
        for name, table in self._marginals.items():
            groups = points.groups[name]
            slope = effects[:, start + groups]
            change += slope @ (table.marginal.shares - points.distributions[name][1])
            influence += table.marginal.influence(slope)
            start += groups.max() + 1
        return change, influence

    @made_once
    def _fitted(self) -> _Fit:
        return self._fit(self._points)

    @one_thread()
    def _fit(self, points: _Points) -> _Fit:
        from scipy.linalg import cho_factor

        features, variance = points.interactions(points.at.features), self._sums.variance
        gram = features @ features.T / features.shape[1]
        change, _ = self._shifts(points, points.main_effects(points.at.features))
        spread = white_noise(gram, points.at.moments - points.at.features.mean(axis=1) - change, variance)
        gram[np.diag_indices_from(gram)] += variance / spread + 1e-9
        return _Fit(points, features, cho_factor(gram), spread)

    def _expect(self, fit: _Fit, functions: Floats) -> tuple[Estimate, Floats]:
        """Expectations with the noise of the sums and the marginals, and the residuals of the functions."""
        from scipy.linalg import cho_solve

        points, wanted = fit.points, fit.points.interactions(functions)
        slopes = cho_solve(fit.factor, fit.features @ wanted.T / functions.shape[1]).T
        found = self._sums.noise_of(slopes, points.at)
        rest = functions - slopes @ points.at.features
        change, influence = self._shifts(points, points.main_effects(rest))
        found.influence[:, : influence.shape[1]] += influence
        return Estimate(found.value + rest.mean(axis=1) + change, found.influence), wanted - slopes @ fit.features

    def expect_values(self, functions: Floats) -> Estimate:
        """Expectations of functions given by their values on the points: one row a function."""
        first = self._errors
        found, left = self._expect(self._fitted, functions)
        influence = np.zeros((len(functions), first + ERRORS))
        influence[:, : found.influence.shape[1]] = found.influence
        influence[:, first:] = self._scale(functions, left)[:, None] * (left @ _buckets(left.shape[1]))
        self._floor(functions, influence)
        return Estimate(found.value, influence)

    def _scale(self, functions: Floats, left: Floats) -> Floats:
        """τ divided by the root of the number of points, for each function; at least a public value where the sums
        carry no information on it.
        """
        every = np.maximum(np.square(functions - functions.mean(axis=1, keepdims=True)).sum(axis=1), 1e-300)
        unseen = np.minimum(np.square(left).sum(axis=1) / every, 1.0)
        spread = self._fitted.spread
        free = left.shape[1] - len(self._fitted.features)
        return np.asarray(np.sqrt((spread + max(PRIOR - spread, 0.0) * unseen) / free))

    def _floor(self, functions: Floats, influence: Floats) -> None:
        """Raise the error of functions with too few points to that of one cell, or of few points."""
        rare = np.count_nonzero(functions, axis=1) < FEW
        if not rare.any():
            return
        size = np.abs(functions[rare]).max(axis=1, keepdims=True)
        size = np.where(size > 0, size, 1.0)
        if self._marginals:
            cell = next(iter(self._marginals.values())).marginal.one_cell()
            influence[rare, : self._noise.coordinates] += size * cell
        else:
            share = FEW / functions.shape[1]
            influence[rare, self._errors] += size[:, 0] * np.sqrt(share * min(self._fitted.spread, 1.0))

    @made_once
    def _errors(self) -> int:
        """The first coordinate of the approximation error, after those of the sums."""
        self._sums.reserve()
        return self._noise.reserve((UNRESOLVED, ERRORS))


@dataclass(frozen=True)
class _Points:
    """Points with their features and moments, their distributions, their bins, the group of each bin of each marginal,
    and the groups' indicators.
    """

    at: MomentsAtPoints
    distributions: dict[str, Distribution]
    bins: dict[str, NDArray[np.int64]]
    groups: dict[str, NDArray[np.int64]]
    groups_at_points: Any  # a sparse matrix

    def main_effects(self, functions: Floats) -> Floats:
        """E[f | group] − E[f] for every group of bins of every marginal."""
        count = np.asarray(self.groups_at_points.sum(axis=0)).ravel()
        mean = functions.mean(axis=1, keepdims=True) * (count > 0)
        return np.asarray((functions @ self.groups_at_points) / np.maximum(count, 1.0) - mean)

    def interactions(self, functions: Floats) -> Floats:
        """The residual of each function after its mean and the effects of single columns."""
        centred = functions - functions.mean(axis=1, keepdims=True)
        return centred - (self.groups_at_points @ self.main_effects(functions).T).T if self.groups else centred


@dataclass(frozen=True)
class _Fit:
    """Points, interactions of the features there, the factored ridge system, and τ²."""

    points: _Points
    features: Floats
    factor: tuple[Floats, bool]
    spread: float


def _groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A group of its own for each bin with enough points to estimate its effect, one group for all others."""
    enough = counts >= FEW
    return np.where(enough, np.cumsum(enough) - 1, enough.sum())


def _buckets(count: int) -> Any:
    """Random signs that add points up to few coordinates, and preserve lengths and angles on average."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    entries = (rng.choice([-1.0, 1.0], count), (np.arange(count), rng.integers(0, ERRORS, count)))
    return csr_array(entries, shape=(count, ERRORS))
