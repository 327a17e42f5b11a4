"""What numbers are possible: interval arithmetic on expressions of columns and on formulas of aggregates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf, isnan

import numpy as np
from sqlglot import exp

from dpsketch.learn.sql import arithmetic
from dpsketch.learn.sql.dates import date_part
from dpsketch.learn.sql.expressions import CONDITIONS, branches
from dpsketch.learn.sql.literals import find_column, literal_number
from dpsketch.schema.calendar import part_range
from dpsketch.schema.columns import HIGHEST, LOWEST, Column
from dpsketch.schema.schema import Schema

Range = tuple[float, float]
ANYTHING: Range = (-inf, inf)
NOT_NEGATIVE: Range = (0.0, inf)
SHARE: Range = (0.0, 1.0)


def column_range(column: Column) -> Range:
    """The bounds of a column; labels have none."""
    if not column.averaged:
        return ANYTHING
    low, high = column.values_of(np.array([LOWEST, HIGHEST])).tolist()
    return low, high


def expression_range(schema: Schema, expression: exp.Expr) -> Range:
    """Between which numbers an expression of columns lies; anything where that is not simple."""
    part = date_part(expression)
    if part is not None:
        return part_range(part.part) or (1.0, 9999.0)
    match expression:
        case exp.Paren() | exp.Cast():
            found = expression_range(schema, expression.this)
            whole = isinstance(expression, exp.Cast) and expression.args["to"].this in arithmetic.WHOLE
            return (float(np.rint(found[0])), float(np.rint(found[1]))) if whole else found
        case exp.Column():
            return column_range(find_column(schema, expression.name))
        case exp.Literal():
            value = literal_number(expression)
            return value, value
        case exp.Case() | exp.If():
            ifs, default = branches(expression)
            results = [result for _, result in ifs] + [default]
            ranges = [expression_range(schema, each) for each in results if not isinstance(each, exp.Null)]
            return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else ANYTHING
        case exp.Boolean():
            return SHARE
        case _ if isinstance(expression, CONDITIONS):
            return SHARE
        case _ if type(expression) in TWO:
            one, other = (expression_range(schema, each) for each in (expression.this, expression.expression))
            return TWO[type(expression)](one, other)
        case _ if type(expression) in ONE:
            return ONE[type(expression)](expression_range(schema, expression.this))
        case _ if type(expression) in MANY:
            ranges = [expression_range(schema, each) for each in (expression.this, *expression.expressions)]
            return MANY[type(expression)](*ranges)
    return ANYTHING


def spread_range(one: Range) -> Range:
    """Range of a standard deviation: at most half the width, where half of the records are at each bound."""
    return 0.0, half_width(one)


def variance_range(one: Range) -> Range:
    return 0.0, half_width(one) ** 2


def covariance_range(one: Range, other: Range) -> Range:
    most = half_width(one) * half_width(other)
    return -most, most


def moment_range(one: Range, order: int, central: bool) -> Range:
    """Range of the mean power of a number, or of its distance from the mean."""
    low, high = (one[0] - one[1], one[1] - one[0]) if central else one
    ends = sorted((low**order, high**order))
    return (0.0 if order % 2 == 0 and low <= 0 <= high else ends[0]), ends[1]


def total_range(one: Range) -> Range:
    """Range of a sum over any number of records."""
    return (0.0 if one[0] >= 0 else -inf), (0.0 if one[1] <= 0 else inf)


def half_width(one: Range) -> float:
    return (one[1] - one[0]) / 2


def _sum(one: Range, other: Range) -> Range:
    return one[0] + other[0], one[1] + other[1]


def _difference(one: Range, other: Range) -> Range:
    return one[0] - other[1], one[1] - other[0]


def _product(one: Range, other: Range) -> Range:
    corners = [0.0 if 0 in (left, right) else left * right for left, right in product(one, other)]
    return min(corners), max(corners)


def _ratio(one: Range, other: Range) -> Range:
    """Anything where the denominator may have either sign; that it is not zero is sure, as a ratio to zero is null."""
    if other[0] < 0 < other[1] or other == (0.0, 0.0):
        return ANYTHING
    if other[1] <= 0:
        return _ratio((-one[1], -one[0]), (-other[1], -other[0]))
    return _product(one, (1 / other[1] if other[1] else inf, 1 / other[0] if other[0] else inf))


def _absolute(one: Range) -> Range:
    return (0.0 if one[0] <= 0 <= one[1] else min(map(abs, one))), max(map(abs, one))


def _rising(function: Callable[[float], float], lowest: float = -inf) -> Callable[[Range], Range]:
    def ends(one: Range) -> Range:
        with np.errstate(all="ignore"):
            low, high = (float(function(max(end, lowest))) for end in one)
        return (-inf if isnan(low) else low), (inf if isnan(high) else high)

    return ends


def _least(*ranges: Range) -> Range:
    """Nulls are left out, so the greatest value is that of any range."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


ONE: dict[type[exp.Expr], Callable[[Range], Range]] = {
    exp.Neg: lambda one: (-one[1], -one[0]),
    exp.Abs: _absolute,
    exp.Sqrt: _rising(np.sqrt, 0.0),
    exp.Exp: _rising(np.exp),
    exp.Ln: _rising(np.log, 0.0),
    exp.Floor: _rising(np.floor),
    exp.Ceil: _rising(np.ceil),
}
TWO: dict[type[exp.Expr], Callable[[Range, Range], Range]] = {
    exp.Add: _sum,
    exp.Sub: _difference,
    exp.Mul: _product,
    exp.Div: _ratio,
    exp.Nullif: lambda one, _: one,
}
MANY: dict[type[exp.Expr], Callable[..., Range]] = {
    exp.Least: _least,
    exp.Greatest: _least,
    exp.Coalesce: _least,
}
