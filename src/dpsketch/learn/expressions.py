"""Conditions on columns: parsed by sqlglot, evaluated on points with SQL's three-valued logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.points import Frame
from dpsketch.schema import Boolean, Category, Column, Datetime, Floats, IdSet, Schema, as_moment, microseconds, nearest

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
MOST_NODES = 2000
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
}
_SUPPORTED = "and, or, not, =, <>, <, <=, >, >=, between, in, is null"


@dataclass(frozen=True)
class Truth:
    """True, and known to be true or false; a comparison with a missing cell is unknown."""

    true: Mask
    known: Mask

    def both(self, other: Truth) -> Truth:
        false = (self.known & ~self.true) | (other.known & ~other.true)
        return Truth(self.true & other.true, (self.known & other.known) | false)

    def opposite(self) -> Truth:
        return Truth(self.known & ~self.true, self.known)

    def either(self, other: Truth) -> Truth:
        return self.opposite().both(other.opposite()).opposite()


def parse_condition(text: str) -> exp.Expr:
    """A condition such as "age > 40 and sex = 'Female'"."""
    try:
        return checked(sqlglot.parse_one(text))
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryError(
            f"the condition cannot be read: {_first_line(error)}", f"conditions use {_SUPPORTED}"
        ) from None


def checked(expression: exp.Expr) -> exp.Expr:
    """Refuse what would nest too deep to evaluate, and options that would silently be left out."""
    if sum(1 for _ in expression.walk()) > MOST_NODES:
        raise QueryError("the statement is too long", "use between, or in with a list of values")
    for node in expression.walk():
        known = _OPTIONS.get(type(node))
        extra = [key for key, value in node.args.items() if value and known is not None and key not in known]
        if extra:
            raise QueryError(f"'{node.sql()}' is not supported", f"leave out: {', '.join(extra).replace('_', ' ')}")
        if isinstance(node, exp.Column) and node.table and node.table.lower() != "sketch":
            raise QueryError(f"there is no table '{node.table}'", f"write the column's name alone: {node.name}")
    return expression


def _first_line(error: BaseException) -> str:
    if isinstance(error, sqlglot.errors.ParseError) and error.errors:
        place = error.errors[0]
        return f"{place.get('description', 'syntax error')} near column {place.get('col')}"
    return "syntax error"


def column_names(schema: Schema, expression: exp.Expr) -> tuple[str, ...]:
    """Columns that an expression uses, checked, in order of appearance."""
    names = [find_column(schema, node.name).name for node in expression.find_all(exp.Column)]
    return tuple(dict.fromkeys(names))


def find_column(schema: Schema, name: str) -> Column:
    for column in schema.columns:
        if column.name == name:
            if isinstance(column, IdSet):
                raise QueryError(f"column '{name}' is a set of ids, which has no values to compare or average")
            return column
    raise QueryError(f"there is no column '{name}'", nearest(name, [column.name for column in schema.columns]))


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
        case _ if type(expression) in _COMPARISONS:
            return _compare(type(expression), expression.this, expression.expression, frame)
    raise QueryError(f"'{expression.sql()}' is not a supported condition", f"conditions use {_SUPPORTED}")


def _flag(expression: exp.Column, frame: Frame) -> Truth:
    column = find_column(frame.schema, expression.name)
    if not isinstance(column, Boolean):
        raise QueryError(f"column '{column.name}' is not boolean", f"compare it with a value: {column.name} = …")
    values = frame.values(column.name)
    return Truth(values == 1, ~np.isnan(values))


def _is(expression: exp.Is, frame: Frame) -> Truth:
    every = np.ones(frame.size, bool)
    if isinstance(expression.expression, exp.Null) and isinstance(expression.this, exp.Column):
        column = find_column(frame.schema, expression.this.name)
        return Truth(np.isnan(frame.values(column.name)), every)
    if isinstance(expression.expression, exp.Boolean):
        truth = evaluate(expression.this, frame)
        wanted = truth.true if expression.expression.this else truth.known & ~truth.true
        return Truth(wanted, every)
    raise QueryError(f"'{expression.sql()}' is not a supported condition", f"conditions use {_SUPPORTED}")


def _compare(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, frame: Frame) -> Truth:
    left, right = left.unnest(), right.unnest()
    if not isinstance(left, exp.Column) and isinstance(right, exp.Column):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    if not isinstance(left, exp.Column):
        raise QueryError("a comparison needs a column", "write it as: column operator value")
    column = find_column(frame.schema, left.name)
    values = frame.values(column.name)
    if isinstance(right, exp.Column):
        other = find_column(frame.schema, right.name)
        if not (column.numeric and other.numeric) or isinstance(column, Datetime) != isinstance(other, Datetime):
            raise QueryError(f"columns '{column.name}' and '{other.name}' cannot be compared", "compare two numbers")
        bounds: Floats | float = frame.values(other.name)
        known = ~np.isnan(values) & ~np.isnan(bounds)
    else:
        if not column.numeric and kind not in (exp.EQ, exp.NEQ):
            raise QueryError(f"column '{column.name}' is a {column.kind} and has no order", "compare it with = or <>")
        bounds = literal_value(column, right)
        known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return Truth(_COMPARISONS[kind](values, bounds) & known, known)


def literal_value(column: Column, literal: exp.Expr) -> float:
    """A constant in the terms of a column: a number, microseconds, or the level of a label."""
    if isinstance(column, Category):
        text = literal.this if isinstance(literal, exp.Literal) else literal.sql()
        if text not in column.labels:
            raise QueryError(f"column '{column.name}' has no listed value '{text}'", nearest_value(text, column.labels))
        return float(column.labels.index(text))
    if isinstance(column, Boolean):
        if isinstance(literal, exp.Boolean):
            return float(bool(literal.this))
        text = literal.name.lower()
        if text in ("true", "1", "false", "0"):
            return float(text in ("true", "1"))
        raise QueryError(f"column '{column.name}' is true or false, got {literal.sql()}")
    if isinstance(column, Datetime):
        while isinstance(literal, exp.Cast):
            literal = literal.this
        moment = as_moment(literal.name)
        if moment is None:
            raise QueryError(f"column '{column.name}' holds dates, got {literal.sql()}", "write dates as '2024-01-31'")
        return float(microseconds(moment))
    negative = isinstance(literal, exp.Neg)
    inner = literal.this if negative else literal
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return -float(inner.this) if negative else float(inner.this)
    raise QueryError(f"column '{column.name}' holds numbers, got {literal.sql()}")


def nearest_value(text: str, labels: tuple[str, ...]) -> str:
    return nearest(text, list(labels)).replace("the columns are", "the listed values are")
