"""Functions of dates in statements: parts, calendar units and intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.literals import find_column, is_constant
from dpsketch.numerics.arrays import Floats
from dpsketch.schema import calendar
from dpsketch.schema.columns import DAY, SPAN, Column, Datetime, as_moment, microseconds
from dpsketch.schema.schema import Schema

DATE_FUNCTIONS = (
    "year, quarter, month, week, day, dayofyear, dayofweek, hour, minute, date_trunc('month', d), date_diff"
)
_BY_NODE: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Week: "week",
    exp.WeekOfYear: "week",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfYear: "dayofyear",
    exp.DayOfWeek: "dayofweek",
    exp.DayOfWeekIso: "isodow",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
}
_SYNONYMS = {"dow": "dayofweek", "weekday": "dayofweek", "doy": "dayofyear", "weekofyear": "week", "yr": "year"}
_DATE, _TIMES = exp.DType.DATE, (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPTZ, exp.DType.DATETIME)


@dataclass(frozen=True)
class DatePart:
    """A part of a date, as in `hour(d)`."""

    part: str
    of: exp.Expr


@dataclass(frozen=True)
class Truncated:
    """The beginning of a calendar unit, as in `date_trunc('month', d)` or `d::date`."""

    unit: str
    of: exp.Expr


def date_part(node: exp.Expr) -> DatePart | None:
    """The part of a date that a node asks for, in any of its spellings."""
    if type(node) in _BY_NODE:
        return DatePart(_BY_NODE[type(node)], node.this)
    if isinstance(node, exp.Extract):
        return DatePart(_part_name(node.this.name, node), node.expression)
    if isinstance(node, exp.Anonymous):
        name, arguments = node.name.lower(), node.expressions
        if name in ("date_part", "datepart") and len(arguments) == 2:
            return DatePart(_part_name(arguments[0].name, node), arguments[1])
        if name in _SYNONYMS and len(arguments) == 1:
            return DatePart(_SYNONYMS[name], arguments[0])
    return None


def _part_name(text: str, node: exp.Expr) -> str:
    name = text.lower().rstrip("s")
    name = _SYNONYMS.get(name, name)
    if name not in calendar.PARTS:
        raise QueryError(f"'{node.sql('duckdb')}': there is no part '{text.lower()}'", f"parts are {_listed()}")
    return name


def _listed() -> str:
    return ", ".join(calendar.PARTS)


def truncation(node: exp.Expr) -> Truncated | None:
    """The calendar unit to whose beginning a node moves a date."""
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        return Truncated(_unit(node.args["unit"], node), node.this)
    if isinstance(node, exp.Date) and not node.expressions:
        return Truncated("day", node.this)
    if isinstance(node, exp.Cast) and node.args["to"].this is _DATE and not is_constant(node.this):
        return Truncated("day", node.this)
    return None


def _unit(unit: exp.Expr | None, node: exp.Expr) -> str:
    name = "" if unit is None else unit.name.lower().rstrip("s")
    if name not in calendar.UNITS:
        raise QueryError(f"'{node.sql('duckdb')}': there is no unit '{name}'", f"units are {', '.join(calendar.UNITS)}")
    return name


def is_date(schema: Schema, node: exp.Expr) -> bool:
    """Whether the values of an expression are dates of a column."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return any(column.name == node.name and column.dates for column in schema.columns)
    if isinstance(node, exp.Add | exp.Sub):
        return isinstance(node.expression.unnest(), exp.Interval) and is_date(schema, node.this)
    if isinstance(node, exp.Cast):
        return node.args["to"].this in (_DATE, *_TIMES) and is_date(schema, node.this)
    return isinstance(node, exp.TimestampTrunc | exp.DateTrunc | exp.Date | exp.DateAdd | exp.DateSub)


def moments(node: exp.Expr, frame: Frame) -> Floats:
    """Microseconds since 1970 at every point."""
    node = node.unnest()
    if is_constant(node):
        return np.full(frame.size, constant_moment(node))
    cut = truncation(node)
    if cut is not None:
        return calendar.truncated(cut.unit, moments(cut.of, frame))
    match node:
        case exp.Column():
            column = find_column(frame.schema, node.name)
            if not column.dates:
                raise QueryError(f"column '{column.name}' is not a column of dates", _date_columns(frame.schema))
            return frame.values(column.name)
        case exp.Add() | exp.Sub() | exp.DateAdd() | exp.DateSub() if isinstance(
            node.expression.unnest(), exp.Interval
        ):
            return moved(moments(node.this, frame), node)
        case exp.Cast() if node.args["to"].this in _TIMES:
            return moments(node.this, frame)
    raise QueryError(f"'{node.sql('duckdb')}' is not a date", _date_columns(frame.schema))


def moved(values: Floats, node: exp.Expr) -> Floats:
    """Dates plus or minus the interval of a node."""
    count, unit = _interval(node.expression.unnest(), node)
    return calendar.later(values, -count if isinstance(node, exp.Sub | exp.DateSub) else count, unit)


def _interval(interval: exp.Interval, node: exp.Expr) -> tuple[int, str]:
    inner, sign = (interval.this.unnest() if interval.this is not None else exp.Null()), 1
    if isinstance(inner, exp.Neg):
        inner, sign = inner.this, -1
    text = inner.name.strip() if isinstance(inner, exp.Literal) else ""
    if text.startswith("-"):
        text, sign = text[1:], -sign
    if not text.isdecimal() or len(text) > 6:
        raise QueryError(f"'{node.sql('duckdb')}' is not supported", "write one unit: d + interval '3 days'")
    return sign * int(text), _unit(interval.args.get("unit"), node)


def constant_moment(node: exp.Expr) -> float:
    """A date that is written in the statement."""
    inner = node
    while isinstance(inner, exp.Cast | exp.Paren):
        inner = inner.this
    moment = as_moment(inner.name) if isinstance(inner, exp.Literal) and inner.is_string else None
    if moment is None:
        text = inner.name if isinstance(inner, exp.Literal) else node.sql("duckdb")
        raise QueryError(f"'{text}' is not a date", "write dates as '2024-01-31'")
    found = float(microseconds(moment))
    cast = node.unnest()
    whole = isinstance(cast, exp.Cast) and cast.args["to"].this is _DATE
    return float(calendar.truncated("day", np.array([found]))[0]) if whole else found


def part_numbers(asked: DatePart, frame: Frame) -> Floats:
    """A part of a date at every point."""
    for node in asked.of.find_all(exp.Column):
        _check_resolved(find_column(frame.schema, node.name), asked.part)
    return calendar.part_values(asked.part, moments(asked.of, frame))


def between_dates(node: exp.DateDiff, frame: Frame) -> Floats:
    """How many beginnings of a unit lie between two dates, as in DuckDB."""
    unit = _unit(node.args.get("unit"), node)
    ends = [calendar.truncated(unit, moments(each, frame)) for each in (node.this, node.expression)]
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit)
    if months is None:
        return (ends[0] - ends[1]) / (7 * DAY if unit == "week" else calendar.part_length(unit))
    years, month = ([calendar.part_values(part, each) for each in ends] for part in ("year", "month"))
    return ((years[0] - years[1]) * 12 + month[0] - month[1]) / months


def _check_resolved(column: Column, part: str) -> None:
    """Refuse parts that change faster than the levels of a column."""
    if not isinstance(column, Datetime):
        return
    low, high = column.bounds
    level = (high - low) / SPAN
    if level > calendar.part_length(part):
        raise QueryError(
            f"dates of column '{column.name}' are rounded to {_span(level)} by its bounds: their {part} is not known",
            f'declare a column of it before the next release: from = "{column.name}", part = "{part}"',
        )


def _span(microseconds: float) -> str:
    for length, name in ((DAY, "days"), (3600e6, "hours"), (60e6, "minutes")):
        if microseconds >= length:
            return f"{microseconds / length:.3g} {name}"
    return f"{microseconds / 1e6:.3g} seconds"


def _date_columns(schema: Schema) -> str:
    names = [column.name for column in schema.columns if column.dates]
    return f"columns of dates are {', '.join(names)}" if names else "the schema declares no column of dates"


def repeated(schema: Schema, expression: exp.Expr) -> bool:
    """Whether an expression depends on a part of a date that the calendar repeats, such as the hour."""
    parts = (date_part(node) for node in expression.walk())
    return any(part is not None and calendar.repeats(part.part) for part in parts)
