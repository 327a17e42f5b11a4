"""Moment-to-moment regression: any expectation from Fourier sums and marginals.

Points are drawn from the product of the noisy marginals, a function is regressed on the Fourier features at these
points, and the regression's coefficients are applied to the noisy sums. Source: m2m §3, with λ = σ²/n² for every
feature and an unpenalised intercept (Theorem 1 supports λ = σ²/n², not σ²/n). Functions of single columns are left
to the marginals: they are regressed out first, as unpenalised features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.learn.points import Frame, bin_codes
from dpsketch.learn.release_noise import ReleaseNoise
from dpsketch.learn.tables import TableEstimator
from dpsketch.maps.base import BoundMap
from dpsketch.maps.fourier import BoundFourier
from dpsketch.maps.histogram import Binning
from dpsketch.maps.one_bit import BoundOneBitFourier
from dpsketch.maps.subsampled import BoundSubsampled
from dpsketch.records import Records
from dpsketch.schema import Floats, Schema
from dpsketch.sketch.released import ReleasedPart

POINTS = 1 << 14
MOST_FREQUENCIES = 2000
FEW = 32  # points; fewer say little about a bin's effect
UNIFORM = 0.05  # of the points' marginals: no bin is without points, however wrong the noise makes it look


class MomentEstimator:
    """Expectations of functions of the Fourier part's columns.

    `marginals` gives a one-way table for the columns that have one; others are taken as uniform on their bounds.
    """

    def __init__(
        self, schema: Schema, noise: ReleaseNoise, part: ReleasedPart, marginals: dict[str, TableEstimator]
    ) -> None:
        full = fourier_of(part.map)
        assert full is not None
        self._count = full.size // 2
        self._schema, self._noise, self._part, self._fourier = schema, noise, part, part.map
        self._marginals = marginals
        self.columns = part.map.columns
        self._rows = noise.rows()
        kind = "Fourier" if isinstance(full, BoundFourier) else "one-bit Fourier"
        self.how = f"moment-to-moment regression on {self._count} {kind} frequencies and the marginals"

    @cached_property
    def _points(self) -> _Points:
        import scipy.sparse
        from scipy.stats import qmc

        if self._count > MOST_FREQUENCIES:
            raise QueryError(
                f"the regression takes at most {MOST_FREQUENCIES} frequencies, this release has {self._count}",
                "release fewer frequencies, or a table of the columns: Histogram(ways=2, columns=…)",
            )
        uniforms = qmc.Sobol(len(self.columns), seed=0).random(POINTS)
        codes, groups, blocks = {}, {}, []
        for name, uniform in zip(self.columns, uniforms.T, strict=True):
            binning, shares = self._distribution(name)
            upper = np.cumsum(shares)
            bins = np.minimum(np.searchsorted(upper, uniform * upper[-1], side="right"), binning.count - 1)
            position = np.clip(
                (uniform * upper[-1] - upper[bins] + shares[bins]) / np.maximum(shares[bins], 1e-300), 0, 1
            )
            codes[name] = bin_codes(binning, bins, position)
            if name in self._marginals:
                groups[name] = _groups(np.bincount(bins, minlength=binning.count))
                ones = (np.ones(POINTS), (np.arange(POINTS), groups[name][bins]))
                blocks.append(scipy.sparse.csr_array(ones, shape=(POINTS, groups[name].max() + 1)))
        every = np.zeros((len(self._schema.scalars), POINTS), np.int16)
        for name in self.columns:
            every[self._schema.index(name)] = codes[name]
        groups_at_points = scipy.sparse.hstack(blocks, format="csr") if blocks else scipy.sparse.csr_array((POINTS, 0))
        return _Points(Frame(self._schema, codes), groups, groups_at_points, self._fourier.features(Records(every)).T)

    def _distribution(self, name: str) -> tuple[Binning, Floats]:
        """Bins and their shares among the points."""
        if name not in self._marginals:
            binning = Binning(self._schema.column(name), 64)
            return binning, np.append(np.diff(binning.firsts) / binning.firsts[-1], 0.0)
        marginal = self._marginals[name]
        return marginal.binnings[0], (1 - UNIFORM) * marginal.marginal.positive + UNIFORM / marginal.cells

    @property
    def frame(self) -> Frame:
        return self._points.frame

    def _main_effects(self, functions: Floats) -> Floats:
        """E[f | group] − E[f] for every group of bins of every marginal."""
        groups = self._points.groups_at_points
        count = np.asarray(groups.sum(axis=0)).ravel()
        return (functions @ groups) / np.maximum(count, 1.0) - functions.mean(axis=1, keepdims=True) * (count > 0)

    def _interactions(self, functions: Floats) -> Floats:
        """What is left of each function after its mean and the effects of single columns."""
        return (
            functions
            - functions.mean(axis=1, keepdims=True)
            - (self._points.groups_at_points @ self._main_effects(functions).T).T
        )

    @cached_property
    def _regression(self) -> tuple[Floats, tuple[Floats, bool], Floats]:
        """Interactions of the features, the factored ridge system, the noisy normalised sums."""
        from scipy.linalg import cho_factor

        features = self._interactions(self._points.features)
        unit = self._fourier.grid * float(self._rows.value)
        ridge = self._noise.variance(self._part) / unit**2
        gram = features @ features.T / POINTS
        gram[np.diag_indices_from(gram)] += ridge + 1e-9
        return features, cho_factor(gram), self._part.sums / unit

    def expect(self, functions: Floats) -> Estimate:
        """Expectations of functions given by their values on `frame`: one row a function."""
        from scipy.linalg import cho_solve

        interactions, factor, moments = self._regression
        features = self._points.features
        slopes = cho_solve(factor, interactions @ self._interactions(functions).T / POINTS).T
        rest = functions - slopes @ features
        value = rest.mean(axis=1) + slopes @ moments
        unit = self._fourier.grid * float(self._rows.value)
        influence = self._noise.place(self._part, slopes / unit)
        influence -= (slopes @ moments)[:, None] * self._rows.influence / self._rows.value
        effects, start = self._main_effects(rest), 0
        for name in self.columns:
            if name in self._marginals:
                table, groups = self._marginals[name], self._points.groups[name]
                slope = effects[:, start + groups]
                # From the points' marginals to ours.
                value += slope @ (table.marginal.shares - self._distribution(name)[1])
                influence += table.marginal.influence(slope)
                start += groups.max() + 1
        rare = np.count_nonzero(functions, axis=1) < FEW
        if rare.any() and self._marginals:  # too few points to see a function's noise: at least that of one cell
            size = np.abs(functions[rare]).max(axis=1, keepdims=True)
            cell = next(iter(self._marginals.values())).marginal.one_cell()
            influence[rare] += np.where(size > 0, size, 1.0) * cell
        return Estimate(value, influence)


@dataclass(frozen=True)
class _Points:
    """Points, the group of each bin of each marginal, the groups' indicators and the features at the points."""

    frame: Frame
    groups: dict[str, NDArray[np.int64]]
    groups_at_points: Any  # a sparse matrix
    features: Floats


def fourier_of(bound: BoundMap) -> BoundFourier | BoundOneBitFourier | None:
    """The Fourier map that a map is, whole or subsampled."""
    bound = bound.inner if isinstance(bound, BoundSubsampled) else bound
    return bound if isinstance(bound, BoundFourier | BoundOneBitFourier) else None


def _groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A group of its own for each bin with enough points to estimate its effect, one group for all others."""
    enough = counts >= FEW
    return np.where(enough, np.cumsum(enough) - 1, enough.sum())
