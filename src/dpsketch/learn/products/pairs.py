"""Pair tables without their noise: what is left of the dependence between columns once chance is taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpsketch.schema import Floats

RAKES = 100
COMMON_STEPS = 30
Pairs = Mapping[tuple[int, int], Floats]


def denoise_pairs(
    tables: Pairs, sd: float, shares: Sequence[Floats], scored: Sequence[bool]
) -> dict[tuple[int, int], Floats]:
    """Joint shares of all pairs of columns, fitted to the marginals, from noisy ones whose cells are off by `sd`.

    What the marginals do not explain (`centre_twice`) is split in two: a part that all pairs have in common
    (`common_dependence`) and what `dependence` finds in the rest of each pair. Where that leaves more unexplained than
    noise would, a pair has a structure of its own, and `dependence` alone on that pair takes over. `scored` columns
    have groups in order, or only two.
    """
    unexplained = {(i, j): centre_twice(table - np.outer(shares[i], shares[j])) for (i, j), table in tables.items()}
    scores = [rank_scores(p) if known else np.zeros(len(p)) for p, known in zip(shares, scored, strict=True)]
    common = common_dependence(unexplained, sd, [len(p) for p in shares])
    rest = {pair: unexplained[pair] - common[pair] for pair in tables}
    spread, spread_rest = linear_variance(unexplained, sd, shares, scores), linear_variance(rest, sd, shares, scores)
    result = {}
    for i, j in tables:
        columns = shares[i], shares[j], scores[i], scores[j]
        found = common[i, j] + dependence(rest[i, j], sd, *columns, spread_rest)
        noise = sd**2 * (len(shares[i]) - 1) * (len(shares[j]) - 1)
        if ((unexplained[i, j] - found) ** 2).sum() > noise:
            found = dependence(unexplained[i, j], sd, *columns, spread)
        result[i, j] = rake(np.outer(shares[i], shares[j]) + found, shares[i], shares[j])
    return result


def denoise_pair(table: Floats, sd: float, first: Floats, second: Floats, variance: float = 0.0) -> Floats:
    """`denoise_pairs` for a single pair of ordered columns; `variance` is that of correlations in general."""
    unexplained = centre_twice(table - np.outer(first, second))
    found = dependence(unexplained, sd, first, second, rank_scores(first), rank_scores(second), variance)
    return rake(np.outer(first, second) + found, first, second)


def dependence(
    table: Floats,
    sd: float,
    first: Floats,
    second: Floats,
    first_scores: Floats,
    second_scores: Floats,
    variance: float,
) -> Floats:
    """A doubly centred table without its noise: its linear part shrunk as one of variance `variance`, then the rest."""
    linear = np.outer(first * first_scores, second * second_scores)
    direction = centre_twice(linear)
    size = (direction**2).sum()
    if size < 1e-12:
        return shrink_singular_values(table, sd)
    slope = (table * direction).sum() / size
    kept = np.clip(slope * variance / (variance + sd**2 / size), -1.0, 1.0)
    return kept * linear + shrink_singular_values(table - slope * direction, sd)


def linear_variance(tables: Pairs, sd: float, shares: Sequence[Floats], scores: Sequence[Floats]) -> float:
    """The variance of true rank correlations over all pairs: that of the noisy ones less their noise."""
    total = weights = 0.0
    for (i, j), table in tables.items():
        direction = centre_twice(np.outer(shares[i] * scores[i], shares[j] * scores[j]))
        size = (direction**2).sum()
        if size > 1e-12:
            slope, noise = (table * direction).sum() / size, sd**2 / size
            total += (slope**2 - noise) / noise**2
            weights += 1 / noise**2
    return max(0.0, total / weights) if weights else 0.0


def common_dependence(tables: Pairs, sd: float, sizes: Sequence[int]) -> dict[tuple[int, int], Floats]:
    """What few hidden causes explain of all doubly centred tables at once.

    Side by side the tables are the off-diagonal blocks of one symmetric matrix; in a mixture of products it is the
    covariance of the components' shares, so of low rank and positive. Blocks on the diagonal are unknown and filled
    in from the estimate; eigenvalues above the noise's are shrunk for least squared error. A cause that touches d
    columns stands out √d times more than in any single pair.

    Source: Gavish & Donoho, IEEE Trans. Inf. Theory 63 (2017) 2137 (square matrices); filling in as in Mazumder, Hastie
    & Tibshirani, JMLR 11 (2010) 2287.
    """
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    blocks = [slice(offsets[j], offsets[j + 1]) for j in range(len(sizes))]
    matrix = np.zeros((offsets[-1], offsets[-1]))
    for (i, j), table in tables.items():
        matrix[blocks[i], blocks[j]] = table
        matrix[blocks[j], blocks[i]] = table.T
    unit = sd * np.sqrt(max(offsets[-1] - len(sizes), 1))
    estimate = np.zeros_like(matrix)
    for _ in range(COMMON_STEPS):
        for block in blocks:
            matrix[block, block] = estimate[block, block]
        values, vectors = np.linalg.eigh(matrix)
        seen = values > 2 * unit
        kept = vectors[:, seen]
        estimate = (kept * np.sqrt(values[seen] ** 2 - 4 * unit**2)) @ kept.T
        if not seen.any():
            break
    return {(i, j): estimate[blocks[i], blocks[j]] for i, j in tables}


def centre_twice(table: Floats) -> Floats:
    """The table less its row and column means; noise of equal variance keeps it on what is left."""
    return table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()


def shrink_singular_values(table: Floats, sd: float) -> Floats:
    """A doubly centred table with its singular values shrunk for least mean squared error.

    Source: Gavish & Donoho, IEEE Trans. Inf. Theory 63 (2017) 2137, Frobenius loss, known noise.
    """
    large, small = max(table.shape) - 1, min(table.shape) - 1
    if small < 1:
        return np.zeros_like(table)
    left, values, right = np.linalg.svd(table, full_matrices=False)
    unit, ratio = sd * np.sqrt(large), small / large
    values = values / unit
    seen = values > 1 + np.sqrt(ratio)
    shrunk = np.zeros_like(values)
    shrunk[seen] = np.sqrt((values[seen] ** 2 - ratio - 1) ** 2 - 4 * ratio) / values[seen]
    return (left * (shrunk * unit)) @ right


def rake(table: Floats, first: Floats, second: Floats) -> Floats:
    """The table made positive and scaled until it has the given marginals."""
    table = np.maximum(table, 1e-7 * np.outer(first, second) + 1e-12)
    for _ in range(RAKES):
        table = table * (first / table.sum(1))[:, None]
        table = table * (second / table.sum(0))
        if np.abs(table.sum(1) - first).max() < 1e-9:
            break
    return table


def rank_scores(shares: Floats) -> Floats:
    """Mid-ranks of ordered groups, of mean 0 and variance 1 under their shares; zeros where one group has all."""
    ranks = np.cumsum(shares) - shares / 2
    ranks = ranks - shares @ ranks
    variance = shares @ ranks**2
    return ranks / np.sqrt(variance) if variance > 1e-8 else np.zeros_like(ranks)
