"""Trends: the dependence of another column on the place inside a group of cells, from that between groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.estimators.joint.refine import CLOSEST, group_places
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

LEAST = 1e-9  # share of a group
_ORIGIN = Tuned("seven tables of the truth study", by=BY_HAND, decision=37)
AT_ENDS: Annotated[float, _ORIGIN] = 0.5  # of the trend, in groups with a neighbour on one side only
DOUBT: Annotated[float, _ORIGIN] = 0.5  # standard error of the gain, as a part of it


@dataclass(frozen=True)
class Trend:
    """What products gain by a trend inside groups, as [model, function], and how far off the gain may be."""

    gained: Floats
    doubt: Floats

    def __add__(self, other: Trend) -> Trend:
        return Trend(self.gained + other.gained, self.doubt + other.doubt)


@dataclass(frozen=True)
class Chain:
    """The groups of an ordered column that follow each other, without bounds and other single values: `groups`, their
    mean places on [0, 1], and their shares. `away` is how far each cell lies from the mean of its group, times its
    share: entry [cell, group of the chain].
    """

    groups: NDArray[np.int64]
    places: Floats
    shares: Floats
    away: Floats

    def trend(self, values: Floats, others: Iterable[Floats], tables: Sequence[Floats]) -> Trend:
        """What the expectation of a product gains if the mean of the other function follows the trend from group to
        group, instead of being constant in each. `values` are means of functions in cells, `others` those of the other
        functions in their groups, as [function, group], and `tables` the joint shares, both for each model.

        Where the trend before and behind a group differ, the smaller one is taken, and none where they point in
        opposite ways: it never leaves what the neighbours span.

        Source: van Leer, J. Comput. Phys. 32 (1979) 101 (linear reconstruction with limited slopes).
        """
        weights = values @ self.away
        gained = [self._gained(weights, other, table) for other, table in zip(others, tables, strict=True)]
        inner, ends = gained[0]
        doubt = DOUBT * (np.abs(inner) + np.abs(ends))
        return Trend(np.stack([inner + AT_ENDS * ends for inner, ends in gained]), doubt)

    def _gained(self, weights: Floats, other: Floats, table: Floats) -> tuple[Floats, Floats]:
        """By the groups between others, and by those at the ends."""
        means = np.clip(
            (other @ table.T)[:, self.groups] / self.shares,
            other.min(axis=1, keepdims=True),
            other.max(axis=1, keepdims=True),
        )
        steps = np.diff(means, axis=1) / np.maximum(np.diff(self.places), CLOSEST)
        before, behind = steps[:, :-1], steps[:, 1:]
        slopes = np.where(before * behind > 0, np.sign(before) * np.minimum(np.abs(before), np.abs(behind)), 0.0)
        inner = (weights[:, 1:-1] * slopes).sum(1)
        return inner, weights[:, 0] * steps[:, 0] + weights[:, -1] * steps[:, -1]


def chain_of(marginal: Marginal, groups: NDArray[np.int64], shares: Floats) -> Chain | None:
    """None where there are fewer than three such groups."""
    if not marginal.ordered:
        return None
    _, apart = group_places(marginal, groups, len(shares))
    cells = marginal.means()
    held = np.bincount(groups, marginal.shares, len(shares))
    places = np.bincount(groups, marginal.shares * cells, len(shares)) / np.maximum(held, LEAST)
    chain = np.flatnonzero(~apart & (held > LEAST))
    chain = chain[np.argsort(places[chain], kind="stable")]
    if len(chain) < 3:
        return None
    member = groups[:, None] == chain
    away = member * (marginal.shares * (cells - places[groups]))[:, None]
    return Chain(chain, places[chain], np.maximum(shares[chain], LEAST), away)
