"""Composition: the joint cost of releases, in exact fractions. Rounding is always conservative."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from dpsketch.errors import BudgetError
from dpsketch.numerics.precision import precise
from dpsketch.privacy.budget import MOST_DELTA, Budget
from dpsketch.privacy.events import Release
from dpsketch.schema.relation import Relation

ADD_REMOVE = Relation.ADD_REMOVE.value
REPLACE_ONE = Relation.REPLACE_ONE.value

_DECIMALS = 10**12
_PRECISION = 200
_MARGIN = 2.0**-100  # relative, far above the rounding of a few operations with 200 bits


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

    def __sub__(self, other: Cost) -> Cost:
        """The cost without that of some of its releases. An unknown ε stays unknown."""
        known = self.epsilon is not None and other.epsilon is not None
        epsilon = self.epsilon - other.epsilon if known else None  # type: ignore[operator]
        return Cost(epsilon, self.delta - other.delta, self.rho - other.rho)


FREE = Cost(Fraction(0), Fraction(0), Fraction(0))


class Partition(NamedTuple):
    """The rows with one value of a column.

    Parts with the same `snapshot` were read from the whole of one unchanged table, so that a unit is in at most one of
    them; the curator asserts this. Without a snapshot, two parts may share any units.
    """

    column: str
    value: str
    snapshot: str | None = None


class Counted(Protocol):
    """A release with the random ids of its raw sketch, the part of the table that it read, and the plan that paid for
    it.
    """

    @property
    def release(self) -> Release: ...
    @property
    def lineage(self) -> frozenset[str]: ...
    @property
    def partition(self) -> Partition | None: ...
    @property
    def plan(self) -> str | None: ...


@dataclass(frozen=True)
class Attempt:
    """A release that is not in a ledger yet."""

    release: Release
    lineage: frozenset[str] = frozenset()
    partition: Partition | None = None
    plan: str | None = None


def amplified(epsilon: Fraction, rate: Fraction) -> Fraction:
    """ε for the table, given ε for a sample of it: ln(1 + rate·(e^ε − 1)), rounded up.

    Guarantee: for adding or removing one unit, each kept independently, and everything released from that sample
    together. Source: Balle, Barthe and Gaboardi 2018, Theorem 8; docs/proofs/accounting.md.
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

    δ grows by 1/rate, up to the largest δ of a budget.
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
        raise BudgetError("the rho of a release with delta follows from its noise alone, which is not stated")
    return inner_budget(release.budget, release.rate)[0] ** 2 / 2


@dataclass(frozen=True)
class Together:
    """Sums over the releases of one sample of the rows, in the order in which they were made, or over a single release.

    `inner` and `slack` are Σε and Σδ on the sample; `weighted` is Σδ with the weights of `_suspicion`. `rate` is the
    common sampling rate of the releases, or 1 if they differ.
    """

    count: int = 0
    rate: Fraction = Fraction(1)
    inner: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    weighted: Fraction = Fraction(0)
    largest_epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    has_epsilon: bool = True  # whether no budget is in terms of ρ
    pure: bool = True  # whether all are sampled, without δ and without Gaussian noise

    def plus(self, release: Release) -> Together:
        """The sums with one more release."""
        rate = release.rate or Fraction(1)
        if self.count and rate != self.rate:
            rate = Fraction(1)
        sums = replace(
            self,
            count=self.count + 1,
            rate=rate,
            delta=self.delta + release.budget.exact_delta,
            rho=self.rho + release_rho(release),
            pure=self.pure and _pure_sample(release),
        )
        if release.budget.rho is not None:
            return replace(sums, has_epsilon=False)
        epsilon, slack = inner_budget(release.budget, release.rate)
        weighted = self.weighted if rate == self.rate or not self.count else self.slack
        return replace(
            sums,
            inner=self.inner + epsilon,
            slack=self.slack + slack,
            weighted=weighted + slack * _suspicion(self.inner, rate),
            largest_epsilon=max(self.largest_epsilon, release.budget.exact_epsilon),
        )

    @property
    def cost(self) -> Cost:
        if not self.has_epsilon:
            return Cost(None, self.delta, self.rho)
        if self.count == 1:
            epsilon, delta = self.largest_epsilon, self.delta
        else:
            epsilon, delta = max(amplified(self.inner, self.rate), self.largest_epsilon), self.weighted
        # For a pure sample, the smaller of ε²/2 and the ρ of the noises, which sampling does not lower.
        return Cost(epsilon, delta, min(self.rho, epsilon**2 / 2) if self.pure else self.rho)


@dataclass(frozen=True)
class Group:
    """Spends that are counted together, and their cost; `part` is None if they are of the whole table."""

    spends: tuple[Counted, ...]
    together: Together
    cost: Cost
    part: Partition | None


def release_cost(together: Together, planned: bool) -> Cost:
    """The cost of releases in addition to that of the plan that has paid for them, if there is one."""
    return Cost(Fraction(0), Fraction(0), together.rho) if planned else together.cost


def disjoint_part(partition: Partition | None) -> Partition | None:
    """The part of a snapshot. Other parts count as the whole table, because their units may be in any other part as
    well.
    """
    return None if partition is None or partition.snapshot is None else partition


def groups(spends: Iterable[Counted]) -> list[Group]:
    """Spends grouped by sample of rows: those whose raw sketches share inputs, directly or through other spends."""
    # keyed by the group's first spend or, if groups were joined, by the joining one
    made: dict[int, list[Counted]] = {}
    newest: dict[int, int] = {}
    of_input: dict[str, int] = {}
    for number, spend in enumerate(spends):
        shared = {of_input[one] for one in spend.lineage if one in of_input} if is_sample(spend) else set()
        group = shared.pop() if len(shared) == 1 else number
        if shared:
            made[group] = [one for other in sorted(shared, key=newest.__getitem__) for one in made.pop(other)]
            of_input.update((one, group) for member in made[group] for one in member.lineage)
        made.setdefault(group, []).append(spend)
        if is_sample(spend):
            newest[group] = number
            of_input.update((one, group) for one in spend.lineage)
    return [_group(group) for group in made.values()]


def is_sample(spend: Counted) -> bool:
    return spend.release.rate is not None and spend.plan is None


def _group(spends: Sequence[Counted]) -> Group:
    together = Together()
    for spend in spends:
        together = together.plus(spend.release)
    parts = {disjoint_part(spend.partition) for spend in spends}
    part = parts.pop() if len(parts) == 1 else None  # a sample of several parts counts for each row
    return Group(tuple(spends), together, release_cost(together, spends[0].plan is not None), part)


def total(spends: Iterable[Counted], relation: str) -> Cost:
    """The joint cost of all spends, in the order in which they were made. Those of a plan cost no ε and δ: the plan
    did.

    Guarantee: releases with budgets chosen adaptively, each after seeing all earlier results, are (ε, δ)-DP for any
    bound on this total that was never exceeded; likewise for ρ. Source: PRIVACY "Ledger"; docs/proofs/accounting.md.
    """
    sums: dict[Partition | None, Cost] = {}
    for group in groups(spends):
        sums[group.part] = sums.get(group.part, FREE) + group.cost
    result = sums.pop(None, FREE)
    for cut in {(part.column, part.snapshot) for part in sums if part is not None}:
        costs = [cost for part, cost in sums.items() if part is not None and (part.column, part.snapshot) == cut]
        result += _worst(costs, parts_met(relation))
    return result


def parts_met(relation: str) -> int:
    """Largest number of parts of a snapshot in which neighbouring tables differ: a replaced unit may move to another
    part.
    """
    return 1 if relation == ADD_REMOVE else 2


def samples(spends: Iterable[Counted]) -> int:
    """Number of samples of rows that were released from; merged ones count as one."""
    return sum(is_sample(group.spends[0]) for group in groups(spends))


def _worst(costs: Sequence[Cost], parts: int) -> Cost:
    """The worst cost for a unit in one of these disjoint parts, or one that moves between two of them."""
    known = [cost.epsilon for cost in costs if cost.epsilon is not None]
    epsilon = _largest(known, parts) if len(known) == len(costs) else None
    return Cost(epsilon, _largest([cost.delta for cost in costs], parts), _largest([cost.rho for cost in costs], parts))


def _largest(numbers: Sequence[Fraction], count: int) -> Fraction:
    return sum(sorted(numbers, reverse=True)[:count], Fraction(0))


def _pure_sample(release: Release) -> bool:
    return (
        release.rate is not None
        and release.budget.delta == 0
        and all(noise.epsilon is not None for noise in release.noises)
    )


def _suspicion(epsilon: Fraction, rate: Fraction) -> Fraction:
    """An upper bound on the probability that a unit is in the sample, after releases of it that cost ε; initially the
    rate.

    A later δ is weighted by it, because an analyst who chooses δ may choose it larger where the unit seems present.
    """
    if rate == 1 or epsilon == 0:
        return rate
    with precise(_PRECISION) as exact:
        share = _number(exact, rate)
        likely = share / (share + (1 - share) * exact.exp(-_number(exact, epsilon)))
        steps = int(exact.ceil(likely * _DECIMALS * (1 + exact.mpf(_MARGIN))))
    return min(Fraction(steps, _DECIMALS), Fraction(1))


def _number(exact: Any, fraction: Fraction) -> Any:
    return exact.mpf(fraction.numerator) / fraction.denominator


def _check_rate(rate: Fraction) -> None:
    if not 0 < rate <= 1:
        raise BudgetError("a rate of sampling must be above 0 and at most 1")
