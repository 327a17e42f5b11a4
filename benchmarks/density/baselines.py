"""Baselines: models without privacy, and private ones by other methods.

Features lie in [0, 1] by public bounds. Noise is drawn from the run's seed, for studies only, and calibrated for adding
or removing a row.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np

from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.analytic_gaussian import gaussian_deviation

BINS = 32
MOST_CELLS = 1 << 22
MOST_ROWS = 100_000  # of logistic regressions, a random part of larger tables, for time
_FAILURE = 0.05  # failure probability of AdaSSP's bound on the norm of its noise


def logistic(features: Floats, labels: np.ndarray, test: Floats, seed: int) -> np.ndarray:
    """Not private: scores of the second of two classes, else labels."""
    from sklearn.linear_model import LogisticRegression

    some = np.random.default_rng(seed).permutation(len(features))[:MOST_ROWS]
    model = LogisticRegression(C=100.0, max_iter=500).fit(2 * features[some] - 1, labels[some])
    scores = model.decision_function(2 * test - 1) if len(model.classes_) == 2 else model.predict(2 * test - 1)
    return np.asarray(scores)


def logistic_or_constant(features: Floats, labels: np.ndarray, test: Floats, seed: int) -> np.ndarray:
    """The same; a constant where the rows have one class only, and labels' places where they lack others."""
    classes = np.unique(labels)
    if len(classes) == 1:
        return np.full(len(test), float(classes[0]))
    return logistic(features, labels, test, seed)


def noisy_least_squares(
    features: Floats, targets: Floats, test: Floats, epsilon: float, delta: float, seed: int, one_hot: bool
) -> Floats:
    """Predictions of every target by ridge regression on noisy second moments.

    With `one_hot`, one of the targets is 1 and the others are 0; else each lies in [-1, 1].
    """
    generator = np.random.default_rng([seed, 11])
    rows = with_one(features)
    width, count = rows.shape[1], 1 if one_hot else targets.shape[1]
    if delta:
        deviation = gaussian_deviation(Fraction(epsilon), Fraction(delta), width * (width + 1) // 2 + width * count)
    else:
        deviation = np.sqrt(2) * (width * (width + 1) / 2 + width * count) / epsilon
    upper = np.triu(_noise(generator, deviation, delta, (width, width)))
    moments = rows.T @ rows + upper + np.triu(upper, 1).T
    values, vectors = np.linalg.eigh(moments)
    moments = (vectors * np.maximum(values, 0.0)) @ vectors.T + 0.5 * deviation * np.sqrt(2 * width) * np.eye(width)
    products = rows.T @ targets + _noise(generator, deviation, delta, (width, targets.shape[1]))
    return np.asarray(with_one(test) @ np.linalg.solve(moments, products))


def least_squares(features: Floats, target: Floats, test: Floats) -> Floats:
    """Predictions of least squares, not private."""
    slopes = np.linalg.lstsq(with_one(features), target, rcond=None)[0]
    return np.asarray(with_one(test) @ slopes)


def ada_ssp(features: Floats, target: Floats, test: Floats, epsilon: float, delta: float, seed: int) -> Floats:
    """AdaSSP (Wang 2018, algorithm 2) for a target in [-1, 1], with its three releases calibrated together.

    Gaussian noises of equal ratio to their sensitivities compose to one with √3 times the ratio (analytic Gaussian
    mechanism).
    """
    generator = np.random.default_rng([seed, 12])
    rows = with_one(features)
    width = rows.shape[1]
    ratio = gaussian_deviation(Fraction(epsilon), Fraction(delta), 3)
    norm = float(width)  # ‖x‖² of a row of numbers in [-1, 1]
    moments = rows.T @ rows
    least = float(np.linalg.eigvalsh(moments)[0]) + ratio * norm * (generator.normal() - np.sqrt(np.log(6 / delta)))
    bound = ratio * norm * np.sqrt(width * np.log(2 * width**2 / _FAILURE))
    ridge = max(0.0, bound - max(least, 0.0))
    upper = np.triu(generator.normal(size=(width, width))) * ratio * norm
    noisy = moments + upper + np.triu(upper, 1).T + ridge * np.eye(width)
    products = rows.T @ target + ratio * np.sqrt(norm) * generator.normal(size=width)
    return np.asarray(with_one(test) @ np.linalg.lstsq(noisy, products, rcond=None)[0])


def isolation_forest(features: Floats, test: Floats, seed: int) -> Floats:
    """Not private: higher for more anomalous rows."""
    from sklearn.ensemble import IsolationForest

    return np.asarray(-IsolationForest(random_state=seed).fit(features).score_samples(test))


def bins_of(features: Floats) -> np.ndarray:
    return np.minimum((features * BINS).astype(np.int64), BINS - 1)


def noisy_histogram(
    bins: np.ndarray, epsilon: float, delta: float, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Bins of `count` rows drawn from a noisy table of all columns, projected on the simplex."""
    shape = (BINS,) * bins.shape[1]
    table = np.bincount(np.ravel_multi_index(tuple(bins.T), shape), minlength=int(np.prod(shape))).astype(np.float64)
    deviation = gaussian_deviation(Fraction(epsilon), Fraction(delta), 1) if delta else np.sqrt(2) / epsilon
    shares = on_simplex(table + _noise(generator, deviation, delta, table.shape))
    drawn = np.searchsorted(np.cumsum(shares), generator.random(count) * shares.sum(), side="right")
    return np.stack(np.unravel_index(np.minimum(drawn, len(shares) - 1), shape), axis=1)


def independent_marginals(
    bins: np.ndarray, epsilon: float, delta: float, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Bins drawn independently by column, from noisy histograms with equal parts of the budget."""
    columns = bins.shape[1]
    drawn = []
    for column in bins.T:
        if delta:  # Gaussian noises of equal ratio compose to one with √d times the ratio
            deviation = gaussian_deviation(Fraction(epsilon), Fraction(delta), columns)
        else:
            deviation = np.sqrt(2) * columns / epsilon
        counts = np.bincount(column, minlength=BINS) + _noise(generator, deviation, delta, (BINS,))
        drawn.append(generator.choice(BINS, count, p=on_simplex(counts)))
    return np.stack(drawn, axis=1)


def two_way_distance(real: np.ndarray, drawn: np.ndarray) -> float:
    """Mean total variation distance of the 2-way tables of bins."""
    distances = []
    for i, j in combinations(range(real.shape[1]), 2):
        shares = [np.bincount(each[:, i] * BINS + each[:, j], minlength=BINS**2) / len(each) for each in (real, drawn)]
        distances.append(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(np.mean(distances))


def on_simplex(counts: Floats) -> Floats:
    """Shares by projection of the counts on the simplex."""
    total = max(float(counts.sum()), 1.0)
    ordered = np.sort(counts)[::-1]
    shift = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(ordered > shift)[-1])
    kept = np.maximum(counts - shift[last], 0.0)
    return np.asarray(kept / kept.sum())


def with_one(features: Floats) -> Floats:
    """Features in [-1, 1], and a constant."""
    return np.hstack([2 * features - 1, np.ones((len(features), 1))])


def _noise(generator: np.random.Generator, deviation: float, delta: float, shape: tuple[int, ...]) -> Floats:
    if delta:
        return generator.normal(scale=deviation, size=shape)
    return generator.laplace(scale=deviation / np.sqrt(2), size=shape)
