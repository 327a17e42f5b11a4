"""Expressions as people type them, in the forms that the rest reads.

Names are spelled as in the schema, a part of a date is the column derived for it if there is one, and comparisons of
whole calendar units are intervals: `year(d) = 2016` is `d >= '2016-01-01' and d < '2017-01-01'`, and `d = date
'2016-01-05'` is that whole day. Intervals are known better than parts, and bounds of the schema apply to them.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.sql.dates import constant_moment, date_part, is_date, moved, truncation
from dpsketch.learn.sql.literals import is_constant, literal_number
from dpsketch.learn.sql.names import with_schema_names
from dpsketch.learn.sql.presence import with_own_presence
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.calendar import truncated
from dpsketch.schema.columns import Category, Integer, Number
from dpsketch.schema.schema import Schema

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
_EQUAL = (exp.EQ, exp.NEQ)
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_FIRST_YEAR, _LAST_YEAR = 1, 9990


def as_meant(expression: exp.Expr, schema: Schema, aliases: Collection[str] = ()) -> exp.Expr:
    """The expression in the forms that the rest reads, changed in place where that is possible."""
    _with_texts(expression, schema, aliases)
    expression = with_schema_names(expression, schema, aliases)

    def plain(node: exp.Expr) -> exp.Expr:
        node = _derived(_folded(node), schema)
        return _bucket(node, schema) if isinstance(node, exp.WidthBucket) else node

    expression = expression.transform(plain, copy=False)
    expression = expression.transform(lambda node: _interval(node, schema), copy=False)
    return with_own_presence(expression, schema)


def _with_texts(expression: exp.Expr, schema: Schema, aliases: Collection[str]) -> None:
    """Read "Female" in double quotes as a text where it is compared with labels or dates and is no column."""
    names = {column.name for column in schema.columns} | set(aliases)
    texts = {column.name.lower() for column in schema.columns if isinstance(column, Category) or column.dates}
    for node in list(expression.find_all(exp.Column)):
        if not isinstance(node.this, exp.Identifier) or not node.this.quoted or node.name in names or node.table:
            continue
        compared = node.find_ancestor(*_COMPARED, exp.In, exp.Between, exp.Like, exp.ILike)
        if compared is not None and any(
            other is not node and other.name.lower() in texts for other in compared.find_all(exp.Column)
        ):
            node.replace(exp.Literal.string(node.name))


def _derived(node: exp.Expr, schema: Schema) -> exp.Expr:
    """A part of a date as the column that the schema derives for it."""
    part, cut = date_part(node), truncation(node)
    of, name = (part.of, part.part) if part is not None else (cut.of, "date") if cut is not None else (exp.Null(), "")
    column = schema.part_of(of.name, name) if isinstance(of.unnest(), exp.Column) and name else None
    if column is None or (cut is not None and cut.unit != "day"):
        return node
    return exp.column(exp.to_identifier(column.name, quoted=True))


def _folded(node: exp.Expr) -> exp.Expr:
    """A written date plus or minus an interval as a date."""
    if not isinstance(node, exp.Add | exp.Sub | exp.DateAdd | exp.DateSub):
        return node
    if not isinstance(node.expression.unnest(), exp.Interval) or not is_constant(node.this.unnest()):
        return node
    return _moment(moved(np.array([constant_moment(node.this.unnest())]), node))


def _bucket(node: exp.WidthBucket, schema: Schema) -> exp.Expr:
    """width_bucket(x, low, high, count): 0 below, count + 1 from `high` on, and equal buckets between. Values of a
    column are between its bounds, so buckets beyond these are left out.
    """
    x, ends = node.this, [node.args[key] for key in ("min_value", "max_value", "num_buckets")]
    low, high, count = (_number(end) for end in ends)
    if low is None or high is None or count is None or not low < high or count < 1 or count != int(count):
        raise QueryError(
            f"'{node.sql('duckdb')}' is not supported",
            "write rising bounds and a whole number of buckets: width_bucket(age, 0, 100, 10)",
        )
    bounds = _bounds(x.unnest(), schema)
    above = exp.Sub(this=exp.paren(x.copy()), expression=ends[0].copy())
    share = exp.Div(this=exp.paren(above), expression=exp.Literal.number(repr(high - low)))
    bucket = exp.Floor(this=exp.Mul(this=share, expression=ends[2].copy()))
    inside = exp.Add(this=bucket, expression=exp.Literal.number(1))
    ifs = []
    if low > bounds[0]:
        ifs.append(exp.If(this=exp.LT(this=exp.paren(x.copy()), expression=ends[0].copy()), true=exp.Literal.number(0)))
    if high <= bounds[1]:
        beyond = exp.GTE(this=exp.paren(x.copy()), expression=ends[1].copy())
        ifs.append(exp.If(this=beyond, true=exp.Literal.number(int(count) + 1)))
    return exp.Case(ifs=ifs, default=inside) if ifs else exp.paren(inside)


def _bounds(node: exp.Expr, schema: Schema) -> tuple[float, float]:
    column = next((each for each in schema.columns if isinstance(node, exp.Column) and each.name == node.name), None)
    if isinstance(column, Number | Integer):
        return float(column.lower), float(column.upper)
    return -np.inf, np.inf


def _number(node: exp.Expr | None) -> float | None:
    inner, sign = (exp.Null() if node is None else node.unnest()), 1.0
    if isinstance(inner, exp.Neg):
        inner, sign = inner.this.unnest(), -1.0
    return sign * literal_number(inner) if isinstance(inner, exp.Literal) and not inner.is_string else None


def _interval(node: exp.Expr, schema: Schema) -> exp.Expr:
    """A comparison of a calendar unit of a column with a written one as an interval of the column."""
    if isinstance(node, exp.Between):
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
        parts = [_interval(each, schema) for each in (low, high)]
        changed = parts[0] is not low and parts[1] is not high
        return exp.paren(exp.And(this=parts[0], expression=parts[1])) if changed else node
    if (
        isinstance(node, exp.In)
        and node.expressions
        and _unit_of(node.this.unnest(), exp.EQ, node.expressions[0], schema)
    ):
        equal = [exp.EQ(this=node.this.copy(), expression=each.copy()) for each in node.expressions]
        parts = [_interval(each, schema) for each in equal]
        same = any(part is each for part, each in zip(parts, equal, strict=True))
        return node if same else exp.paren(exp.or_(*parts))
    if type(node) not in _COMPARED:
        return node
    kind, left, right = type(node), node.this.unnest(), node.expression.unnest()
    if is_constant(left) and not is_constant(right):
        kind, left, right = _MIRRORED.get(kind, kind), right, left
    found = _unit_of(left, kind, right, schema)
    if found is None:
        return node
    unit, column = found
    if date_part(left) is not None:
        value = literal_number(right)
        if not _FIRST_YEAR <= value <= _LAST_YEAR:
            return node
        start, aligned = np.array([float(_year(int(value)))]), value == int(value)
    else:
        moment = constant_moment(right)
        start = truncated(unit, np.array([moment]))
        aligned = bool(start[0] == moment)
    return _compared(kind, column, start, truncated(unit, start, 1), aligned)


def _unit_of(left: exp.Expr, kind: type[exp.Expr], right: exp.Expr, schema: Schema) -> tuple[str, exp.Column] | None:
    """The calendar unit that a side of a comparison with a constant stands for, and its column of dates."""
    right = right.unnest()
    if not is_constant(right) or isinstance(right, exp.Null):
        return None
    part, cut = date_part(left), truncation(left)
    if part is not None and part.part == "year" and isinstance(right, exp.Literal) and not right.is_string:
        unit, of = "year", part.of.unnest()
    elif cut is not None:
        unit, of = cut.unit, cut.of.unnest()
    elif isinstance(left, exp.Column) and kind in _EQUAL and _is_day(right):
        unit, of = "day", left
    else:
        return None
    return (unit, of) if isinstance(of, exp.Column) and is_date(schema, of) else None


def _is_day(constant: exp.Expr) -> bool:
    """Whether a date is written without a time."""
    while isinstance(constant, exp.Cast):
        if constant.args["to"].this is not exp.DType.DATE:
            return False
        constant = constant.this
    return isinstance(constant, exp.Literal) and constant.is_string and len(constant.name.strip()) == len("2024-01-31")


def _compared(kind: type[exp.Expr], column: exp.Column, start: Floats, end: Floats, aligned: bool) -> exp.Expr:
    """The interval of a column whose units compare as `kind` with the unit from `start` to `end`."""

    def side(of: type[exp.Expr], moment: Floats) -> exp.Expr:
        return of(this=column.copy(), expression=_moment(moment))

    match kind:
        case exp.LT:
            return side(exp.LT, start if aligned else end)
        case exp.LTE:
            return side(exp.LT, end)
        case exp.GT:
            return side(exp.GTE, end)
        case exp.GTE:
            return side(exp.GTE, start if aligned else end)
    inside: exp.Expr = exp.And(this=side(exp.GTE, start), expression=side(exp.LT, end))
    if not aligned:
        inside = exp.LT(this=column.copy(), expression=column.copy())  # false, and unknown where the cell is missing
    return exp.paren(inside) if kind is exp.EQ else exp.Not(this=exp.paren(inside))


def _moment(moment: Floats) -> exp.Expr:
    return exp.Literal.string(str(np.datetime64(round(float(moment[0])), "us")))


def _year(year: int) -> np.datetime64:
    return np.datetime64(f"{year:04}-01-01", "us").astype(np.int64)
