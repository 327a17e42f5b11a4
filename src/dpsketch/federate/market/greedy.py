"""Choices of a summary: greedily by marginal gain in the objective, and uniformly from all owners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsketch.federate.market.feature_hash import Features
from dpsketch.numerics.arrays import Floats

Chosen = NDArray[np.int64]
_ACTIVE = 4096  # points whose scores are kept up to date
_STEPS = 32  # about how many choices these serve


def greedy(pool: Features, target: Floats, size: int, start: Floats | None = None, seeds: int = 0) -> Chosen:
    """Indices of `size` points of the pool, each the one with the largest marginal gain of J, in order.

    For features of norm 1 the gain of x beside q points with sum s is largest where ⟨target, φ(x)⟩ − ⟨s, φ(x)⟩/(q+1)
    is. `start` is the sum of `seeds` points that are in the summary already. Ties go to the earlier row.

    Scores of a part of the pool are kept up to date; those of the others are bounded, as ⟨φ, φ'⟩ ≥ −1, so that the
    choice is that of the plain algorithm. Source: summary, section 2; Kim et al. (NIPS 2016).
    """
    size = min(size, len(pool))
    gain = pool @ target.astype(np.float32)
    against = np.zeros(len(pool), np.float32) if start is None else pool @ start.astype(np.float32)
    free = np.ones(len(pool), bool)
    chosen: list[int] = []
    while len(chosen) < size:
        value = np.where(free, (seeds + len(chosen) + 1) * gain - against, -np.inf)
        found, added = _some(pool, gain, value, size - len(chosen))
        chosen += found
        free[found] = False
        against += pool @ added
    return np.array(chosen, np.int64)


def _some(pool: Features, gain: Features, value: Features, most: int) -> tuple[list[int], Features]:
    """The next choices, at most `most`, as long as no other point can have overtaken; and the sum of their features."""
    active = np.arange(len(pool))
    ceiling, slope = -np.inf, 0.0
    if len(pool) > 2 * _ACTIVE:
        hopeful = value + _STEPS * (gain + 1)
        active = np.argpartition(-hopeful, _ACTIVE)[:_ACTIVE]
        active = np.sort(np.union1d(active, [int(np.argmax(value))]))
        rest = np.ones(len(pool), bool)
        rest[active] = False
        ceiling, slope = float(value[rest].max()), float(gain[rest].max()) + 1
    features, scores, steps = pool[active], value[active], gain[active]
    added = np.zeros(pool.shape[1], np.float32)
    found: list[int] = []
    while len(found) < most:
        best = int(np.argmax(scores))
        if found and scores[best] <= ceiling + len(found) * slope:
            break
        found.append(int(active[best]))
        added += features[best]
        scores += steps - features @ features[best]
        scores[best] = -np.inf
    return found, added


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
