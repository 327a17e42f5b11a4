"""Proven upper bounds on the largest sums of squares and of fourth powers of projections: λ_max and S₄².

LAPACK's eigenvalue is only a guess. A Cholesky factorisation that succeeds is a proof, with a margin far above all
rounding errors.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, frexp, ldexp

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats

# Bounds have 12 significant bits. The factorisation is done for a bound that is smaller by this fraction: all rounding
# errors together stay below 2^-26 of it (docs/proofs/quadratic.md).
_BITS, _MARGIN = 12, 2.0**-16
FOURTHS_BLOCK = 1024  # projections whose fourth powers are bounded together
MOST_FOURTHS = 4 * FOURTHS_BLOCK
# Weights of the squared trace against the squared norm: 0 suits one basis, more suits many isotropic directions.
_TRACES = (Fraction(0), Fraction(1, 16), Fraction(1, 8), Fraction(1, 4))


def squares_bound(matrix: NDArray[np.int32]) -> Fraction:
    """An upper bound on max Σ (ω_k·x)² over unit vectors x, the largest eigenvalue of ΩᵀΩ; less than 0.1 % above it.

    ΩΩᵀ has the same largest eigenvalue and is used when it is the smaller matrix. Source: compressive L. 9;
    docs/proofs/quadratic.md.
    """
    numbers = matrix.astype(np.float64)
    if len(numbers) < numbers.shape[1]:
        numbers = numbers.T
    return eigenvalue_bound(numbers.T @ numbers)


def fourths_bound(matrix: NDArray[np.int32], squares: Fraction) -> Fraction:
    """An upper bound on max Σ (ω_k·x)⁴ over unit vectors x, where `squares` is at least max Σ (ω_k·x)².

    It is the smaller of max ‖ω_k‖²·squares and, for up to 4096 directions in d columns, the sum over blocks of
    (1+r)·λ_max(K − r/(1+rd)·u·uᵀ) with K_kl = (ω_k·ω_l)², u_k = ‖ω_k‖² and the best of a few r >= 0. Source:
    compressive L. 13; docs/proofs/quadratic.md.
    """
    simple: Fraction = squared_lengths(matrix).max().item() * squares
    if len(matrix) > MOST_FOURTHS:
        return simple
    blocks = np.array_split(matrix.astype(np.float64), -(-len(matrix) // FOURTHS_BLOCK))
    return min(simple, sum((_block_bound(block) for block in blocks), Fraction(0)))


def squared_lengths(matrix: NDArray[np.int32]) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = (matrix.astype(np.int64) ** 2).sum(axis=1)
    return lengths


def _block_bound(block: Floats) -> Fraction:
    products = block @ block.T  # integers below 2^53: exact in any order
    lengths, dimension = np.diag(products), block.shape[1]
    return min(
        (1 + r) * eigenvalue_bound(products**2 - float(r / (1 + r * dimension)) * np.outer(lengths, lengths))
        for r in _TRACES
    )


def eigenvalue_bound(matrix: Floats) -> Fraction:
    """An upper bound of 12 significant bits on the largest eigenvalue of a symmetric matrix.

    Guarantee: holds for every matrix within 2^-17 of the bound from this one in spectral norm, whatever LAPACK returns.
    """
    guess = max(float(np.linalg.eigvalsh(matrix)[-1]), 1.0)
    step = ldexp(1.0, frexp(guess)[1] - _BITS)
    bound = ceil(guess / step) * step
    while not _is_above(bound * (1 - _MARGIN), matrix):
        bound += step
    return Fraction(bound)


def _is_above(bound: float, matrix: Floats) -> bool:
    """Whether bound·I − matrix has a Cholesky factor."""
    try:
        factor = np.linalg.cholesky(bound * np.eye(len(matrix)) - matrix)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(factor).all())
