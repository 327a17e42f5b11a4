"""The queries that a plan is about where none are given."""

from __future__ import annotations

import numpy as np
from sqlglot import exp

from dpsketch.schema.columns import Category, Column, Datetime
from dpsketch.schema.schema import Schema


def usual_queries(schema: Schema) -> list[str]:
    """A mean, a count with a condition on two columns, and a correlation, if the schema has columns for them."""
    columns = list(schema.scalars)
    numbers = [_quoted(column) for column in columns if column.numeric and not isinstance(column, Datetime)]
    conditions = [_condition(column) for column in columns[:1] + columns[-1:][: len(columns) - 1]]
    queries = [f"select avg({name}) from sketch" for name in numbers[:1]]
    if conditions:
        queries.append(f"select count(*) from sketch where {' and '.join(conditions)}")
    if len(numbers) > 1:
        queries.append(f"select corr({numbers[0]}, {numbers[1]}) from sketch")
    return queries or ["select count(*) from sketch"]


def _quoted(column: Column) -> str:
    return exp.to_identifier(column.name, quoted=True).sql(dialect="duckdb")


def _condition(column: Column) -> str:
    """A condition that some rows are likely to meet and some are not, judged by the declaration alone."""
    name = _quoted(column)
    if isinstance(column, Datetime):
        return f"{name} > '{column.lower + (column.upper - column.lower) / 2:%Y-%m-%d %H:%M}'"
    if column.numeric:
        return f"{name} > {float(column.values_of(np.array([0]))[0]):.4g}"
    if isinstance(column, Category):
        return f"{name} = {exp.Literal.string(column.labels[0]).sql(dialect='duckdb')}"
    return name
