"""Answers about one column from its noisy cells, positions and sum of codes: unbiased, and linear in the noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary
from dpsketch.denoise.heaping import Lumps
from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.joint.from_release import column_lumps
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor, asked_of, product_at, repeated_of
from dpsketch.learn.points import ColumnPoints
from dpsketch.maps.tables.cells import POSITION_GRID, Cells
from dpsketch.maps.tables.column_summaries import column_summaries
from dpsketch.maps.tables.one_way import OneWayMap
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
        self, schema: Schema, noise: ReleaseNoise, part: ReleasedPart, marginals: OneWayMap, place: int
    ) -> None:
        self._noise, self._part, self._place = noise, part, place
        self._marginals = marginals
        self._schema = schema
        name = marginals.columns[place]
        self.columns = (name,)
        self.how = f"marginal of {name}"
        self._first = noise.reserve(("what cells hide", 1))

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
        return column_lumps(self._marginals, self._place, self._summary)

    @cached_property
    def _bins(self) -> int:
        """Cells with positions in them, which come after the lower bound."""
        cells = self._marginals.cells[self._place]
        return cells.bins if cells.binned else 0

    @property
    def _measured(self) -> bool:
        """Whether the release holds mean positions; otherwise they are 0, up to what they usually are."""
        return self._summary.positions is not None

    @cached_property
    def _position_variances(self) -> Floats:
        """Of the sums of positions: that of their noise, or else of where records may be."""
        if self._measured:
            return np.full(self._bins, self._summary.position_sd**2)
        counts = np.maximum(self._summary.counts, 0.0)
        rows = max(float(counts.sum()), 1.0)
        shared = self._lumps.likely_in(counts / rows, rows) / 12
        inner = slice(1, self._bins + 1)
        return ((self._off_centre + shared) * counts**2)[inner]

    @cached_property
    def _off_centre(self) -> Floats:
        counts = np.maximum(self._summary.counts, 0.0)
        return self._points.off_centre(counts / max(float(counts.sum()), 1.0))

    @cached_property
    def _corrected(self) -> tuple[Floats, Floats, Floats]:
        """Counts and positions; rules, which say what the sum of codes and the rows should be by them; and weights, by
        which they follow what these are instead.
        """
        summary, bins = self._summary, self._bins
        cells = len(summary.counts)
        measured = [summary.counts]
        variances = [np.full(cells, summary.count_sd**2), self._position_variances]
        rules, also, precise = [], [], []
        if bins:
            measured.append(np.zeros(bins) if summary.positions is None else summary.positions[1 : bins + 1])
        if summary.centred is not None:
            assert summary.centres is not None
            assert summary.widths is not None
            several = np.diff(self._points.cells.first_levels)[1 : bins + 1] > 1  # codes of a level are the same
            codes = np.append(summary.centres - 0.5, np.where(several, summary.widths[1 : bins + 1], 0.0))
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

    def cells_of(self, column: str) -> Cells | None:
        return self._marginals.cells[self._place] if column in self.columns else None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        known, rule, weights = self._corrected
        cells = len(self._summary.counts)
        rows = max(float(known[:cells].sum()), 1.0)
        shares = np.maximum(known[:cells], 0.0) / rows
        every = [
            self._points.values_of(
                partial(product_at, factors), asked_of(factors), self._lumps, shares, rows, repeated_of(factors)
            )
            for factors in products
        ]
        values = np.concatenate([each.by_cell() for each in every])
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
        total = np.append(np.ones(cells), np.zeros(self._bins))
        value = slopes @ known / rows
        gradient = (slopes - value[:, None] * total) / rows
        by_rules = gradient @ weights
        moved = gradient - by_rules @ rule
        influence = self._influence(moved, by_rules)
        lines = by_rules[:, 0] * rows if self._summary.centred is not None else np.zeros(len(value))
        starts = np.cumsum([0] + [len(each.even) for each in every])
        hidden = np.concatenate(
            [
                each.scattered(shares, rows, lines[start : start + len(each.even)])
                for each, start in zip(every, starts, strict=False)
            ]
        )
        if not self._measured:
            squares = (np.maximum(self._summary.counts, 0.0) ** 2 * self._off_centre)[1 : self._bins + 1]
            hidden = np.sqrt(hidden**2 + moved[:, cells:] ** 2 @ squares)
        return Estimate(
            value, np.hstack([influence, np.zeros((len(value), self._first - influence.shape[1])), hidden[:, None]])
        )

    def _influence(self, gradient: Floats, by_rules: Floats) -> Floats:
        """The noise of the release in an estimate with these gradients with respect to counts and positions, and to the
        sum of codes and the rows.
        """
        cells, part = len(self._summary.counts), self._part
        scaled = gradient[:, :cells] / self._marginals.grid
        if self._measured:
            scaled = np.hstack([scaled, gradient[:, cells:] / POSITION_GRID])
        influence = self._noise.place(part, scaled, self._marginals.table(self._place).start)
        if self._summary.centred is not None:
            influence += self._noise.place_total(self.columns[0], by_rules[:, :1] / SPAN)
        rows = self._noise.counted_rows
        if rows is not None:
            influence += by_rules[:, -1:] * rows.influence
        return influence
