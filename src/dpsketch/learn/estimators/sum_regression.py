"""Moment-to-moment regression: any expectation from the sums of any map.

Points are drawn from a product of distributions of single columns, a function is regressed on the map's features at
these points, and the regression's coefficients are applied to the noisy sums. Source: m2m §3. Columns come from noisy
marginals where the release has them: the marginals then enter as unpenalised features, which explain all functions of
single columns. Other columns start uniform on their bounds, and are redrawn from the shares that the regression
estimates.

Regression and errors follow from one normal model: the records' density differs from that of the points by the effects
of `density_prior`, and the sums have noise besides. An expectation is its posterior mean. Its error has three parts:
the noise propagated through the coefficients; the effects that the coefficients leave, which may be rougher than
expected; and the change of the answer if the records close to bounds, to round numbers, and to the place of missing
cells were single values (`single_values`). With white noise alone this is a ridge regression with an intercept and
λ = σ²/(n·τ)².
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.block_moments import BlockMoments
from dpsketch.learn.estimators.density_prior import (
    BOUND,
    GROUPS,
    START,
    Effects,
    Scales,
    column_effects,
    estimated_scales,
    likely_single,
)
from dpsketch.learn.estimators.regression_points import (
    FEW,
    Distribution,
    Fit,
    RegressionPoints,
    bin_groups,
    drawn_codes,
)
from dpsketch.learn.estimators.release_noise import UNRESOLVED, ReleaseNoise
from dpsketch.learn.estimators.single_values import ASKED, Peak, missing_like, peaks_asked_about, peaks_of
from dpsketch.learn.estimators.small_table import TableEstimator
from dpsketch.learn.estimators.sum_blocks import Block
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.factors import Factor, columns_of, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.cells import HistogramCells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned
from dpsketch.schema.columns import Integer, Number
from dpsketch.schema.schema import Schema

_CHOSEN = Tuned("Random10, Beta(2,8), lifesci", by=BY_HAND, decision=58)
POINTS: Annotated[int, UNRECORDED] = 1 << 14
MOST_REDRAWN = 1024  # sums of a dense map, up to which points are redrawn: time
UNIFORM: Annotated[float, UNRECORDED] = 0.05  # uniform share of the points' marginals, so that no bin is without points
BINS: Annotated[int, UNRECORDED] = 64
# Largest share of the points at each bound of a column and missing; and in all columns together.
SINGLE: Annotated[tuple[float, float], _CHOSEN] = (1 / 128, 0.04)
# Squared error of answers by the choice of Sobol' points, in parts of that of random ones.
SOBOL: Annotated[float, Tuned("Random10", by=BY_HAND, decision=58)] = 0.5
# The posterior is normal around one set of points; densities far from an even one are not linear in their effects.
WIDER: Annotated[float, Tuned("Beta(2,8), lifesci, california", by=BY_HAND, decision=58)] = 1.3
# Points that a counter is taken to have beside its own, as few points do not determine its variance.
RARE: Annotated[float, _CHOSEN] = 4.0
SMOOTH_ROUNDS: Annotated[int, _CHOSEN] = 2  # in which shares of single values keep their first scale
ANYTHING = 0.3  # standard error of a share of which nothing is known: more than that of any number from 0 to 1
ROUNDING = 1e-10  # of the variance of features: what the largest scales leave of the precision of numbers
ROUNDS: Annotated[int, _CHOSEN] = 6  # in which points are redrawn
COMPARED = 32  # points at which the features of missing cells are compared with those of numbers
ERRORS: Annotated[int, UNRECORDED] = 256  # coordinates of the error of white noise
SINGLE_VALUES = "missing cells and values that many records share"


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

    @property
    def _unknown(self) -> list[str]:
        """Columns without a marginal."""
        return [name for name in self.columns if name not in self._marginals]

    @made_once
    @one_thread()
    def _points(self) -> RegressionPoints:
        count = POINTS // 2 if self._block.size > 2 * MOST_REDRAWN else POINTS  # memory and time
        self._block.check_size(count)
        start = {name: self._start(name) for name in self.columns}
        if not self._redraws:
            return self._drawn(start, count)
        points, last = self._drawn(start, count // 2), None
        for step in range(ROUNDS):
            fit = self._fit(points, last, GROUPS if step >= SMOOTH_ROUNDS else BOUND)
            last = fit.scales
            again = {name: self._again(name, fit) for name in self.columns}
            points = replace(self._drawn(again, count if step == ROUNDS - 1 else count // 2), last=last)
        return points

    @property
    def _redraws(self) -> bool:
        """Whether points are redrawn: the sums distinguish points, and are few enough for this to be fast."""
        small = self._block.sparse or self._block.size <= MOST_REDRAWN
        return bool(self._unknown) and self._block.separates_points and small

    def _start(self, name: str) -> Distribution:
        """The noisy marginal of a column, else uniform, with few points at the bounds and few missing."""
        if name in self._marginals:
            table = self._marginals[name]
            return table.table.cells[0], (1 - UNIFORM) * table.marginal.positive + UNIFORM / table.table.size
        cells = HistogramCells(self._schema.column(name), BINS)
        shares = np.append(np.diff(cells.first_levels) / cells.first_levels[-1], 0.0)
        if cells.binned:
            shares[[0, -2]] = self._single
        if self._absent(name):
            shares[-1] = self._single
        return cells, shares / shares.sum()

    def _absent(self, name: str) -> bool:
        """Whether cells of a column may be missing: the schema may give a value that takes their place."""
        column = self._schema.column(name)
        return not isinstance(column, Number | Integer) or column.missing is None

    @property
    def _single(self) -> float:
        """Share of points at each bound of a column, and of those that are missing."""
        return min(SINGLE[0], SINGLE[1] / len(self.columns))

    def _again(self, name: str, fit: Fit) -> Distribution:
        """The cells of a column without a marginal, with the shares that the fit estimates."""
        cells, last = fit.points.distributions[name]
        if name in self._marginals:
            return cells, last
        own, first = fit.points.effects_of[name], fit.effects.starts[name]
        means = fit.posterior[first : first + len(own.groups)]
        return cells, own.tilted(self._start(name)[1], last, means, self._single)

    def _drawn(self, distributions: Mapping[str, Distribution], count: int) -> RegressionPoints:
        """Points drawn from the product of distributions, with their features."""
        import scipy.sparse

        codes, bins = drawn_codes(distributions, count)
        groups, indicators = {}, [scipy.sparse.csr_array((count, 0))]
        for name in self._marginals:
            groups[name] = bin_groups(np.bincount(bins[name], minlength=distributions[name][0].count))
            ones = (np.ones(count), (np.arange(count), groups[name][bins[name]]))
            indicators.append(scipy.sparse.csr_array(ones, shape=(count, groups[name].max() + 1)))
        effects = {
            name: column_effects(cells, self._start(name)[1], shares) for name, (cells, shares) in distributions.items()
        }
        together = scipy.sparse.hstack(indicators, format="csr")
        return RegressionPoints(self._sums.at(codes), distributions, bins, groups, together, effects)

    def _weighted(self, model: int) -> WeightedPoints:
        return self._sums.weighted(self._points.at, self.weighted(0) if model else None, model)

    def _shifts(self, points: RegressionPoints, effects: Floats) -> Estimate:
        """Change of each function's mean from the points' marginals to the noisy ones."""
        change, influence = np.zeros(len(effects)), np.zeros((len(effects), self._noise.coordinates))
        start = 0
        for name, table in self._marginals.items():
            groups = points.groups[name]
            slope = effects[:, start + groups]
            change += slope @ (table.marginal.shares - points.distributions[name][1])
            influence += table.marginal.influence(slope)
            start += groups.max() + 1
        return Estimate(change, influence)

    @made_once
    def _fitted(self) -> Fit:
        return self._fit(self._points, self._points.last)

    @one_thread()
    def _fit(self, points: RegressionPoints, last: Scales | None = None, groups: int = GROUPS) -> Fit:
        from scipy.linalg import cho_factor, cho_solve

        at, count = points.at, points.count
        features = points.interactions(at.features)
        gram = features @ features.T / count
        effects = Effects(points.effects_of, points.bins, self._unknown)
        covariance = features @ effects.values.T / count
        moved = points.moved(self._unknown, {name: self._start(name)[1] for name in self._unknown})
        change = self._shifts(points, points.main_effects(at.features)).value
        distance = at.moments - at.features.mean(axis=1) - change + features @ moved / count
        by_chance = 1 / max(float(self._sums.rows.value), 1.0) + 1 / count
        known = by_chance * gram
        rare = RARE / count * by_chance if self._block.sparse else 0.0
        known[np.diag_indices_from(known)] += self._sums.variance + rare + ROUNDING * np.square(features).mean()
        scales = estimated_scales(last or START, effects, covariance, gram, known, distance, groups)
        variances, prior = effects.variances(scales.groups), effects.means(scales.groups)
        known += scales.white * gram
        factor = cho_factor(known + (covariance * variances) @ covariance.T)
        mean = prior + variances * (covariance.T @ cho_solve(factor, distance - covariance @ prior))
        wider = 1 + (WIDER**2 - 1) * min(scales.uneven, 1.0)
        rough = wider * effects.rough * scales.groups[effects.groups] ** 2
        alone = likely_single(effects, known, covariance, rough, distance, mean)
        deviations = np.sqrt(np.where(effects.held > 0, alone, rough))
        white = scales.white + by_chance
        before = (scales, white, variances, prior)
        return Fit(points, features, factor, effects, covariance, *before, mean, deviations, moved)

    @one_thread()
    def expect(self, *products: Sequence[Factor]) -> Estimate:
        from scipy.linalg import cho_solve

        fit, points = self._fitted, self._points
        each_product = [product_at(each, self.frame) for each in products]
        functions, ends = np.concatenate(each_product), np.cumsum([0, *map(len, each_product)])
        of = [slice(first, last) for first, last in pairwise(ends)]
        wanted, count = points.interactions(functions), points.count
        across, own = wanted @ fit.features.T / count, wanted @ fit.effects.values.T / count
        slopes = cho_solve(fit.factor, ((own * fit.variances) @ fit.covariance.T + fit.white * across).T).T
        left, own = wanted - slopes @ fit.features, own - slopes @ fit.covariance
        rest = functions - slopes @ points.at.features
        found = self._sums.noise_of(slopes, points.at) + self._shifts(points, points.main_effects(rest))
        value = found.value + rest.mean(axis=1) + own @ fit.prior - left @ fit.moved / count
        free = max(count - len(fit.features), 1)
        scale = np.sqrt((fit.white - (1 - SOBOL) / count) / free)
        unresolved = scale * (left @ _buckets(count))
        unresolved += np.sqrt(ROUNDING * np.square(fit.features).mean()) * (slopes @ _buckets(len(fit.features)))
        self._floor(functions, unresolved, found.influence)
        single = np.concatenate(
            [self._single_values(each, slopes[rows]) for each, rows in zip(products, of, strict=True)]
        )
        errors = np.hstack([unresolved, own * fit.deviations, single])
        influence = np.zeros((len(value), max(self._errors + errors.shape[1], found.influence.shape[1])))
        influence[:, : found.influence.shape[1]] = found.influence
        influence[:, self._errors : self._errors + errors.shape[1]] += errors
        return Estimate(value, influence)

    def _floor(self, functions: Floats, unresolved: Floats, noise: Floats) -> None:
        """Raise the error of functions with too few points to that of one cell, or of few points; and that of functions
        of values at a bound alone to what is possible, since values close to them have nearly the same features.
        """
        unknown = self._points.only_single_values(functions)
        unresolved[unknown, 0] += ANYTHING * np.abs(functions[unknown]).max(axis=1, initial=0.0)
        rare = np.count_nonzero(functions, axis=1) < FEW
        if not rare.any():
            return
        size = np.abs(functions[rare]).max(axis=1, keepdims=True)
        size = np.where(size > 0, size, 1.0)
        if self._marginals:
            cell = next(iter(self._marginals.values())).marginal.one_cell()
            noise[rare, : self._noise.coordinates] += size * cell
        else:
            share = FEW / functions.shape[1]
            unresolved[rare, 0] += size[:, 0] * np.sqrt(share * min(self._fitted.white, 1.0))

    def _single_values(self, factors: Sequence[Factor], slopes: Floats) -> Floats:
        """The change of functions with these slopes if peaks were single values: one row a function, a column a peak,
        and some for the numbers that the question names.
        """
        names, rows = columns_of(factors), product_at(factors, self.frame)
        asked = peaks_asked_about(self._schema, self.frame, factors, rows, self._fitted.scales.uneven)
        named = [(peak, self._shift(peak), mine) for peak, mine in asked]
        found = np.zeros((len(rows), len(self._peaks) + ASKED))
        every = [(*both, np.ones(len(rows), bool)) for both in self._peaks]
        for index, (peak, shift, mine) in enumerate([*every, *named]):
            place = index if index < len(self._peaks) else len(self._peaks) + (index - len(self._peaks)) % ASKED
            change = -slopes[mine] @ shift
            if peak.column in names:
                moved = product_at(factors, peak.moved(self._schema, self.frame, names))
                change = change + moved[mine] - rows[mine][:, peak.points]
            own = peak.share * peak.change(change)
            found[mine, place] = np.copysign(np.hypot(found[mine, place], own), own)
        return found

    def _shift(self, peak: Peak) -> Floats:
        """The change of the features of a peak's points, if they had its code instead: one column a point."""
        moved = peak.moved(self._schema, self.frame, self.columns)
        features = self._sums.features_like(self._points.at, {name: moved.codes(name) for name in self.columns})
        return np.asarray(features - self._points.at.features[:, peak.points])

    @made_once
    def _peaks(self) -> list[tuple[Peak, Floats]]:
        """Where records of columns without a marginal may be missing, or sit on a bound."""
        found: list[Peak] = []
        points = self._points
        few = {name: self.frame.codes(name)[:COMPARED] for name in self.columns}
        for name in self._unknown:
            cells, shares = points.distributions[name]

            def features(own: Codes, name: str = name) -> Any:
                return self._sums.raw_features(few | {name: own})

            like = missing_like(cells, features, COMPARED) if self._absent(name) else None
            found += peaks_of(cells, shares, points.bins[name], like, self._fitted.scales.uneven)
        return [(peak, self._shift(peak)) for peak in found]

    @made_once
    def _errors(self) -> int:
        """The first coordinate of what is not noise."""
        self._sums.reserve()
        own = ERRORS + len(self._fitted.effects.groups)
        return self._noise.reserve((UNRESOLVED, own), (SINGLE_VALUES, len(self._peaks) + ASKED))


def _buckets(count: int) -> Any:
    """Random signs that add points up to few coordinates, and preserve lengths and angles on average."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    entries = (rng.choice([-1.0, 1.0], count), (np.arange(count), rng.integers(0, ERRORS, count)))
    return csr_array(entries, shape=(count, ERRORS))
