"""Principal axes of a noisy matrix, with their bias and standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsketch.numerics.arrays import Floats

Redraw = Callable[[Floats, np.random.Generator], Floats]
_SEED = 11


@dataclass(frozen=True)
class Axes:
    """The first axes, one per row, by decreasing variance, and the variance along each of them, with standard errors.

    Variances are of the records along the axes as given, not along those of the exact matrix.
    """

    components: Floats
    variance: Floats
    ratio: Floats
    total: float
    components_stderr: Floats
    variance_stderr: Floats
    ratio_stderr: Floats


def projected(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues, largest first, and axes, one per row, of the nearest positive semidefinite matrix with the same
    trace.

    Noise spreads eigenvalues to both sides and leaves the trace unbiased.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1].T
    total = float(values.sum())
    if total <= 0:
        return np.zeros_like(values), vectors
    kept = np.arange(1, len(values) + 1)
    shift = (np.cumsum(values) - total) / kept
    above = np.flatnonzero(values > shift)
    if not len(above):  # the trace vanishes in the rounding error of far larger eigenvalues
        return np.zeros_like(values), vectors
    return np.maximum(values - shift[above[-1]], 0.0), vectors


def axes(matrix: Floats, redraw: Redraw, count: int, refits: int) -> Axes:
    """The first `count` axes of `matrix`. `redraw(truth, generator)` simulates a release of `truth`.

    Axes follow the noise, so variances along them are biased upwards. Redrawn matrices give the average bias, which is
    subtracted, and its variation, which is the standard error. Without refits neither is known.
    """
    values, vectors = projected(matrix)
    truth = (vectors.T * values) @ vectors
    components, total = oriented(vectors[:count]), float(values.sum())
    found = [_redrawn(redraw(truth, np.random.default_rng([_SEED, each])), truth, components) for each in range(refits)]
    if not found:
        unknown = np.full(count, np.nan)
        ratio = values[:count] / max(total, 1e-300)
        return Axes(components, values[:count], ratio, total, np.full_like(components, np.nan), unknown, unknown)
    variance_error, ratio_error, turned = (np.array(each) for each in zip(*found, strict=True))
    variance = np.maximum(values[:count] - variance_error.mean(axis=0), 0.0)
    ratio = np.clip(values[:count] / max(total, 1e-300) - ratio_error.mean(axis=0), 0.0, 1.0)
    return Axes(
        components,
        variance,
        ratio,
        total,
        np.sqrt(np.mean(turned**2, axis=0)),
        _spread(variance_error),
        _spread(ratio_error),
    )


def oriented(components: Floats) -> Floats:
    """The same axes, each oriented so that its largest entry is positive, as in scikit-learn."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return np.asarray(components * np.where(signs == 0, 1.0, signs)[:, None])


def _redrawn(matrix: Floats, truth: Floats, components: Floats) -> tuple[Floats, Floats, Floats]:
    """Upward bias of variances and ratios, and rotation of the axes."""
    values, vectors = projected(matrix)
    found = vectors[: len(components)]
    along = np.einsum("ij,jk,ik->i", found, truth, found)
    ratio = values[: len(found)] / max(float(values.sum()), 1e-300)
    signs = np.where((found * components).sum(axis=1) < 0, -1.0, 1.0)
    error = values[: len(found)] - along
    return error, ratio - along / max(float(np.trace(truth)), 1e-300), found * signs[:, None] - components


def _spread(errors: Floats) -> Floats:
    """Standard deviation of one more such error around the mean of these."""
    if len(errors) < 2:
        return np.full(errors.shape[1], np.nan)
    return np.asarray(errors.std(axis=0, ddof=1) * np.sqrt(1 + 1 / len(errors)))
