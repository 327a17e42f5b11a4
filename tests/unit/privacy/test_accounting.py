from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch.errors import BudgetError
from dpsketch.privacy.accounting import (
    ADD_REMOVE,
    REPLACE_ONE,
    Attempt,
    Partition,
    amplified,
    inner_budget,
    release_rho,
    samples,
    total,
)
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.composition import composed_spends, plan_cost
from dpsketch.privacy.events import Mechanism, Noise, Release

RATE = Fraction(1, 10)
epsilons = st.fractions(Fraction(1, 10**9), 50, max_denominator=10**9)
rates = st.fractions(Fraction(1, 1000), 1, max_denominator=1000)


def composed_epsilon(releases: list[Release], delta: Fraction) -> Fraction:
    """Of releases of one sample, or of none."""
    return composed_spends([Attempt(release, frozenset(["one sample"])) for release in releases], delta, ADD_REMOVE)


def pure(epsilon: float, rate: Fraction | None = None) -> Release:
    return Release(Budget(epsilon), (), rate)


def gaussian(l2_squared: int, sigma: Fraction, budget: Budget) -> Release:
    return Release(budget, (Noise(Mechanism.GAUSSIAN, l2_squared, sigma),))


@given(epsilons, rates)
def test_amplified_is_the_formula_rounded_up(epsilon: Fraction, rate: Fraction) -> None:
    with mpmath.workprec(400):
        p, e = (mpmath.mpf(x.numerator) / x.denominator for x in (rate, epsilon))
        exact = mpmath.log1p(p * mpmath.expm1(e))
        found = amplified(epsilon, rate)
        gap = mpmath.mpf(found.numerator) / found.denominator - exact
        assert gap + mpmath.mpf(2) ** -390 >= 0
        assert gap <= 1e-12
    assert found <= epsilon


def test_no_sampling_amplifies_nothing() -> None:
    assert amplified(Fraction(1, 3), Fraction(1)) == Fraction(1, 3)
    assert inner_budget(Budget(0.3, 1e-6), None) == (Fraction(3, 10), Fraction(1, 10**6))
    with pytest.raises(BudgetError, match="rate"):
        amplified(Fraction(1), Fraction(0))


@given(st.floats(1e-9, 50), rates)
def test_what_a_sample_may_use_gives_the_table_its_budget(epsilon: float, rate: Fraction) -> None:
    budget = Budget(epsilon, 1e-6)
    inner, delta = inner_budget(budget, rate)
    with mpmath.workprec(400):
        p, e, outer = (mpmath.mpf(x.numerator) / x.denominator for x in (rate, inner, budget.exact_epsilon))
        spent = mpmath.log1p(p * mpmath.expm1(e))
        assert spent <= outer * (1 + mpmath.mpf(2) ** -390)
        more = mpmath.log1p(p * mpmath.expm1(e + 2e-12))
        assert more > outer, "it is the most"
    assert delta == budget.exact_delta / rate


def test_delta_of_a_sample_stays_a_delta() -> None:
    assert inner_budget(Budget(1.0, 0.005), Fraction(1, 1000))[1] == Fraction(1, 100)


def test_releases_of_one_sample_are_amplified_together() -> None:
    """Composing amplified costs would claim less than the truth."""
    inner = inner_budget(Budget(0.5), RATE)[0]
    same = [Attempt(pure(0.5, RATE), frozenset("a")), Attempt(pure(0.5, RATE), frozenset("a"))]
    together = total(same, ADD_REMOVE).epsilon
    assert together == amplified(2 * inner, RATE)
    assert together > Fraction(18, 10)
    apart = [Attempt(pure(0.5, RATE), frozenset("a")), Attempt(pure(0.5, RATE), frozenset("b"))]
    assert total(apart, ADD_REMOVE).epsilon == 1
    bridge = Attempt(pure(0.5, RATE), frozenset("ab"))
    assert total([*apart, bridge], ADD_REMOVE).epsilon == amplified(3 * inner, RATE)
    assert total([*same, Attempt(pure(0.5))], ADD_REMOVE).epsilon == together + Fraction(1, 2)


def test_a_later_delta_of_a_sample_weighs_more() -> None:
    """Whoever saw a release of the sample can guess who is in it, and choose delta by that."""
    noise = (Noise(Mechanism.GAUSSIAN, 1, Fraction(9)),)
    spend = Attempt(Release(Budget(0.5, 1e-6), noise, RATE), frozenset("a"))
    assert total([spend], ADD_REMOVE).delta == Fraction(1, 10**6)
    inner = float(inner_budget(Budget(0.5), RATE)[0])
    weight = math.exp(inner) / (1 + 0.1 * math.expm1(inner))
    assert float(total([spend, spend], ADD_REMOVE).delta) == pytest.approx(1e-6 * (1 + weight))


def test_a_sample_of_several_parts_counts_for_all_of_them() -> None:
    spends = [Attempt(pure(0.5, RATE), frozenset("a"), Partition("c", value, "s")) for value in "xy"]
    assert total(spends, ADD_REMOVE).epsilon == amplified(2 * inner_budget(Budget(0.5), RATE)[0], RATE)


def test_a_plan_has_paid_for_its_releases() -> None:
    spends = [Attempt(pure(0.5)), Attempt(pure(0.25), plan="p")]
    cost = total(spends, ADD_REMOVE)
    assert (cost.epsilon, cost.rho) == (Fraction(1, 2), Fraction(1, 8) + Fraction(1, 32))


def test_rho_of_a_release() -> None:
    assert release_rho(pure(0.1)) == Fraction(1, 200)
    assert release_rho(Release(Budget(rho=0.1), (Noise(Mechanism.GAUSSIAN, 1, Fraction(7)),))) == Fraction(1, 10)
    halves = (Noise(Mechanism.LAPLACE, 1, Fraction(2)),) * 2
    assert release_rho(Release(Budget(1.0), halves)) == Fraction(1, 4)
    sampled = release_rho(pure(0.1, RATE))
    assert sampled == inner_budget(Budget(0.1), RATE)[0] ** 2 / 2
    with pytest.raises(BudgetError, match="follows from its noise alone"):
        release_rho(Release(Budget(1.0, 1e-6), ()))


def laplace(epsilon: float, rate: Fraction | None = RATE) -> Release:
    """One Laplace noise that uses all of the budget."""
    inner = inner_budget(Budget(epsilon), rate)[0]
    return Release(Budget(epsilon), (Noise(Mechanism.LAPLACE, 1, 1 / inner),), rate)


def test_rho_of_a_pure_sample_is_what_it_costs_the_table() -> None:
    """The noises' rho is that of the sample, which is far more."""
    one = Attempt(laplace(0.1), frozenset("a"))
    assert release_rho(one.release) > Fraction(1, 10)
    assert total([one], ADD_REMOVE).rho == Fraction(1, 200)
    two = total([one, one], ADD_REMOVE)
    assert two.epsilon == amplified(2 * inner_budget(Budget(0.1), RATE)[0], RATE)
    assert two.rho == two.epsilon**2 / 2 < 2 * release_rho(one.release)
    apart = total([one, Attempt(laplace(0.1), frozenset("b"))], ADD_REMOVE)
    assert apart.rho == Fraction(1, 100)


def test_many_small_noises_have_the_smaller_rho() -> None:
    inner = inner_budget(Budget(1.0), RATE)[0]
    many = Release(Budget(1.0), (Noise(Mechanism.LAPLACE, 1, 1000 / inner),) * 1000, RATE)
    cost = total([Attempt(many, frozenset("a"))], ADD_REMOVE)
    assert cost.rho == release_rho(many) < Fraction(1, 100)


@pytest.mark.parametrize(
    "more",
    [
        Release(Budget(0.1, 1e-6), (Noise(Mechanism.GAUSSIAN, 1, Fraction(9)),), RATE),
        Release(Budget(rho=0.01), (Noise(Mechanism.GAUSSIAN, 1, Fraction(9)),), RATE),
        Release(Budget(0.1), (Noise(Mechanism.GAUSSIAN, 1, Fraction(9)),), RATE),
    ],
)
def test_a_sample_that_is_not_pure_counts_its_noises(more: Release) -> None:
    """Who saw such a release may be sure who is in the sample."""
    spends = [Attempt(laplace(0.1), frozenset("a")), Attempt(more, frozenset("a"))]
    assert total(spends, ADD_REMOVE).rho == sum(release_rho(spend.release) for spend in spends)


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=6), rates)
def test_the_rho_of_a_sample_is_enough_for_a_filter(budgets: list[float], rate: Fraction) -> None:
    """The steps of docs/proofs/accounting.md, as an attacker meets them: randomized responses, the worst past."""
    p = float(rate)
    spends = [Attempt(laplace(epsilon, rate), frozenset("a")) for epsilon in budgets]
    counted = float(total(spends, ADD_REMOVE).rho)
    inner = [float(inner_budget(Budget(epsilon), rate)[0]) for epsilon in budgets]
    needed, before, alpha = 0.0, 0.0, 2.0
    for epsilon in inner:
        q = p / (p + (1 - p) * math.exp(-before))
        out = [1 / (1 + math.exp(epsilon)), 1 / (1 + math.exp(-epsilon))]
        mixed = [(1 - q) * out[i] + q * out[1 - i] for i in range(2)]
        for one, two in ((out, mixed), (mixed, out)):
            divergence = math.log(sum(x**alpha * y ** (1 - alpha) for x, y in zip(one, two, strict=True)))
            step = math.log(1 - q + q * math.exp(epsilon))
            assert divergence <= alpha * min(step**2, epsilon**2) / 2 + 1e-9
        needed += min(step**2, epsilon**2) / 2
        before += epsilon
    assert needed <= counted + 1e-9


def test_samples_are_counted() -> None:
    spends = [Attempt(pure(0.5, RATE), frozenset(ids)) for ids in ("a", "b", "a", "c")]
    assert samples([*spends, Attempt(pure(0.5), frozenset("d"))]) == 3
    assert samples([*spends, Attempt(pure(0.5, RATE), frozenset("bc"))]) == 2


PARTS = [("c", "x", "s"), ("c", "y", "s"), ("c", "z", "s"), ("c", "x", "t"), ("c", "y", "t"), ("d", "x", "s")]
spends_of = st.builds(
    Attempt,
    st.builds(pure, st.sampled_from([0.1, 0.5, 0.25, 1.0]), st.sampled_from([None, None, RATE])),
    st.frozensets(st.sampled_from("abcd"), min_size=1, max_size=2),
    st.sampled_from([None, Partition("c", "x"), *[Partition(*part) for part in PARTS]]),
)


def brute_force(spends: list[Attempt], relation: str) -> Fraction:
    """The worst unit: for every snapshot and pair of places of a unit before and after, the cost of what reads either.

    Without a snapshot a part counts as the whole table.
    """
    samples: list[set[int]] = [{i} for i in range(len(spends))]
    for i, j in combinations(range(len(spends)), 2):
        if all(spends[k].release.rate is not None for k in (i, j)) and spends[i].lineage & spends[j].lineage:
            one, two = (next(s for s in samples if k in s) for k in (i, j))
            if one is not two:
                samples.remove(two)
                one |= two
    costs: list[tuple[set[Partition | None], Fraction]] = []
    for sample in samples:
        inner = sum(inner_budget(spends[i].release.budget, spends[i].release.rate)[0] for i in sample)
        alone = len(sample) == 1
        first = spends[min(sample)].release
        cost = first.budget.exact_epsilon if alone else amplified(Fraction(inner), RATE)
        costs.append(
            ({part if part and part.snapshot else None for part in (spends[i].partition for i in sample)}, cost)
        )
    fixed = sum((cost for places, cost in costs if len(places) > 1 or None in places), Fraction(0))
    for column, snapshot in (("c", "s"), ("c", "t"), ("d", "s")):
        worst = Fraction(0)
        for before in "xyz":
            for after in before if relation == ADD_REMOVE else "xyz":
                met = {Partition(column, value, snapshot) for value in (before, after)}
                worst = max(worst, sum((c for places, c in costs if len(places) == 1 and places <= met), Fraction(0)))
        fixed += worst
    return fixed


@given(st.lists(spends_of, max_size=8), st.sampled_from([ADD_REMOVE, REPLACE_ONE]))
def test_total_is_the_cost_of_the_worst_unit(spends: list[Attempt], relation: str) -> None:
    assert total(spends, relation).epsilon == brute_force(spends, relation)


@given(st.lists(spends_of, max_size=8), spends_of, st.sampled_from([ADD_REMOVE, REPLACE_ONE]))
def test_a_release_more_never_costs_less(spends: list[Attempt], more: Attempt, relation: str) -> None:
    before, after = total(spends, relation), total([*spends, more], relation)
    assert before.epsilon is not None
    assert after.epsilon is not None
    if more.release.rate is None or all(spend.partition == more.partition for spend in spends):
        assert before.epsilon <= after.epsilon
        assert before.rho <= after.rho


def test_a_rho_release_has_no_epsilon() -> None:
    cost = total([Attempt(pure(1.0)), Attempt(Release(Budget(rho=0.5), ()))], ADD_REMOVE)
    assert (cost.epsilon, cost.rho) == (None, 1)


def test_at_delta_zero_epsilons_add() -> None:
    assert composed_epsilon([pure(0.1)] * 100, Fraction(0)) == 10
    assert plan_cost([Budget(0.1)] * 100, Fraction(0)) == 10
    for budgets in ([Budget(rho=0.1)], [Budget(0.1, 1e-6)]):
        with pytest.raises(BudgetError, match="no finite epsilon at delta 0\nHint: choose a larger delta"):
            plan_cost(budgets, Fraction(0))


def test_a_plan_never_costs_more_than_the_sum() -> None:
    slack = Fraction(1, 10**6)
    assert plan_cost([Budget(1.0)], slack) == 1
    assert plan_cost([Budget(1e-7)] * 3, slack) <= Fraction(3, 10**7)
    assert plan_cost([Budget(0.1)] * 100, slack) < 5
    assert plan_cost([Budget(0.1, 1e-9)] * 100, slack) < 5


def test_noises_tell_more_than_the_budget() -> None:
    slack = Fraction(1, 10**6)
    halves = Release(Budget(1.0), (Noise(Mechanism.LAPLACE, 1, Fraction(100)),) * 100)
    assert composed_epsilon([halves], slack) < Fraction(1, 2)
    none = Release(Budget(1.0), (Noise(Mechanism.LAPLACE, 0, Fraction(0)),))
    assert composed_epsilon([none, pure(0.5)], slack) == pytest.approx(0.5, abs=1e-4)


def test_one_sample_is_the_worst_case_of_releases_without_lineage() -> None:
    slack = Fraction(1, 10**6)
    releases = [pure(0.1, RATE)] * 5
    apart = [Attempt(release, frozenset([str(i)])) for i, release in enumerate(releases)]
    assert composed_spends(apart, slack, ADD_REMOVE) <= Fraction(1, 2) < composed_epsilon(releases, slack)
