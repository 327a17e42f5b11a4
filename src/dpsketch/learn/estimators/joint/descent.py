"""Fitting a mixture of products to pair tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

Singles = NDArray[np.float32]

SEED = 1
RATE: Annotated[float, UNRECORDED] = 0.1
STEPS: Annotated[int, UNRECORDED] = 2000
FEWEST_STEPS: Annotated[int, UNRECORDED] = 600
WARM_RATE: Annotated[float, UNRECORDED] = 0.05  # from a mixture fitted to a similar goal
WARM_STEPS: Annotated[int, UNRECORDED] = 200
WORK = 4e8  # cells times steps: large goals get fewer steps
SPREAD: Annotated[float, UNRECORDED] = 0.5  # standard deviation of the first logits around the marginals'
MARGIN_WEIGHT: Annotated[float, UNRECORDED] = 0.3
FLOOR: Annotated[float, UNRECORDED] = 1e-4  # of products of shares, in weights
LEAST = 1e-8  # share that logits start from
LOWEST = -25.0  # logit of a share that is as good as none
TINY = np.float32(
    1e-20
)  # keeps what decays towards zero out of the range in which processors are a hundred times slower
CHECK = 25  # steps


def fit_mixture(
    goal: Floats | Singles,
    known: NDArray[np.bool_],
    shares: Sequence[Floats],
    components: int,
    tolerance: float,
    start: tuple[Floats, Sequence[Floats]] | None = None,
) -> tuple[Floats, list[Floats]]:
    """Weights (K) and, for each column, shares (K × groups) of the mixture whose pair tables are nearest to `goal`.

    `shares[j]` are the marginal shares of column j's groups; `goal` has the joint shares of the groups of two columns
    in its blocks, as far as they are `known`. Squared errors are weighted by 1/√(share·share). Softmax parameters, one
    Gram matrix a step, Adam with a rate that falls linearly in the second half. It stops once the root mean squared
    residual is under `tolerance`: so near independence where the tables leave a choice. At the end the marginals are
    made exact. Deterministic: the start is drawn from a fixed seed, or is the mixture `start`, from which
    fewer steps do. Single precision does: no residual that matters is below 10⁻⁵.
    """
    lengths = np.array([len(share) for share in shares])
    margin = np.concatenate(shares)
    member = (np.repeat(np.arange(len(lengths)), lengths) == np.arange(len(lengths))[:, None]).astype(np.float32)
    cells = max(int(known.sum()), 1)
    weight = np.where(known, 1 / np.sqrt(np.outer(margin, margin) + FLOOR), 0.0)
    weight *= cells / max(float(weight.sum()), 1e-30)
    aim, scale, target = (each.astype(np.float32) for each in (goal, weight, margin[:, None]))
    margin_weight = MARGIN_WEIGHT / (target + np.float32(1e-2))
    logits, tops = _cold(margin, components) if start is None else _warm(*start)
    full, steps = WARM_RATE, WARM_STEPS
    if start is None:
        full, steps = RATE, int(np.clip(WORK / goal.size, FEWEST_STEPS, STEPS))
    adam, adam_top = _Adam(logits), _Adam(tops)
    for step in range(1, steps + 1):
        inside = np.exp(logits)
        sums = np.repeat(member @ inside, lengths, axis=0)
        inside /= sums
        top = _weights(tops).T
        weighted = inside * top
        residual = weighted @ inside.T
        residual -= aim
        if step % CHECK == 0:
            logits -= np.log(sums)  # changes nothing, and keeps exponentials in range
            np.maximum(logits, LOWEST, out=logits)
            now = float(np.sqrt(np.square(residual, where=known, out=np.zeros_like(residual)).sum() / cells))
            if now < tolerance:
                break
        residual *= scale
        margins = margin_weight * (weighted.sum(1, keepdims=True) - target)
        pull = residual @ inside
        by_top = ((0.5 * pull + margins) * inside).sum(0, keepdims=True)
        pull += margins
        pull *= inside
        pull -= inside * np.repeat(member @ pull, lengths, axis=0)
        pull *= top
        rate = full * min(1.0, 2 * (1 - step / steps) + 0.02)
        adam.move(logits, pull, rate)
        adam_top.move(tops, (top * (by_top - (top * by_top).sum())).T, rate)
    weights = _weights(tops.astype(np.float64)).ravel()
    exact = fit_margins(weights, np.exp(logits.astype(np.float64)), margin, lengths)
    return weights, [np.ascontiguousarray(part.T) for part in np.split(exact, np.cumsum(lengths)[:-1])]


def _cold(margin: Floats, components: int) -> tuple[Singles, Singles]:
    """Logits near those of the marginals, and equal weights."""
    spread = SPREAD * np.random.default_rng(SEED).normal(size=(len(margin), components))
    logits = np.log(np.maximum(margin, LEAST))[:, None] + spread
    return logits.astype(np.float32), np.zeros((components, 1), np.float32)


def _warm(weights: Floats, shares: Sequence[Floats]) -> tuple[Singles, Singles]:
    """Logits of a mixture."""
    logits, tops = np.log(np.maximum(np.hstack(shares).T, LEAST)), np.log(np.maximum(weights, LEAST))
    return logits.astype(np.float32), tops.astype(np.float32)[:, None]


def _weights(tops: Any) -> Any:
    result = np.exp(tops - tops.max())
    return result / result.sum()


def fit_margins(top: Floats, inside: Floats, shares: Floats, lengths: NDArray[np.int64]) -> Floats:
    """Components' shares scaled until the mixture has the given marginals exactly."""
    starts = np.cumsum(lengths) - lengths
    for _ in range(200):
        inside = inside / np.repeat(np.add.reduceat(inside, starts, axis=0), lengths, axis=0)
        now = inside @ top
        if np.abs(now - shares).max() < 1e-10:
            break
        inside = inside * (shares / np.maximum(now, 1e-300))[:, None]
    return inside / np.repeat(np.add.reduceat(inside, starts, axis=0), lengths, axis=0)


class _Adam:
    """Adam with β = (0.9, 0.99). Source: Kingma & Ba, arXiv:1412.6980, algorithm 1."""

    def __init__(self, parameters: Singles) -> None:
        self._mean, self._square = np.zeros_like(parameters), np.zeros_like(parameters)
        self._step = 0

    def move(self, parameters: Singles, slope: Singles, rate: float) -> None:
        self._step += 1
        self._mean *= 0.9
        self._mean += 0.1 * slope + TINY
        self._square *= 0.99
        self._square += 0.01 * np.square(slope) + TINY
        scale = rate / (1 - 0.9**self._step)
        parameters -= scale * self._mean / (np.sqrt(self._square / (1 - 0.99**self._step)) + 1e-12)
