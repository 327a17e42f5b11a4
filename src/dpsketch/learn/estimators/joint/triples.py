"""Answers about three columns, moved halfway to the distribution that the pair tables alone imply."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated

import numpy as np

from dpsketch.learn.estimators.joint.from_release import ReleasedProducts
from dpsketch.learn.estimators.joint.joint_fit import Products
from dpsketch.learn.shared import Latest
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

SWEEPS = 30
CLOSE = 1e-7  # change of a pair's shares in a sweep
SMALLEST = 1e-9  # share of a pair of groups
MOST_KEPT = 50
LARGEST = 1 << 22  # cells of a table of three columns
# The mixture's own dependence of three columns is as good a guess as none: halfway errs least.
HALFWAY: Annotated[float, Tuned("adult, occupancy, california_housing, kdd", by=BY_HAND, decision=28)] = 0.5

Places = tuple[int, int, int]
_PAIRS = tuple(combinations(range(3), 2))


class Triples:
    """What to add to a mixture's answers about three columns to move them `HALFWAY` to those of `pairs_only`.

    Many mixtures have the same pair tables, and they differ in what they say of three columns. Which one a fit finds
    depends on its start and on the noise, and a mixture fitted to new noise, starting there, says the same again.
    """

    def __init__(self, fitted: ReleasedProducts) -> None:
        self._fitted = fitted
        self._tables: Latest[Places, Floats] = Latest(MOST_KEPT)

    def expected(self, columns: Places, values: Sequence[Floats]) -> Floats:
        """The addition to the mean of products of functions of three columns, in increasing order, whose values in
        groups are given as [function, group]. None is made where a pair has no table, or three need too large a one.
        """
        table = self.table(columns)
        if table is None:
            return np.zeros(1)
        sizes = table.shape
        count = max(len(each) for each in values)
        one, two, three = (np.broadcast_to(each, (count, each.shape[1])) for each in values)
        inner = (three @ table.reshape(-1, sizes[2]).T).reshape(count, sizes[0], sizes[1])
        return np.einsum("ka,kb,kab->k", one, two, inner)

    def table(self, columns: Places) -> Floats | None:
        """The addition to joint shares of three columns' groups; None where none is made."""
        products = self._fitted.products
        sizes = [len(products.shares[column]) for column in columns]
        told = all((columns[a], columns[b]) in products.pairs for a, b in _PAIRS)
        if not told or np.prod(sizes) > LARGEST:
            return None
        table = self._tables.get(columns)
        if table is None:
            table = self._moved(columns)
            self._tables.add(columns, table)
        return table

    def _moved(self, columns: Places) -> Floats:
        """In joint shares of the columns' groups; all pair tables of it are zero."""
        mixture, products = self._fitted.mixture, self._fitted.products
        margins = [products.shares[column] for column in columns]
        tables = [possible_pair(products, (columns[a], columns[b])) for a, b in _PAIRS]
        one, two, three = (mixture.shares[column] for column in columns)
        pairs = (one[:, :, None] * two[:, None, :]).reshape(len(one), -1) * mixture.weights[:, None]
        fitted = (pairs.T @ three).reshape([len(margin) for margin in margins])
        return HALFWAY * _of_three(pairs_only(tables, margins) - fitted, margins)


def pairs_only(tables: list[Floats], margins: list[Floats]) -> Floats:
    """The joint shares of three columns with the most entropy among those that have these tables of the first and
    second, first and third, second and third column: a log-linear model without a term of three columns.

    Source: Deming & Stephan, Annals of Mathematical Statistics 11 (1940) 427 (iterative proportional fitting).
    """
    joint = margins[0][:, None, None] * margins[1][:, None] * margins[2]
    for _ in range(SWEEPS):
        moved = 0.0
        for (a, b), table in zip(_PAIRS, tables, strict=True):
            other = 3 - a - b
            now = joint.sum(other)
            moved = max(moved, float(np.abs(now - table).max()))
            joint *= np.expand_dims(np.divide(table, now, out=np.zeros_like(now), where=now > 1e-30), other)
        if moved < CLOSE:
            break
    return joint


def possible_pair(products: Products, pair: tuple[int, int]) -> Floats:
    """The table of two columns without negative shares, with their marginals up to what a few rounds leave."""
    table = np.maximum(products.pairs[pair], SMALLEST)
    rows, columns = (products.shares[column] for column in pair)
    for _ in range(SWEEPS):
        table = table * (rows / table.sum(1))[:, None]
        table = table * (columns / table.sum(0))
    return table


def _of_three(joint: Floats, margins: list[Floats]) -> Floats:
    """The part of differences of joint shares that is in no pair's table: their main effects are taken as zero."""
    rest = joint.copy()
    for a, b in _PAIRS:
        other = 3 - a - b
        across = np.expand_dims(joint.sum(other), other)
        rest -= across * margins[other].reshape([-1 if axis == other else 1 for axis in range(3)])
    return rest
