"""What sums of shares guarantee, against high precision, and what they cost beside one curator's noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import sqrt

import mpmath
import numpy as np
import pytest

import dpsketch as dps
from dpsketch.calibration import PartFacts, calibrate, keeps_budget, noise_variance
from dpsketch.errors import BudgetError
from dpsketch.maps.base import Sensitivity
from dpsketch.privacy.accounting import Attempt
from dpsketch.privacy.analytic_gaussian import gaussian_delta
from dpsketch.privacy.attack_risk import attack_power, half_certain
from dpsketch.privacy.composition import composed_spends
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.group_privacy import group_loss
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.privacy.noise_shares import ROUNDING_VARIANCE, Consortium, Shares, closeness, summation_closeness

FIVE = Consortium.of(5)
BUDGETS = [dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(0.1, 1e-9), dps.Budget(10.0, 1e-6), dps.Budget(rho=0.5)]


def parts(consortium: Consortium | None = FIVE) -> list[PartFacts]:
    return [
        PartFacts(1, Sensitivity(1, 1), None, Fraction(1, 10), consortium=consortium),
        PartFacts(500, Sensitivity(6, 6), None, Fraction(4, 10), consortium=consortium),
        PartFacts(5000, Sensitivity(15, 15), None, Fraction(5, 10), consortium=consortium),
    ]


def law(variance: mpmath.mpf, reach: int) -> list[mpmath.mpf]:
    weights = [mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * variance)) for z in range(-reach, reach + 1)]
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


def convolved(one: list[mpmath.mpf], two: list[mpmath.mpf]) -> list[mpmath.mpf]:
    reach = len(one) // 2
    return [
        mpmath.fsum(one[j] * two[z - j + reach] for j in range(len(one)) if 0 <= z - j + reach < len(two))
        for z in range(len(one))
    ]


@pytest.mark.parametrize(("share", "honest"), [(Fraction(1, 2), 2), (Fraction(3, 4), 3), (Fraction(1), 4)])
def test_sums_of_discrete_gaussians_are_as_close_as_computed(share: Fraction, honest: int) -> None:
    """Narrow shares, whose differences can be seen; the bound holds, and is not far above them."""
    with mpmath.workprec(200):
        reach, shown = 40, 8
        one = law(mpmath.mpf(share.numerator) / share.denominator, reach)
        total = one
        for _ in range(honest - 1):
            total = convolved(total, one)
        single = law(mpmath.mpf(share.numerator) * honest / share.denominator, reach)
        ratios = [abs(mpmath.log(total[z] / single[z])) for z in range(reach - shown, reach + shown + 1)]
        bound = float(summation_closeness(share * honest, honest))
        assert max(ratios) <= bound
        if honest == 2:  # of more, the ripples of one convolution smooth those of others
            assert max(ratios) > bound / 6


@pytest.mark.parametrize("variance", [Fraction(4), Fraction(9)])
def test_a_discrete_gaussian_is_as_close_to_a_rounded_one_as_computed(variance: Fraction) -> None:
    """P(R(G) = z) by the trapezoidal rule, which is exact to 30 digits here: theta sums have period 1."""
    steps = 16
    with mpmath.workdps(40):
        whole, narrow = mpmath.mpf(variance.numerator), mpmath.mpf(ROUNDING_VARIANCE)
        single, bound = law(whole, 60), float(closeness(variance, 1))
        thetas = [
            mpmath.fsum(mpmath.exp(-((j - mpmath.mpf(step) / steps) ** 2) / (2 * narrow)) for j in range(-22, 24))
            for step in range(steps)
        ]
        for z in (0, 1, 3):
            terms = []
            for place in range(-40 * steps, 40 * steps + 1):
                g = mpmath.mpf(place) / steps
                rounding = mpmath.exp(-((z - g) ** 2) / (2 * narrow)) / thetas[place % steps]
                terms.append(mpmath.npdf(g, 0, mpmath.sqrt(whole - narrow)) * rounding / steps)
            ratio = abs(mpmath.log(mpmath.fsum(terms) / single[60 + z]))
            assert ratio <= bound
        assert 1e-17 < bound < 1e-16


def test_closeness_is_negligible_and_grows_with_holders() -> None:
    assert float(summation_closeness(Fraction(16 * 3), 3)) < 1e-60
    assert summation_closeness(Fraction(16 * 3), 3) < summation_closeness(Fraction(16 * 9), 9)
    assert 2 * 10**9 * closeness(Fraction(48), 3) < 1e-7
    assert closeness(Fraction(48), 3) >= closeness(Fraction(480), 3)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("mechanism", ["auto", "laplace", "gaussian"])
def test_noise_in_shares_keeps_the_budget_and_less_does_not(budget: dps.Budget, mechanism: str) -> None:
    if (budget.rho is not None and mechanism == "laplace") or (budget.pure and mechanism == "gaussian"):
        return
    event = calibrate(parts(), budget, mechanism=mechanism)
    assert keeps_budget(event)
    assert keeps_budget(event.added(4))
    assert event.added(4).noises[0].shares == Shares(3, 4, 1)
    assert Release.from_dict(event.to_dict()) == event
    assert {noise.mechanism for noise in event.noises} <= {Mechanism.POLYA, Mechanism.DISCRETE_GAUSSIAN}
    widest = max(range(3), key=lambda index: float(event.noises[index].rho))
    noise = event.noises[widest]
    if noise.mechanism is Mechanism.POLYA or noise.scale**2 > 16 * 3 * Fraction(101, 100):
        less = replace(noise, scale=noise.scale * Fraction(9999, 10000))
        noises = [less if index == widest else each for index, each in enumerate(event.noises)]
        assert not keeps_budget(replace(event, noises=tuple(noises)))


def test_the_rounding_and_the_number_of_sums_are_paid_for() -> None:
    """Planted: without the variance of the rounding, or with sums that are far too many, the check refuses."""
    event = calibrate(parts(), dps.Budget(1.0, 1e-6), mechanism="gaussian")
    thin = [replace(n, scale=Fraction(float(n.scale**2 - ROUNDING_VARIANCE) ** 0.5)) for n in event.noises]
    assert not keeps_budget(replace(event, noises=tuple(thin)))
    huge = [replace(n, shares=replace(n.shares, size=2**50)) for n in event.noises]
    assert not keeps_budget(replace(event, noises=tuple(huge)))
    rho = calibrate(parts(), dps.Budget(rho=0.5))
    assert keeps_budget(rho)
    with pytest.raises(BudgetError, match="epsilon is too small"):
        calibrate([replace(part, size=2**52) for part in parts()], dps.Budget(1e-9, 1e-6), mechanism="gaussian")


def test_narrow_shares_are_widened() -> None:
    event = calibrate(parts(), dps.Budget(50.0, 1e-6), mechanism="gaussian")
    assert [noise.scale**2 >= 48 for noise in event.noises] == [True] * 3
    assert float(event.noises[0].scale) == pytest.approx(sqrt(48))
    assert {n.mechanism for n in calibrate(parts(), dps.Budget(50.0, 1e-6)).noises} == {Mechanism.POLYA}


@pytest.mark.parametrize(
    "facts",
    [
        {"mechanism": "discrete Gaussian in shares", "sensitivity": 1, "scale": "10"},
        {"mechanism": "discrete Laplace in shares", "sensitivity": 1, "scale": "10"},
        {
            "mechanism": "discrete Laplace",
            "sensitivity": 1,
            "scale": "10",
            "shares": {"honest": 3, "added": 4, "size": 1},
        },
        {
            "mechanism": "discrete Gaussian in shares",  # narrower than 4 each
            "sensitivity": 1,
            "scale": "6",
            "shares": {"honest": 3, "added": 4, "size": 1},
        },
    ],
)
def test_hostile_noise_is_refused(facts: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="shares"):
        Noise.from_dict(facts)


def test_groups_attacks_and_compositions_are_those_of_gaussian_noise_and_a_little() -> None:
    """The same ratio with and without shares: numbers differ by the closeness alone, and only upwards."""
    budget = dps.Budget(1.0, 1e-6)
    joint = calibrate(parts(), budget, mechanism="gaussian")
    alone = [
        Noise(Mechanism.GAUSSIAN, n.sensitivity, Fraction(float(n.scale**2 - ROUNDING_VARIANCE) ** 0.5))
        for n in joint.noises
    ]
    plain = Release(budget, tuple(alone))
    assert float(joint.ratio_squared) == pytest.approx(float(plain.ratio_squared), rel=1e-12)
    for people in (1, 2, 4):
        (ours, delta), (theirs, other) = group_loss(joint, people), group_loss(plain, people)
        assert (delta, float(ours)) == (other, pytest.approx(float(theirs), rel=1e-5))
    assert attack_power(joint) == pytest.approx(attack_power(plain), rel=1e-6)
    assert half_certain(joint) == pytest.approx(half_certain(plain), rel=1e-6)
    both = [composed_spends([Attempt(each)] * 2, Fraction(1, 10**5), "add-remove") for each in (joint, plain)]
    assert float(both[0]) == pytest.approx(float(both[1]), rel=1e-4)
    near = replace(joint, noises=tuple(replace(n, shares=replace(n.shares, size=2**47)) for n in joint.noises))
    more = composed_spends([Attempt(near)] * 2, Fraction(1, 10**5), "add-remove")
    assert more >= both[0] + 4 * near.closeness - Fraction(1, 10**5)
    assert attack_power(near) > attack_power(joint)
    assert group_loss(near, 2)[0] > group_loss(joint, 2)[0]


def test_a_general_release_of_five_costs_what_the_shares_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Noise within 1.05·√(K/H) of one curator's, at ε = 1 and δ = 10^-6. Local noise is √K times one curator's."""
    columns = {f"n{index}": {"kind": "integer", "lower": 0, "upper": 100} for index in range(6)} | {
        f"c{index}": {"kind": "category", "values": ["x", "y", "z"]} for index in range(4)
    }
    schema = dps.Schema.from_dict({"privacy": {"rows": 50_000}, "columns": columns})
    for budget in (dps.Budget(1.0, 1e-6), dps.Budget(0.3, 1e-6), dps.Budget(3.0, 1e-6)):
        recipe = dps.Recipe.general(schema, rows=50_000, budget=budget)
        bound = recipe.bind(schema)
        alone, joint = bound.calibrated(budget), bound.calibrated(budget, consortium=FIVE)
        assert joint.shares is not None
        assert (joint.shares.honest, joint.shares.added) == (3, 5)
        limit = sqrt(5 / 3)
        with capsys.disabled():
            print(
                f"\n{budget}: one curator, secure sum of five (H = 3), local noise of five; secure / one / {limit:.3f}"
            )
        for index, own in enumerate(bound.noised):
            one, sums = (sqrt(noise_variance(event.noises[index], own)) for event in (alone, joint))
            with capsys.disabled():
                print(
                    f"  {own.description.name:20} {one:9.3f} {sums:9.3f} {one * sqrt(5):9.3f} {sums / one / limit:7.4f}"
                )
            if budget.epsilon == 1:
                assert sums <= 1.05 * limit * one
                assert sums < one * sqrt(5)
        assert keeps_budget(joint)


def test_the_analytic_formula_is_used_without_loss() -> None:
    """δ at the stated ε is spent up to a tenth of a percent: no conversion from ρ."""
    event = calibrate(parts(), dps.Budget(1.0, 1e-6), mechanism="gaussian")
    spent = float(gaussian_delta(Fraction(1) - 2 * event.closeness, event.ratio_squared))
    assert 0.999e-6 < spent <= 1e-6
    assert np.isfinite(spent)


@pytest.mark.parametrize("consortium", [None, FIVE])
def test_parts_that_cannot_differ_need_no_epsilon(consortium: Consortium | None) -> None:
    """The count of a table whose rows are replaced, alone."""
    nothing = PartFacts(1, Sensitivity(0, 0), None, Fraction(1), consortium=consortium)
    event = calibrate([nothing], dps.Budget(1.0, 1e-6), mechanism="gaussian")
    assert [(noise.sensitivity, noise.shares) for noise in event.noises] == [(0, None)]
