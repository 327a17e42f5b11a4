"""Summaries of hashes alone: Theorem 9, a kernel machine on hashes, and why none of it is private."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from dpsketch.errors import RecipeError
from dpsketch.federate.market.hash_only import KeyedHash, hashed_svm
from dpsketch.federate.market.kernel_distance import GaussianKernel, mmd2

RNG = np.random.default_rng(3)
KEY = bytes(range(32))


def moments(points: np.ndarray, multiples: np.ndarray) -> complex:
    """E exp(i·Σ k_u θ_u) over frequencies and phases: the characteristic function of the wrapped angles at k."""
    angles = KeyedHash(KEY, points.shape[1], 1.0, 200_000).angles(points)
    return complex(np.exp(1j * (multiples @ angles)).mean())


def test_hashes_depend_on_pairwise_distances_alone() -> None:
    """Theorem 9: φ(k) is 0 unless Σk = 0, then a function of the distances."""
    points = RNG.random((3, 2))
    angle = 0.7
    turned = points @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) + [5.0, -3.0]
    stretched = points * 1.5
    for multiples in ((1, -1, 0), (1, 1, -2), (2, -1, -1)):
        k = np.array(multiples)
        expected = np.exp(-0.5 * ((k @ points) ** 2).sum())
        assert abs(moments(points, k) - expected) < 0.01
        assert abs(moments(turned, k) - expected) < 0.01
        assert abs(moments(stretched, k) - expected) > 0.02
    for multiples in ((1, 0, 0), (1, 1, 0), (2, -1, 0)):
        assert abs(moments(points, np.array(multiples))) < 0.01


def test_a_machine_on_hashes_is_a_kernel_machine() -> None:
    points = RNG.random((400, 2))
    labels = (np.linalg.norm(points - 0.5, axis=1) < 0.35).astype(int)  # no line separates them
    hashed = KeyedHash(KEY, 2, 0.2, 1024)
    assert mmd2(points[:200], points[200:] * 0.5, hashed) == pytest.approx(
        mmd2(points[:200], points[200:] * 0.5, GaussianKernel(0.2)), abs=0.05
    )
    test = RNG.random((400, 2))
    truth = (np.linalg.norm(test - 0.5, axis=1) < 0.35).astype(int)
    ours = hashed_svm(hashed(points), labels).score(hashed(test), truth)
    exact = SVC(gamma=GaussianKernel(0.2).gamma).fit(points, labels).score(test, truth)
    assert ours > 0.93
    assert ours > exact - 0.04


def test_whoever_has_the_key_can_solve_for_the_point() -> None:
    """Hashes are therefore never called private."""
    hashed, point = KeyedHash(KEY, 2, 2.0, 64), RNG.random((1, 2))
    seen = hashed(point)[0]
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), -1).reshape(-1, 2)
    best = grid[np.argmin(((hashed(grid) - seen) ** 2).sum(axis=1))]
    assert np.abs(best - point[0]).max() <= 0.006


def test_a_short_key_is_refused_and_no_key_is_shown() -> None:
    with pytest.raises(RecipeError, match="at least 16 random bytes"):
        KeyedHash(b"short", 2, 1.0)
    assert "key" not in repr(KeyedHash(KEY, 2, 1.0))
