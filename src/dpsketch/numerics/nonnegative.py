"""Least squares with non-negative unknowns."""

from __future__ import annotations

import numpy as np

from dpsketch.numerics.arrays import Floats

_EXACT = 2.0**40  # larger shares leave too few bits below one
PATIENCE = 5  # block exchanges that may fail to reduce the violations, before single exchanges


def nonnegative_minimum(hessian: Floats, linear: Floats) -> Floats:
    """The x ≥ 0 that minimises ½·xᵀHx − fᵀx, for a positive definite H.

    Block principal pivoting: guess which entries are zero, solve for the others, exchange every entry with the wrong
    sign. Where that makes no progress, exchange only the last wrong entry, which always terminates. Source: Júdice &
    Pires, Computers & Operations Research 21 (1994) 587; Kim & Park, SIAM Journal on Scientific Computing 33 (2011)
    3261.
    """
    from scipy.linalg import cho_factor, cho_solve

    size = len(linear)
    free = np.ones(size, bool)
    fewest, patience = size + 1, PATIENCE
    tolerance = 1e-12 * np.abs(linear).max(initial=1e-300)
    for _ in range(50 * size + 50):
        x = np.zeros(size)
        if free.any():
            x[free] = cho_solve(cho_factor(hessian[np.ix_(free, free)]), linear[free])
        slope = hessian @ x - linear
        wrong = np.where(free, x < 0, slope < -tolerance)
        count = int(wrong.sum())
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return np.maximum(x, 0.0)


def project_to_simplex(shares: Floats) -> Floats:
    """The Euclidean projection on the probability simplex."""
    if np.abs(shares).max() > _EXACT:  # a common shift does not change the projection, but restores the precision
        shares = shares - shares.max()
    ordered = np.sort(shares)[::-1]
    excess = np.cumsum(ordered) - 1.0
    last = np.flatnonzero(ordered - excess / np.arange(1, len(shares) + 1) > 0)[-1]
    return np.maximum(shares - excess[last] / (last + 1), 0.0)
