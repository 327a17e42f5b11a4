"""Ridge regression on the sums of any map as in the moment-to-moment paper, at any points.

Source: m2m Algorithm 1 (points x̃ from a law ψ, and a = argmin mean (f(x̃) − ⟨a, Φ(x̃)⟩)² + λ‖a‖²), §3.5 (the weights).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.block_moments import BlockMoments, MomentsAtPoints, drawn_codes, white_noise
from dpsketch.learn.estimators.release_noise import UNRESOLVED, ReleaseNoise
from dpsketch.learn.estimators.sum_blocks import Block
from dpsketch.learn.estimators.weights import WeightedPoints
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.shared import Memo, made_once
from dpsketch.maps.tables.cells import HistogramCells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.threads import one_thread
from dpsketch.numerics.tuned import BY_HAND, UNRECORDED, Tuned
from dpsketch.schema.schema import Schema

PAPER_POINTS: Annotated[int, UNRECORDED] = 1 << 13
BINS: Annotated[int, UNRECORDED] = 64  # of a column, inside which points are even
LEAST_RIDGE = 1e-9
# Least variance of white noise in the density of the records, in directions that the sums do not determine.
PRIOR: Annotated[float, Tuned("real tables", by=BY_HAND)] = 0.5


@dataclass(frozen=True)
class Terms:
    """λ, by default that of the paper: σ²/n, if σ² is the noise variance of a sum; whether constants are free of it;
    and whether errors cover what the features cannot represent: the paper's only cover the noise.
    """

    ridge: float | None = None
    intercept: bool = False
    approximation: bool = False


PAPER = Terms()


class PlainRegression:
    """Expectations of functions of a block's columns, by default as in the paper: on uniform points."""

    def __init__(
        self,
        schema: Schema,
        noise: ReleaseNoise,
        block: Block,
        codes: Mapping[str, Codes] | None = None,
        terms: Terms = PAPER,
    ) -> None:
        self._schema, self._noise, self._codes, self._terms = schema, noise, codes, terms
        self._sums = BlockMoments(schema, noise, block)
        self.columns, self.separates_points = block.columns, block.separates_points
        self.weighted = Memo(self._weighted)
        on = "as in the paper" if codes is None else "on points of your own"
        self.how = f"moment-to-moment regression on {block.name}, {on}"

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each moment."""
        return float(np.sqrt(self._sums.variance))

    @property
    def ridge(self) -> float:
        """λ"""
        if self._terms.ridge is not None:
            return self._terms.ridge
        return self._sums.variance * float(self._sums.rows.value) + LEAST_RIDGE

    def cells_of(self, column: str) -> None:
        return None

    @made_once
    @one_thread()
    def points(self) -> MomentsAtPoints:
        codes = self._codes
        if codes is None:
            columns = {name: HistogramCells(self._schema.column(name), BINS) for name in self.columns}
            even = {name: np.append(np.diff(cells.first_levels), 0.0) for name, cells in columns.items()}
            codes, _ = drawn_codes({name: (columns[name], even[name]) for name in self.columns}, PAPER_POINTS)
        self._sums.block.check_size(len(next(iter(codes.values()))))
        return self._sums.at(codes)

    @made_once
    def _means(self) -> Floats:
        """Means of the features, of which the regression is free if it has an intercept."""
        features = self.points.features
        return features.mean(axis=1) if self._terms.intercept else np.zeros(len(features))

    @made_once
    @one_thread()
    def _system(self) -> tuple[Floats, Floats, tuple[Floats, bool]]:
        """Features less their means, their mean products, and these with λ, factored."""
        from scipy.linalg import cho_factor

        features = self.points.features - self._means[:, None]
        gram = features @ features.T / features.shape[1]
        return features, gram, cho_factor(gram + self.ridge * np.eye(len(gram)))

    @property
    def weights(self) -> Floats:
        """Weights of the points, some negative: an expectation is the weighted sum of a function over the points."""
        from scipy.linalg import cho_solve

        features, _, factor = self._system
        slopes = cho_solve(factor, self.points.moments - self._means)
        return np.asarray((slopes @ features + self._terms.intercept) / features.shape[1])

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        from scipy.linalg import cho_solve

        functions = np.concatenate([product_at(each, self.points.frame) for each in products])
        features, _, factor = self._system
        count = features.shape[1]
        centred = functions - self._terms.intercept * functions.mean(axis=1, keepdims=True)
        slopes = cho_solve(factor, features @ centred.T / count).T
        found = self._sums.noise_of(slopes, self.points)
        free = functions.mean(axis=1) - slopes @ self._means if self._terms.intercept else np.zeros(len(functions))
        if not self._terms.approximation:
            return Estimate(found.value + free, found.influence)
        left = np.square(centred - slopes @ features).mean(axis=1)
        unknown = np.zeros((len(functions), self._unresolved + 1))
        unknown[:, : found.influence.shape[1]] = found.influence
        unknown[:, self._unresolved] = np.sqrt(max(self._spread, PRIOR) * left)
        return Estimate(found.value + free, unknown, True)

    @made_once
    def _unresolved(self) -> int:
        self._sums.reserve()  # before this estimator's own, which is then the last coordinate
        return self._noise.reserve((UNRESOLVED, 1))

    @made_once
    def _spread(self) -> float:
        (_, gram, _), points = self._system, self.points
        return white_noise(gram, points.moments - points.features.mean(axis=1), self._sums.variance)

    def _weighted(self, model: int) -> WeightedPoints:
        return self._sums.weighted(self.points, self.weighted(0) if model else None, model)
