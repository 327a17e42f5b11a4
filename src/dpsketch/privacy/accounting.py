"""What releases cost together. Exact fractions; where rounding is needed, it is against us."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from dpsketch.errors import BudgetError
from dpsketch.precise import precise
from dpsketch.privacy.budget import MOST_DELTA, Budget
from dpsketch.privacy.events import Release
from dpsketch.relation import Relation

ADD_REMOVE = Relation.ADD_REMOVE.value
REPLACE_ONE = Relation.REPLACE_ONE.value

_DECIMALS = 10**12
_PRECISION = 200
_MARGIN = 2.0**-100  # relative, far above the rounding of a few operations with 200 bits
_LOSS_INTERVAL = 1e-4  # privacy losses are rounded up to multiples of it, or of a power of two times it,
_MOST_LOSSES = 1 << 20  # so that there are at most so many
_LOSS_DECIMALS = 10**6


@dataclass(frozen=True)
class Cost:
    """(ε, δ) and ρ of some releases together; `epsilon` is None where only ρ is known."""

    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction

    def __add__(self, other: Cost) -> Cost:
        known = self.epsilon is not None and other.epsilon is not None
        epsilon = self.epsilon + other.epsilon if known else None  # type: ignore[operator]
        return Cost(epsilon, self.delta + other.delta, self.rho + other.rho)


FREE = Cost(Fraction(0), Fraction(0), Fraction(0))


class Counted(Protocol):
    """A release, the random ids of what its raw sketch holds, the part of the table that it read, and the plan that
    has paid for it.
    """

    @property
    def release(self) -> Release: ...
    @property
    def lineage(self) -> frozenset[str]: ...
    @property
    def partition(self) -> tuple[str, str] | None: ...
    @property
    def plan(self) -> str | None: ...


@dataclass(frozen=True)
class Attempt:
    """A release that is not in a ledger yet."""

    release: Release
    lineage: frozenset[str] = frozenset()
    partition: tuple[str, str] | None = None
    plan: str | None = None


def amplified(epsilon: Fraction, rate: Fraction) -> Fraction:
    """ε of the table for ε of a sample of it by rate: ln(1 + rate·(e^ε − 1)), rounded up.

    Guarantee: for one unit more or less, each kept independently, and everything released from that sample together.
    Source: Balle, Barthe and Gaboardi 2018, Theorem 8; docs/proofs/accounting.md.
    """
    _check_rate(rate)
    if rate == 1 or epsilon == 0:
        return epsilon
    with precise(_PRECISION) as exact:
        growth = _number(exact, rate) * exact.expm1(_number(exact, epsilon))
        steps = int(exact.ceil(exact.log1p(growth) * _DECIMALS * (1 + exact.mpf(_MARGIN))))
        if exact.expm1(exact.mpf(steps) / _DECIMALS) < growth:
            raise AssertionError("the amplified epsilon is not an upper bound")
    return min(Fraction(steps, _DECIMALS), epsilon)


def inner_budget(budget: Budget, rate: Fraction | None) -> tuple[Fraction, Fraction]:
    """The (ε, δ) that a mechanism may use on a sample of the rows so that the table gets `budget`, rounded down.

    δ grows by 1/rate, but not above what a budget may have.
    """
    epsilon, delta = budget.exact_epsilon, budget.exact_delta
    if rate is None or rate == 1:
        return epsilon, delta
    _check_rate(rate)
    with precise(_PRECISION) as exact:
        growth = exact.expm1(_number(exact, epsilon)) / _number(exact, rate)
        steps = int(exact.floor(exact.log1p(growth) * _DECIMALS * (1 - exact.mpf(_MARGIN))))
        if exact.expm1(exact.mpf(steps) / _DECIMALS) > growth:
            raise AssertionError("the inner epsilon is not a lower bound")
    return max(Fraction(steps, _DECIMALS), epsilon), min(delta / rate, Fraction(repr(MOST_DELTA)))


def release_rho(release: Release) -> Fraction:
    """ρ of a release: its budget's, else that of its noises, rounded up, else ε²/2 (Bun and Steinke 2016, 1.4)."""
    if release.budget.rho is not None:
        return release.budget.exact_rho
    if release.noises:
        return Fraction(math.ceil(release.rho * _DECIMALS), _DECIMALS)
    if release.budget.delta:
        raise BudgetError("a release with delta costs a rho that only its noise can tell")
    return inner_budget(release.budget, release.rate)[0] ** 2 / 2


def total(spends: Iterable[Counted], relation: str) -> Cost:
    """What all spends cost together, in the order they were made; those of a plan cost no ε and δ, the plan did.

    Guarantee: releases with budgets chosen one after another, each after seeing all results so far, are (ε, δ)-DP for
    any bound on this total that never was exceeded; the same for ρ.
    Source: PRIVACY "Ledger"; docs/proofs/accounting.md.
    """
    sums: dict[tuple[str, str] | None, Cost] = {}
    for group in _samples(spends):
        partitions = {spend.partition for spend in group}
        part = partitions.pop() if len(partitions) == 1 else None  # a sample of several parts counts for each row
        sums[part] = sums.get(part, FREE) + _group_cost(group)
    result = sums.pop(None, FREE)
    for column in {part[0] for part in sums if part is not None}:
        values = [cost for part, cost in sums.items() if part is not None and part[0] == column]
        result += _worst(values, 1 if relation == ADD_REMOVE else 2)
    return result


def composed_spends(spends: Iterable[Counted], delta: Fraction, relation: str) -> Fraction:
    """What these releases cost at δ had they been declared up front. (No gain from parts, except by closed form.)"""
    alone = [Attempt(spend.release, spend.lineage, spend.partition) for spend in spends]
    pairs: Counter[tuple[Fraction, Fraction]] = Counter()
    mu_squared = Fraction(0)
    for group in _samples(alone):
        release = group[0].release
        if len(group) > 1 or (release.rate is not None and release.budget.rho is None):
            cost = _group_cost(group)
            if cost.epsilon is not None:
                pairs[cost.epsilon, cost.delta] += 1
                continue
        for release in (spend.release for spend in group):
            more, mu = _losses(release)
            pairs.update(more)
            mu_squared += mu
    closed = total(alone, relation)
    return _composed(pairs, mu_squared, closed.epsilon, closed.delta, delta)


def samples(spends: Iterable[Counted]) -> int:
    """How many samples of rows were released from; merged ones count as one."""
    return sum(group[0].release.rate is not None and group[0].plan is None for group in _samples(spends))


def shares_sample(spends: Iterable[Counted], attempt: Attempt) -> bool:
    """Whether one of these releases was of the same sample of rows."""
    return attempt.release.rate is not None and any(_sampled_together(spend, attempt) for spend in spends)


def plan_cost(budgets: Sequence[Budget], delta: Fraction) -> Fraction:
    """ε at δ of releases with these budgets, in any order, whatever they will be; those with ρ are Gaussian.

    Source: Kairouz, Oh and Viswanath 2015, Theorem 3.3; Zhu, Dong and Wang 2022, Theorem 10; docs/proofs/accounting.md.
    """
    pairs = Counter((budget.exact_epsilon, budget.exact_delta) for budget in budgets if budget.rho is None)
    mu_squared = sum((2 * budget.exact_rho for budget in budgets if budget.rho is not None), Fraction(0))
    epsilon = sum((epsilon * times for (epsilon, _), times in pairs.items()), Fraction(0))
    deltas = sum((delta * times for (_, delta), times in pairs.items()), Fraction(0))
    return _composed(pairs, mu_squared, None if mu_squared else epsilon, deltas, delta)


def _samples(spends: Iterable[Counted]) -> list[list[Counted]]:
    """Spends that share a sample of rows, together: those whose raw sketches have inputs in common, also by others."""
    groups: list[list[Counted]] = []
    for spend in spends:
        joined = [spend]
        if spend.release.rate is not None and spend.plan is None:
            shared = [group for group in groups if any(_sampled_together(one, spend) for one in group)]
            groups = [group for group in groups if not any(group is other for other in shared)]
            joined = [one for group in shared for one in group] + joined
        groups.append(joined)
    return groups


def _sampled_together(one: Counted, two: Counted) -> bool:
    return one.release.rate is not None and one.plan is None and bool(one.lineage & two.lineage)


def _group_cost(group: Sequence[Counted]) -> Cost:
    """The cost of releases of one sample, or of a single release."""
    releases = [spend.release for spend in group]
    rho = sum((release_rho(release) for release in releases), Fraction(0))
    if group[0].plan is not None:
        return Cost(Fraction(0), Fraction(0), rho)
    if any(release.budget.rho is not None for release in releases):
        return Cost(None, sum((release.budget.exact_delta for release in releases), Fraction(0)), rho)
    if len(releases) == 1:
        epsilon, delta = releases[0].budget.exact_epsilon, releases[0].budget.exact_delta
        return Cost(epsilon, delta, _group_rho(releases, epsilon, rho))
    rates = {release.rate for release in releases}
    rate = rates.pop() if len(rates) == 1 else None
    inner, delta = Fraction(0), Fraction(0)
    for release in releases:
        epsilon, slack = inner_budget(release.budget, release.rate)
        delta += slack * _suspicion(inner, rate or Fraction(1))
        inner += epsilon
    least = max(release.budget.exact_epsilon for release in releases)
    joint = max(amplified(inner, rate or Fraction(1)), least)
    return Cost(joint, delta, _group_rho(releases, joint, rho))


def _group_rho(releases: Sequence[Release], epsilon: Fraction, rho: Fraction) -> Fraction:
    """The smaller of the noises' ρ, which sampling does not lower, and ε²/2 of what a pure sample costs the table."""
    pure = all(
        release.rate is not None
        and release.budget.delta == 0
        and all(noise.epsilon is not None for noise in release.noises)
        for release in releases
    )
    return min(rho, epsilon**2 / 2) if pure else rho


def _suspicion(epsilon: Fraction, rate: Fraction) -> Fraction:
    """How likely a unit is in the sample at most, for someone who saw releases of it that cost ε: at first the rate.

    A later δ counts with this weight, because whoever chooses it may choose it larger where the unit seems present.
    """
    if rate == 1 or epsilon == 0:
        return rate
    with precise(_PRECISION) as exact:
        share = _number(exact, rate)
        likely = share / (share + (1 - share) * exact.exp(-_number(exact, epsilon)))
        steps = int(exact.ceil(likely * _DECIMALS * (1 + exact.mpf(_MARGIN))))
    return min(Fraction(steps, _DECIMALS), Fraction(1))


def _worst(costs: Sequence[Cost], values: int) -> Cost:
    """What a unit can meet that is in one of these disjoint parts, or moves from one to another."""
    known = [cost.epsilon for cost in costs if cost.epsilon is not None]
    epsilon = _largest(known, values) if len(known) == len(costs) else None
    return Cost(
        epsilon, _largest([cost.delta for cost in costs], values), _largest([cost.rho for cost in costs], values)
    )


def _largest(numbers: Sequence[Fraction], count: int) -> Fraction:
    return sum(sorted(numbers, reverse=True)[:count], Fraction(0))


def _losses(release: Release) -> tuple[Counter[tuple[Fraction, Fraction]], Fraction]:
    """A release as (ε, δ) pairs and a Gaussian: by its noises, or by its budget if it names none."""
    pairs: Counter[tuple[Fraction, Fraction]] = Counter()
    if not release.noises:
        if release.budget.rho is not None:
            return pairs, 2 * release.budget.exact_rho
        return Counter([inner_budget(release.budget, release.rate)]), Fraction(0)
    mu_squared = Fraction(0)
    for noise in release.noises:
        if noise.epsilon is None:
            mu_squared += 2 * noise.rho
        elif noise.epsilon:
            pairs[noise.epsilon, Fraction(0)] += 1
    return pairs, mu_squared


def _composed(
    pairs: Counter[tuple[Fraction, Fraction]],
    mu_squared: Fraction,
    closed_epsilon: Fraction | None,
    closed_delta: Fraction,
    delta: Fraction,
) -> Fraction:
    """The smaller of the sum of the ε, if that of the δ allows it, and what the distribution of losses gives."""
    found = []
    if closed_epsilon is not None and closed_delta <= delta:
        found.append(closed_epsilon)
    if delta > 0 and (pairs or mu_squared):
        epsilon = _loss_epsilon(pairs, mu_squared, delta)
        if math.isfinite(epsilon):
            found.append(Fraction(math.ceil(epsilon * _LOSS_DECIMALS) + 1, _LOSS_DECIMALS))
    if not found:
        raise BudgetError(f"these releases have no finite epsilon at delta {float(delta):g}", "choose a larger delta")
    return min(found)


def _loss_epsilon(pairs: Counter[tuple[Fraction, Fraction]], mu_squared: Fraction, delta: Fraction) -> float:
    """ε at δ by the distribution of privacy losses: all Gaussians are one, every pair is the worst with its (ε, δ)."""
    from dp_accounting.pld import privacy_loss_distribution as losses  # takes a second to import
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    mu = math.nextafter(math.sqrt(_above(mu_squared)), math.inf) if mu_squared else 0.0
    width = 2 * sum(float(epsilon) * times for (epsilon, _), times in pairs.items()) + 20 * mu
    interval = _LOSS_INTERVAL
    while width / interval > _MOST_LOSSES:
        interval *= 2
    # Convolutions are rounded. Each of the probabilities is off by about 2^-52 of the largest; by Parseval's equation
    # their sum is off by the square root of their number times that.
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


def _number(exact: Any, fraction: Fraction) -> Any:
    return exact.mpf(fraction.numerator) / fraction.denominator


def _check_rate(rate: Fraction) -> None:
    if not 0 < rate <= 1:
        raise BudgetError("a rate of sampling must be above 0 and at most 1")
