"""What a release reveals about several people, against the exact formulas, and that no bound is below a real attack."""

from __future__ import annotations

from fractions import Fraction
from math import exp, log, sqrt
from statistics import NormalDist

import pytest

import dpsketch as dps
from dpsketch.privacy.analytic_gaussian import gaussian_delta, gaussian_deviation
from dpsketch.privacy.attack_risk import attack_power, half_certain
from dpsketch.privacy.events import Mechanism, Noise, Release
from dpsketch.privacy.group_privacy import group_loss
from dpsketch.privacy.label_threshold import label_event
from dpsketch.schema.relation import Relation

DELTA = Fraction(1, 10**6)
SIGMA = Fraction(gaussian_deviation(Fraction(1), DELTA, 1))
GAUSSIAN = Release(dps.Budget(1.0, 1e-6), (Noise(Mechanism.GAUSSIAN, 1, SIGMA),))
LAPLACE = Noise(Mechanism.LAPLACE, 2, Fraction(4))  # epsilon 1/2
RHO = Release(dps.Budget(rho=0.5), (Noise(Mechanism.GAUSSIAN, 1, Fraction(1)),))
BOTH = Release(dps.Budget(rho=0.625), (Noise(Mechanism.GAUSSIAN, 1, Fraction(1)), LAPLACE))


@pytest.mark.parametrize("people", [1, 2, 3, 4])
def test_pure_noise_costs_its_multiple(people: int) -> None:
    assert group_loss(Release(dps.Budget(0.5), (LAPLACE,)), people) == (Fraction(people, 2), 0)


def test_pure_noise_under_a_budget_with_delta_has_no_delta() -> None:
    assert group_loss(Release(dps.Budget(0.5, 1e-6), (LAPLACE,)), 3) == (Fraction(3, 2), 0)


@pytest.mark.parametrize("people", [2, 3, 4])
def test_gaussian_noise_costs_more_than_its_multiple(people: int) -> None:
    """The least epsilon of noise with that multiple of the ratio: rounded up by very little."""
    epsilon, delta = group_loss(GAUSSIAN, people)
    assert delta == DELTA
    assert epsilon > people
    ratio = people**2 / SIGMA**2
    assert gaussian_delta(epsilon, ratio) <= DELTA < gaussian_delta(epsilon * Fraction(99999, 100000), ratio)


def test_rho_is_stated_at_a_small_delta() -> None:
    epsilon, delta = group_loss(RHO, 1)
    assert delta == DELTA
    assert gaussian_delta(epsilon, Fraction(1)) <= DELTA
    assert epsilon < 0.5 + 2 * sqrt(0.5 * log(1e6))  # the conversion of any mechanism with this rho


def test_pure_noise_beside_gaussian_noise_adds_its_epsilon_or_counts_by_rho() -> None:
    for people in (1, 2, 3, 4):
        composed = group_loss(RHO, people)[0] + Fraction(people, 2)
        converted = people**2 * 0.625 + 2 * sqrt(people**2 * 0.625 * log(1e6))
        assert float(group_loss(BOTH, people)[0]) == pytest.approx(min(composed, converted), rel=1e-5)


def test_a_sample_with_delta_follows_the_general_rule() -> None:
    sampled = Release(dps.Budget(0.5, 1e-6), GAUSSIAN.noises, Fraction(1, 10))
    epsilon, delta = group_loss(sampled, 3)
    assert epsilon == Fraction(3, 2)
    assert float(delta) == pytest.approx(1e-6 * (1 + exp(0.5) + exp(1.0)))
    assert delta >= Fraction(1e-6 * (1 + exp(0.5) + exp(1.0)))


def test_labels_above_a_threshold_follow_the_general_rule() -> None:
    """Their noise is pure, but their δ is not in it."""
    event = label_event(dps.Budget(0.5, 1e-6), 1, Relation.ADD_REMOVE)
    epsilon, delta = group_loss(event, 2)
    assert epsilon == 1
    assert float(delta) == pytest.approx(1e-6 * (1 + exp(0.5)))


def test_half_certain() -> None:
    assert half_certain(Release(dps.Budget(0.5), (LAPLACE,))) == pytest.approx(exp(0.5) / (1 + exp(0.5)))
    assert half_certain(RHO) == pytest.approx(NormalDist().cdf(0.5))
    assert half_certain(GAUSSIAN) == pytest.approx(NormalDist().cdf(1 / (2 * float(SIGMA))))
    assert half_certain(Release(dps.Budget(100.0), (Noise(Mechanism.LAPLACE, 100, Fraction(1)),))) <= 1


@pytest.mark.parametrize("release", [GAUSSIAN, RHO, BOTH, Release(dps.Budget(0.5), (LAPLACE,))])
def test_bounds_are_not_below_what_the_best_test_reaches(release: Release) -> None:
    """Randomized response reaches e^ε/(1 + e^ε), and a threshold on the Gaussian part the Gaussian numbers."""
    pure = sum(float(noise.epsilon or 0) for noise in release.noises)
    ratio = sqrt(sum(2 * float(noise.rho) for noise in release.noises if noise.epsilon is None))
    normal = NormalDist()
    reached = max(1 / (1 + exp(-pure)) if ratio == 0 else 0.5, normal.cdf(ratio / 2))
    assert half_certain(release) >= reached - 1e-12
    assert attack_power(release) >= normal.cdf(normal.inv_cdf(0.01) + ratio) - 1e-12
    assert attack_power(release) < 1
