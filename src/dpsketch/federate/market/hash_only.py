"""Summaries of hashes: for an aggregator that trains on h₁(x) and is not shown x. This is not a privacy guarantee.

Owners share a key from which frequencies and phases are drawn, and ship √(2/d)·cos(ωᵀx + b), the paper's form. Over
that key, hashes depend on the pairwise distances of the points alone (theorem 9): whoever lacks the key learns these
distances, exactly so with many features, and nothing else. Whoever has it can solve for x. No differential privacy
follows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsketch.errors import RecipeError
from dpsketch.federate.market.feature_hash import Features
from dpsketch.numerics.arrays import Floats

LEAST_KEY = 16  # bytes


@dataclass(frozen=True)
class KeyedHash:
    """h₁ with frequencies N(0, 1/width²) and uniform phases, from the owners' key. `size` is the number of features."""

    key: bytes = field(repr=False)
    columns: int
    width: float
    size: int = 512

    def __post_init__(self) -> None:
        if len(self.key) < LEAST_KEY:
            raise RecipeError(f"the owners' key needs at least {LEAST_KEY} random bytes", "use secrets.token_bytes(32)")

    def angles(self, points: Floats) -> Floats:
        """ωᵀx + b modulo 2π, one column for each feature."""
        seed = int.from_bytes(hashlib.sha256(b"dpsketch keyed hash\n" + self.key).digest(), "big")
        rng = np.random.default_rng(seed)
        frequencies = rng.standard_normal((self.columns, self.size)) / self.width
        return np.asarray((points @ frequencies + rng.uniform(0, 2 * np.pi, self.size)) % (2 * np.pi))

    def __call__(self, points: Floats) -> Features:
        """The hashes that are shipped instead of the points."""
        return (np.sqrt(2 / self.size) * np.cos(self.angles(points))).astype(np.float32)

    def mean(self, a: Floats, b: Floats) -> float:
        """Mean of ⟨h(x), h(y)⟩ over pairs, close to that of the Gaussian kernel."""
        return float(self(a).mean(axis=0, dtype=np.float64) @ self(b).mean(axis=0, dtype=np.float64))


def hashed_svm(hashes: Features, labels: Any, penalty: float = 1.0) -> Any:
    """A support vector machine on hashes. Their scalar products are the Gaussian kernel, so that a linear machine on
    them is a kernel machine on the points.
    """
    from sklearn.svm import LinearSVC

    return LinearSVC(C=penalty * hashes.shape[1] / 2, max_iter=20_000).fit(hashes, labels)
