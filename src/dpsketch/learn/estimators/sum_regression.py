"""Moment-to-moment regression: any expectation from the sums of any map.

Points are drawn from a product of distributions of single columns, a function is regressed on the map's features at
these points, and the regression's coefficients are applied to the noisy sums. Source: m2m §3. Columns come from noisy
marginals where the release has them: the marginals then enter as unpenalised features, which explain all functions of
single columns. Other columns start uniform on their bounds, and are redrawn from the shares that the regression
estimates.

Regression and errors follow from one normal model: the records' density differs from that of the points by the effects
of `density_prior`, and the sums have noise besides. An expectation is its posterior mean. Its posterior variance is the
variance of the noise propagated through the coefficients, plus that of what the coefficients leave of the effects. With
white noise alone this is a ridge regression with an intercept and λ = σ²/(n·τ)².
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.learn.answer import Estimate
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.density_prior import (
    BOUND,
    GROUPS,
    START,
    Effects,
    Scales,
    column_effects,
    estimated_scales,
)
from dpsketch.learn.estimators.reduction import Reduction
from dpsketch.learn.estimators.regression_points import (
    FEW,
    Distribution,
    Fit,
    FittedPrior,
    RegressionPoints,
    bin_groups,
)
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.estimators.small_table import TableEstimator
from dpsketch.learn.estimators.sum_blocks import Block
from dpsketch.learn.estimators.weights import WeightedPoints, positive_weights
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.cells import HistogramCells
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned
from dpsketch.schema.schema import Schema

_CHOSEN = Tuned("Random10, Beta(2,8), lifesci", by=BY_HAND, decision=52)
METHODS = ("auto", "ridge-paper")
POINTS: Annotated[int, UNRECORDED] = 1 << 14
LANDMARKS: Annotated[int, UNRECORDED] = 512
MOST_DENSE = 1024  # sums; more sums of a sparse map are reduced
UNIFORM: Annotated[float, UNRECORDED] = 0.05  # uniform share of the points' marginals, so that no bin is without points
BINS: Annotated[int, UNRECORDED] = 64
# Of the points, at most, at each bound of a column and missing; and in all columns together.
SINGLE: Annotated[tuple[float, float], _CHOSEN] = (1 / 128, 0.04)
# Squared error of answers by the choice of Sobol' points, in parts of that of random ones.
SOBOL: Annotated[float, Tuned("Random10", by=BY_HAND, decision=52)] = 0.5
# The posterior is normal around one set of points; densities are not linear in their effects.
WIDER: Annotated[float, Tuned("Beta(2,8), lifesci, california", by=BY_HAND, decision=52)] = 1.3
# Points that a counter is taken to have beside its own: of few points, its variance is not known.
RARE: Annotated[float, _CHOSEN] = 4.0
SMOOTH_ROUNDS: Annotated[int, _CHOSEN] = 2  # in which shares of single values keep their first scale
ANYTHING = 0.3  # standard error of a share of which nothing is known: more than that of any number from 0 to 1
ROUNDS: Annotated[int, _CHOSEN] = 6  # in which points are redrawn
ERRORS: Annotated[int, UNRECORDED] = 256  # coordinates of the approximation error


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
    def _points(self) -> RegressionPoints:
        few = self._block.size > MOST_DENSE * 2  # memory and time
        count = POINTS // 2 if few else POINTS
        self._block.check_size(count)
        points = self._drawn({name: self._start(name) for name in self.columns}, count // 2 if self._redraws else count)
        if not self._redraws:
            return points
        last = None
        for step in range(ROUNDS):
            fit = self._fit(points, last, GROUPS if step >= SMOOTH_ROUNDS else BOUND)
            last = fit.prior.scales if fit.prior else None
            again = {name: self._again(name, fit) for name in self.columns}
            points = replace(self._drawn(again, count if step == ROUNDS - 1 else count // 2), last=last)
        return points

    @property
    def _redraws(self) -> bool:
        """Whether points are redrawn: the sums distinguish points, and are few enough for this to be fast."""
        unknown = len(self._marginals) < len(self.columns)
        small = self._block.sparse or self._block.size <= MOST_DENSE
        return not self._paper and unknown and self._block.separates_points and small

    def _start(self, name: str) -> Distribution:
        """The noisy marginal of a column, else uniform, with few points at the bounds and few missing."""
        if name in self._marginals:
            table = self._marginals[name]
            return table.table.cells[0], (1 - UNIFORM) * table.marginal.positive + UNIFORM / table.table.size
        column = self._schema.column(name)
        cells = HistogramCells(column, BINS)
        shares = np.append(np.diff(cells.first_levels) / cells.first_levels[-1], 0.0)
        if self._paper:
            return cells, shares
        if cells.binned:
            shares[[0, -2]] = self._single
        if getattr(column, "missing", None) is None:
            shares[-1] = self._single
        return cells, shares / shares.sum()

    @property
    def _single(self) -> float:
        """Share of points at each bound of a column, and of those that are missing."""
        return min(SINGLE[0], SINGLE[1] / len(self.columns))

    def _again(self, name: str, fit: Fit) -> Distribution:
        """The cells of a column without a marginal, with the shares that the fit estimates."""
        cells, last = fit.points.distributions[name]
        if name in self._marginals:
            return cells, last
        assert fit.prior is not None
        own, first = fit.points.effects_of[name], fit.prior.effects.starts[name]
        means = fit.prior.fitted[first : first + len(own.groups)]
        return cells, own.tilted(self._start(name)[1], last, means, self._single)

    def _drawn(self, distributions: dict[str, Distribution], count: int) -> RegressionPoints:
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
                groups[name] = bin_groups(np.bincount(bins, minlength=cells.count))
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
        return RegressionPoints(
            Frame(self._schema, codes),
            distributions,
            every,
            groups,
            scipy.sparse.hstack(indicators, format="csr") if indicators else scipy.sparse.csr_array((count, 0)),
            reduction,
            dense,
            sums / self._unit,
            {}
            if self._paper
            else {
                name: column_effects(cells, self._start(name)[1], shares)
                for name, (cells, shares) in distributions.items()
            },
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

    def _shifts(self, points: RegressionPoints, effects: Floats) -> tuple[Floats, Floats]:
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
    def _fitted(self) -> Fit:
        return self._fit(self._points, self._points.last)

    @one_thread()
    def _fit(self, points: RegressionPoints, last: Scales | None = None, groups: int = GROUPS) -> Fit:
        from scipy.linalg import cho_factor, cho_solve

        count = points.features.shape[1]
        features = points.features if self._paper else points.interactions(points.features)
        gram = features @ features.T / count
        if self._paper:
            ridge = self._variance * float(self._rows.value) + 1e-9
            gram[np.diag_indices_from(gram)] += ridge
            return Fit(points, features, cho_factor(gram), None)
        unknown = [name for name in self.columns if name not in self._marginals]
        effects = Effects(points.effects_of, points.bins, unknown)
        covariance = features @ effects.values.T / count
        moved = points.moved(unknown, {name: self._start(name)[1] for name in unknown})
        change, _ = self._shifts(points, points.main_effects(points.features))
        distance = points.moments - points.features.mean(axis=1) - change + features @ moved / count
        by_chance = 1 / max(float(self._rows.value), 1.0) + 1 / count
        known = by_chance * gram
        rare = RARE / count * by_chance if self._block.sparse else 0.0
        known[np.diag_indices_from(known)] += self._variance + rare + 1e-9 * np.trace(known) / len(known)
        scales = estimated_scales(last or START, effects, covariance, gram, known, distance, groups)
        variances, prior = effects.variances(scales.groups), effects.means(scales.groups)
        white = scales.white + by_chance
        factor = cho_factor(known + (covariance * variances) @ covariance.T + scales.white * gram)
        mean = prior + variances * (covariance.T @ cho_solve(factor, distance - covariance @ prior))
        return Fit(
            points, features, factor, FittedPrior(effects, covariance, scales, white, variances, prior, mean, moved)
        )

    def _expect(self, fit: Fit, functions: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Expectations, their slopes, the influence of the marginals, and the residuals of the functions: at the
        points, and of their covariances with the effects.
        """
        from scipy.linalg import cho_solve

        points, count = fit.points, functions.shape[1]
        wanted = functions if self._paper else points.interactions(functions)
        across = wanted @ fit.features.T / count
        if self._paper:
            slopes = cho_solve(fit.factor, across.T).T
            value, left = slopes @ points.moments, wanted - slopes @ fit.features
            return value, slopes, np.zeros((len(value), self._noise.coordinates)), left, left[:, :0]
        prior = fit.prior
        assert prior is not None
        own = wanted @ prior.effects.values.T / count
        slopes = cho_solve(fit.factor, ((own * prior.variances) @ prior.covariance.T + prior.white * across).T).T
        left, own = wanted - slopes @ fit.features, own - slopes @ prior.covariance
        rest = functions - slopes @ points.features
        change, influence = self._shifts(points, points.main_effects(rest))
        change += own @ prior.means - left @ prior.moved / count
        return (
            slopes @ points.moments + rest.mean(axis=1) + change,
            slopes,
            influence,
            left,
            own * np.sqrt(prior.variances) * WIDER,
        )

    def expect_values(self, functions: Floats) -> Estimate:
        """Expectations of functions given by their values on the points: one row a function."""
        fit = self._fitted
        value, slopes, from_marginals, left, unexplained = self._expect(fit, functions)
        influence = self._noise_of(slopes)
        by_rows = (slopes @ fit.points.moments)[:, None] * self._rows.influence / self._rows.value
        influence[:, : self._noise.coordinates] += from_marginals - by_rows
        if fit.prior is not None:
            free = max(left.shape[1] - len(fit.features), 1)
            scale = np.sqrt((fit.prior.white - (1 - SOBOL) / left.shape[1]) / free)
            first = self._errors
            influence[:, first : first + ERRORS] = scale * (left @ _buckets(left.shape[1]))
            influence[:, first + ERRORS : first + ERRORS + unexplained.shape[1]] = unexplained
            self._floor(functions, influence, fit.prior.white)
        return Estimate(value, influence)

    def _floor(self, functions: Floats, influence: Floats, white: float) -> None:
        """Raise the error of functions with too few points to that of one cell, or of few points; of functions of
        missing cells or values at a bound alone, to what is possible: sums do not tell these from values close to them.
        """
        unknown = self._fitted.points.only_single_values(functions)
        influence[unknown, self._errors] += ANYTHING * np.abs(functions[unknown]).max(axis=1)
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
            influence[rare, self._errors] += size[:, 0] * np.sqrt(share * min(white, 1.0))

    @made_once
    def _errors(self) -> int:
        """The first coordinate of the approximation error."""
        return self._noise.reserve(self._own)

    @property
    def _own(self) -> int:
        """Number of coordinates of the approximation error: of white noise, then of each effect."""
        prior = self._fitted.prior
        return ERRORS + (0 if prior is None else len(prior.effects.groups))

    @made_once
    def _reduced(self) -> int:
        """The first coordinate of the noise of a table of counters, apart from its total."""
        reduction = self._points.reduction
        return self._noise.reserve(len(self._points.features) if reduction is None else reduction.size)

    def _noise_of(self, slopes: Floats) -> Floats:
        """Influence of the noise of the block's sums, with room for the other coordinates of this estimator."""
        part, reduction = self._block.part, self._points.reduction
        ends = [self._errors + self._own]
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


def _buckets(count: int) -> Any:
    """Random signs that add points up to few coordinates, and preserve lengths and angles on average."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    entries = (rng.choice([-1.0, 1.0], count), (np.arange(count), rng.integers(0, ERRORS, count)))
    return csr_array(entries, shape=(count, ERRORS))
