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
from dpsketch.learn.sql.formulas import Aggregate, Constant, Formula, Kind, Overall, applied
from dpsketch.learn.sql.label_counts import checked_labels, distinct_labels, listed_levels
from dpsketch.learn.sql.literals import decimals, literal_number
from dpsketch.learn.sql.quantities import quantity_of
from dpsketch.learn.sql.selection import Selection, check_arithmetic
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Column
from dpsketch.schema.schema import Schema

AGGREGATES = (
    "avg, sum, count, count(distinct c), count_if, var, stddev, median, quantile(column, q), mode, covar_pop, corr, "
    "regr_slope(y, x), regr_intercept(y, x)"
)
_FUNCTIONS = (
    "+, -, *, /, abs, sqrt, exp, ln, log, power, round, floor, ceil, least, greatest, coalesce, nullif, cast, stderr"
)


def is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup | exp.Window) or (
        isinstance(node, exp.Anonymous) and node.name.lower() in _OTHER_NAMES
    )


def formula_of(schema: Schema, node: exp.Expr) -> Formula:
    """Parse a formula of the select list, having or order by. Refuses anything else."""
    if isinstance(node, exp.Window | exp.Subquery):
        return _overall(schema, node)
    if is_aggregate(node):
        return _aggregate(schema, node)
    match node:
        case exp.Div() if _share(node):
            return _share_of_total(schema, node)
        case exp.Anonymous() if node.name.lower() == "stderr" and len(node.expressions) == 1:
            return applied(_error, lambda _: ranges.NOT_NEGATIVE, formula_of(schema, node.expressions[0]))
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
                lambda one: _stepped(one, _half_up(one.value, digits), 10.0**-digits, 0.5),
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
        case exp.Exists():
            raise not_a_number(node)
        case exp.Func() if not isinstance(node, exp.Connector):
            name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
            raise QueryError(
                f"the function '{name.lower()}' is not known here",
                f"aggregates are {AGGREGATES}; between them use {_FUNCTIONS}",
            )
    raise QueryError(f"'{node.sql()}' is not supported in the select list", f"use {AGGREGATES}")


_ROUNDED = 1e-9  # of a number: below this an error is that of floating point numbers
_HALF = 1e-12
_OVER = "shares of the total are count(*) / sum(count(*)) over (), or over (partition by a key of group by)"
_OF_ALL = "write (select avg(x) from sketch), with where but without group by"


def _overall(schema: Schema, node: exp.Expr) -> Overall:
    """A total over all groups, or an aggregate of all records in a select of its own."""
    if isinstance(node, exp.Subquery):
        select = node.this
        clauses = ("group", "having", "order", "limit", "offset", "distinct")
        if not isinstance(select, exp.Select) or any(select.args.get(clause) for clause in clauses):
            raise QueryError(f"'{node.sql('duckdb')}' is not one number of all records", _OF_ALL)
        if len(select.expressions) != 1 or not any(is_aggregate(each) for each in select.expressions[0].walk()):
            raise QueryError(f"'{node.sql('duckdb')}' is not one number of all records", _OF_ALL)
        where = select.args.get("where")
        condition = () if where is None else condition_factors(schema, where.this)
        return Overall(formula_of(schema, select.expressions[0].unalias()), where=tuple(condition))
    frame = [key for key, value in node.args.items() if value and key not in ("this", "partition_by", "over")]
    total = node.this.this if isinstance(node.this, exp.Sum) else None
    if frame or total is None or not is_aggregate(total):
        raise QueryError(f"the window '{node.sql('duckdb')}' is not supported", _OVER)
    inner = formula_of(schema, total)
    if not isinstance(inner, Aggregate) or not inner.in_rows:
        raise QueryError(f"'{total.sql('duckdb')}' of the groups does not add up to that of all records", _OVER)
    return Overall(inner, tuple(text_of(key) for key in node.args.get("partition_by") or ()))


def text_of(node: exp.Expr) -> str:
    """A normalised text, the same for two spellings of one expression."""
    node = node.unnest().copy()
    for name in node.find_all(exp.Identifier):
        name.set("quoted", False)
    return node.sql()


def _share(node: exp.Div) -> bool:
    """Whether a count or sum is divided by the total of the same; a factor before it may be a constant."""
    whole, part = node.expression.unnest(), node.this.unnest()
    if isinstance(part, exp.Mul):
        sides = [part.this.unnest(), part.expression.unnest()]
        part = next((side for side in sides if not isinstance(side, exp.Literal)), part)
    if isinstance(whole, exp.Window):
        return isinstance(whole.this, exp.Sum) and whole.this.this == part
    inner = whole.this if isinstance(whole, exp.Subquery) else None
    return isinstance(inner, exp.Select) and not inner.args.get("where") and inner.expressions == [part]


def _share_of_total(schema: Schema, node: exp.Div) -> Formula:
    """A share between 0 and 1 of what cannot be negative, times a constant factor."""
    part, factor = node.this.unnest(), 1.0
    if isinstance(part, exp.Mul):
        one, other = part.this.unnest(), part.expression.unnest()
        part, constant = (other, one) if isinstance(one, exp.Literal) else (one, other)
        factor = literal_number(constant) if isinstance(constant, exp.Literal) else np.nan
    top, bottom = formula_of(schema, part), formula_of(schema, node.expression)
    if np.isnan(factor):
        return _applied(schema, [node.this, node.expression], _TWO[exp.Div], ranges.TWO[exp.Div])
    possible = sorted((0.0, factor)) if top.possible[0] >= 0 else ranges.ANYTHING
    shares = applied(lambda *both: both[0].over(both[1]).scaled(factor), lambda *_: tuple(possible), top, bottom)
    return replace(shares, ratio=True)


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


def _half_up(values: Floats, digits: int) -> Floats:
    """Rounded numbers; what floating point leaves just below a half counts as that half."""
    return arithmetic.rounded(values * (1 + _HALF), digits)


def _stepped(one: Estimate, value: Floats, unit: float = 1.0, first: float = 0.0) -> Estimate:
    """An estimate rounded to `value` in steps of `unit`, which begin at `first` units. Its error is that of the
    estimate, and a step where that may lead across the beginning of one.
    """
    from scipy.special import ndtr

    stderr, places = one.stderr, one.value / unit - first
    away = np.abs(places - np.rint(places)) * unit
    least = _ROUNDED * np.maximum(np.abs(one.value), unit)
    across = unit**2 * ndtr(-away / np.maximum(stderr, least))
    influence = one.influence * np.sqrt(1 + across / np.maximum(stderr, least) ** 2)[..., None]
    influence[..., 0] = np.where(stderr < least, np.sqrt(across), influence[..., 0])
    return Estimate(value, influence, one.rough)


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


def _error(one: Estimate) -> Estimate:
    """The standard error, as a number that is known."""
    return Estimate(one.stderr, np.zeros((len(one.value), 1)))


def _without(one: Estimate, other: Estimate) -> Estimate:
    return _where(one.value != other.value, one)


_ONE: dict[type[exp.Expr], Callable[..., Estimate]] = {
    exp.Neg: lambda one: one.scaled(-1.0),
    exp.Abs: lambda one: _smooth(one, exp.Abs, lambda x: np.where(x < 0, -1.0, 1.0)),
    exp.Sqrt: lambda one: _where(one.value >= 0, one.root()),
    exp.Exp: lambda one: _smooth(one, exp.Exp, np.exp),
    exp.Ln: lambda one: _smooth(one, exp.Ln, lambda x: 1 / x),
    exp.Floor: lambda one: _stepped(one, np.floor(one.value)),
    exp.Ceil: lambda one: _stepped(one, np.ceil(one.value)),
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
DISTINCT = Kind(distinct_labels, check=_any_column)
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
            if len(node.this.expressions) != 1 or isinstance(node.this.expressions[0], exp.Tuple):
                raise QueryError("count(distinct …) takes one column", "list the combinations: select distinct a, b")
            return _distinct(schema, node.this.expressions[0])
        if node.this is None or isinstance(node.this, exp.Star | exp.Literal):
            return Aggregate(COUNT)
        return Aggregate(PRESENT, (quantity_of(schema, node.this),))
    if isinstance(node, exp.ApproxDistinct):
        return _distinct(schema, node.this)
    if isinstance(node, exp.Mode):
        raise QueryError(
            "mode is a label, not a number", "give it an entry of the select list: select mode(c), count(*)"
        )
    kind, arguments = _call(node)
    if kind is None:
        raise QueryError(f"the aggregate '{node.sql()}' is not supported", f"use {AGGREGATES}")
    if kind == "quantile":
        return _quantile(schema, arguments)
    return Aggregate(KINDS[kind], tuple(quantity_of(schema, argument) for argument in arguments))


def _distinct(schema: Schema, node: exp.Expr) -> Aggregate:
    quantity = quantity_of(schema, node)
    levels = len(listed_levels(checked_labels(quantity)))
    return Aggregate(replace(DISTINCT, possible=lambda *_: (0.0, float(levels))), (quantity,))


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
