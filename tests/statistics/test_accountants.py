"""An independent accountant agrees with the stated epsilon, and ours with closed forms."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

import dpsketch as dps
from conftest import MIXED, mixed_table
from dpsketch.privacy.accounting import ADD_REMOVE, Attempt
from dpsketch.privacy.composition import composed_spends, plan_cost
from dpsketch.privacy.events import Mechanism, Noise, Release

INTERVAL = 1e-4  # of the losses: each (epsilon, delta) pair may be rounded up by it, and all Gaussians together
TIGHT = 1e-6  # far below it, what is allowed for the rounding of convolutions shows


def composed_epsilon(releases: list[Release], delta: Fraction) -> Fraction:
    """Of releases of one sample, or of none."""
    return composed_spends([Attempt(release, frozenset(["one sample"])) for release in releases], delta, ADD_REMOVE)


def test_dp_accounting_agrees_with_each_part(recipe: dps.Recipe) -> None:
    raw = dps.accumulate(mixed_table(50), dps.Schema.from_dict(MIXED), recipe)
    released = dps.release(raw, dps.Budget(0.7), dps.Ledger("sqlite://"), "a")
    total = 0.0
    for part in released.parts[:3]:  # the accountant takes whole numbers of sensitivity, of a moderate size
        (noise,) = part.noises
        loss = privacy_loss_distribution.from_discrete_laplace_mechanism(
            parameter=1 / float(noise.scale), sensitivity=noise.sensitivity
        )
        epsilon = loss.get_epsilon_for_delta(0.0)
        total += epsilon
        stated = released.statement["parts"][released.parts.index(part)]["noise"][0]["epsilon"]
        assert epsilon == pytest.approx(float(stated), abs=2e-4)
        assert loss.get_delta_for_epsilon(0.9 * epsilon) > 0, "a smaller epsilon would be wrong"
    assert total == pytest.approx(0.7 * 0.5, abs=1e-3)
    assert np.isclose(sum(part.share for part in recipe.parts), 1.0)


def least_epsilon(delta_of: Callable[[mpmath.mpf], mpmath.mpf], delta: float) -> float:
    """Where a falling function meets delta, from above, to 60 bits."""
    low, high = mpmath.mpf(0), mpmath.mpf(1)
    while delta_of(high) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return float(high)


def gaussian_epsilon(mu: mpmath.mpf, delta: float) -> float:
    """Balle and Wang 2018, Theorem 8; k Gaussians of ratio r are one of ratio r·√k (Dong, Roth and Su 2022, 3.3)."""
    return least_epsilon(lambda e: mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu), delta)


def optimal_epsilon(epsilon: Fraction, count: int, delta: float) -> float:
    """The best for `count` pure epsilons: Kairouz, Oh and Viswanath 2015, Theorem 3.3, between its corners, too."""
    one = mpmath.mpf(epsilon.numerator) / epsilon.denominator
    terms = [(mpmath.binomial(count, i), mpmath.exp((count - i) * one), mpmath.exp(i * one)) for i in range(count + 1)]
    whole = (1 + mpmath.exp(one)) ** count
    return least_epsilon(
        lambda e: mpmath.fsum(many * max(up - mpmath.exp(e) * down, 0) for many, up, down in terms) / whole, delta
    )


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize(("epsilon", "count"), [("1", 1), ("0.1", 10), ("0.0123", 50), ("0.5", 30), ("0.01", 1000)])
def test_a_plan_of_pure_releases_costs_the_optimum(epsilon: str, count: int, delta: float) -> None:
    with mpmath.workprec(200):
        best = optimal_epsilon(Fraction(epsilon), count, delta)
    found = float(plan_cost([dps.Budget(float(epsilon))] * count, Fraction(repr(delta))))
    assert best <= found <= count * float(epsilon)
    if delta >= TIGHT:
        assert found <= best + INTERVAL


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize(("sigma", "count"), [(1, 1), (10, 7), (100, 1000), (3, 40)])
def test_gaussian_releases_cost_what_the_formula_says(sigma: int, count: int, delta: float) -> None:
    release = Release(dps.Budget(rho=1.0), (Noise(Mechanism.GAUSSIAN, 1, Fraction(sigma)),))
    with mpmath.workprec(200):
        best = gaussian_epsilon(mpmath.sqrt(count) / sigma, delta)
    found = float(composed_epsilon([release] * count, Fraction(repr(delta))))
    assert best <= found <= best + (2 * INTERVAL if delta >= TIGHT else 0.1)


def test_pure_and_gaussian_releases_together() -> None:
    """The exact loss of ten pure releases and a Gaussian: a mixture of Gaussians."""
    delta, mu, epsilon, count = 1e-6, mpmath.mpf(1) / 2, mpmath.mpf(1) / 10, 10

    def delta_of(target: mpmath.mpf) -> mpmath.mpf:
        found = mpmath.mpf(0)
        for i in range(count + 1):
            loss = (count - 2 * i) * epsilon
            share = mpmath.binomial(count, i) * mpmath.exp((count - i) * epsilon) / (1 + mpmath.exp(epsilon)) ** count
            left = target - loss
            found += share * (mpmath.ncdf(mu / 2 - left / mu) - mpmath.exp(left) * mpmath.ncdf(-mu / 2 - left / mu))
        return found

    with mpmath.workprec(200):
        best = least_epsilon(delta_of, delta)
    found = float(plan_cost([dps.Budget(0.1)] * count + [dps.Budget(rho=0.125)], Fraction(1, 10**6)))
    assert best <= found <= best + 3 * INTERVAL
