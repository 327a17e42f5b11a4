"""The shape of errors in standard errors: normal, or that of Laplace noise. The one place that knows it."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.arrays import Floats


def error_quantiles(shares: Floats, laplace: bool) -> Floats:
    """The errors that these shares of errors stay below."""
    if laplace:
        tail = np.log(2 * np.minimum(shares, 1 - shares)) / np.sqrt(2)
        return np.where(shares < 0.5, tail, -tail)
    from scipy.special import ndtri

    return np.asarray(ndtri(shares))


def shares_below(errors: Floats, laplace: bool) -> Floats:
    """The shares of errors below these."""
    if laplace:
        tail = np.exp(-np.sqrt(2) * np.abs(errors)) / 2
        return np.where(errors < 0, tail, 1 - tail)
    from scipy.special import ndtr

    return np.asarray(ndtr(errors))
