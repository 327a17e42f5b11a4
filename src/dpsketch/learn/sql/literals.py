"""Columns of a statement, and constants on the scale of the columns that they are compared with."""

from __future__ import annotations

import contextlib

import numpy as np
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.schema.columns import Boolean, Category, Column, IdSet, as_moment, microseconds
from dpsketch.schema.schema import Schema, nearest


def find_column(schema: Schema, name: str) -> Column:
    for column in schema.columns:
        if column.name == name:
            if isinstance(column, IdSet):
                raise QueryError(
                    f"column '{name}' is a set of ids, which has no values to compare or average",
                    "ask about another column, or compare sets with kernel_sum",
                )
            return column
    raise QueryError(f"there is no column '{name}'", nearest(name, [column.name for column in schema.columns]))


def literal_value(column: Column, literal: exp.Expr) -> float:
    """A constant on the scale of a column: a number, microseconds, or the level of a label."""
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
        raise QueryError(
            f"column '{column.name}' is true or false, got {literal.sql()}", "compare it with true or false"
        )
    if column.dates:
        while isinstance(literal, exp.Cast):
            literal = literal.this
        moment = as_moment(literal.name)
        if moment is None:
            raise QueryError(f"column '{column.name}' holds dates, got {literal.sql()}", "write dates as '2024-01-31'")
        return float(microseconds(moment))
    negative = isinstance(literal, exp.Neg)
    inner = literal.this if negative else literal
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return -literal_number(inner) if negative else literal_number(inner)
    raise QueryError(f"column '{column.name}' holds numbers, got {literal.sql()}", "write the number without quotes")


def nearest_value(text: str, labels: tuple[str, ...]) -> str:
    return nearest(text, list(labels)).replace("the columns are", "the listed values are")


def literal_number(literal: exp.Literal) -> float:
    value = np.nan
    if not literal.is_string:
        with contextlib.suppress(ValueError):
            value = float(literal.this)
    if not np.isfinite(value):
        raise QueryError(f"{literal.sql()} is not a number that can be used here")
    return value


def decimals(expression: exp.Round) -> int:
    wanted = expression.args.get("decimals")
    if wanted is None:
        return 0
    negative = isinstance(wanted, exp.Neg)
    text = (wanted.this if negative else wanted).name
    if not text.isdecimal() or int(text) > 15:
        raise QueryError(f"'{expression.sql()}' must round to a whole number of decimals, at most 15")
    return -int(text) if negative else int(text)


def is_constant(node: exp.Expr) -> bool:
    """Whether a node is a literal, possibly negative or a date."""
    while isinstance(node, exp.Neg | exp.Cast):
        node = node.this
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)
