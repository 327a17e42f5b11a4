"""The best possible success of a membership attack, from the parameters of a release."""

from __future__ import annotations

from math import exp, sqrt
from statistics import NormalDist

from dpsketch.privacy.events import Release
from dpsketch.privacy.group_privacy import group_loss

FALSE_POSITIVES = 0.01
_LARGEST = 700.0  # an ε whose exponential is still a double


def attack_power(release: Release, false_positives: float = FALSE_POSITIVES) -> float:
    """The largest true positive rate of any membership attack with this false positive rate.

    Guarantee: by (ε, δ), at δ = 10^-6 for a budget of ρ, the rate is at most min(e^ε·α + δ, 1 − e^(−ε)·(1 − δ − α));
    Gaussian noise on all parts with ratio μ allows at most Φ(Φ⁻¹(α) + μ) (Dong, Roth and Su 2022), and if it is within
    a factor e^T of that, e^T·Φ(Φ⁻¹(e^T·α) + μ). Source: docs/proofs/release.md.
    """
    alpha, (epsilon, delta) = false_positives, map(float, group_loss(release, 1))
    factor = exp(min(epsilon, _LARGEST))
    bounds = [1.0, factor * alpha + delta, 1 - (1 - delta - alpha) / factor]
    if _all_gaussian(release):
        normal, near = NormalDist(), exp(release.closeness)
        if near * alpha < 1:
            bounds.append(near * normal.cdf(normal.inv_cdf(near * alpha) + sqrt(release.ratio_squared)))
    return min(bounds)


def half_certain(release: Release) -> float:
    """The largest probability of being right for someone who is 50 % certain beforehand that a person is in the table.

    Guarantee: by (ε, δ) it is at most (e^ε + δ)/(e^ε + 1), because a test has an advantage of at most
    (e^ε − 1 + 2δ)/(e^ε + 1); by Gaussian noise on all parts with ratio μ, Φ(μ/2). Without δ no reader can become more
    certain than that, whatever the file holds. Source: Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2022;
    docs/proofs/accounting.md.
    """
    epsilon, delta = map(float, group_loss(release, 1))
    odds = exp(min(epsilon, _LARGEST))
    bounds = [1.0, (odds + delta) / (odds + 1)]
    if _all_gaussian(release):
        bounds.append(exp(release.closeness) * NormalDist().cdf(sqrt(release.ratio_squared) / 2))
    return min(bounds)


def _all_gaussian(release: Release) -> bool:
    return all(noise.epsilon in (None, 0) for noise in release.noises)
