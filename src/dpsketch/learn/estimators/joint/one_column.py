"""Functions of one column on a fitted joint distribution: their means, and what is not known of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsketch.denoise.unbiased_error import believed
from dpsketch.learn.estimators.joint import unseen
from dpsketch.learn.estimators.joint.draws import shares_in_cells
from dpsketch.learn.estimators.joint.from_release import ReleasedProducts
from dpsketch.learn.estimators.joint.refine import shares_inside
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import ColumnPoints
from dpsketch.learn.shared import Latest, Memo
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema

ATOMS = 3  # of a column: its bounds and missing, which are not like their neighbours
PER_COLUMN = ATOMS + 1  # and what cells hide
MOST_KNOWN = 500


@dataclass(frozen=True)
class Single:
    """Functions of one column: means as [model, function], means in groups as [model, function, group], the fit's means
    in cells, variances, how large each is at most, and in PER_COLUMN coordinates what the fit dropped or cannot see.
    """

    means: Floats
    values: Floats
    cells: Floats
    variances: Floats
    sizes: Floats
    unsure: Floats
    groups: unseen.GroupValues


class FunctionsOfOne:
    """Makes a `Single` of functions of one column."""

    def __init__(self, schema: Schema, noise: ReleaseNoise, fitted: ReleasedProducts) -> None:
        self._schema, self._noise, self._fitted = schema, noise, fitted
        self._columns = fitted.columns
        self._points = Memo(self._points_of)
        self._known: Latest[Factor, Single] = Latest(MOST_KNOWN)

    def of(self, factor: Factor) -> Single:
        """The latest small ones are kept."""
        known = self._known.get(factor)
        if known is not None:
            return known
        column = self._columns.index(factor.columns[0]) if factor.columns else 0
        points, pieces = self._points(column)
        models = self._fitted.models
        shares, rows = models[0].marginals[column].shares, max(float(self._noise.rows().value), 1.0)
        lumps = self._fitted.lumps[column]
        values = points.values_of(factor.at, factor.asked, lumps, shares, rows, factor.repeated)
        by_cell = values.by_cell()
        cells = [np.einsum("kci,ci->kc", by_cell, each) for each in pieces] if pieces else [by_cell[:, :, 0]]
        inside = np.stack([cells[i % len(cells)] @ model.inside(column) for i, model in enumerate(models)])
        means = np.stack([values @ model.shares[column] for values, model in zip(inside, models, strict=True)])
        variances = np.maximum(cells[0] ** 2 @ shares - (cells[0] @ shares) ** 2, 0.0)
        hidden = values.hidden(shares, rows, self._lines(column, cells[0]))
        unsure = self._dropped(column, cells[0])
        unsure[:, -1] = np.hypot(unsure[:, -1], hidden)
        unsure[:, -1] = np.hypot(unsure[:, -1], self._not_believed(column, cells[0], means, unsure))
        groups = self._group_values(column, cells[0])
        found = Single(means, inside, cells[0], variances, np.abs(by_cell).max((1, 2)), unsure, groups)
        if len(by_cell) == 1:
            self._known.add(factor, found)
        return found

    def _not_believed(self, column: int, cells: Floats, means: Floats, unsure: Floats) -> Floats:
        """What standard errors of functions lack where noise hides the column (`believed`)."""
        if not self._fitted.noises:
            return np.zeros(len(cells))
        claimed = np.sqrt(np.mean((means[1:] - means[0]) ** 2, axis=0) + (unsure**2).sum(1))
        unbiased = self._fitted.noises[column].error(cells, self._fitted.products.marginals[column])
        return np.sqrt(np.maximum(believed(claimed, unbiased, np.ptp(cells, axis=1)) ** 2 - claimed**2, 0.0))

    def _group_values(self, column: int, means: Floats) -> unseen.GroupValues:
        """Functions, given by their means in a column's cells, in the groups of its cells."""
        shares = self._fitted.products.marginals[column].shares
        if self._fitted.halved:
            halves = self._fitted.halves[column]
            inside = np.eye(2)[halves] * shares_inside(shares, halves, 2)[:, None]
        else:
            inside = self._fitted.products.inside(column)
        cells = self._fitted.cells[column]
        return unseen.group_values(means, shares, inside, cells.single if cells.ordered else None)

    def _lines(self, column: int, means: Floats) -> Floats:
        """Slopes of functions, given by their means in a column's cells; 0 where the sum of the column is not known."""
        marginal = self._fitted.products.marginals[column]
        if not marginal.ordered or self._fitted.cells[column].column.name not in self._noise.totals:
            return np.zeros(len(means))
        codes = marginal.means() - 0.5
        codes -= marginal.shares @ codes
        return (means * marginal.shares) @ codes / max(float(marginal.shares @ codes**2), 1e-12)

    def _dropped(self, column: int, means: Floats) -> Floats:
        """What functions, given by their means in a column's cells, would gain if cells that the fit dropped held
        their `dropped_shares`: entry [function, atom] for the bounds and missing, and in the last place the root of the
        sum of squares for all other cells.

        Refits drop them again, so their spread does not show it. The sum of codes is known better and stays: only what
        is not linear in codes changes.
        """
        cells, marginal = self._fitted.cells[column], self._fitted.products.marginals[column]
        gained = means - (means @ marginal.shares)[:, None]
        atoms = np.zeros(0, np.int64)
        if cells.ordered:
            atoms = np.array([0, cells.missing - 1, cells.missing])
            codes = marginal.means() - 0.5
            codes -= marginal.shares @ codes
            slope = gained @ (marginal.shares * codes) / max(float(marginal.shares @ codes**2), 1e-12)
            gained = gained - slope[:, None] * codes
        gained = gained * self._fitted.dropped[column]
        found = np.zeros((len(means), PER_COLUMN))
        found[:, : len(atoms)] = gained[:, atoms]
        found[:, -1] = np.sqrt((np.delete(gained, atoms, axis=1) ** 2).sum(1))
        return found

    def _points_of(self, column: int) -> tuple[ColumnPoints, list[Floats]]:
        """Points of a column and, if it has several in a cell, their shares in the cell for each model."""
        points = ColumnPoints(self._schema, self._fitted.cells[column], self._fitted.parents[column])
        marginals = [model.marginals[column] for model in self._fitted.models if points.inside > 1]
        return points, [shares_in_cells(marginal, points.positions) for marginal in marginals]
