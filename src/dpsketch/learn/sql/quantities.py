"""Arguments of aggregates: numbers that may be null, as sums of products of functions of few columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.dates import repeated
from dpsketch.learn.sql.expressions import (
    branches,
    column_names,
    compared_numbers,
    condition_factors,
    evaluate,
    number,
)
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.ranges import ANYTHING, Range, column_range, expression_range
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING, Column
from dpsketch.schema.schema import Schema

Terms = tuple[tuple[Factor, ...], ...]  # a sum of products
MOST_TERMS = 16
MOST_POINTS = 1 << 16


@dataclass(frozen=True)
class Numbers:
    """A number at every point, NaN where it is null: a column, or an expression of columns."""

    columns: tuple[str, ...]
    at: Callable[[Frame], Floats]
    text: str
    asked: tuple[float, ...] = ()  # numbers that it compares columns with
    possible: Range = ANYTHING
    repeated: bool = False

    def power(self, power: int, centre: Floats | float = 0.0) -> Factor:
        """The function (x − centre)^power where x is present, else 0; one function for each centre."""

        def at(frame: Frame) -> Floats:
            values = self.at(frame)
            if np.isinf(values).any():
                raise QueryError(
                    f"'{self.text}' is too large at some values of its columns", "limit it: least(…, 1000)"
                )
            present = ~np.isnan(values)
            distance = np.where(present, values, 0.0)[None, :] - centre
            return np.where(present, distance**power, 0.0)

        return Factor(self.columns, at, self.asked, self.repeated)

    def grid(self, schema: Schema, most: int) -> tuple[Floats, bool]:
        """Every possible value of x, or `most` of them at evenly spaced levels of its columns; and whether they are
        all values.
        """
        if not self.columns:
            return self.at(empty_record(schema, ())), True
        columns = [schema.column(name) for name in self.columns]
        codes = every_record(columns)
        exact = codes is not None
        if codes is None:
            rng = np.random.default_rng(len(columns))
            codes = [column.codes_of(rng.integers(0, column.levels, MOST_POINTS)) for column in columns]
        frame = Frame(schema, dict(zip(self.columns, codes, strict=True)))
        values = self.at(frame)
        values = np.unique(values[np.isfinite(values)])
        if exact and len(values) <= 2 * most:
            return values, True
        return np.unique(np.quantile(values, np.linspace(0, 1, most + 1))) if len(values) else values, False


def empty_record(schema: Schema, names: tuple[str, ...]) -> Frame:
    """One point with all columns missing."""
    return Frame(schema, dict.fromkeys(names or ("",), np.full(1, MISSING, np.int16)))


def every_record(columns: list[Column]) -> list[Codes] | None:
    """Codes of every combination of levels of some columns, including missing; None if there are too many."""
    if not columns or np.prod([float(column.levels + 1) for column in columns]) > MOST_POINTS:
        return None
    levels = np.indices([column.levels + 1 for column in columns]).reshape(len(columns), -1) - 1
    return [column.codes_of(each) for column, each in zip(columns, levels, strict=True)]


@dataclass(frozen=True)
class Quantity:
    """`value`, zero where it is null, and `present`, one where it is not."""

    numbers: Numbers
    value: Terms
    present: Terms
    column: Column | None = None  # if the quantity is a plain column

    @property
    def columns(self) -> tuple[str, ...]:
        return self.numbers.columns

    @property
    def atomic(self) -> bool:
        return len(self.value) == 1 and len(self.value[0]) == 1

    def shifted(self, centre: Floats) -> Quantity:
        """The quantity minus a centre, one for each group, which avoids cancellation in later sums."""
        if self.atomic:
            return replace(self, value=((self.numbers.power(1, centre),),))
        return replace(self, value=(*self.value, *times(_constant(-centre), self.present)))


def times(*factors: Terms) -> Terms:
    """The product of several sums, multiplied out."""
    return tuple(tuple(factor for part in parts for factor in part) for parts in product(*factors))


def column_quantity(column: Column) -> Quantity:
    possible = column_range(column)
    numbers = Numbers((column.name,), lambda frame: frame.values(column.name), column.name, possible=possible)
    return replace(_atom(numbers), column=column)


def quantity_of(schema: Schema, expression: exp.Expr) -> Quantity:
    """An expression as a quantity. Factors of single columns are kept separate wherever that is exact."""
    expression = expression.unnest()
    if isinstance(expression, exp.Column):
        return column_quantity(find_column(schema, expression.name))
    numbers = _numbers(schema, expression)
    parts = _parts(schema, expression) if len(numbers.columns) > 1 else None
    return _atom(numbers) if parts is None else Quantity(numbers, *parts)


def _numbers(schema: Schema, expression: exp.Expr) -> Numbers:
    names = column_names(schema, expression)
    asked = compared_numbers(schema, expression)
    text, follows = expression.sql("duckdb").lower(), repeated(schema, expression)
    numbers = Numbers(names, lambda frame: number(expression, frame), text, asked, repeated=follows)
    numbers.at(empty_record(schema, names))  # refuses what has no number
    return replace(numbers, possible=expression_range(schema, expression))


def _atom(numbers: Numbers) -> Quantity:
    return Quantity(numbers, ((numbers.power(1),),), ((numbers.power(0),),))


def _constant(value: Floats) -> Terms:
    return ((Factor((), lambda frame: np.broadcast_to(value, (len(value), frame.size))),),)


def _parts(schema: Schema, expression: exp.Expr) -> tuple[Terms, Terms] | None:
    """Value and presence as sums of products; None if there is no such form, or it has too many terms."""
    match expression:
        case exp.Neg():
            inner = quantity_of(schema, expression.this)
            parts = times(_constant(np.full((1, 1), -1.0)), inner.value), inner.present
        case exp.Mul() | exp.Div():
            left, right = quantity_of(schema, expression.this), expression.expression
            if isinstance(expression, exp.Mul):
                right = quantity_of(schema, right)
            else:
                one_over = exp.Div(this=exp.Literal.number(1), expression=exp.paren(right.copy()))
                right = _atom(_numbers(schema, one_over))
            parts = times(left.value, right.value), times(left.present, right.present)
        case exp.Add() | exp.Sub():
            left, right = quantity_of(schema, expression.this), quantity_of(schema, expression.expression)
            sign = 1.0 if isinstance(expression, exp.Add) else -1.0
            other = times(_constant(np.full((1, 1), sign)), left.present, right.value)
            parts = (*times(left.value, right.present), *other), times(left.present, right.present)
        case exp.Case() | exp.If():
            parts = _case_parts(schema, expression)
        case _:
            return None
    return parts if len(parts[0]) + len(parts[1]) <= MOST_TERMS else None


def _case_parts(schema: Schema, expression: exp.Case | exp.If) -> tuple[Terms, Terms]:
    ifs, default = branches(expression)
    value: Terms = ()
    present: Terms = ()
    before: tuple[Factor, ...] = ()
    for condition, result in [*ifs, (None, default)]:
        here = (*before, *condition_factors(schema, condition))
        if not isinstance(result, exp.Null):
            quantity = quantity_of(schema, result)
            value += times((here,), quantity.value)
            present += times((here,), quantity.present)
        if condition is not None:
            before = (*before, _untrue(schema, condition))
    return value, present


def _untrue(schema: Schema, condition: exp.Expr) -> Factor:
    """The indicator of a condition being false or unknown."""
    return Factor(
        column_names(schema, condition),
        lambda frame: (~evaluate(condition, frame).true)[None, :].astype(np.float64),
        compared_numbers(schema, condition),
        repeated(schema, condition),
    )
