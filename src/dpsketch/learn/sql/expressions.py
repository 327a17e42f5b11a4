"""Conditions and expressions of columns: parsed by sqlglot, evaluated on points with SQL's three-valued logic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql import arithmetic
from dpsketch.learn.sql.dates import (
    between_dates,
    date_part,
    is_date,
    moments,
    part_numbers,
    repeated,
)
from dpsketch.learn.sql.equality import check_equalities, with_single_values
from dpsketch.learn.sql.labels import TEXT_CONDITIONS, TEXT_FUNCTIONS, label_terms, matching, same_labels, texts_of
from dpsketch.learn.sql.literals import decimals, find_column, is_constant, literal_number, literal_value
from dpsketch.learn.sql.spelling import as_meant
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Boolean, Category, Column
from dpsketch.schema.schema import Schema

Mask = NDArray[np.bool_]
_COMPARISONS: dict[type[exp.Expr], Any] = {
    exp.EQ: np.equal,
    exp.NEQ: np.not_equal,
    exp.LT: np.less,
    exp.LTE: np.less_equal,
    exp.GT: np.greater,
    exp.GTE: np.greater_equal,
}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
CONDITIONS: tuple[type[exp.Expr], ...] = (
    exp.And,
    exp.Or,
    exp.Not,
    exp.Between,
    exp.In,
    exp.Is,
    *TEXT_CONDITIONS,
    *_COMPARISONS,
)
MOST_NODES, MOST_DEPTH = 2000, 250
_OPTIONS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions"),
    exp.Column: ("this", "table"),
    exp.Count: ("this", "big_int"),
    exp.Star: (),
    exp.Ordered: ("this", "nulls_first"),
    exp.TableAlias: ("this",),
    exp.Quantile: ("this", "quantile"),
    exp.ApproxQuantile: ("this", "quantile"),
    exp.Round: ("this", "decimals"),
    exp.Floor: ("this",),
    exp.Ceil: ("this",),
    exp.Limit: ("expression",),
    exp.Offset: ("expression",),
}
_PRESENT = (exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentDatetime, exp.CurrentTime)
_SUPPORTED = "and, or, not, =, <>, <, <=, >, >=, between, in, like, ilike, is null"


@dataclass(frozen=True)
class Truth:
    """Three-valued truth: whether it is true, and whether it is known. Comparisons with missing cells are unknown."""

    true: Mask
    known: Mask

    def both(self, other: Truth) -> Truth:
        false = (self.known & ~self.true) | (other.known & ~other.true)
        return Truth(self.true & other.true, (self.known & other.known) | false)

    def opposite(self) -> Truth:
        return Truth(self.known & ~self.true, self.known)

    def either(self, other: Truth) -> Truth:
        return self.opposite().both(other.opposite()).opposite()


def parse_condition(text: str, schema: Schema, told: Callable[[str, float], bool] | None = None) -> exp.Expr:
    """Parse a condition such as "age > 40 and sex = 'Female'", for a release that has `told` values of columns."""
    try:
        condition = as_meant(checked(sqlglot.parse_one(text, dialect="duckdb")), schema)
        return condition if told is None else with_single_values(condition, schema, told)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryError(
            f"the condition cannot be read: {_first_line(error)}", f"conditions use {_SUPPORTED}"
        ) from None


def checked(expression: exp.Expr) -> exp.Expr:
    """Refuse expressions nested too deeply to evaluate, and options that would be silently ignored."""
    check_size(expression)
    for node in expression.walk():
        if isinstance(node, exp.In) and node.args.get("query"):
            raise QueryError("a select inside a condition is not supported", "list the values: c in ('a', 'b')")
        known = _OPTIONS.get(type(node))
        if isinstance(node, exp.Ordered) and isinstance(node.find_ancestor(exp.WithinGroup, exp.Select), exp.Select):
            known = ("this", "desc", "nulls_first")
        extra = [key for key, value in node.args.items() if value and known is not None and key not in known]
        if extra:
            raise QueryError(f"'{node.sql()}' is not supported", f"leave out: {', '.join(extra).replace('_', ' ')}")
        if isinstance(node, _PRESENT) or (isinstance(node, exp.Anonymous) and node.name.lower() == "now"):
            raise QueryError("a question does not know today's date", "write it: date '2024-01-31'")
        if isinstance(node.parent, exp.Window):
            continue  # refused where it is read
        if isinstance(node, exp.Func) and not isinstance(node, exp.Case | exp.Count | exp.Anonymous) and _lacks(node):
            raise QueryError("a function or operator lacks an argument", "power(x, 2), corr(x, y), regr_slope(y, x)")
        if isinstance(node, exp.Column) and node.table and node.table.lower() != "sketch":
            raise QueryError(f"there is no table '{node.table}'", f"write the column's name alone: {node.name}")
    return expression


def check_size(expression: exp.Expr) -> None:
    """Refuse expressions nested too deeply to evaluate."""
    if sum(1 for _ in expression.walk()) > MOST_NODES or _depth(expression) > MOST_DEPTH:
        raise QueryError("the statement is too long", "use between, or in with a list of values")


def _lacks(node: exp.Expr) -> bool:
    return "this" in node.arg_types and node.args.get("this") is None


def _depth(expression: exp.Expr) -> int:
    deepest, level = 0, [expression]
    while level:
        deepest, level = deepest + 1, [child for node in level for child in node.iter_expressions()]
    return deepest


def _first_line(error: BaseException) -> str:
    if isinstance(error, sqlglot.errors.ParseError) and error.errors:
        fault = error.errors[0]
        return f"{fault.get('description', 'syntax error')} near column {fault.get('col')}"
    return "syntax error"


def column_names(schema: Schema, expression: exp.Expr) -> tuple[str, ...]:
    """The checked columns of an expression, in order of appearance."""
    check_equalities(schema, expression)
    names = [find_column(schema, node.name).name for node in expression.find_all(exp.Column)]
    return tuple(dict.fromkeys(names))


def condition_factors(schema: Schema, condition: exp.Expr | None) -> list[Factor]:
    """A condition as a product of the factors of its conjunction: one where it is true, zero elsewhere."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return condition_factors(schema, condition.this)
    if isinstance(condition, exp.And):
        return condition_factors(schema, condition.left) + condition_factors(schema, condition.right)

    def at(frame: Frame) -> Floats:
        return evaluate(condition, frame).true[None, :].astype(np.float64)

    names, asked = column_names(schema, condition), compared_numbers(schema, condition)
    return [Factor(names, at, asked, repeated(schema, condition), label_terms(schema, condition))]


def compared_numbers(schema: Schema, condition: exp.Expr) -> tuple[float, ...]:
    """The constants that number columns are compared with, in the columns' own scale."""
    constants = []
    for node in condition.find_all(exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between):
        sides = [side.unnest() for side in node.iter_expressions()]
        for name in (side.name for side in sides if isinstance(side, exp.Column)):
            column = find_column(schema, name)
            if column.numeric:
                constants += [literal_value(column, side) for side in sides if is_constant(side)]
    return tuple(constants)


def evaluate(expression: exp.Expr, frame: Frame) -> Truth:
    """Truth of a condition at every point."""
    match expression:
        case exp.Paren():
            return evaluate(expression.this, frame)
        case exp.And():
            return evaluate(expression.left, frame).both(evaluate(expression.right, frame))
        case exp.Or():
            return evaluate(expression.left, frame).either(evaluate(expression.right, frame))
        case exp.Not():
            return evaluate(expression.this, frame).opposite()
        case exp.Between():
            low = exp.GTE(this=expression.this, expression=expression.args["low"])
            high = exp.LTE(this=expression.this, expression=expression.args["high"])
            return evaluate(low, frame).both(evaluate(high, frame))
        case exp.In() if expression.expressions:
            truths = [_compare(exp.EQ, expression.this, value, frame) for value in expression.expressions]
            result = truths[0]
            for truth in truths[1:]:
                result = result.either(truth)
            return result
        case exp.Is():
            return _is(expression, frame)
        case exp.Boolean():
            every = np.ones(frame.size, bool)
            return Truth(every & bool(expression.this), every)
        case exp.Column():
            return _flag(expression, frame)
        case _ if isinstance(expression, TEXT_CONDITIONS):
            return _of_labels(*matching(frame.schema, expression), frame)
        case _ if type(expression) in _COMPARISONS:
            return _compare(type(expression), expression.this, expression.expression, frame)
    raise QueryError(f"'{expression.sql()}' is not a supported condition", f"conditions use {_SUPPORTED}")


def number(expression: exp.Expr, frame: Frame) -> Floats:
    """Value of an expression at every point, NaN where it is null; a condition is one or zero."""
    kind = type(expression)
    with np.errstate(all="ignore"):
        if kind in arithmetic.TWO:
            left, right = number(expression.this, frame), number(expression.expression, frame)
            return arithmetic.TWO[kind](left, right)
        if kind in arithmetic.ONE:
            return arithmetic.ONE[kind](number(expression.this, frame))
        if kind in arithmetic.MANY:
            several = [number(each, frame) for each in (expression.this, *expression.expressions)]
            return reduce(arithmetic.MANY[kind], several)
        if kind in CONDITIONS:
            truth = evaluate(expression, frame)
            return np.where(truth.known, truth.true, np.nan)
        part = date_part(expression)
        if part is not None:
            return part_numbers(part, frame)
        match expression:
            case exp.Paren():
                return number(expression.this, frame)
            case exp.DateDiff():
                return between_dates(expression, frame)
            case exp.Null():
                return np.full(frame.size, np.nan)
            case exp.Boolean():
                return np.full(frame.size, float(bool(expression.this)))
            case exp.Literal():
                return np.full(frame.size, literal_number(expression))
            case exp.Column():
                return _column_number(find_column(frame.schema, expression.name), frame)
            case exp.Round():
                return arithmetic.rounded(number(expression.this, frame), decimals(expression))
            case exp.Log() if expression.expression is not None:
                return arithmetic.logarithm(number(expression.expression, frame), number(expression.this, frame))
            case exp.Log():
                return arithmetic.logarithm(number(expression.this, frame))
            case exp.Case() | exp.If():
                return _case(expression, frame)
            case exp.Cast():
                return _cast(expression, frame)
    raise not_a_number(expression)


def not_a_number(expression: exp.Expr) -> QueryError:
    """The error for an expression that cannot be evaluated."""
    if isinstance(expression, exp.Window):
        return QueryError("window functions are not supported", "use group by")
    if isinstance(expression, exp.Query | exp.Subquery | exp.Exists):
        return QueryError("a select inside a select is not supported", "a sketch is one table; ask two questions")
    if isinstance(expression, exp.Distinct):
        return QueryError("distinct is not supported", "count each label with group by")
    if isinstance(expression, exp.AggFunc | exp.Filter):
        return QueryError(
            f"'{expression.sql()}' is an aggregate inside an expression of columns",
            "use one aggregate alone, and having for conditions on it",
        )
    if isinstance(expression, exp.TimeToStr | exp.ToChar) or expression.name.lower() in ("date_format", "to_char"):
        return QueryError("dates are not written as text here", arithmetic.DATE_PARTS)
    if isinstance(expression, exp.Func):
        name = expression.name if isinstance(expression, exp.Anonymous) else expression.sql_name()
        return QueryError(f"the function '{name.lower()}' is not known here", f"expressions use {arithmetic.KNOWN}")
    return QueryError(f"'{expression.sql()}' is not a supported expression", f"expressions use {arithmetic.KNOWN}")


def branches(expression: exp.Case | exp.If) -> tuple[list[tuple[exp.Expr, exp.Expr]], exp.Expr]:
    """Conditions with their results, and the result if none is true."""
    if isinstance(expression, exp.If):
        return [(expression.this, expression.args["true"])], expression.args.get("false") or exp.Null()
    ifs = [(each.this, each.args["true"]) for each in expression.args["ifs"]]
    if expression.this is not None:
        ifs = [(exp.EQ(this=expression.this.copy(), expression=value.copy()), result) for value, result in ifs]
    return ifs, expression.args.get("default") or exp.Null()


def _case(expression: exp.Case | exp.If, frame: Frame) -> Floats:
    ifs, default = branches(expression)
    values = number(default, frame)
    for condition, result in reversed(ifs):
        values = np.where(evaluate(condition, frame).true, number(result, frame), values)
    return values


def _cast(expression: exp.Cast, frame: Frame) -> Floats:
    kind = expression.args["to"].this
    if kind not in (*arithmetic.WHOLE, *arithmetic.REAL):
        raise QueryError(f"'{expression.sql()}' is not supported", "cast to int or double")
    values = number(expression.this, frame)
    return np.rint(values) if kind in arithmetic.WHOLE else values


def _column_number(column: Column, frame: Frame) -> Floats:
    if column.dates:
        raise QueryError(
            f"dates of column '{column.name}' cannot be used in arithmetic",
            f"compare them: case when {column.name} > '2024-01-31' then 1 else 0 end",
        )
    if not column.averaged:
        raise QueryError(
            f"column '{column.name}' is a {column.kind} and has no numeric value",
            f"compare it: case when {column.name} = … then 1 else 0 end",
        )
    return frame.values(column.name)


def _flag(expression: exp.Column, frame: Frame) -> Truth:
    column = find_column(frame.schema, expression.name)
    if not isinstance(column, Boolean):
        raise QueryError(f"column '{column.name}' is not boolean", f"compare it with a value: {column.name} = …")
    values = frame.values(column.name)
    return Truth(values == 1, ~np.isnan(values))


def _is(expression: exp.Is, frame: Frame) -> Truth:
    every = np.ones(frame.size, bool)
    if isinstance(expression.expression, exp.Null):
        inner = expression.this.unnest()
        column = find_column(frame.schema, inner.name) if isinstance(inner, exp.Column) else None
        return Truth(np.isnan(number(inner, frame) if column is None else frame.values(column.name)), every)
    if isinstance(expression.expression, exp.Boolean):
        truth = evaluate(expression.this, frame)
        wanted = truth.true if expression.expression.this else truth.known & ~truth.true
        return Truth(wanted, every)
    raise QueryError(f"'{expression.sql()}' is not a supported condition", f"conditions use {_SUPPORTED}")


def _compare(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, frame: Frame) -> Truth:
    left, right = left.unnest(), right.unnest()
    if not isinstance(left, exp.Column) and isinstance(right, exp.Column):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    if isinstance(left, exp.Literal) and isinstance(right, TEXT_FUNCTIONS):
        left, right = right, left
    if isinstance(left, TEXT_FUNCTIONS) and kind in (exp.EQ, exp.NEQ) and isinstance(right, exp.Literal):
        column, texts = texts_of(frame.schema, left)
        true = np.array([text == right.this for text in texts])
        return _of_labels(column, true if kind is exp.EQ else ~true, frame)
    plain = isinstance(left, exp.Column) and (isinstance(right, exp.Column) or is_constant(right))
    if not plain and (is_date(frame.schema, left) or is_date(frame.schema, right)):
        return _compared(kind, moments(left, frame), moments(right, frame))
    bounds: Floats | float
    if not isinstance(left, exp.Column) or not (isinstance(right, exp.Column) or is_constant(right)):
        values, bounds = number(left, frame), number(right, frame)
        return _compared(kind, values, bounds)
    column = find_column(frame.schema, left.name)
    values = frame.values(column.name)
    if isinstance(right, exp.Column):
        other = find_column(frame.schema, right.name)
        if isinstance(column, Category) and isinstance(other, Category) and kind in (exp.EQ, exp.NEQ):
            return _compared_labels(kind, column, other, frame)
        if not (column.numeric and other.numeric) or column.dates != other.dates:
            raise QueryError(
                f"columns '{column.name}' and '{other.name}' cannot be compared",
                "compare two numbers, or two categories that list the same labels",
            )
        bounds = frame.values(other.name)
    else:
        if not column.numeric and kind not in (exp.EQ, exp.NEQ):
            raise QueryError(f"column '{column.name}' is a {column.kind} and has no order", "compare it with = or <>")
        bounds = literal_value(column, right)
    return _compared(kind, values, bounds)


def _of_labels(column: Column, true: Mask, frame: Frame) -> Truth:
    """A condition that holds for some levels of a column."""
    levels = frame.levels(column.name)
    return Truth(true[levels] & (levels >= 0), levels >= 0)


def _compared_labels(kind: type[exp.Expr], column: Category, other: Category, frame: Frame) -> Truth:
    same, sure = same_labels(column, other)
    one, two = frame.levels(column.name), frame.levels(other.name)
    known = sure[one, two] & (one >= 0) & (two >= 0)
    return Truth(known & (same[one, two] == (kind is exp.EQ)), known)


def _compared(kind: type[exp.Expr], values: Floats, bounds: Floats | float) -> Truth:
    known = ~np.isnan(values) & ~np.isnan(bounds)
    with np.errstate(invalid="ignore"):
        return Truth(_COMPARISONS[kind](values, bounds) & known, known)
