"""The keys of group by: columns, and expressions of one column."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.aggregates import is_aggregate, text_of
from dpsketch.learn.sql.dates import is_date, moments, repeated
from dpsketch.learn.sql.expressions import CONDITIONS, branches, column_names, compared_numbers, number
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.quantities import every_record
from dpsketch.learn.sql.statement import whole_number
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import HIGHEST, LOWEST, SPAN, Boolean, Category, Column, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

MOST_GROUPS = 10_000
_BETWEEN = 4  # places a level of dates
_HINT = "group by a category, boolean or integer column, or by an expression of one column with few values"


@dataclass(frozen=True)
class Key:
    """The values of a column or an expression: one label each, with None for missing as the last."""

    text: str
    labels: tuple[Any, ...]
    column: Column  # the column that labels are compared as in having
    of: Factor  # index of each point's label; that of None where it is missing
    schema: Schema
    codes: Codes  # of all points of the column, those of a plain column in the order of its labels
    numbers: Floats | None = None  # labels as values of `column`, where they are others than the labels themselves
    values_at: dict[str, Floats] | None = None  # what the codes round
    plain: bool = False  # a column: every label is one level
    node: exp.Expr = field(default_factory=exp.Null)

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {label: place for place, label in enumerate(self.labels)}

    def factor(self, labels: list[Any]) -> Factor:
        """The indicator function of each label."""
        wanted = np.array([self._places[label] for label in labels], np.float64)
        return replace(self.of, at=lambda frame: (self.of.at(frame) == wanted[:, None]).astype(np.float64))

    def values(self, labels: list[Any]) -> Floats:
        """Labels as values of `column`."""
        if isinstance(self.column, Category | Boolean):
            return np.array([np.nan if label is None else self._places[label] for label in labels], np.float64)
        if self.numbers is not None:
            return np.array([np.nan if label is None else self.numbers[self._places[label]] for label in labels])
        return np.array([np.nan if label is None else label for label in labels], np.float64)


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
        return _column_key(schema, find_column(schema, node.name), node)
    if any(is_aggregate(each) for each in node.walk()):
        raise QueryError(f"group by '{node.sql()}' is an aggregate", _HINT)
    return _expression_key(schema, node)


def _column_key(schema: Schema, column: Column, node: exp.Expr) -> Key:
    if column.levels > (SPAN if isinstance(column, Integer) else MOST_GROUPS):
        hint = (
            f"group by date_trunc('month', {column.name}), year({column.name}) or the like"
            if column.dates
            else "group by a category or boolean, or use where"
        )
        raise QueryError(f"column '{column.name}' has too many values to group by", hint)
    codes = column.codes_of(np.append(np.arange(column.levels), -1))
    names = getattr(column, "labels", None)
    if names is None:
        names = column.values_of(codes[:-1]).astype(np.int64).tolist()

    def at(frame: Frame) -> Floats:
        levels = frame.levels(column.name)
        return np.where(levels < 0, len(names), levels)[None, :].astype(np.float64)

    return Key(text_of(node), (*names, None), column, Factor((column.name,), at), schema, codes, plain=True, node=node)


def _expression_key(schema: Schema, node: exp.Expr) -> Key:
    names = column_names(schema, node)
    codes = every_record([schema.column(name) for name in names]) if len(names) == 1 else None
    if codes is None:
        raise QueryError(f"group by '{node.sql('duckdb')}' is not supported", _HINT)
    dated = is_date(schema, node)
    numbers, labels = _with_numbers(node)
    frame = _points(schema, names[0], codes[0])

    def found(frame: Frame) -> Floats:
        return moments(numbers, frame) if dated else number(numbers, frame)

    results = found(frame)
    null = bool(np.isnan(results).any())
    values = np.unique(results[~np.isnan(results)])
    if len(values) > MOST_GROUPS:
        raise QueryError(f"group by '{node.sql('duckdb')}' has more than {MOST_GROUPS} values", _HINT)
    if isinstance(node, CONDITIONS):
        labels = list(Boolean.labels)
    shown = [
        _date_text(value) if dated else labels[int(value)] if labels else _short(value) for value in values.tolist()
    ]
    text = node.sql("duckdb").lower()
    column: Column = Datetime(text) if dated else Category(text, tuple(map(str, shown))) if labels else Number(text)

    def at(frame: Frame) -> Floats:
        results = found(frame)
        known = np.where(np.isnan(results), values[0] if len(values) else 0.0, results)
        indices = np.minimum(np.searchsorted(values, known), max(len(values) - 1, 0))
        alike = values[indices] == known if len(values) else np.zeros(len(known), bool)
        return np.where(np.isnan(results), len(values), np.where(alike, indices, -1))[None, :].astype(np.float64)

    of = Factor(names, at, compared_numbers(schema, node), repeated(schema, node))
    every = (*shown, None) if null else tuple(shown)
    own = {names[0]: frame.values(names[0])}
    return Key(
        text_of(node), every, column, of, schema, frame.codes(names[0]), values if dated else None, own, node=node
    )


def _points(schema: Schema, name: str, codes: Codes) -> Frame:
    """All levels of a column; of dates, whose levels round them, also places between the levels."""
    column = schema.column(name)
    if not column.dates:
        return Frame(schema, {name: codes})
    low, high = column.values_of(np.array([LOWEST, HIGHEST]))
    values = np.concatenate([[np.nan], np.linspace(low, high, 1 + SPAN * _BETWEEN)])
    levels = np.concatenate([[-1], np.rint(np.arange(1 + SPAN * _BETWEEN) / _BETWEEN)]).astype(np.int64)
    return Frame(schema, {name: column.codes_of(levels)}, {name: np.floor(values)})


def _date_text(value: float) -> str:
    """Days as 2024-01-31, other moments with their time."""
    moment = np.datetime64(int(value), "us")
    return str(moment.astype("M8[D]") if moment == moment.astype("M8[D]") else moment.astype("M8[s]"))


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
