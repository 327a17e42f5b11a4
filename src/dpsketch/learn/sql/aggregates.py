"""Aggregates and arithmetic between them: formulas whose standard errors follow by the chain rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.learn.sql import arithmetic
from dpsketch.learn.sql.expressions import column_names, condition_factors, not_a_number
from dpsketch.learn.sql.literals import decimals, literal_number
from dpsketch.learn.sql.quantities import Quantity, quantity_of
from dpsketch.learn.sql.selection import Selection, check_arithmetic, check_numeric
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Column, Datetime
from dpsketch.schema.schema import Schema

AGGREGATES = (
    "avg, sum, count, count_if, var, stddev, median, quantile(column, q), covar_pop, corr, regr_slope(y, x), "
    "regr_intercept(y, x)"
)
_FUNCTIONS = "+, -, *, /, abs, sqrt, exp, ln, log, power, round, floor, ceil, least, greatest, coalesce, nullif, cast"


@dataclass(frozen=True)
class Formula:
    """A statistic of groups of records, made of the aggregates of some columns.

    `straight` is the same without functions of one number, such as exp. Estimators are compared by its error: that of
    exp(sum(x)) is the less the smaller sum(x) comes out, which says nothing about how far off it is.
    """

    columns: tuple[str, ...]
    of: Callable[[Selection], Estimate]
    in_rows: bool = False
    dates: Column | None = None  # whose dates the values are
    straightened: Callable[[Selection], Estimate] | None = None  # if it is not `of`

    @property
    def straight(self) -> Callable[[Selection], Estimate]:
        return self.straightened or self.of


def is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup) or (
        isinstance(node, exp.Anonymous) and node.name.lower() in _OTHER_NAMES
    )


def formula_of(schema: Schema, node: exp.Expr) -> Formula:
    """A formula of the select list, having or order by; what is none is refused."""
    if is_aggregate(node):
        return _aggregate(schema, node)
    match node:
        case exp.Paren():
            return formula_of(schema, node.this)
        case exp.Literal():
            value = literal_number(node)
            return Formula((), lambda selection: selection.constant(value))
        case exp.Cast() if node.args["to"].this in arithmetic.REAL:
            return formula_of(schema, node.this)
        case exp.Pow():
            exponent = _number(node.expression)
            return _applied(schema, [node.this], lambda one: _power(one, exponent))
        case exp.Round():
            places = decimals(node)
            return _applied(
                schema, [node.this], lambda one: Estimate(arithmetic.rounded(one.value, places), one.influence)
            )
        case exp.Log():
            inner, base = (node.this, 10.0) if node.expression is None else (node.expression, _number(node.this))
            slope = 1 / np.log(base) if base > 0 and base != 1 else np.nan
            return _applied(schema, [inner], lambda one: _smooth(one, exp.Ln, lambda x: 1 / x).scaled(slope))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Nullif():
            return _applied(schema, [node.this, node.expression], _TWO[type(node)])
        case exp.Least() | exp.Greatest() | exp.Coalesce():
            return _applied(schema, [node.this, *node.expressions], _MANY[type(node)])
        case _ if type(node) in _ONE:
            return _applied(schema, [node.this], _ONE[type(node)])
        case exp.Column():
            raise QueryError(f"column '{node.name}' is neither aggregated nor in group by", f"use {AGGREGATES}")
        case exp.Window() | exp.Subquery() | exp.Exists():
            raise not_a_number(node)
        case exp.Func() if not isinstance(node, exp.Connector):
            name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
            raise QueryError(
                f"the function '{name.lower()}' is not known here",
                f"aggregates are {AGGREGATES}; between them use {_FUNCTIONS}",
            )
    raise QueryError(f"'{node.sql()}' is not supported in the select list", f"use {AGGREGATES}")


def _applied(schema: Schema, nodes: Sequence[exp.Expr], function: Callable[..., Estimate]) -> Formula:
    """A function of formulas, all from one estimator."""
    parts = [formula_of(schema, node) for node in nodes]
    for part in parts:
        if part.dates is not None:
            raise QueryError(
                f"dates of column '{part.dates.name}' cannot be used in arithmetic", "ask for each in its own column"
            )
    straight: Callable[[Selection], Estimate] | None = None
    if len(parts) == 1:
        straight = parts[0].straight
    elif any(part.straightened for part in parts):
        straight = lambda selection: function(*[part.straight(selection) for part in parts])  # noqa: E731
    return Formula(
        tuple(dict.fromkeys(name for part in parts for name in part.columns)),
        lambda selection: function(*[part.of(selection) for part in parts]),
        any(part.in_rows for part in parts),
        straightened=straight,
    )


def _smooth(one: Estimate, kind: type[exp.Expr], slope: Callable[[Floats], Floats]) -> Estimate:
    with np.errstate(all="ignore"):
        value = arithmetic.ONE[kind](one.value)
        return _where(~np.isnan(value), Estimate(value, one.influence * slope(one.value)[..., None]))


def _where(known: NDArray[np.bool_], one: Estimate) -> Estimate:
    """An estimate, and null elsewhere."""
    return Estimate(np.where(known, one.value, np.nan), np.where(known[..., None], one.influence, np.nan))


def _power(one: Estimate, exponent: float) -> Estimate:
    with np.errstate(all="ignore"):
        slope = exponent * one.value ** (exponent - 1) if exponent else np.zeros_like(one.value)
        return Estimate(one.value**exponent, one.influence * slope[..., None])


def _picked(first: Callable[[Floats, Floats], Floats]) -> Callable[..., Estimate]:
    """One of several estimates, with its own error; `first` says where the first of two is taken."""

    def pick(*estimates: Estimate) -> Estimate:
        chosen = estimates[0]
        for other in estimates[1:]:
            here = first(chosen.value, other.value) | np.isnan(other.value)
            chosen = Estimate(
                np.where(here, chosen.value, other.value), np.where(here[:, None], chosen.influence, other.influence)
            )
        return chosen

    return pick


def _without(one: Estimate, other: Estimate) -> Estimate:
    return _where(one.value != other.value, one)


_ONE: dict[type[exp.Expr], Callable[..., Estimate]] = {
    exp.Neg: lambda one: one.scaled(-1.0),
    exp.Abs: lambda one: _smooth(one, exp.Abs, lambda x: np.where(x < 0, -1.0, 1.0)),
    exp.Sqrt: lambda one: _where(one.value >= 0, one.root()),
    exp.Exp: lambda one: _smooth(one, exp.Exp, np.exp),
    exp.Ln: lambda one: _smooth(one, exp.Ln, lambda x: 1 / x),
    exp.Floor: lambda one: _smooth(one, exp.Floor, np.ones_like),
    exp.Ceil: lambda one: _smooth(one, exp.Ceil, np.ones_like),
}
_TWO: dict[type[exp.Expr], Callable[..., Estimate]] = {
    exp.Add: Estimate.__add__,
    exp.Sub: Estimate.__sub__,
    exp.Mul: Estimate.__mul__,
    exp.Div: Estimate.over,
    exp.Nullif: _without,
}
_MANY: dict[type[exp.Expr], Callable[..., Estimate]] = {
    exp.Least: _picked(np.less_equal),
    exp.Greatest: _picked(np.greater_equal),
    exp.Coalesce: _picked(lambda one, _: ~np.isnan(one)),
}


_KINDS: dict[str, tuple[type[exp.Expr], ...]] = {
    "mean": (exp.Avg,),
    "sum": (exp.Sum,),
    "var": (exp.Variance, exp.VariancePop),
    "std": (exp.Stddev, exp.StddevPop, exp.StddevSamp),
    "quantile": (exp.Quantile, exp.ApproxQuantile, exp.Median, exp.PercentileCont, exp.PercentileDisc),
    "covariance": (exp.CovarPop, exp.CovarSamp),
    "correlation": (exp.Corr,),
    "slope": (exp.RegrSlope,),
    "intercept": (exp.RegrIntercept,),
}
_OTHER_NAMES = {"var": "var", "std": "std", "mean": "mean", "approx_percentile": "quantile"}
_TAKES = {"quantile": 2, "covariance": 2, "correlation": 2, "slope": 2, "intercept": 2}


def _aggregate(schema: Schema, node: exp.Expr) -> Formula:
    if isinstance(node, exp.Filter):
        inner, condition = _aggregate(schema, node.this), node.expression.this
        where = condition_factors(schema, condition)
        columns = tuple(dict.fromkeys((*inner.columns, *column_names(schema, condition))))
        return replace(inner, columns=columns, of=lambda selection: inner.of(selection.also(where)))
    if isinstance(node, exp.Min | exp.Max):
        raise QueryError(
            f"{node.key} is one person's value and cannot be released",
            "ask for a quantile such as 0.01 or 0.99 instead",
        )
    if isinstance(node, exp.CountIf):
        conditions = condition_factors(schema, node.this)
        return Formula(
            column_names(schema, node.this), lambda selection: selection.also(conditions).count(), in_rows=True
        )
    if isinstance(node, exp.Count):
        if isinstance(node.this, exp.Distinct):
            raise QueryError("count(distinct …) is not in this release", "count each label with group by")
        if node.this is None or isinstance(node.this, exp.Star | exp.Literal):
            return Formula((), Selection.count, in_rows=True)
        counted = quantity_of(schema, node.this)
        return Formula(counted.columns, lambda selection: selection.present(counted), in_rows=True)
    kind, arguments = _call(node)
    if kind is None:
        raise QueryError(f"the aggregate '{node.sql()}' is not supported", f"use {AGGREGATES}")
    if kind == "quantile":
        return _quantile(schema, arguments)
    return _statistic(kind, [quantity_of(schema, argument) for argument in arguments])


def _statistic(kind: str, quantities: list[Quantity]) -> Formula:
    whats = {"sum": "sum", "var": "variance", "std": "variance"}
    for quantity in quantities:
        if quantity.column is not None and kind == "mean":
            check_numeric(quantity.column)
        elif quantity.column is not None:
            check_arithmetic(quantity.column, whats.get(kind, "covariance"))
    statistics: dict[str, Callable[..., Estimate]] = {
        "mean": Selection.mean,
        "sum": Selection.sum,
        "var": Selection.var,
        "std": lambda selection, quantity: selection.var(quantity).root(),
        "covariance": Selection.covariance,
        "correlation": Selection.correlation,
        "slope": Selection.slope,
        "intercept": Selection.intercept,
    }
    return Formula(
        tuple(dict.fromkeys(name for quantity in quantities for name in quantity.columns)),
        lambda selection: statistics[kind](selection, *quantities),
        kind == "sum",
        _dates(quantities[0]) if kind == "mean" else None,
    )


def _quantile(schema: Schema, arguments: list[exp.Expr]) -> Formula:
    quantity = quantity_of(schema, arguments[0])
    if quantity.column is not None:
        check_numeric(quantity.column)
    share = 0.5
    if len(arguments) == 2:
        if not isinstance(arguments[1], exp.Literal) or arguments[1].is_string:
            raise QueryError("the second argument of quantile must be a number between 0 and 1", "quantile(x, 0.9)")
        share = literal_number(arguments[1])
    return Formula(
        quantity.columns,
        lambda selection: selection.quantile_of(schema, quantity, share),
        dates=_dates(quantity),
    )


def _dates(quantity: Quantity) -> Column | None:
    return quantity.column if isinstance(quantity.column, Datetime) else None


def _call(node: exp.Expr) -> tuple[str | None, list[exp.Expr]]:
    """The kind of an aggregate and its arguments, in whichever dialect it is written."""
    if isinstance(node, exp.Anonymous):
        kind, arguments = _OTHER_NAMES[node.name.lower()], node.expressions
        takes = _TAKES.get(kind, 1)
        if len(arguments) != takes:
            plural = "argument" if takes == 1 else "arguments"
            raise QueryError(f"'{node.sql()}': {node.name.lower()} takes {takes} {plural}, got {len(arguments)}")
        return kind, arguments
    if (
        isinstance(node, exp.WithinGroup)
        and isinstance(node.this, exp.PercentileCont | exp.PercentileDisc)
        and isinstance(node.expression, exp.Order)
        and len(node.expression.expressions) == 1
    ):
        return "quantile", [node.expression.expressions[0].this, node.this.this]
    for kind, types in _KINDS.items():
        if isinstance(node, types):
            share = node.args.get("quantile") or node.args.get("expression")
            return kind, [node.this] if share is None else [node.this, share]
    return None, []


def _number(node: exp.Expr) -> float:
    """A constant such as an exponent."""
    inner, sign = node.unnest(), 1.0
    while isinstance(inner, exp.Neg):
        inner, sign = inner.this.unnest(), -sign
    if not isinstance(inner, exp.Literal):
        raise QueryError(f"'{node.sql()}' must be a number here", "power(avg(x), 2), log(2, avg(x))")
    return sign * literal_number(inner)
