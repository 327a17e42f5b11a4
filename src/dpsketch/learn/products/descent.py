"""Fitting a mixture of products to pair tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.schema import Floats

Reals = NDArray[np.floating]

SEED = 1
RATE, STEPS = 0.1, 1000
SPREAD = 0.5  # standard deviation of the first logits about the marginals'
MARGIN_WEIGHT = 0.3
FLOOR = 1e-4  # on products of shares, in weights
CHECK = 25  # steps


def fit_mixture(
    targets: Mapping[tuple[int, int], Floats],
    shares: Sequence[Floats],
    components: int,
    tolerance: float,
) -> tuple[Floats, list[Floats]]:
    """Weights (K) and, for each column, shares (K × groups) of the mixture whose pair tables are nearest to `targets`.

    `shares[j]` are the marginal shares of column j's groups, `targets[i, j]` the joint shares of the groups of two
    columns. Squared errors are weighted by 1/√(share·share). Softmax parameters, one Gram matrix a step, Adam with a
    rate that falls linearly in the second half. It stops once the root mean squared residual is under `tolerance`: so
    near independence where the tables leave a choice. At the end the marginals are made exact. Deterministic: the
    start is drawn from a fixed seed. Single precision does: no residual that matters is below 10⁻⁵.
    """
    lengths = np.array([len(share) for share in shares])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    starts, margin = offsets[:-1], np.concatenate(shares)
    goal, weight = np.zeros((2, len(margin), len(margin)), np.float32)
    for (i, j), table in targets.items():
        rows, columns = slice(offsets[i], offsets[i + 1]), slice(offsets[j], offsets[j + 1])
        scale = 1 / np.sqrt(np.outer(shares[i], shares[j]) + FLOOR)
        goal[rows, columns], goal[columns, rows] = table, table.T
        weight[rows, columns], weight[columns, rows] = scale, scale.T
    fitted = weight > 0
    cells = max(int(fitted.sum()), 1)
    weight *= cells / max(float(weight.sum()), 1e-30)
    target = margin.astype(np.float32)[:, None]
    margin_weight = (MARGIN_WEIGHT / (margin + 1e-2)).astype(np.float32)[:, None]

    generator = np.random.default_rng(SEED)
    start = np.log(np.maximum(margin, 1e-8))[:, None] + SPREAD * generator.normal(size=(len(margin), components))
    logits, tops = start.astype(np.float32), np.zeros((components, 1), np.float32)
    adam, adam_top = _Adam(logits), _Adam(tops)
    everything = np.zeros(1, np.int64), np.array([components])
    for step in range(1, STEPS + 1):
        inside = _softmax(logits, starts, lengths)
        top = _softmax(tops, *everything).T
        weighted = inside * top
        residual = weighted @ inside.T - goal
        residual *= fitted
        if step % CHECK == 0 and np.sqrt(np.square(residual).sum() / cells) < tolerance:
            break
        residual *= weight
        margins = margin_weight * (weighted.sum(1, keepdims=True) - target)
        pull = residual @ inside
        by_top = ((0.5 * pull + margins) * inside).sum(0, keepdims=True)
        pull += margins
        pull *= inside
        pull -= inside * np.repeat(np.add.reduceat(pull, starts, axis=0), lengths, axis=0)
        pull *= top
        rate = RATE * min(1.0, 2 * (1 - step / STEPS) + 0.02)
        adam.move(logits, pull, rate)
        adam_top.move(tops, (top * (by_top - (top * by_top).sum())).T, rate)
    weights = _softmax(tops.astype(float), *everything).ravel()
    inside = _fit_margins(weights, _softmax(logits.astype(float), starts, lengths), margin, starts, lengths)
    return weights, [np.ascontiguousarray(part.T) for part in np.split(inside, offsets[1:-1])]


def _softmax(logits: Reals, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Any:
    """Softmax down each column, segment by segment."""
    peak = np.maximum.reduceat(logits, starts, axis=0)
    result = np.exp(logits - np.repeat(peak, lengths, axis=0))
    result /= np.repeat(np.add.reduceat(result, starts, axis=0), lengths, axis=0)
    return result


def _fit_margins(
    top: Floats, inside: Floats, shares: Floats, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Floats:
    """Components' shares scaled until the mixture has the given marginals exactly."""
    for _ in range(200):
        now = inside @ top
        inside = inside * (shares / np.maximum(now, 1e-300))[:, None]
        inside = inside / np.repeat(np.add.reduceat(inside, starts, axis=0), lengths, axis=0)
        if np.abs(now - shares).max() < 1e-10:
            break
    return inside


class _Adam:
    """Adam with β = (0.9, 0.99). Source: Kingma & Ba, arXiv:1412.6980, algorithm 1."""

    def __init__(self, parameters: Reals) -> None:
        self._mean, self._square = np.zeros_like(parameters), np.zeros_like(parameters)
        self._step = 0

    def move(self, parameters: Reals, slope: Reals, rate: float) -> None:
        self._step += 1
        self._mean *= 0.9
        self._mean += 0.1 * slope
        self._square *= 0.99
        self._square += 0.01 * np.square(slope)
        scale = rate / (1 - 0.9**self._step)
        parameters -= scale * self._mean / (np.sqrt(self._square / (1 - 0.99**self._step)) + 1e-12)
