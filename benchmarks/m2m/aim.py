"""The decisions of AIM that need no graphical model: its workload, its budget, its choices. NumPy only.

Source: McKenna, Mullins, Sheldon, Miklau, AIM: An Adaptive and Iterative Mechanism for Differentially Private Synthetic
Data, VLDB 2022, arXiv:2201.12677, Algorithm 4. ρ for (ε, δ): Canonne, Kamath and Steinke 2020, Proposition 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

Clique = tuple[str, ...]
SHARE_MEASURED = 0.9  # α: fraction of each round's budget for the measurement; the rest is for the choice


def concentrated(epsilon: float, delta: float) -> float:
    """The largest ρ for which ρ-zCDP implies (ε, δ)."""
    order = np.concatenate([1 + np.logspace(-3, 0, 300), np.logspace(0.31, 6, 600)])

    def spent(rho: float) -> float:
        exponent = (order - 1) * (order * rho - epsilon) + order * np.log1p(-1 / order) - np.log(order - 1)
        return float(np.exp(min(exponent.min(), 0.0)))

    low, high = 0.0, epsilon + 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= delta else (low, middle)
    return low


def closure(workload: Sequence[Clique]) -> list[Clique]:
    """Every non-empty subset of a marginal of the workload, small ones first."""
    cliques = {part for clique in workload for size in range(1, len(clique) + 1) for part in combinations(clique, size)}
    return sorted(cliques, key=lambda clique: (len(clique), clique))


def weights(candidates: Sequence[Clique], workload: Sequence[Clique]) -> dict[Clique, float]:
    """w_r = Σ_s |r ∩ s| over the marginals s of the workload."""
    return {r: float(sum(len(set(r) & set(s)) for s in workload)) for r in candidates}


def exponential(scores: Mapping[Clique, float], epsilon: float, sensitivity: float, rng: np.random.Generator) -> Clique:
    """The exponential mechanism: (ε²/8)-zCDP."""
    cliques = list(scores)
    exponents = 0.5 * epsilon / sensitivity * np.array([scores[clique] for clique in cliques])
    chances = np.exp(exponents - exponents.max())
    return cliques[rng.choice(len(cliques), p=chances / chances.sum())]


def expected_noise(sigma: float, cells: int) -> float:
    """E‖noise‖₁ of a measured marginal."""
    return float(np.sqrt(2 / np.pi) * sigma * cells)


@dataclass
class Spending:
    """ρ as it is spent: `sigma` and `epsilon` are those of the next round.

    Guarantee: `used` ≤ `rho`, up to rounding: a round after which fewer than two more of its kind would fit takes the
    rest.
    """

    rho: float
    rounds: int
    used: float = 0.0
    last: bool = False

    def __post_init__(self) -> None:
        self.sigma = float(np.sqrt(self.rounds / (2 * SHARE_MEASURED * self.rho)))
        self.epsilon = float(np.sqrt(8 * (1 - SHARE_MEASURED) * self.rho / self.rounds))

    @property
    def of_a_round(self) -> float:
        return self.epsilon**2 / 8 + 0.5 / self.sigma**2

    def measure_first(self, marginals: int) -> None:
        """Measure the initial 1-way marginals."""
        self.used += marginals * 0.5 / self.sigma**2

    def begin(self) -> None:
        """Pay for a round."""
        self.used += self.of_a_round

    def end(self, changed: float, cells: int) -> None:
        """Anneal: halve the noise from now on if the estimate of the measured marginal hardly changed."""
        if changed <= expected_noise(self.sigma, cells):
            self.sigma, self.epsilon = self.sigma / 2, self.epsilon * 2
        if self.rho - self.used <= 2 * self.of_a_round:
            self.take_rest()

    def take_rest(self) -> None:
        """Make the next round the last, with the remaining budget."""
        rest = max(self.rho - self.used, 0.0)
        self.last = True
        if rest > 0:
            self.sigma = float(np.sqrt(1 / (2 * SHARE_MEASURED * rest)))
            self.epsilon = float(np.sqrt(8 * (1 - SHARE_MEASURED) * rest))
