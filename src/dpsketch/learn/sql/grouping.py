"""The keys of group by: columns, and expressions of one column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.aggregates import is_aggregate
from dpsketch.learn.sql.expressions import CONDITIONS, branches, column_names, compared_numbers, number
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.quantities import every_record
from dpsketch.learn.sql.statement import whole_number
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Boolean, Category, Column, Number
from dpsketch.schema.schema import Schema

MOST_GROUPS = 1000
_HINT = "group by a category, boolean or integer column, or by an expression of one column with few values"


@dataclass(frozen=True)
class Key:
    """The values of a column or an expression: one label each, with None for missing as the last."""

    text: str
    labels: tuple[Any, ...]
    column: Column  # the column that labels are compared as in having
    of: Factor  # index of each point's label; that of None where it is missing

    def factor(self, labels: list[Any]) -> Factor:
        """The indicator function of each label."""
        wanted = np.array([self.labels.index(label) for label in labels], np.float64)
        return Factor(
            self.of.columns, lambda frame: (self.of.at(frame) == wanted[:, None]).astype(np.float64), self.of.asked
        )

    def values(self, labels: list[Any]) -> Floats:
        """Labels as values of `column`."""
        if isinstance(self.column, Category | Boolean):
            return np.array([np.nan if label is None else self.labels.index(label) for label in labels], np.float64)
        return np.array([np.nan if label is None else label for label in labels], np.float64)


def text_of(node: exp.Expr) -> str:
    """A normalised text, the same for two spellings of one expression."""
    node = node.unnest().copy()
    for name in node.find_all(exp.Identifier):
        name.set("quoted", False)
    return node.sql()


def key_of(schema: Schema, node: exp.Expr, items: list[exp.Expr], named: dict[str, exp.Expr]) -> Key:
    """Parse an entry of group by: a column, an entry of the select list by its name or number, or an expression."""
    if isinstance(node, exp.Literal) and not node.is_string:
        position = whole_number(node, 0)
        if not 1 <= position <= len(items):
            raise QueryError(f"group by {node.sql()}: the select list has no such entry", "entries are numbered from 1")
        node = items[position - 1].unalias()
    node = node.unnest()
    if isinstance(node, exp.Column) and node.name in named and node.name not in [each.name for each in schema.columns]:
        node = named[node.name].unnest()
    if isinstance(node, exp.Column):
        return _column_key(find_column(schema, node.name), node)
    if any(is_aggregate(each) for each in node.walk()):
        raise QueryError(f"group by '{node.sql()}' is an aggregate", _HINT)
    return _expression_key(schema, node)


def _column_key(column: Column, node: exp.Expr) -> Key:
    if column.levels > MOST_GROUPS:
        raise QueryError(
            f"column '{column.name}' has too many values to group by", "group by a category or boolean, or use where"
        )
    names = getattr(column, "labels", None)
    if names is None:
        names = [int(value) for value in column.values_of(column.codes_of(np.arange(column.levels)))]

    def at(frame: Frame) -> Floats:
        levels = frame.levels(column.name)
        return np.where(levels < 0, len(names), levels)[None, :].astype(np.float64)

    return Key(text_of(node), (*names, None), column, Factor((column.name,), at))


def _expression_key(schema: Schema, node: exp.Expr) -> Key:
    names = column_names(schema, node)
    codes = every_record([schema.column(name) for name in names]) if len(names) == 1 else None
    if codes is None:
        raise QueryError(f"group by '{node.sql()}' is not supported", _HINT)
    numbers, labels = _with_numbers(node)
    values = number(numbers, Frame(schema, {names[0]: codes[0]}))
    null = bool(np.isnan(values).any())
    values = np.unique(values[~np.isnan(values)])
    if len(values) > MOST_GROUPS:
        raise QueryError(f"group by '{node.sql()}' has more than {MOST_GROUPS} values", _HINT)
    if isinstance(node, CONDITIONS):
        labels = list(Boolean.labels)
    shown = [labels[int(value)] if labels else _short(float(value)) for value in values]
    text = node.sql().lower()
    column: Column = Category(text, tuple(map(str, shown))) if labels else Number(text)

    def at(frame: Frame) -> Floats:
        results = number(numbers, frame)
        indices = np.searchsorted(values, np.where(np.isnan(results), values[0] if len(values) else 0.0, results))
        return np.where(np.isnan(results), len(values), indices)[None, :].astype(np.float64)

    return Key(
        text_of(node),
        (*shown, None) if null else tuple(shown),
        column,
        Factor(names, at, compared_numbers(schema, node)),
    )


def _with_numbers(node: exp.Expr) -> tuple[exp.Expr, list[str]]:
    """Replace the texts that a case returns by their indices; also return the texts, in order of appearance."""
    if not isinstance(node, exp.Case | exp.If):
        return node, []
    ifs, default = branches(node)
    results = [result for _, result in ifs] + [default]
    if not all(isinstance(each, exp.Null) or (isinstance(each, exp.Literal) and each.is_string) for each in results):
        return node, []
    texts = list(dict.fromkeys(each.name for each in results if isinstance(each, exp.Literal)))

    def indexed(result: exp.Expr) -> exp.Expr:
        return exp.Literal.number(texts.index(result.name)) if isinstance(result, exp.Literal) else exp.Null()

    cases = [exp.If(this=condition.copy(), true=indexed(result)) for condition, result in ifs]
    return exp.Case(ifs=cases, default=indexed(default)), texts


def _short(value: float) -> int | float:
    return int(value) if value == int(value) else value
