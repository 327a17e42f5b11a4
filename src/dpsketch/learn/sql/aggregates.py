"""Parses the aggregates of a statement, and the arithmetic between them, into formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.learn.sql import arithmetic, ranges
from dpsketch.learn.sql.expressions import condition_factors, not_a_number
from dpsketch.learn.sql.formulas import Aggregate, Constant, Formula, Kind, applied
from dpsketch.learn.sql.literals import decimals, literal_number
from dpsketch.learn.sql.quantities import quantity_of
from dpsketch.learn.sql.selection import Selection, check_arithmetic
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Column
from dpsketch.schema.schema import Schema

AGGREGATES = (
    "avg, sum, count, count_if, var, stddev, median, quantile(column, q), covar_pop, corr, regr_slope(y, x), "
    "regr_intercept(y, x)"
)
_FUNCTIONS = "+, -, *, /, abs, sqrt, exp, ln, log, power, round, floor, ceil, least, greatest, coalesce, nullif, cast"


def is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup) or (
        isinstance(node, exp.Anonymous) and node.name.lower() in _OTHER_NAMES
    )


def formula_of(schema: Schema, node: exp.Expr) -> Formula:
    """Parse a formula of the select list, having or order by. Refuses anything else."""
    if is_aggregate(node):
        return _aggregate(schema, node)
    match node:
        case exp.Paren():
            return formula_of(schema, node.this)
        case exp.Literal():
            return Constant(literal_number(node))
        case exp.Cast() if node.args["to"].this in arithmetic.REAL:
            return formula_of(schema, node.this)
        case exp.Pow():
            exponent = _number(node.expression)
            return _applied(schema, [node.this], lambda one: _power(one, exponent))
        case exp.Round():
            digits = decimals(node)
            return _applied(
                schema,
                [node.this],
                lambda one: replace(one, value=arithmetic.rounded(one.value, digits)),
                lambda one: tuple(arithmetic.rounded(np.array(one), digits).tolist()),
            )
        case exp.Log():
            inner, base = (node.this, 10.0) if node.expression is None else (node.expression, _number(node.this))
            slope = 1 / np.log(base) if base > 0 and base != 1 else np.nan
            return _applied(schema, [inner], lambda one: _smooth(one, exp.Ln, lambda x: 1 / x).scaled(slope))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Nullif():
            return _applied(schema, [node.this, node.expression], _TWO[type(node)], ranges.TWO[type(node)])
        case exp.Least() | exp.Greatest() | exp.Coalesce():
            return _applied(schema, [node.this, *node.expressions], _MANY[type(node)], ranges.MANY[type(node)])
        case _ if type(node) in _ONE:
            return _applied(schema, [node.this], _ONE[type(node)], ranges.ONE[type(node)])
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


def _applied(
    schema: Schema,
    nodes: Sequence[exp.Expr],
    function: Callable[..., Estimate],
    range_of: Callable[..., ranges.Range] = lambda *_: ranges.ANYTHING,
) -> Formula:
    return applied(function, range_of, *[formula_of(schema, node) for node in nodes])


def _smooth(one: Estimate, kind: type[exp.Expr], slope: Callable[[Floats], Floats]) -> Estimate:
    with np.errstate(all="ignore"):
        value = arithmetic.ONE[kind](one.value)
        return _where(~np.isnan(value), Estimate(value, one.influence * slope(one.value)[..., None], one.rough))


def _where(known: NDArray[np.bool_], one: Estimate) -> Estimate:
    """The estimate where `known`, and null elsewhere."""
    influence = np.where(known[..., None], one.influence, np.nan)
    return Estimate(np.where(known, one.value, np.nan), influence, one.rough)


def _power(one: Estimate, exponent: float) -> Estimate:
    with np.errstate(all="ignore"):
        slope = exponent * one.value ** (exponent - 1) if exponent else np.zeros_like(one.value)
        return Estimate(one.value**exponent, one.influence * slope[..., None], one.rough)


def _picked(first: Callable[[Floats, Floats], Floats]) -> Callable[..., Estimate]:
    """Select one of several estimates, with its own error; `first` is true where the first of two is selected."""

    def pick(*estimates: Estimate) -> Estimate:
        chosen = estimates[0]
        for other in estimates[1:]:
            here = first(chosen.value, other.value) | np.isnan(other.value)
            chosen = Estimate(
                np.where(here, chosen.value, other.value),
                np.where(here[:, None], chosen.influence, other.influence),
                chosen.rough or other.rough,
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


def _arithmetic(what: str) -> Callable[[Column], None]:
    return partial(check_arithmetic, what=what)


def _any_column(column: Column) -> None:
    """Accept any column: records with a value can be counted in all of them."""


def _same(one: ranges.Range) -> ranges.Range:
    return one


COUNT = Kind(Selection.count, arguments=0, in_rows=True, possible=lambda *_: ranges.NOT_NEGATIVE)
PRESENT = Kind(Selection.present, in_rows=True, check=_any_column, possible=lambda *_: ranges.NOT_NEGATIVE)
KINDS: dict[str, Kind] = {
    "mean": Kind(Selection.mean, (exp.Avg,), dated=True, possible=_same),
    "sum": Kind(Selection.sum, (exp.Sum,), in_rows=True, check=_arithmetic("sum"), possible=ranges.total_range),
    "var": Kind(
        Selection.var, (exp.Variance, exp.VariancePop), check=_arithmetic("variance"), possible=ranges.variance_range
    ),
    "std": Kind(
        Selection.std,
        (exp.Stddev, exp.StddevPop, exp.StddevSamp),
        check=_arithmetic("variance"),
        possible=ranges.spread_range,
    ),
    "quantile": Kind(
        Selection.quantile,
        (exp.Quantile, exp.ApproxQuantile, exp.Median, exp.PercentileCont, exp.PercentileDisc),
        arguments=2,
        dated=True,
        possible=_same,
    ),
    "covariance": Kind(
        Selection.covariance,
        (exp.CovarPop, exp.CovarSamp),
        2,
        check=_arithmetic("covariance"),
        possible=ranges.covariance_range,
    ),
    "correlation": Kind(
        Selection.correlation, (exp.Corr,), 2, check=_arithmetic("covariance"), possible=lambda *_: (-1.0, 1.0)
    ),
    "slope": Kind(Selection.slope, (exp.RegrSlope,), 2, check=_arithmetic("covariance")),
    "intercept": Kind(Selection.intercept, (exp.RegrIntercept,), 2, check=_arithmetic("covariance")),
}
_OTHER_NAMES = {"var": "var", "std": "std", "mean": "mean", "approx_percentile": "quantile"}


def _aggregate(schema: Schema, node: exp.Expr) -> Aggregate:
    if isinstance(node, exp.Filter):
        inner = _aggregate(schema, node.this)
        return replace(inner, where=(*condition_factors(schema, node.expression.this), *inner.where))
    if isinstance(node, exp.Min | exp.Max):
        raise QueryError(
            f"{node.key} is one person's value and cannot be released",
            "ask for a quantile such as 0.01 or 0.99 instead",
        )
    if isinstance(node, exp.CountIf):
        return Aggregate(COUNT, where=tuple(condition_factors(schema, node.this)))
    if isinstance(node, exp.Count):
        if isinstance(node.this, exp.Distinct):
            raise QueryError("count(distinct …) is not in this release", "count each label with group by")
        if node.this is None or isinstance(node.this, exp.Star | exp.Literal):
            return Aggregate(COUNT)
        return Aggregate(PRESENT, (quantity_of(schema, node.this),))
    kind, arguments = _call(node)
    if kind is None:
        raise QueryError(f"the aggregate '{node.sql()}' is not supported", f"use {AGGREGATES}")
    if kind == "quantile":
        return _quantile(schema, arguments)
    return Aggregate(KINDS[kind], tuple(quantity_of(schema, argument) for argument in arguments))


def _quantile(schema: Schema, arguments: list[exp.Expr]) -> Aggregate:
    median = Aggregate(KINDS["quantile"], (quantity_of(schema, arguments[0]),), (schema, 0.5))
    if len(arguments) < 2:
        return median
    if not isinstance(arguments[1], exp.Literal) or arguments[1].is_string:
        raise QueryError("the second argument of quantile must be a number between 0 and 1", "quantile(x, 0.9)")
    return replace(median, parameters=(schema, literal_number(arguments[1])))


def _call(node: exp.Expr) -> tuple[str | None, list[exp.Expr]]:
    """The kind of an aggregate and its arguments, in any SQL dialect."""
    if isinstance(node, exp.Anonymous):
        kind, arguments = _OTHER_NAMES[node.name.lower()], node.expressions
        takes = KINDS[kind].arguments
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
    for kind, known in KINDS.items():
        if isinstance(node, known.nodes):
            share = node.args.get("quantile") or node.args.get("expression")
            return kind, [node.this] if share is None else [node.this, share]
    return None, []


def _number(node: exp.Expr) -> float:
    """Parse a constant such as an exponent."""
    inner, sign = node.unnest(), 1.0
    while isinstance(inner, exp.Neg):
        inner, sign = inner.this.unnest(), -sign
    if not isinstance(inner, exp.Literal):
        raise QueryError(f"'{node.sql()}' must be a number here", "power(avg(x), 2), log(2, avg(x))")
    return sign * literal_number(inner)
