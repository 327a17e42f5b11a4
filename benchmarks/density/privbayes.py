"""PrivBayes (Zhang et al., 2017): rows drawn from a private Bayesian network.

Its score of a set of parents is R of the paper, half the L1 distance between the joint table and the product of its
margins, here in records; adding or removing a record moves it by less than 2 (`tests/unit/benchmarks`). Three tenths of
ε choose parents by the exponential mechanism, the rest goes to the tables in equal parts, with Laplace noise. Noise is
drawn from the run's seed, for studies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from dpsketch.numerics.arrays import Floats

SCORE_SENSITIVITY = 2.0
PICKS = 0.3  # share of ε for the network, as in the paper
USEFUL = 4.0  # ratio of records to noise that a table needs, as in the paper
Scores = dict[tuple[int, tuple[int, ...]], float]


@dataclass(frozen=True, eq=False)
class Network:
    """Columns in the order of sampling, each with its parents and the cumulative shares given them."""

    levels: tuple[int, ...]
    parents: dict[int, tuple[int, ...]]
    shares: dict[int, Floats]
    rows: float  # noisy number of records

    def drawn(self, count: int, generator: np.random.Generator) -> np.ndarray:
        codes = np.zeros((count, len(self.levels)), np.int64)
        for column, parents in self.parents.items():
            given = self.shares[column][_keys(codes, parents, self.levels)]
            codes[:, column] = (generator.random(count)[:, None] > given[:, :-1]).sum(axis=1)
        return codes


def candidates_of(columns: int, degree: int) -> int:
    """Tables that a network of this degree compares: one of each set of columns, whose last one left is the child."""
    return comb(columns, degree + 1)


def fitted(
    codes: np.ndarray,
    levels: Sequence[int],
    epsilon: float,
    degree: int,
    rows: int,
    generator: np.random.Generator,
    known: Scores | None = None,
) -> Network:
    """A network of at most `degree` parents; table sizes follow from `rows`, the declared number of records.

    `known` keeps the scores of these codes between fits with other budgets.
    """
    known = {} if known is None else known
    columns = codes.shape[1]
    for_picks = PICKS * epsilon if columns > 1 else 0.0
    scale = columns / (epsilon - for_picks)
    most_cells = max(rows / (2 * scale * USEFUL), max(levels))
    order = [int(generator.integers(columns))]
    parents: dict[int, tuple[int, ...]] = {order[0]: ()}
    while len(order) < columns:
        open_sets = _candidates(order, levels, degree, most_cells)
        for each in open_sets:
            if each not in known:
                known[each] = score(codes, levels, *each)
        scores = np.array([known[each] for each in open_sets])
        rate = for_picks / (columns - 1) / (2 * SCORE_SENSITIVITY)
        picked = int(np.argmax(rate * scores + generator.gumbel(size=len(scores))))
        child, chosen = open_sets[picked]
        order.append(child)
        parents[child] = chosen
    shares, total = {}, 0.0
    for column, chosen in parents.items():
        noisy = counts_of(codes, levels, column, chosen)
        noisy = noisy + generator.laplace(scale=scale, size=noisy.shape)
        total = float(noisy.sum()) if not chosen else total
        shares[column] = np.cumsum(_conditional(noisy), axis=1)
    return Network(tuple(levels), parents, shares, max(total, 1.0))


def score(codes: np.ndarray, levels: Sequence[int], child: int, parents: tuple[int, ...]) -> float:
    """Records times R: half of Σ |joint − product of the margins|."""
    joint = counts_of(codes, levels, child, parents)
    expected = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0) / max(len(codes), 1)
    return 0.5 * float(np.abs(joint - expected).sum())


def counts_of(codes: np.ndarray, levels: Sequence[int], child: int, parents: tuple[int, ...]) -> Floats:
    """Records by the parents' levels (rows) and the child's (columns)."""
    sizes = int(np.prod([levels[each] for each in parents], dtype=np.int64))
    keys = _keys(codes, parents, levels) * levels[child] + codes[:, child]
    return np.bincount(keys, minlength=sizes * levels[child]).astype(np.float64).reshape(sizes, levels[child])


def _candidates(
    order: Sequence[int], levels: Sequence[int], degree: int, most_cells: float
) -> list[tuple[int, tuple[int, ...]]]:
    """Children with the largest sets of parents whose tables are useful; with none where no table is."""
    left = [column for column in range(len(levels)) if column not in order]
    for size in range(min(degree, len(order)), 0, -1):
        found = []
        for chosen in combinations(sorted(order), size):
            cells = np.prod([levels[each] for each in chosen], dtype=float)
            found += [(child, chosen) for child in left if cells * levels[child] <= most_cells]
        if found:
            return found
    return [(child, ()) for child in left]


def _keys(codes: np.ndarray, parents: tuple[int, ...], levels: Sequence[int]) -> np.ndarray:
    keys = np.zeros(len(codes), np.int64)
    for each in parents:
        keys = keys * levels[each] + codes[:, each]
    return keys


def _conditional(noisy: Floats) -> Floats:
    """Shares in every row; equal where noise left nothing."""
    kept = np.maximum(noisy, 0.0)
    totals = kept.sum(axis=1, keepdims=True)
    return np.where(totals > 0, kept / np.where(totals > 0, totals, 1.0), 1 / noisy.shape[1])
