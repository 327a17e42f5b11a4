"""Answers about one column from its noisy cells, positions and sum of codes: unbiased, and linear in the noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary
from dpsketch.denoise.heaping import CERTAIN, Lumps, lumpiness
from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor, asked_of, product_at
from dpsketch.learn.points import ColumnPoints, lumped
from dpsketch.maps.tables.cells import GRID, POSITION_GRID
from dpsketch.maps.tables.column_summaries import column_summaries
from dpsketch.maps.tables.marginals import BoundMarginals
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import SPAN
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart


class MarginalEstimator:
    """E[f(X)] = Σ (mean of f in a cell · count + slope of f in a cell · position) / rows.

    Counts and positions are first corrected by two more noisy sums that they must agree with, the sum of codes and the
    number of rows, each by its precision: the best linear unbiased estimate. Source: Gauss–Markov theorem.
    """

    def __init__(
        self, schema: Schema, noise: ReleaseNoise, part: ReleasedPart, marginals: BoundMarginals, place: int
    ) -> None:
        self._noise, self._part, self._place = noise, part, place
        self._marginals = marginals
        self._schema = schema
        name = marginals.columns[place]
        self.columns = (name,)
        self.how = f"marginal of {name}"
        self._first = noise.reserve(1)

    @cached_property
    def _points(self) -> ColumnPoints:
        return ColumnPoints(self._schema, self._marginals.cells[self._place])

    @cached_property
    def _summary(self) -> ColumnSummary:
        return column_summaries(self._marginals, self._part.sums, self._part.noise_variance, self._noise.totals)[
            self._place
        ]

    @cached_property
    def _lumps(self) -> Lumps:
        return lumpiness(self._summary)

    @cached_property
    def _bins(self) -> int:
        positions = self._marginals.positions(self._place)
        return positions.stop - positions.start

    @cached_property
    def _corrected(self) -> tuple[Floats, Floats, Floats]:
        """Counts and positions; rules, which say what the sum of codes and the rows should be by them; and weights, by
        which they follow what these are instead.
        """
        summary, bins = self._summary, self._bins
        cells = len(summary.counts)
        measured = [summary.counts]
        variances = [np.full(cells, summary.count_sd**2), np.full(bins, summary.position_sd**2)]
        rules, also, precise = [], [], []
        if bins:
            assert summary.positions is not None
            measured.append(summary.positions[1 : bins + 1])
        if summary.centred is not None:
            assert summary.centres is not None
            assert summary.widths is not None
            codes = np.append(summary.centres - 0.5, summary.widths[1 : bins + 1])
            codes[cells - 1] = 0.0
            rules.append(codes)
            also.append(summary.centred)
            precise.append(summary.centred_sd**2)
        rows = self._noise.counted_rows
        if rows is not None:
            rules.append(np.append(np.ones(cells), np.zeros(bins)))
            also.append(float(rows.value))
            precise.append(max(float(rows.stderr) ** 2, 1.0))
        known, variance = np.concatenate(measured), np.concatenate(variances)
        rule = np.array(rules).reshape(len(rules), len(known))
        spread = rule * variance
        weights = np.linalg.solve(rule @ spread.T + np.diag(precise), spread).T
        return known + weights @ (np.array(also) - rule @ known), rule, weights

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        values, guessed = (np.concatenate(each) for each in zip(*map(self._values, products), strict=True))
        mean = values.mean(2)
        slopes = mean
        if self._bins:
            inner = self._points.positions[1 : self._bins + 1]
            middle = inner.mean(1)
            centred = inner - middle[:, None]
            steepness = np.einsum("kci,ci->kc", values[:, 1 : self._bins + 1], centred)
            steepness /= np.maximum((centred**2).sum(1), 1e-300)
            mean = mean.copy()
            mean[:, 1 : self._bins + 1] -= steepness * middle
            slopes = np.hstack([mean, steepness])
        known, rule, weights = self._corrected
        total = np.append(np.ones(mean.shape[1]), np.zeros(self._bins))
        rows = max(float(total @ known), 1.0)
        value = slopes @ known / rows
        gradient = (slopes - value[:, None] * total) / rows
        by_rules = gradient @ weights
        influence = self._influence(np.hstack([gradient - by_rules @ rule, by_rules]))
        shares = np.maximum(known[: mean.shape[1]], 0.0) / rows
        hidden = self._points.unseen(guessed, shares, self._lumps.likely, rows)
        return Estimate(
            value, np.hstack([influence, np.zeros((len(value), self._first - influence.shape[1])), hidden[:, None]])
        )

    def _values(self, factors: Sequence[Factor]) -> tuple[Floats, Floats]:
        """A product of factors on the points, and the same for standard errors, which count on fewer lumps."""
        at = partial(product_at, factors)
        values, asked = self._points.by_cell(at(self._points.frame)), self._points.at_asked(at, asked_of(factors))
        together = self._lumps.together
        return lumped(values, asked, together), lumped(values, asked, CERTAIN * together)

    def _influence(self, gradient: Floats) -> Floats:
        """From a gradient with respect to (counts, positions, sum of codes, rows) to the noise of the release."""
        units = np.concatenate([np.full(len(self._summary.counts), GRID), np.full(self._bins, POSITION_GRID)])
        first = self._marginals.table(self._place).start
        influence = self._noise.place(self._part, gradient[:, : len(units)] / units, first)
        if self._summary.centred is not None:
            influence += self._noise.place_total(self.columns[0], gradient[:, len(units) : len(units) + 1] / SPAN)
        rows = self._noise.counted_rows
        if rows is not None:
            influence += gradient[:, -1:] * rows.influence
        return influence
