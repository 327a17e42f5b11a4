"""Questions about single values of columns of many values: answered where a release tells these apart, else refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.points import COLUMN_POINTS
from dpsketch.learn.sql.literals import find_column, is_constant, literal_value
from dpsketch.schema.columns import HIGHEST, LOWEST, Column
from dpsketch.schema.schema import Schema

_PLAIN = (exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div)


def check_equalities(schema: Schema, expression: exp.Expr) -> None:
    """Refuse questions about the share of a single value: a release estimates shares of intervals.

    The bounds have cells of their own, so questions about them are allowed. Values that a release tells from others
    are intervals here already.
    """
    for one, other in _equalities(expression):
        column = _many_valued(schema, one) or _many_valued(schema, other)
        if column is None:
            continue
        direct = isinstance(one, exp.Column) and is_constant(other)
        value = literal_value(column, other) if direct and not isinstance(other, exp.Null) else None
        low, high = column.values_of(np.array([LOWEST, HIGHEST]))
        if direct and (value is None or not low < value < high):
            continue
        raise QueryError(
            f"column '{column.name}' has too many values to tell the share of a single one that few records have",
            _interval(column, value, float(high - low)),
        )


def with_single_values(expression: exp.Expr, schema: Schema, told: Callable[[str, float], bool]) -> exp.Expr:
    """The expression with equalities as intervals of a single value, where a release has `told` that value of a column
    from those around it.
    """

    def interval(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.EQ | exp.NEQ | exp.In):
            return node
        sides = _sides(node)
        if not sides or not all(_is_told(schema, one, other, told) for one, other in sides):
            return node
        parts = [exp.Between(this=one.copy(), low=other.copy(), high=other.copy()) for one, other in sides]
        if isinstance(node, exp.NEQ):
            return exp.Not(this=exp.Paren(this=parts[0]))
        return parts[0] if len(parts) == 1 else exp.Paren(this=exp.or_(*parts))

    return expression.transform(interval)


def _is_told(schema: Schema, one: exp.Expr, other: exp.Expr, told: Callable[[str, float], bool]) -> bool:
    column = _many_valued(schema, one) if isinstance(one, exp.Column) else None
    if column is None or column.dates or not is_constant(other) or isinstance(other, exp.Null):
        return False
    value, (low, high) = literal_value(column, other), column.values_of(np.array([LOWEST, HIGHEST]))
    return bool(low <= value <= high) and told(column.name, value)


def _equalities(expression: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    nodes = expression.find_all(exp.EQ, exp.NEQ, exp.In, exp.Case)
    return [both for node in nodes for both in _sides(node)]


def _sides(node: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    """What a node compares for equality, columns first."""
    others = (
        node.expressions if isinstance(node, exp.In) else [node.args["expression"]] if "expression" in node.args else []
    )
    if isinstance(node, exp.Case):
        others = [each.this for each in node.args["ifs"]] if node.this is not None else []
    sides = [(node.this.unnest(), other.unnest()) for other in others]
    return [(one, other) if isinstance(one, exp.Column) else (other, one) for one, other in sides]


def _many_valued(schema: Schema, node: exp.Expr) -> Column | None:
    """The column that gives an expression many values, if any; floor(x) and the like have few."""
    if isinstance(node, exp.Column):
        column = find_column(schema, node.name)
        return column if column.numeric and column.levels > COLUMN_POINTS else None
    if isinstance(node, _PLAIN):
        inner = (_many_valued(schema, child) for child in node.iter_expressions())
        return next((column for column in inner if column is not None), None)
    return None


def _interval(column: Column, value: float | None, span: float) -> str:
    if column.dates:
        return f"ask for an interval: {column.name} >= '2024-01-31' and {column.name} < '2024-02-01'"
    if value is None:
        return f"ask for an interval, or round it: round({column.name}) = …"
    return f"ask for an interval: {column.name} between {value - span / 200:g} and {value + span / 200:g}"
