"""Choices of a summary: greedily by marginal gain in the objective, and uniformly from all owners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsketch.federate.market.feature_hash import Features
from dpsketch.numerics.arrays import Floats

Chosen = NDArray[np.int64]


def greedy(pool: Features, target: Floats, size: int, start: Floats | None = None, seeds: int = 0) -> Chosen:
    """Indices of `size` points of the pool, each the one with the largest marginal gain of J, in order.

    For features of norm 1 the gain of x beside q points with sum s is largest where ⟨target, φ(x)⟩ − ⟨s, φ(x)⟩/(q+1)
    is. `start` is the sum of `seeds` points that are in the summary already. Ties go to the earlier row.
    Source: summary, section 2; Kim et al. (NIPS 2016).
    """
    size = min(size, len(pool))
    gain = pool @ target.astype(np.float32)
    against = np.zeros(len(pool), np.float32) if start is None else pool @ start.astype(np.float32)
    taken = np.zeros(len(pool), np.float32)
    chosen = np.empty(size, np.int64)
    for place in range(size):
        best = int(np.argmax(gain - against / np.float32(seeds + place + 1) + taken))
        chosen[place], taken[best] = best, -np.inf
        against += pool @ pool[best]
    return chosen


def uniform(owners: NDArray[np.int64], size: int, seed: int) -> Chosen:
    """Indices of equally many rows of every owner, chosen at random: the paper's baseline for federated sampling."""
    rng = np.random.default_rng(seed)
    names = np.unique(owners)
    shares = np.full(len(names), size // len(names))
    shares[: size - int(shares.sum())] += 1
    rows = [rng.permutation(np.flatnonzero(owners == name))[:share] for name, share in zip(names, shares, strict=True)]
    return np.concatenate(rows)


def shares_of(total: int, weights: Floats) -> Chosen:
    """`total` divided in proportion to weights, by largest remainders."""
    exact = weights / weights.sum() * total
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - whole), kind="stable")
    whole[order[: total - int(whole.sum())]] += 1
    return whole
