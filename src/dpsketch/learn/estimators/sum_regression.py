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

from dpsketch.encoding.records import Records
from dpsketch.learn.answer import Estimate
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.reduction import Reduction
from dpsketch.learn.estimators.release_noise import NOISE, ReleaseNoise
from dpsketch.learn.estimators.small_table import TableEstimator
from dpsketch.learn.estimators.sum_blocks import Block
from dpsketch.learn.estimators.weights import WeightedPoints, positive_weights
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.cells import Cells, HistogramCells
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.nonnegative import project_to_simplex
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned
from dpsketch.schema.schema import Schema

METHODS = ("auto", "ridge-paper")
POINTS: Annotated[int, UNRECORDED] = 1 << 14
LANDMARKS: Annotated[int, UNRECORDED] = 512
MOST_DENSE = 1024  # sums; more sums of a sparse map are reduced
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
UNRESOLVED = "what the sums do not resolve"

Distribution = tuple[Cells, Floats]  # cells of a column and their shares among the points


class MomentEstimator:
    """Expectations of functions of a block's columns.

    `marginals` holds a one-way table for the columns that have one. Method "ridge-paper" is the estimator of the
    paper, for comparison: uniform points, λ = σ²/n, no intercept, and a standard error that covers only the noise.
    """

    def __init__(
        self,
        schema: Schema,
        noise: ReleaseNoise,
        block: Block,
        marginals: Mapping[str, TableEstimator],
        method: str = "auto",
    ) -> None:
        self._schema, self._noise, self._block, self._paper = schema, noise, block, method == "ridge-paper"
        self.columns = block.columns
        self._marginals = {} if self._paper else {name: marginals[name] for name in self.columns if name in marginals}
        self._rows = noise.rows()
        self.weighted = Memo(self._weighted)
        self.how = f"moment-to-moment regression on {block.name}" + (
            ", as in the paper" if self._paper else " and the marginals" if self._marginals else ""
        )

    @property
    def separates_points(self) -> bool:
        """Whether the sums distinguish points, apart from the marginals."""
        return self._block.separates_points

    def cells_of(self, column: str) -> None:
        return None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        return self.expect_values(np.concatenate([product_at(each, self._points.frame) for each in products]))

    @made_once
    @one_thread()
    def _points(self) -> _Points:
        few = self._block.size > MOST_DENSE * 2 or not self._marginals  # memory and time
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
        small = self._block.sparse or self._block.size <= MOST_DENSE
        return not self._paper and unknown and self._block.separates_points and small

    def _start(self, name: str) -> Distribution:
        """The noisy marginal of a column, else uniform, with some points at the bounds and some missing."""
        if name in self._marginals:
            table = self._marginals[name]
            return table.table.cells[0], (1 - UNIFORM) * table.marginal.positive + UNIFORM / table.table.size
        cells = HistogramCells(self._schema.column(name), BINS)
        shares = np.append(np.diff(cells.first_levels) / cells.first_levels[-1], 0.0)
        if self._paper:
            return cells, shares
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
        value = self._expect(fit, indicators)[0]
        now = np.bincount(together, last)
        shares = last * (project_to_simplex(value) / now)[together]
        return cells, (1 - MIX) * shares + MIX * self._start(name)[1]

    def _drawn(self, distributions: dict[str, Distribution], count: int) -> _Points:
        """Points drawn from the product of distributions, with their features."""
        import scipy.sparse
        from scipy.stats import qmc

        uniforms = qmc.Sobol(len(self.columns), seed=0).random(count)
        codes, every, groups, indicators = {}, {}, {}, []
        for name, uniform in zip(self.columns, uniforms.T, strict=True):
            cells, shares = distributions[name]
            upper = np.cumsum(shares)
            bins = np.minimum(np.searchsorted(upper, uniform * upper[-1], side="right"), cells.count - 1)
            position = (uniform * upper[-1] - upper[bins] + shares[bins]) / np.maximum(shares[bins], 1e-300)
            codes[name], every[name] = codes_in_cells(cells, bins, np.clip(position, 0, 1)), bins
            if name in self._marginals:
                groups[name] = _groups(np.bincount(bins, minlength=cells.count))
                ones = (np.ones(count), (np.arange(count), groups[name][bins]))
                indicators.append(scipy.sparse.csr_array(ones, shape=(count, groups[name].max() + 1)))
        everywhere = np.zeros((len(self._schema.scalars), count), np.int16)
        for name in self.columns:
            everywhere[self._schema.index(name)] = codes[name]
        features = self._block.features(Records(everywhere))
        reduction = None
        if self._block.size > MOST_DENSE and self._block.sparse:
            reduction = Reduction(features[:LANDMARKS])
        whole = self._block.size == self._block.part.map.size
        if reduction is not None:
            dense = reduction.of(features).T
            sums = reduction.sums(self._block.part.sums, None if whole else self._block.indices)
        else:
            dense = np.ascontiguousarray((features.toarray() if self._block.sparse else features).T)
            sums = np.asarray(self._block.part.sums)[self._block.indices].astype(np.float64)
        return _Points(
            Frame(self._schema, codes),
            distributions,
            every,
            groups,
            scipy.sparse.hstack(indicators, format="csr") if indicators else scipy.sparse.csr_array((count, 0)),
            reduction,
            dense,
            sums / self._unit,
        )

    @property
    def _unit(self) -> float:
        """The divisor that turns a sum into the mean over the records of a real feature."""
        return self._block.part.map.grid * float(self._rows.value)

    @property
    def _variance(self) -> float:
        """Variance of the noise in each moment."""
        return self._noise.variance(self._block.part) / self._unit**2

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each moment."""
        return float(np.sqrt(self._variance))

    def _weighted(self, model: int) -> WeightedPoints:
        """The points with positive weights whose features match the sums up to noise. In a refit (model > 0) they
        match the sums of the fitted weights plus new noise.
        """
        points, moments = self._points, self._points.moments
        if model:
            noise = self.deviation * np.random.default_rng(model).normal(size=len(moments))
            moments = points.features @ self.weighted(0).weights + noise
        weights = positive_weights(points.features.T, moments, self._variance)
        return WeightedPoints(points.frame, weights)

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

        features = points.features if self._paper else points.interactions(points.features)
        gram = features @ features.T / features.shape[1]
        spread = 1.0
        if self._paper:
            ridge = self._variance * float(self._rows.value) + 1e-9
        else:
            change, _ = self._shifts(points, points.main_effects(points.features))
            spread = _spread(gram, points.moments - points.features.mean(axis=1) - change, self._variance)
            ridge = self._variance / spread + 1e-9
        gram[np.diag_indices_from(gram)] += ridge
        return _Fit(points, features, cho_factor(gram), spread)

    def _expect(self, fit: _Fit, functions: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Expectations, their slopes, the influence of the marginals, and the residuals of the functions."""
        from scipy.linalg import cho_solve

        points, count = fit.points, functions.shape[1]
        wanted = functions if self._paper else points.interactions(functions)
        slopes = cho_solve(fit.factor, fit.features @ wanted.T / count).T
        value, left = slopes @ points.moments, wanted - slopes @ fit.features
        if self._paper:
            return value, slopes, np.zeros((len(value), self._noise.coordinates)), left
        rest = functions - slopes @ points.features
        change, influence = self._shifts(points, points.main_effects(rest))
        return value + rest.mean(axis=1) + change, slopes, influence, left

    def expect_values(self, functions: Floats) -> Estimate:
        """Expectations of functions given by their values on the points: one row a function."""
        fit = self._fitted
        value, slopes, from_marginals, left = self._expect(fit, functions)
        influence = self._noise_of(slopes)
        by_rows = (slopes @ fit.points.moments)[:, None] * self._rows.influence / self._rows.value
        influence[:, : self._noise.coordinates] += from_marginals - by_rows
        if not self._paper:
            scale = self._scale(functions, left)
            influence[:, self._errors : self._errors + ERRORS] = scale[:, None] * (left @ _buckets(left.shape[1]))
            self._floor(functions, influence)
        return Estimate(value, influence)

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
        """The first coordinate of the approximation error."""
        return self._noise.reserve((UNRESOLVED, ERRORS))

    @made_once
    def _reduced(self) -> int:
        """The first coordinate of the noise of a table of counters, apart from its total."""
        reduction = self._points.reduction
        size = len(self._points.features) if reduction is None else reduction.size
        return self._noise.reserve((NOISE, size))

    def _noise_of(self, slopes: Floats) -> Floats:
        """Influence of the noise of the block's sums, with room for the other coordinates of this estimator."""
        part, reduction = self._block.part, self._points.reduction
        ends = [self._errors + ERRORS]
        if self._block.counters:
            ends.append(self._reduced + slopes.shape[1])
            total = np.ones(len(slopes[0])) if reduction is None else reduction.ones()
            total = total / np.sqrt(part.map.size)
            placed = self._noise.place(part, (slopes @ total)[:, None] / (self._unit * np.sqrt(part.map.size)))
            # The residual of a slope after its component along the total, in as many coordinates.
            square = float(np.clip(total @ total, 1e-300, 1.0))
            left = slopes - np.outer(slopes @ total, total) * ((1 - np.sqrt(1 - square)) / square)
        else:
            gradient = slopes if reduction is None else reduction.gradient(slopes, self._block.size)
            full = gradient
            if self._block.size < part.map.size:
                full = np.zeros((len(slopes), part.map.size))
                full[:, self._block.indices] = gradient
            placed = self._noise.place(part, full / self._unit)
        influence = np.zeros((len(slopes), max(ends)))
        influence[:, : self._noise.coordinates] = placed
        if self._block.counters:
            influence[:, self._reduced : self._reduced + slopes.shape[1]] = left * np.sqrt(self._variance)
        return influence


@dataclass(frozen=True)
class _Points:
    """Points, their distributions, their bins, the group of each bin of each marginal, the groups' indicators, the
    features at the points (one row a feature) and their noisy means over the records.
    """

    frame: Frame
    distributions: dict[str, Distribution]
    bins: dict[str, NDArray[np.int64]]
    groups: dict[str, NDArray[np.int64]]
    groups_at_points: Any  # a sparse matrix
    reduction: Reduction | None
    features: Floats
    moments: Floats

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


def _spread(gram: Floats, distance: Floats, variance: float) -> float:
    """Estimate τ² from the sum of squares of the difference between moments and those of the points, plus one standard
    deviation of it. The difference has covariance τ²·gram + variance.
    """
    trace, size = max(float(np.trace(gram)), 1e-12), len(gram)
    excess = max(float(distance @ distance) - size * variance, 0.0)
    first = excess / trace
    spread = 2 * (first**2 * float((gram**2).sum()) + 2 * first * variance * trace + size * variance**2)
    return max((excess + np.sqrt(spread)) / trace, 1e-9)


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
