"""Formulas of a statement as plain data, and their values for groups of records from one estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.learn.factors import Factor, columns_of
from dpsketch.learn.sql.quantities import Quantity
from dpsketch.learn.sql.ranges import ANYTHING, Range
from dpsketch.learn.sql.selection import Selection, check_numeric
from dpsketch.schema.columns import Column


@dataclass(frozen=True)
class Kind:
    """An aggregate function: its spelling, its arguments and its statistic."""

    statistic: Callable[..., Estimate]  # takes a selection, the quantities and the parameters of an aggregate
    nodes: tuple[type[exp.Expr], ...] = ()
    arguments: int = 1
    in_rows: bool = False  # it grows with the number of records
    dated: bool = False  # that of dates is a date
    check: Callable[[Column], None] = check_numeric  # refuses columns that it has no meaning for
    possible: Callable[..., Range] = lambda *_: ANYTHING  # its range, from those of the quantities


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of quantities, over the records that also meet the condition `where`."""

    kind: Kind
    quantities: tuple[Quantity, ...] = ()
    parameters: tuple[Any, ...] = ()
    where: tuple[Factor, ...] = ()

    def __post_init__(self) -> None:
        for quantity in self.quantities:
            if quantity.column is not None:
                self.kind.check(quantity.column)

    @property
    def columns(self) -> tuple[str, ...]:
        names = [name for quantity in self.quantities for name in quantity.columns]
        return tuple(dict.fromkeys((*names, *columns_of(self.where))))

    @property
    def in_rows(self) -> bool:
        return self.kind.in_rows

    @property
    def possible(self) -> Range:
        return self.kind.possible(*[quantity.numbers.possible for quantity in self.quantities])

    @property
    def dates(self) -> Column | None:
        """The date column whose scale the values have, if any."""
        column = self.quantities[0].column if self.quantities and self.kind.dated else None
        return column if column is not None and column.dates else None


@dataclass(frozen=True)
class Constant:
    """A constant of the statement."""

    value: float
    columns: tuple[str, ...] = ()
    in_rows: bool = False
    dates: Column | None = None

    @property
    def possible(self) -> Range:
        return self.value, self.value


@dataclass(frozen=True)
class Applied:
    """A function of formulas that are all answered by one estimator."""

    function: Callable[..., Estimate]
    parts: tuple[Formula, ...]
    range_of: Callable[..., Range]  # from the ranges of the parts
    dates: Column | None = None
    ratio: bool = False  # it does not grow with the number of records, although its parts do

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    @property
    def in_rows(self) -> bool:
        return not self.ratio and any(part.in_rows for part in self.parts)

    @property
    def possible(self) -> Range:
        return self.range_of(*[part.possible for part in self.parts])


@dataclass(frozen=True)
class Overall:
    """A formula over all records that meet the condition, ignoring groups: the denominator of a share of the total.
    `by` are the keys of group by whose groups are kept, as texts. The records are those that meet
    `where`, or the statement's condition if that is None.
    """

    formula: Formula
    by: tuple[str, ...] = ()
    where: tuple[Factor, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.formula.columns, *columns_of(self.where or ()))))

    @property
    def in_rows(self) -> bool:
        return self.formula.in_rows

    @property
    def possible(self) -> Range:
        return self.formula.possible

    @property
    def dates(self) -> Column | None:
        return self.formula.dates


Formula = Aggregate | Constant | Applied | Overall


def applied(function: Callable[..., Estimate], range_of: Callable[..., Range], *parts: Formula) -> Applied:
    """A function of formulas, none of which may be a date."""
    for part in parts:
        if part.dates is not None:
            raise QueryError(
                f"dates of column '{part.dates.name}' cannot be used in arithmetic", "ask for each in its own column"
            )
    return Applied(function, parts, range_of)


def straight(formula: Formula) -> Formula:
    """The formula without functions of one number, such as exp; the same object where it has none.

    Estimators are compared by its error. The error of exp(sum(x)) would favour the estimator with the smallest sum(x),
    whatever its accuracy.
    """
    if not isinstance(formula, Applied):
        return formula
    if len(formula.parts) == 1:
        return straight(formula.parts[0])
    parts = tuple(straight(part) for part in formula.parts)
    same = all(one is other for one, other in zip(parts, formula.parts, strict=True))
    return formula if same else replace(formula, parts=parts)


def value_of(formula: Formula, selection: Selection) -> Estimate:
    """The value of a formula for each group of a selection."""
    match formula:
        case Constant():
            return selection.constant(formula.value)
        case Applied():
            return formula.function(*[value_of(part, selection) for part in formula.parts])
        case Overall():
            return selection.repeated(value_of(formula.formula, selection.overall(formula.by, formula.where)))
        case Aggregate():
            chosen = selection.also(formula.where)
            return formula.kind.statistic(chosen, *formula.quantities, *formula.parameters)
