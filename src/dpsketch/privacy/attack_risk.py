"""The best possible success of a membership attack, from the parameters of a release."""

from __future__ import annotations

from math import exp, sqrt
from statistics import NormalDist

from dpsketch.privacy.events import Release

FALSE_POSITIVES = 0.01


def attack_power(release: Release, false_positives: float = FALSE_POSITIVES) -> float:
    """The largest true positive rate of any membership attack with this false positive rate.

    Guarantee: by (ε, δ), the rate is at most min(e^ε·α + δ, 1 − e^(−ε)·(1 − δ − α)); Gaussian noise on all parts with
    ratio μ allows at most Φ(Φ⁻¹(α) + μ) (Dong, Roth and Su 2022). Source: docs/proofs/release.md.
    """
    alpha, budget = false_positives, release.budget
    bounds = [1.0]
    if budget.epsilon is not None:
        factor = exp(budget.epsilon)
        bounds += [factor * alpha + budget.delta, 1 - (1 - budget.delta - alpha) / factor]
    if all(noise.epsilon in (None, 0) for noise in release.noises):
        normal = NormalDist()
        bounds.append(normal.cdf(normal.inv_cdf(alpha) + sqrt(2 * release.rho)))
    return min(bounds)
