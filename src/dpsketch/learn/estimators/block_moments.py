"""The noisy means of a block's features over the records, and the features at any points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.learn.answer import Estimate
from dpsketch.learn.cell_places import codes_in_cells
from dpsketch.learn.estimators.reduction import Reduction
from dpsketch.learn.estimators.release_noise import NOISE, ReleaseNoise
from dpsketch.learn.estimators.sum_blocks import Block
from dpsketch.learn.estimators.weights import WeightedPoints, positive_weights
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import made_once
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.schema import Schema

LANDMARKS: Annotated[int, UNRECORDED] = 512
MOST_DENSE = 1024  # sums; more sums of a sparse map are reduced


@dataclass(frozen=True)
class MomentsAtPoints:
    """Points, the features there (one row a feature), and their noisy means over the records."""

    frame: Frame
    reduction: Reduction | None
    features: Floats
    moments: Floats


class BlockMoments:
    """Sums of a block divided by the number of records."""

    def __init__(self, schema: Schema, noise: ReleaseNoise, block: Block) -> None:
        self._schema, self._noise, self.block = schema, noise, block
        self.rows = noise.rows()

    @property
    def reduced(self) -> bool:
        """Whether the sums are projected to fewer."""
        return self.block.sparse and self.block.size > MOST_DENSE

    @property
    def unit(self) -> float:
        """The divisor that turns a sum into the mean over the records of a real feature."""
        return self.block.part.map.grid * float(self.rows.value)

    @property
    def variance(self) -> float:
        """Variance of the noise in each moment."""
        return self._noise.variance(self.block.part) / self.unit**2

    def raw_features(self, codes: Mapping[str, Codes]) -> Any:
        """Features of points: one row a point; a sparse matrix if the block is."""
        count = len(next(iter(codes.values())))
        everywhere = np.zeros((len(self._schema.scalars), count), np.int16)
        for name in self.block.columns:
            everywhere[self._schema.index(name)] = codes[name]
        return self.block.features(Records(everywhere))

    def features_like(self, points: MomentsAtPoints, codes: Mapping[str, Codes]) -> Floats:
        """Features of other points in the coordinates of those of `points`: one row a feature."""
        features = self.raw_features(codes)
        if points.reduction is not None:
            return points.reduction.of(features).T
        return np.asarray((features.toarray() if self.block.sparse else features).T, np.float64)

    def at(self, codes: Mapping[str, Codes]) -> MomentsAtPoints:
        """The moments, and the features of points."""
        block, features = self.block, self.raw_features(codes)
        frame = Frame(self._schema, codes)
        if self.reduced:
            reduction = Reduction(features[:LANDMARKS])
            whole = block.size == block.part.map.size
            sums = reduction.sums(block.part.sums, None if whole else block.indices)
            return MomentsAtPoints(frame, reduction, reduction.of(features).T, sums / self.unit)
        dense = np.ascontiguousarray((features.toarray() if block.sparse else features).T)
        sums = np.asarray(block.part.sums)[block.indices].astype(np.float64)
        return MomentsAtPoints(frame, None, dense, sums / self.unit)

    def weighted(self, points: MomentsAtPoints, fitted: WeightedPoints | None = None, model: int = 0) -> WeightedPoints:
        """The points with positive weights whose features match the moments up to noise. In a refit (model > 0) they
        match those of the `fitted` weights plus new noise.
        """
        moments = points.moments
        if fitted is not None:
            noise = np.sqrt(self.variance) * np.random.default_rng(model).normal(size=len(moments))
            moments = points.features @ fitted.weights + noise
        return WeightedPoints(points.frame, positive_weights(points.features.T, moments, self.variance))

    def reserve(self) -> None:
        """Reserve the coordinates of a table of counters, if this is one, so that those reserved later follow them."""
        if self.block.counters:
            self._reduced  # noqa: B018

    @made_once
    def _reduced(self) -> int:
        """The first coordinate of the noise of a table of counters, apart from its total."""
        return self._noise.reserve((NOISE, LANDMARKS if self.reduced else self.block.size))

    def noise_of(self, slopes: Floats, points: MomentsAtPoints) -> Estimate:
        """The means of functions with these slopes: the noise is that of the sums and of the number of records."""
        part, reduction = self.block.part, points.reduction
        value = slopes @ points.moments
        if self.block.counters:
            total = np.ones(len(slopes[0])) if reduction is None else reduction.ones()
            total = total / np.sqrt(part.map.size)
            placed = self._noise.place(part, (slopes @ total)[:, None] / (self.unit * np.sqrt(part.map.size)))
            # The residual of a slope after its component along the total, in as many coordinates.
            square = float(np.clip(total @ total, 1e-300, 1.0))
            left = slopes - np.outer(slopes @ total, total) * ((1 - np.sqrt(1 - square)) / square)
        else:
            gradient = slopes if reduction is None else reduction.gradient(slopes, self.block.size)
            full = gradient
            if self.block.size < part.map.size:
                full = np.zeros((len(slopes), part.map.size))
                full[:, self.block.indices] = gradient
            placed = self._noise.place(part, full / self.unit)
        placed -= value[:, None] * self.rows.influence / self.rows.value
        if not self.block.counters:
            return Estimate(value, placed)
        influence = np.zeros((len(slopes), self._reduced + slopes.shape[1]))
        influence[:, : placed.shape[1]] = placed
        influence[:, self._reduced :] = left * np.sqrt(self.variance)
        return Estimate(value, influence)


def drawn_codes(
    distributions: Mapping[str, tuple[Cells, Floats]], count: int
) -> tuple[dict[str, Codes], dict[str, NDArray[np.int64]]]:
    """Codes of points from the product of distributions, and the cells that they are in: a Sobol' sequence."""
    from scipy.stats import qmc

    codes, every = {}, {}
    uniforms = qmc.Sobol(len(distributions), seed=0).random(count)
    for (name, (cells, shares)), uniform in zip(distributions.items(), uniforms.T, strict=True):
        upper = np.cumsum(shares)
        bins = np.minimum(np.searchsorted(upper, uniform * upper[-1], side="right"), cells.count - 1)
        position = (uniform * upper[-1] - upper[bins] + shares[bins]) / np.maximum(shares[bins], 1e-300)
        codes[name], every[name] = codes_in_cells(cells, bins, np.clip(position, 0, 1)), bins
    return codes, every


def white_noise(gram: Floats, distance: Floats, variance: float) -> float:
    """Estimate τ², the variance of white noise in the records' density relative to that of the points, from the sum of
    squares of the difference between moments and those of the points, plus one standard deviation of it. The
    difference has covariance τ²·gram + variance.
    """
    trace, size = max(float(np.trace(gram)), 1e-12), len(gram)
    excess = max(float(distance @ distance) - size * variance, 0.0)
    first = excess / trace
    spread = 2 * (first**2 * float((gram**2).sum()) + 2 * first * variance * trace + size * variance**2)
    return max((excess + float(np.sqrt(spread))) / trace, 1e-9)
