"""Functions of records, whose expectations answer questions, as products of functions of few columns each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Floats


@dataclass(frozen=True)
class Factor:
    """Functions of some columns, evaluated on the points of any frame that has these columns.

    Values have one row a function, or a single row that is repeated for every function of the other factors. `asked`
    are the numbers that the question compares columns with. `repeated` if values follow the calendar, such as the hour:
    the records of a cell need not be spread evenly over them. `terms` is the same function of several columns as a sum
    of products of functions of single ones, if there is one.
    """

    columns: tuple[str, ...]
    at: Callable[[Frame], Floats]
    asked: tuple[float, ...] = ()
    repeated: bool = False
    terms: tuple[tuple[Factor, ...], ...] = ()

    def row(self, index: int) -> Factor:
        """One of the functions."""
        return replace(self, at=lambda frame: self._row(self.at(frame), index))

    @staticmethod
    def _row(values: Floats, index: int) -> Floats:
        return values if len(values) == 1 else values[index : index + 1]


ONE = Factor((), lambda frame: np.ones((1, frame.size)))


def columns_of(factors: Iterable[Factor]) -> tuple[str, ...]:
    """All columns, in order of appearance."""
    return tuple(dict.fromkeys(name for factor in factors for name in factor.columns))


def asked_of(factors: Iterable[Factor]) -> tuple[float, ...]:
    """All numbers that columns are compared with."""
    return tuple(number for factor in factors for number in factor.asked)


def repeated_of(factors: Iterable[Factor]) -> bool:
    """Whether any of them follows the calendar."""
    return any(factor.repeated for factor in factors)


def product_at(factors: Sequence[Factor], frame: Frame) -> Floats:
    """Values of the product of all factors: one row a function, one column a point."""
    values = np.ones((1, frame.size))
    for factor in factors:
        values = values * factor.at(frame)
    return values


def merged(factors: Iterable[Factor]) -> list[Factor]:
    """The same product from factors that have no column in common."""
    groups: list[list[Factor]] = []
    for factor in factors:
        mine = set(factor.columns)
        apart = [group for group in groups if mine.isdisjoint(columns_of(group))]
        together = [one for group in groups if group not in apart for one in group]
        groups = [*apart, [*together, factor]]
    return [group[0] if len(group) == 1 else _joined(group) for group in groups]


def _joined(factors: list[Factor]) -> Factor:
    at = partial(product_at, factors)
    return Factor(columns_of(factors), at, asked_of(factors), repeated_of(factors))
