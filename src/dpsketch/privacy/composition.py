"""The joint cost of releases that were declared up front, from the distribution of their privacy losses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from dpsketch.errors import BudgetError
from dpsketch.extras import extra
from dpsketch.privacy.accounting import Attempt, Counted, groups, inner_budget, total
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Release

_LOSS_INTERVAL = 1e-4  # privacy losses are rounded up to multiples of this, or of this times a power of two,
_MOST_LOSSES = 1 << 20  # so that there are at most this many
_LOSS_DECIMALS = 10**6


def composed_spends(spends: Iterable[Counted], delta: Fraction, relation: str) -> Fraction:
    """The cost of these releases at δ, had they been declared up front. (Parts help only in the closed form.)"""
    alone = [Attempt(spend.release, spend.lineage, spend.partition) for spend in spends]
    pairs: Counter[tuple[Fraction, Fraction]] = Counter()
    mu_squared = near = Fraction(0)
    for group in groups(alone):
        release = group.spends[0].release
        sampled = release.rate is not None and release.budget.rho is None
        if (len(group.spends) > 1 or sampled) and group.cost.epsilon is not None:
            pairs[group.cost.epsilon, group.cost.delta] += 1
            continue
        for release in (spend.release for spend in group.spends):
            more, mu = _losses(release)
            pairs.update(more)
            mu_squared += mu
            near += release.closeness
    closed = total(alone, relation)
    return _composed(pairs, mu_squared, closed.epsilon, closed.delta, delta, near)


def plan_cost(budgets: Sequence[Budget], delta: Fraction) -> Fraction:
    """ε at δ of releases with these budgets, in any order and whatever they will be; those with ρ are Gaussian.

    Source: Kairouz, Oh and Viswanath 2015, Theorem 3.3; Zhu, Dong and Wang 2022, Theorem 10; docs/proofs/accounting.md.
    """
    pairs = Counter((budget.exact_epsilon, budget.exact_delta) for budget in budgets if budget.rho is None)
    mu_squared = sum((2 * budget.exact_rho for budget in budgets if budget.rho is not None), Fraction(0))
    epsilon = sum((epsilon * times for (epsilon, _), times in pairs.items()), Fraction(0))
    deltas = sum((delta * times for (_, delta), times in pairs.items()), Fraction(0))
    return _composed(pairs, mu_squared, None if mu_squared else epsilon, deltas, delta)


def _losses(release: Release) -> tuple[Counter[tuple[Fraction, Fraction]], Fraction]:
    """A release as (ε, δ) pairs and a Gaussian: from its noises, or from its budget if it lists none."""
    pairs: Counter[tuple[Fraction, Fraction]] = Counter()
    if release.threshold is not None:  # δ is not in its noise
        return Counter([(release.budget.exact_epsilon, release.budget.exact_delta)]), Fraction(0)
    if not release.noises:
        if release.budget.rho is not None:
            return pairs, 2 * release.budget.exact_rho
        return Counter([inner_budget(release.budget, release.rate)]), Fraction(0)
    mu_squared = Fraction(0)
    for noise in release.noises:
        if noise.epsilon is None:
            mu_squared += noise.ratio_squared
        elif noise.epsilon:
            pairs[noise.epsilon, Fraction(0)] += 1
    return pairs, mu_squared


def _composed(
    pairs: Counter[tuple[Fraction, Fraction]],
    mu_squared: Fraction,
    closed_epsilon: Fraction | None,
    closed_delta: Fraction,
    delta: Fraction,
    near: Fraction = Fraction(0),
) -> Fraction:
    """The smaller of the sum of the ε, if the sum of the δ allows it, and the ε from the distribution of losses.

    `near` is the closeness of Gaussian noise in shares to Gaussian noise: it costs 2·near of ε and a share 2·near of δ.
    """
    candidates = []
    if closed_epsilon is not None and closed_delta <= delta:
        candidates.append(closed_epsilon)
    if delta > 0 and (pairs or mu_squared):
        epsilon = _loss_epsilon(pairs, mu_squared, delta * (1 - 2 * near))
        if math.isfinite(epsilon):
            epsilon = math.nextafter(epsilon + 2 * _above(near), math.inf) if near else epsilon
            candidates.append(Fraction(math.ceil(epsilon * _LOSS_DECIMALS) + 1, _LOSS_DECIMALS))
    if not candidates:
        raise BudgetError(f"these releases have no finite epsilon at delta {float(delta):g}", "choose a larger delta")
    return min(candidates)


def _loss_epsilon(pairs: Counter[tuple[Fraction, Fraction]], mu_squared: Fraction, delta: Fraction) -> float:
    """ε at δ from the distribution of privacy losses. All Gaussians combine into one; every pair is the worst with its
    (ε, δ).
    """
    with extra():
        from dp_accounting.pld import privacy_loss_distribution as losses  # takes a second to import
        from dp_accounting.pld.common import DifferentialPrivacyParameters

    mu = math.nextafter(math.sqrt(_above(mu_squared)), math.inf) if mu_squared else 0.0
    width = 2 * sum(float(epsilon) * times for (epsilon, _), times in pairs.items()) + 20 * mu
    interval = _LOSS_INTERVAL
    while width / interval > _MOST_LOSSES:
        interval *= 2
    # Convolutions are rounded. Each probability has an error of about 2^-52 of the largest one. By Parseval's equation,
    # the error of their sum is that times the square root of their number.
    events = sum(pairs.values()) + 1
    rounding = 8 * 2.0**-52 * events * math.sqrt(width / interval + events)
    target = math.nextafter(float(delta), 0) - rounding
    if target <= 0:
        return math.inf
    composed = losses.identity(interval)
    for (epsilon, slack), times in sorted(pairs.items()):
        parameters = DifferentialPrivacyParameters(_above(epsilon), _above(slack))
        composed = composed.compose(losses.from_privacy_parameters(parameters, interval).self_compose(times))
    if mu:
        gaussian = losses.from_gaussian_mechanism(
            math.nextafter(1 / mu, 0), value_discretization_interval=interval, use_connect_dots=False
        )
        composed = composed.compose(gaussian)
    return float(composed.get_epsilon_for_delta(target))


def _above(fraction: Fraction) -> float:
    number = float(fraction)
    return number if Fraction(number) >= fraction else math.nextafter(number, math.inf)
