"""Statistics of groups of records, from any estimator of expectations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from numbers import Real
from operator import add
from typing import Protocol

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer, Estimate, same_coordinates, stacked
from dpsketch.learn.cell_places import continuous
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.sql.quantiles import level_influence, norm, quantile_between, quantile_of_levels
from dpsketch.learn.sql.quantities import Numbers, Quantity, Terms, column_quantity, empty_record, times
from dpsketch.maps.tables.cells import Cells
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, LOWEST, Column, as_moment, microseconds
from dpsketch.schema.schema import Schema

_GRID = 128
_LONGEST = 2.0**62  # microseconds


class Estimator(Protocol):
    """Expectations of functions of some columns, from a release."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def how(self) -> str: ...

    def cells_of(self, column: str) -> Cells | None:
        """The cells of a column at whose levels a quantile is looked for; None for an even grid of its levels."""
        ...

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        """Expectations of products of factors: those of the first product's functions, then the second's, …"""
        ...


class Selection:
    """The records that meet a condition, the product of `where`, in one or several groups: one row of the factors each.
    Every statistic has one entry a group.

    Counts and shares are not cut off at zero: they stay unbiased and add up. Missing cells are left out of means,
    variances and quantiles, as in SQL.
    """

    def __init__(
        self,
        estimator: Estimator,
        rows: Estimate,
        where: Sequence[Factor],
        groups: int = 1,
        by: Mapping[str, Factor] | None = None,
        whole: Sequence[Factor] = (),
    ) -> None:
        self._estimator, self._rows, self._where, self._groups = estimator, rows, tuple(where), groups
        self._by, self._whole = dict(by or {}), tuple(whole)

    def also(self, where: Sequence[Factor], groups: int | None = None) -> Selection:
        """Those of the records that meet one more condition, perhaps in several groups."""
        together = (*self._where, *where)
        return Selection(self._estimator, self._rows, together, groups or self._groups, self._by, self._whole)

    def grouped(self, by: Mapping[str, Factor], groups: int, whole: Sequence[Factor]) -> Selection:
        """The groups by these keys; `whole` is the condition of all groups together."""
        together = (*self._where, *by.values())
        return Selection(self._estimator, self._rows, together, groups, by, whole)

    def overall(self, by: Sequence[str], where: Sequence[Factor] | None) -> Selection:
        """All records that meet the condition of the whole or another one, in the groups by some of the keys."""
        for key in by:
            if key not in self._by:
                raise QueryError(f"partition by {key}: this is no key of group by", "partition by a key, or by none")
        together = (*(self._whole if where is None else where), *(self._by[key] for key in by))
        return Selection(self._estimator, self._rows, together, self._groups if by else 1)

    def repeated(self, estimate: Estimate) -> Estimate:
        """The same for every group."""
        return estimate if len(estimate.value) == self._groups else stacked([estimate] * self._groups)

    def share(self) -> Estimate:
        """Share of all records."""
        return self._estimator.expect(self._where)

    def count(self) -> Estimate:
        return self._of_all_rows(self.share())

    def expectation(self, *factors: Factor) -> Estimate:
        """Expectation of a product of functions, times one for the records of a group and zero for others."""
        return self._estimator.expect((*self._where, *factors))

    def total(self, terms: Terms) -> Estimate:
        """Expectation of a sum of products, times one for the records of a group and zero for others."""
        if not terms:
            return self.constant(0.0)
        return reduce(add, (self.expectation(*factors) for factors in terms))

    def constant(self, value: float) -> Estimate:
        return Estimate(np.full(self._groups, value), np.zeros((self._groups, 1)))

    def present(self, column: Column | Quantity) -> Estimate:
        """Number of records with a value in `column`."""
        return self._of_all_rows(self.total(_quantity(column).present))

    def sum(self, column: Column | Quantity) -> Estimate:
        return self._of_all_rows(self.total(_quantity(column).value))

    def _of_all_rows(self, expectations: Estimate) -> Estimate:
        """Sums over the records. The product of both errors counts where noise hides the number of records."""
        sums = self._rows * expectations
        together = self._rows.stderr * expectations.stderr
        stderr = sums.stderr
        wider = np.hypot(1.0, np.divide(together, stderr, out=np.zeros_like(stderr), where=stderr > 0))
        return replace(sums, influence=sums.influence * wider[..., None])

    def mean(self, column: Column | Quantity) -> Estimate:
        quantity = _quantity(column)
        return self.total(quantity.value) / self.total(quantity.present)

    def var(self, column: Column | Quantity) -> Estimate:
        """Population variance, computed around the mean so that digits do not cancel."""
        quantity = _quantity(column)
        centre = np.nan_to_num(self.mean(quantity).value)[:, None]
        around = quantity.shifted(centre)
        present = self.total(quantity.present)
        first = self.total(around.value) / present
        return (self.total(times(around.value, around.value)) / present - first * first).clipped(0.0)

    def std(self, column: Column | Quantity) -> Estimate:
        return self.var(column).root()

    def covariance(self, one: Column | Quantity, two: Column | Quantity) -> Estimate:
        """Population covariance over records where both are present."""
        return self._line(one, two).covariance

    def correlation(self, one: Column | Quantity, two: Column | Quantity) -> Estimate:
        line, back = self._line(one, two), self._line(two, one)
        return (line.covariance / (line.variance.root() * back.variance.root())).clipped(-1.0, 1.0)

    def slope(self, y: Column | Quantity, x: Column | Quantity) -> Estimate:
        """Slope of the least squares line of y on x."""
        line = self._line(x, y)
        return line.covariance / line.variance

    def intercept(self, y: Column | Quantity, x: Column | Quantity) -> Estimate:
        line = self._line(x, y)
        return line.mean_y - line.mean_x * (line.covariance / line.variance)

    def _line(self, one: Column | Quantity, two: Column | Quantity) -> _Line:
        x, y = _quantity(one), _quantity(two)
        share = self.total(times(x.present, y.present))
        middles = []
        for this, other in ((x, y), (y, x)):
            middles.append(np.nan_to_num((self.total(times(this.value, other.present)) / share).value))
        x, y = x.shifted(middles[0][:, None]), y.shifted(middles[1][:, None])
        mean_x = self.total(times(x.value, y.present)) / share
        mean_y = self.total(times(x.present, y.value)) / share
        variance = self.total(times(x.value, x.value, y.present)) / share - mean_x * mean_x
        covariance = self.total(times(x.value, y.value)) / share - mean_x * mean_y
        return _Line(
            replace(mean_x, value=mean_x.value + middles[0]),
            replace(mean_y, value=mean_y.value + middles[1]),
            variance.clipped(0.0),
            covariance,
        )

    def moment(self, column: Column, order: int, central: bool) -> Estimate:
        """E[x^order], or that of the distance from the mean, whose own error adds −order·E[(x − mean)^(order − 1)]."""
        check_arithmetic(column, "moment")
        if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= 20:
            raise QueryError(f"the order of a moment is a whole number from 1 to 20, got {order!r}")
        mean, present = self.mean(column), self.expectation(power_of(column, 0))
        if not central:
            return self.expectation(power_of(column, order)) / present
        centre = np.nan_to_num(mean.value)[:, None]
        found, slope = (self.expectation(power_of(column, power, centre)) / present for power in (order, order - 1))
        mine, theirs = same_coordinates(found.influence, mean.influence)
        return replace(found, influence=mine - order * slope.value[:, None] * theirs)

    def cdf(self, column: Column, at: Floats) -> Estimate:
        """Share of each group's present records with a value at or below each of `at`: entry [group, at]."""
        check_numeric(column)
        numbers = column_quantity(column).numbers
        asked = [(value,) for value in at.tolist()]  # each by itself: other points of the list do not change it
        return self._parts(
            [_at_most(numbers, np.array(each), each) for each in asked],
            [replace(numbers.power(0), asked=each) for each in asked],
        )

    def _parts(self, parts: Sequence[Factor], wholes: Sequence[Factor]) -> Estimate:
        """Expectations of functions of `parts` over those of `wholes`, or of a single one: entry [group, function]."""
        if not parts:
            return Estimate(np.zeros((self._groups, 0)), np.zeros((self._groups, 0, 1)))
        found = []
        for group in range(self._groups):  # one by one: memory
            where = [factor.row(group) for factor in self._where]
            part, whole = (self._estimator.expect(*([*where, each] for each in some)) for some in (parts, wholes))
            found.append(part / whole)
        influences = same_coordinates(*(each.influence for each in found))
        return Estimate(np.stack([each.value for each in found]), np.stack(influences), found[0].rough)

    def quantile(self, column: Column | Quantity, schema: Schema, q: float) -> Estimate:
        """The value below which a share q of each group lies: where the estimated distribution function reaches q. Its
        error is the spread of where it would with other noise. Values of an expression are found by trying those of its
        columns.
        """
        if not 0 <= q <= 1:
            raise QueryError(f"a quantile is between 0 and 1, got {q:g}", "the median is 0.5")
        quantity = _quantity(column)
        if quantity.column is None:
            grid, exact = quantity.numbers.grid(schema, _GRID)
            return self._quantile(quantity, q, grid, exact) if len(grid) else self.constant(np.nan)
        cells = self._estimator.cells_of(quantity.column.name)
        if cells is None:
            exact = quantity.column.levels <= 2 * _GRID
            codes = np.linspace(LOWEST, HIGHEST, quantity.column.levels if exact else _GRID + 1)
            return self._quantile(quantity, q, quantity.column.values_of(np.rint(codes).astype(np.int16)), exact)
        return stacked([self._group_quantile(group, quantity, cells, q) for group in range(self._groups)])

    def _group_quantile(self, group: int, quantity: Quantity, cells: Cells, q: float) -> Estimate:
        """The quantile of one group."""
        where = [factor.row(group) for factor in self._where]
        whole = self._estimator.expect([*where, quantity.numbers.power(0)])

        def shares(at: Floats, asked: tuple[float, ...] = ()) -> Estimate:
            return self._estimator.expect([*where, _at_most(quantity.numbers, at, asked)]) / whole

        return (quantile_between if continuous(cells) else quantile_of_levels)(shares, cells, q)

    def _quantile(self, quantity: Quantity, q: float, grid: Floats, exact: bool) -> Estimate:
        from scipy.optimize import isotonic_regression

        cdf = self._parts([_at_most(quantity.numbers, grid)], [quantity.numbers.power(0)])
        values, influences = [], []
        for share, influence in zip(cdf.value, cdf.influence, strict=True):
            if np.isnan(share).any():
                values.append(np.nan)
                influences.append(np.full(influence.shape[-1], np.nan))
                continue
            rising = np.clip(isotonic_regression(share).x, 0, 1)
            above = min(int(np.searchsorted(rising, q, side="left")), len(grid) - 1)
            under = max(above - 1, 0)
            if exact or above == under:
                values.append(grid[above])
                influences.append(level_influence(grid, rising, influence, q, above, cdf.rough))
                continue
            part = (q - rising[under]) / max(rising[above] - rising[under], 1e-12)
            values.append(grid[under] + np.clip(part, 0, 1) * (grid[above] - grid[under]))
            low, high = max(above - 2, 0), min(above + 1, len(grid) - 1)
            density = max(rising[high] - rising[low], 1e-9) / (grid[high] - grid[low])
            near = influence[above if norm(influence[above]) > norm(influence[under]) else under] / density
            far = level_influence(grid, rising, influence, q, above, cdf.rough)
            straight = max(norm(near), norm(far)) <= grid[high] - grid[low]  # else the density is not the same
            influences.append(near if straight else far)
        return Estimate(np.array(values), np.stack(influences), cdf.rough)


class Everything:
    """Expectations of constants, which need no estimator."""

    columns: tuple[str, ...] = ()
    how = ""

    def __init__(self, schema: Schema) -> None:
        self._point = empty_record(schema, ())

    def cells_of(self, column: str) -> None:
        return None

    def expect(self, *products: Sequence[Factor]) -> Estimate:
        values = np.concatenate([product_at(factors, self._point)[:, 0] for factors in products])
        return Estimate(values, np.zeros((len(values), 1)))


@dataclass(frozen=True)
class _Line:
    """Moments of x and y over records where both are present."""

    mean_x: Estimate
    mean_y: Estimate
    variance: Estimate  # of x
    covariance: Estimate


def _at_most(numbers: Numbers, at: Floats, asked: tuple[float, ...] = ()) -> Factor:
    """One function for each of `at`: one where a number is at or below it."""
    return Factor(numbers.columns, lambda frame: (numbers.at(frame)[None, :] <= at[:, None]).astype(np.float64), asked)


def power_of(column: Column, power: int, centre: Floats | float = 0.0) -> Factor:
    """(x − centre)^power where a column is present, else 0; with several centres one function each."""
    return column_quantity(column).numbers.power(power, centre)


def _quantity(column: Column | Quantity) -> Quantity:
    return column if isinstance(column, Quantity) else column_quantity(column)


def answer_in_units(value: float, stderr: float, column: Column | None) -> Answer:
    """A number as it is, or as a date with a span of time."""
    if column is None or not column.dates or not np.isfinite(value):
        return Answer(value, stderr)
    span = np.timedelta64(int(min(stderr, _LONGEST)), "us") if np.isfinite(stderr) else np.timedelta64("NaT", "us")
    return Answer(np.datetime64(int(np.clip(value, -_LONGEST, _LONGEST)), "us"), span)


def column_number(column: Column, value: object) -> float:
    """A user's number or date in the terms of a column."""
    if column.dates:
        moment = as_moment(str(value) if isinstance(value, np.datetime64) else value)
        if moment is None:
            raise QueryError(f"column '{column.name}' holds dates, got {value!r}", "write dates as '2024-01-31'")
        return float(microseconds(moment))
    if isinstance(value, Real) and not np.isnan(float(value)):
        return float(value)
    raise QueryError(f"column '{column.name}' holds numbers, got {value!r}", "pass a number that is not NaN")


def check_numeric(column: Column) -> None:
    if not column.averaged:
        raise QueryError(
            f"column '{column.name}' is a {column.kind} and has no numeric value", "count it, or group by it"
        )


def check_arithmetic(column: Column, what: str) -> None:
    check_numeric(column)
    if column.dates:
        raise QueryError(
            f"the {what} of dates in column '{column.name}' is not defined", "ask for the mean or a quantile"
        )
