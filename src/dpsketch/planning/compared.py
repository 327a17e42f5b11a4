"""The values that questions compare columns with: public hints at where records are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from sqlglot import exp

from dpsketch.encoding.levels import levels_at
from dpsketch.learn.sql.literals import is_constant, literal_value
from dpsketch.learn.sql.names import with_schema_names
from dpsketch.learn.sql.statement import parse_select
from dpsketch.schema.columns import Boolean, Column, Datetime, Integer, Number
from dpsketch.schema.schema import Schema

Compared = Mapping[str, Sequence[int]]
_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)


def compared_levels(schema: Schema, queries: Sequence[str]) -> Compared:
    """For each column, the levels that conditions of the queries compare it with, or ask for."""
    found: dict[str, list[int]] = {}
    columns = {column.name: column for column in schema.scalars}
    for query in queries:
        for name, level in _levels(with_schema_names(parse_select(query), schema), columns):
            found.setdefault(name, []).append(level)
    return found


def _levels(select: exp.Expr, columns: Mapping[str, Column]) -> Iterator[tuple[str, int]]:
    for node in select.find_all(*_COMPARISONS):
        sides = [side.unnest() for side in node.iter_expressions()]
        for name in (side.name for side in sides if isinstance(side, exp.Column)):
            for side in (side for side in sides if name in columns and is_constant(side)):
                if not isinstance(side, exp.Null):
                    yield name, _level(columns[name], literal_value(columns[name], side))
    for node in select.find_all(exp.Column):
        if isinstance(columns.get(node.name), Boolean) and isinstance(node.parent, exp.Where | exp.And | exp.Or):
            yield node.name, 1
        elif isinstance(columns.get(node.name), Boolean) and isinstance(node.parent, exp.Not):
            yield node.name, 0


def _level(column: Column, value: float) -> int:
    """The level of a value, or that of the bound that it lies beyond; labels are given by theirs."""
    if isinstance(column, Number | Integer | Datetime):
        return int(levels_at(column, np.array([value]))[0])
    return int(value)
