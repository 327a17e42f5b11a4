"""Conditions beyond the bounds of a column: records there were clamped to the bound."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sqlglot import exp

from dpsketch.learn.sql.literals import find_column, is_constant, literal_value
from dpsketch.schema.columns import HIGHEST, LOWEST, Column, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
_OPPOSITE: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}
_COMPARED = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ)


def clamped_columns(schema: Schema, node: exp.Expr | None) -> dict[str, str]:
    """The columns that a condition inside `node` asks about beyond their bounds, each with the reason why no release by
    this schema answers that.
    """
    if node is None:
        return {}
    conditions = _plain(schema, node).find_all(*_COMPARED, exp.Between)
    beyond = (_beyond(schema, condition) for condition in conditions)
    return {column.name: _reason(column, upper) for column, upper in filter(None, beyond)}


def with_clamped(schema: Schema, node: exp.Expr, at_bound: bool) -> exp.Expr:
    """The same with every condition beyond a bound met by all records at the bound, or by none."""

    def replaced(condition: exp.Expr) -> exp.Expr:
        found = _beyond(schema, condition) if isinstance(condition, (*_COMPARED, exp.Between)) else None
        if found is None:
            return condition
        column, upper = found
        name = exp.column(exp.to_identifier(column.name, quoted=True))
        if not at_bound:
            return exp.LT(this=name, expression=name.copy())  # false, and unknown where the cell is missing
        kind = exp.GTE if upper else exp.LTE
        return kind(this=name, expression=_literal(column, HIGHEST if upper else LOWEST))

    return _plain(schema, node).transform(replaced)


def outside_conditions(schema: Schema, node: exp.Expr) -> Iterator[str]:
    """Columns that a node uses otherwise than in a condition beyond their bounds."""
    kept = _plain(schema, node).transform(
        lambda each: exp.true() if isinstance(each, (*_COMPARED, exp.Between)) and _beyond(schema, each) else each
    )
    return (column.name for column in kept.find_all(exp.Column))


def _plain(schema: Schema, node: exp.Expr) -> exp.Expr:
    """Without negations of single comparisons, and with `x <> 500` beyond a bound as `x < bound`, or a condition
    beyond the bound: how many of the records at the bound have another value than 500, nobody knows.
    """

    def parted(each: exp.Expr) -> exp.Expr:
        if not isinstance(each, exp.NEQ):
            return each
        found = _beyond(schema, exp.EQ(this=each.this.copy(), expression=each.expression.copy()))
        if found is None:
            return each
        column, upper = found
        name, bound = exp.column(exp.to_identifier(column.name, quoted=True)), HIGHEST if upper else LOWEST
        inside = (exp.LT if upper else exp.GT)(this=name, expression=_literal(column, bound))
        same = exp.EQ(this=each.this.copy(), expression=each.expression.copy())
        return exp.paren(exp.or_(inside, same))

    return _without_negations(node).transform(parted)


def _without_negations(node: exp.Expr) -> exp.Expr:
    """`not` before a single comparison becomes the opposite comparison."""

    def turned(each: exp.Expr) -> exp.Expr:
        inner = each.this.unnest() if isinstance(each, exp.Not) else each
        if inner is each:
            return each
        if isinstance(inner, exp.Between):
            below = exp.LT(this=inner.this.copy(), expression=inner.args["low"].copy())
            return exp.paren(exp.or_(below, exp.GT(this=inner.this.copy(), expression=inner.args["high"].copy())))
        if isinstance(inner, exp.EQ):
            return exp.NEQ(this=inner.this.copy(), expression=inner.expression.copy())
        if type(inner) in _OPPOSITE:
            return _OPPOSITE[type(inner)](this=inner.this.copy(), expression=inner.expression.copy())
        return each

    return node.transform(turned)


def _beyond(schema: Schema, condition: exp.Expr) -> tuple[Column, bool] | None:
    """The column and whether it is its upper bound, if a comparison holds beyond one bound only."""
    if isinstance(condition, exp.Between):
        ends = ((exp.GTE, condition.args["low"]), (exp.LTE, condition.args["high"]))
        parts = [_beyond(schema, kind(this=condition.this.copy(), expression=end.copy())) for kind, end in ends]
        return parts[0] or parts[1]
    kind, left, right = type(condition), condition.this.unnest(), condition.expression.unnest()
    if not isinstance(left, exp.Column):
        kind, left, right = _MIRRORED.get(kind, kind), right, left
    if not isinstance(left, exp.Column) or not is_constant(right) or isinstance(right, exp.Null):
        return None
    column = find_column(schema, left.name)
    bounds = _bounds(column)
    if bounds is None:
        return None
    value = literal_value(column, right)
    above = value >= bounds[1] if kind is exp.GT else value > bounds[1] and kind in (exp.GTE, exp.EQ)
    below = value <= bounds[0] if kind is exp.LT else value < bounds[0] and kind in (exp.LTE, exp.EQ)
    return (column, above) if above or below else None


def _bounds(column: Column) -> tuple[float, float] | None:
    """As declared: rounding of levels does not matter."""
    if isinstance(column, Datetime):
        return column.bounds
    return (float(column.lower), float(column.upper)) if isinstance(column, Number | Integer) else None


def _literal(column: Column, code: int) -> exp.Expr:
    """The value of a code in a statement."""
    value = float(column.values_of(np.array([code]))[0])
    if column.dates:
        return exp.Literal.string(str(np.datetime64(round(value), "us")))
    number = exp.Literal.number(repr(abs(value)))
    return exp.Neg(this=number) if value < 0 else number


def _reason(column: Column, upper: bool) -> str:
    bound = getattr(column, "upper" if upper else "lower")
    text = bound.date().isoformat() if column.dates else f"{bound:.15g}"
    where = "above" if upper else "below"
    return (
        f"records {where} {text} were clamped to {text}, the {'upper' if upper else 'lower'} bound of column "
        f"'{column.name}' in the schema (tighten may have set it); release with a wider bound to ask beyond it"
    )
