"""Statements as clients of databases send them: parameters, schemas, constants, and wrappers that limit a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial
from math import isfinite, isnan
from numbers import Integral, Real
from typing import Any

import numpy as np
import sqlglot
from sqlglot import TokenType, exp

from dpsketch.displays import counted
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.answer_table import Table, kind_of
from dpsketch.learn.contents import SAMPLE_HINT
from dpsketch.learn.sql.statement import whole_number
from dpsketch.learn.view import View

SCHEMA = "main"  # the one schema that reflection shows
_SCHEMAS = (SCHEMA, "public")
_WRAPPER = ("expressions", "from", "from_", "order", "limit", "offset")
_ASK = f"ask for aggregates: select city, avg(age) from sketch group by city; {SAMPLE_HINT}"


class RowsRefused(QueryError):
    """A statement that reads the rows of the table."""

    not_supported = True


def run_statement(view: View, text: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Table:
    """The result of a statement with its parameters."""
    try:
        parsed = sqlglot.parse(_with_names(text), dialect="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return view.sql(text)  # its refusal
    statements = [each for each in parsed if each is not None]
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        if parameters:
            raise QueryError("only a select statement has parameters", "execute it without parameters")
        return view.sql(text)
    return _run(view, _plain_names(_with_parameters(statements[0], parameters)))


def _run(view: View, select: exp.Select) -> Table:
    source = select.args.get("from_") or select.args.get("from")
    if source is None:
        return _constants(select)
    inner = source.this
    if isinstance(inner, exp.Subquery) and isinstance(inner.this, exp.Select) and _is_wrapper(select, inner.this):
        return _picked(_run(view, inner.this), select)
    if _reads_rows(select):
        raise RowsRefused("a sketch holds no rows to select", _ASK)
    return view.sql(select.sql("duckdb"))


def _reads_rows(select: exp.Select) -> bool:
    """Whether a statement asks for columns as they are, of every row."""
    items = [item.unalias() for item in select.expressions]
    if any(_is_star(item) for item in items):
        return True
    grouped = select.args.get("group") or select.args.get("distinct")
    return not grouped and all(isinstance(item, exp.Column) for item in items)


def _is_star(item: exp.Expr) -> bool:
    """Whether an entry of a select list is * or t.*"""
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def _with_names(text: str) -> str:
    """A statement with `$1`, `$2` and so on in place of `?`: a parsed statement has an order of its own."""
    holes = [token for token in sqlglot.tokenize(text, dialect="duckdb") if token.token_type is TokenType.PLACEHOLDER]
    ends = [0, *(hole.end + 1 for hole in holes)]
    parts = [text[start : hole.start] for start, hole in zip(ends, holes, strict=False)]
    return "".join(f"{part}${number}" for number, part in enumerate(parts, 1)) + text[ends[-1] :]


def _with_parameters(select: exp.Select, parameters: Sequence[Any] | Mapping[str, Any]) -> exp.Select:
    """The statement with literals in place of its parameters."""
    holes = list(select.find_all(exp.Placeholder, exp.Parameter))
    if isinstance(parameters, Mapping):
        values = dict(parameters)
    else:
        values = {str(number): value for number, value in enumerate(parameters, 1)}
        if len(values) != len(holes):
            fact = f"the statement has {counted(len(holes), 'parameter')}, got {counted(len(values), 'value')} instead"
            raise QueryError(fact, "write one ? for each value")
    for hole in holes:
        if hole.name not in values:
            raise QueryError(f"the statement has no value for parameter '{hole.name}'", "pass ? a list, :name a dict")
        hole.replace(_literal(values[hole.name]))
    return select


def _literal(value: Any) -> exp.Expr:
    if value is None:
        return exp.Null()
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, date):
        return exp.Literal.string(str(value))
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return exp.Boolean(this=bool(value))
    if isinstance(value, Real | Decimal) and isfinite(value):
        text = str(int(value)) if isinstance(value, Integral) else repr(abs(float(value)))
        number = exp.Literal.number(text.lstrip("-"))
        return exp.Neg(this=number) if value < 0 else number
    raise QueryError(
        f"a parameter must be a number, a text, a date or None, got {type(value).__name__} instead",
        "pass plain Python values",
    )


def _plain_names(select: exp.Select) -> exp.Select:
    """The statement without the name of the schema before the table."""
    for node in select.find_all(exp.Table, exp.Column):
        if node.args.get("db") is not None and node.args["db"].name.lower() in _SCHEMAS:
            node.set("db", None)
    return select


def _constants(select: exp.Select) -> Table:
    """The one row of a statement that reads nothing, with which clients see whether a connection lives: select 1."""
    items = [item.unalias() for item in select.expressions]
    others = [key for key, value in select.args.items() if value and key not in ("expressions", "limit")]
    if others or not items or not all(isinstance(item, exp.Literal | exp.Boolean | exp.Null) for item in items):
        raise QueryError("a statement without from may only hold constants", "write: select avg(age) from sketch")
    row = tuple(item.to_py() for item in items)
    names = tuple(item.alias_or_name or item.sql() for item in select.expressions)
    return Table(names, (row,), (), tuple(kind_of([cell]) for cell in row))


def _is_wrapper(select: exp.Select, inner: exp.Select) -> bool:
    """Whether a statement does no more than pick, sort and limit rows of the groups or answers of another."""
    if any(value and key not in _WRAPPER for key, value in select.args.items()):
        return False
    plain = all(isinstance(item.unalias(), exp.Star | exp.Column) for item in select.expressions)
    source = inner.args.get("from_") or inner.args.get("from")
    nested = source is None or (isinstance(source.this, exp.Subquery) and _is_wrapper(inner, source.this.this))
    return plain and (nested or bool(inner.args.get("group") or inner.find(exp.AggFunc)))


def _picked(table: Table, select: exp.Select) -> Table:
    """Columns and rows of a result, by a statement that wraps another one."""
    names = [name.lower() for name in table.columns]

    def index_of(node: exp.Expr) -> int:
        if isinstance(node, exp.Literal) and not node.is_string:
            position = whole_number(node, 0)
            if 1 <= position <= len(picked):
                return picked[position - 1][1]
        if node.name.lower() not in names:
            raise QueryError(f"the sub-select has no column '{node.name}'", f"its columns are {', '.join(names)}")
        return names.index(node.name.lower())

    picked: list[tuple[str, int]] = []
    for item in select.expressions:
        column = item.unalias()
        if _is_star(column):
            picked += list(zip(table.columns, range(len(table.columns)), strict=True))
        else:
            picked.append((item.alias or column.name, index_of(column)))
    rows = list(table.rows)
    order = select.args.get("order")
    for ordered in reversed(order.expressions if order is not None else []):
        index = index_of(ordered.this)
        known = [row for row in rows if _number_at(index, row) is not None]
        unknown = [row for row in rows if _number_at(index, row) is None]
        known.sort(key=partial(_number_at, index), reverse=bool(ordered.args.get("desc")))
        rows = [*unknown, *known] if ordered.args.get("nulls_first") else [*known, *unknown]
    first = whole_number(select.args.get("offset"), 0)
    rows = rows[first : first + whole_number(select.args.get("limit"), len(rows))]
    return replace(
        table,
        columns=tuple(name for name, _ in picked),
        rows=tuple(tuple(row[index] for _, index in picked) for row in rows),
        kinds=tuple(table.kinds[index] for _, index in picked),
    )


def _number_at(index: int, row: tuple[Any, ...]) -> Any:
    """What a row is sorted by, None where the cell is missing or not known."""
    value = row[index].value if isinstance(row[index], Answer) else row[index]
    unknown = (
        value is None
        or (isinstance(value, float) and isnan(value))
        or (isinstance(value, np.datetime64) and np.isnat(value))
    )
    return None if unknown else value
