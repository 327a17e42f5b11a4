"""Released tables of three columns: what they say that pair tables do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.estimators.joint.denoised_pairs import BORROWED, SMALLEST, SMOOTH_STEPS, contrasts
from dpsketch.learn.estimators.joint.from_release import ReleasedProducts, ReleasedTriples
from dpsketch.learn.estimators.joint.joint_fit import group_shares
from dpsketch.learn.estimators.joint.refine import shares_inside
from dpsketch.learn.estimators.joint.triples import Places, Triples
from dpsketch.learn.shared import Memo, made_once
from dpsketch.numerics.arrays import Floats

_CONTRACT = "fa,fb,fc,abc->f"


class Third(NamedTuple):
    """What is added for three columns to the mean of a product of functions: to each model's, as [model, function]. Of
    it, what is only a guess; the variance of what noise leaves unknown; and the variance, under independence, of the
    functions' own part of three columns that tables can show.
    """

    added: Floats
    guessed: Floats
    left: Floats
    seen: Floats


class OfThree:
    """Half of the mixture's own dependence of three columns is taken off, and what a table of the three shows beyond
    that is put on. Without a table, what was taken off may be wrong by as much.
    """

    def __init__(self, fitted: ReleasedProducts) -> None:
        self._triples = Triples(fitted)
        noisy = fitted.triples
        self._measured = None if noisy is None else MeasuredTriples(fitted, self._triples, noisy)

    def third_order(self, columns: Places, values: Sequence[Floats], cells: Sequence[Floats]) -> Third:
        """For functions of three columns, in increasing order, given by means in the fit's groups and in cells."""
        moved = self._triples.expected(columns, values)
        if self._measured is None or not self._measured.measures(columns):
            return Third(moved[None], moved, np.zeros(1), np.zeros(1))
        return self._measured.third_order(columns, cells, moved)


@dataclass(frozen=True)
class _Groups:
    """The groups of a column's cells: the group of each cell, shares, shares of cells in each group, contrasts."""

    of_cells: NDArray[np.int64]
    shares: Floats
    inside: Floats
    axis: Floats


class MeasuredTriples:
    """Posterior means of what tables of three columns show beyond the model's joint shares of them.

    Only contrasts of all three columns are used: noise in them is that of a cell, and pair tables say little of them.
    Empirical Bayes decides how much of each is kept, as for pair tables.
    """

    def __init__(self, fitted: ReleasedProducts, triples: Triples, noisy: ReleasedTriples) -> None:
        self._fitted, self._triples, self._noisy = fitted, triples, noisy
        self._column = Memo(self._groups_of)
        self._turn = Memo(self._turned)
        self._modelled = Memo(self._in_model)

    def measures(self, columns: Places) -> bool:
        return columns in self._noisy.tables

    def third_order(self, columns: Places, cells: Sequence[Floats], moved: Floats) -> Third:
        """For functions given by their means in cells as [function, cell]; `moved` is added in any case."""
        groups = [self._column(column) for column in columns]
        means = [each @ own.inside for each, own in zip(cells, groups, strict=True)]
        count = max(map(len, means))
        weights = [
            np.broadcast_to(each @ own.axis, (count, own.axis.shape[1]))
            for each, own in zip(means, groups, strict=True)
        ]
        kept, measured = self._kept[columns], self._measured[columns]
        models = range(len(self._fitted.models))
        changes = (kept * (measured - self._modelled((model, columns))) for model in models)
        added = np.stack([np.einsum(_CONTRACT, *weights, change, optimize=True) for change in changes])
        left = self._noisy.sd**2 * np.einsum(_CONTRACT, *(each**2 for each in weights), kept, optimize=True)
        seen = np.ones(1)
        for each, own in zip(means, groups, strict=True):
            seen = seen * np.maximum(each**2 @ own.shares - (each @ own.shares) ** 2, 0.0)
        return Third(moved + added, np.zeros(1), left, seen)

    def _groups_of(self, column: int) -> _Groups:
        of_cells, marginal = self._noisy.groups[column], self._fitted.products.marginals[column]
        size = int(of_cells.max()) + 1
        shares = group_shares([marginal], [of_cells])[0]
        inside = np.eye(size)[of_cells] * shares_inside(marginal.shares, of_cells, size)[:, None]
        return _Groups(of_cells, shares, inside, contrasts(shares, self._fitted.cells[column].ordered))

    def _turned(self, key: tuple[int, int]) -> Floats:
        """Contrasts of a column in a model, as [contrast, group of the model's]."""
        model, column = key
        groups = self._column(column)
        return groups.axis[groups.of_cells].T @ self._fitted.models[model].inside(column)

    def _in_model(self, key: tuple[int, Places]) -> Floats:
        """Contrasts of three columns in a model: its answers about them, as `ProductEstimator` gives them."""
        model, columns = key
        products, mixture = self._fitted.models[model], self._fitted.mixtures[model]
        turns = [self._turn((model, column)) for column in columns]
        inside = [turn @ mixture.shares[column].T for turn, column in zip(turns, columns, strict=True)]
        found: Floats = np.einsum("k,ak,bk,ck->abc", mixture.weights, *inside, optimize=True)
        for a, b in combinations(range(3), 2):
            pair, other = (columns[a], columns[b]), 3 - a - b
            if pair in products.pairs:
                rest = turns[a] @ products.pairs[pair] @ turns[b].T - (inside[a] * mixture.weights) @ inside[b].T
                mean = turns[other] @ products.shares[columns[other]]
                found = found + np.expand_dims(rest, other) * mean.reshape(
                    [-1 if at == other else 1 for at in range(3)]
                )
        moved = self._triples.table(columns)
        if moved is None:
            return found
        first = [self._turn((0, column)) for column in columns]
        return np.asarray(found + np.einsum("ai,bj,ck,ijk->abc", *first, moved, optimize=True))

    @made_once
    def _measured(self) -> Mapping[Places, Floats]:
        """Contrasts of all tables."""
        return {
            columns: np.einsum("ia,jb,kc,ijk->abc", *(self._column(j).axis for j in columns), table, optimize=True)
            for columns, table in self._noisy.tables.items()
        }

    @made_once
    def _kept(self) -> Mapping[Places, Floats]:
        """The part of each contrast beyond the fit's that is kept, if these have variances (triple's size) · (class's
        size): those under which they are most likely, as in `denoised_pairs.kept_smooth`.
        """
        noise = self._noisy.sd**2
        beyond = {columns: table - self._modelled((0, columns)) for columns, table in self._measured.items()}
        power = np.concatenate([each.ravel() for each in beyond.values()]) ** 2
        owner = np.repeat(np.arange(len(beyond)), [each.size for each in beyond.values()])
        classes = np.concatenate([self._classes(columns, each.shape).ravel() for columns, each in beyond.items()])
        kind = np.unique(classes, return_inverse=True)[1]
        in_triple, in_kind = np.bincount(owner), np.bincount(kind)
        triple = np.maximum(np.bincount(owner, power) / in_triple - noise, 0.1 * noise)
        size = np.ones(len(in_kind))
        for step in range(SMOOTH_STEPS + 1):
            variance = triple[owner] * size[kind]
            kept = variance / (variance + noise)
            if step == SMOOTH_STEPS:
                break
            square = kept * (kept * power + noise)  # and posterior variance
            usual = np.exp(np.log(triple).mean())
            both = np.bincount(owner, square / size[kind])
            triple = np.maximum((both + BORROWED * usual) / (in_triple + BORROWED), SMALLEST * noise)
            size = np.maximum(np.bincount(kind, square / triple[owner]) / in_kind, SMALLEST)
        parts = np.split(kept, np.cumsum(in_triple)[:-1])
        return {columns: part.reshape(beyond[columns].shape) for columns, part in zip(beyond, parts, strict=True)}

    def _classes(self, columns: Places, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Contrasts that are alike: by the sum of the degrees of ordered columns, and the number of these."""
        ordered = [self._fitted.cells[column].ordered for column in columns]
        degrees = [np.arange(size) * scored for size, scored in zip(shape, ordered, strict=True)]
        every = degrees[0][:, None, None] + degrees[1][:, None] + degrees[2]
        return np.asarray(4 * every + sum(ordered))
