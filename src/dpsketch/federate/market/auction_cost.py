"""What an auction costs: every broadcast and every ask of all rounds, composed for any coalition of owners."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1, inf, log, log1p, sqrt

from dpsketch.errors import BudgetError


@dataclass(frozen=True)
class AuctionPlan:
    """Public numbers of an auction: `first` and `later` steps of h₂ in the first and in each later round (T_init and
    T_subs), ε of a step, ε of an ask, and the probability `never` that the best bid is not asked for.

    `coalition` is the number of owners who may compare what they saw: by default all but one.
    """

    rounds: int
    owners: int
    first: int
    later: int
    step_epsilon: Fraction
    ask_epsilon: float
    never: float

    @property
    def coalition(self) -> int:
        return max(self.owners - 1, 1)

    @property
    def steps(self) -> int:
        return self.first + (self.rounds - 1) * self.later

    @property
    def rho(self) -> float:
        """ρ of all rounds: ε²/8 for a choice (bounded range; Cesar and Rogers 2021), ε²/2 for a measurement, ε²/2 for
        the ask bit of each member of the coalition.
        """
        step = float(self.step_epsilon)
        return self.steps * step**2 * (1 / 8 + 1 / 2) + self.rounds * self.coalition * self.ask_epsilon**2 / 2

    @property
    def failure(self) -> float:
        """δ for rounds in which the best bid is not asked for, where neighbouring summaries could come to differ by
        more than one point: (1 + e^ε)·rounds·never.
        """
        return (1 + exp(min(self.ask_epsilon * self.coalition, 50.0))) * self.rounds * self.never

    def epsilon(self, delta: float) -> float:
        """The ε of the whole auction at this δ, towards the coalition."""
        left = delta - self.failure
        return inf if left <= 0 else rho_epsilon(self.rho, left)


def auction_plan(
    rounds: int, owners: int, epsilon: float, delta: float, first: int, later: int, asks: float = 0.2
) -> AuctionPlan:
    """The auction that keeps (ε, δ), with the share `asks` of ρ for asks and the rest for broadcasts."""
    rho = largest_rho(epsilon, delta / 2)
    coalition, steps = max(owners - 1, 1), first + (rounds - 1) * later
    ask = sqrt(2 * asks * rho / (rounds * coalition))
    step = Fraction(sqrt((1 - asks) * rho / (steps * (1 / 8 + 1 / 2)))).limit_denominator(10**9)
    never = delta / 2 / ((1 + exp(ask * coalition)) * rounds) * (1 - 1e-6)
    plan = AuctionPlan(rounds, owners, first, later, step * Fraction(999_999, 10**6), ask, never)
    if plan.epsilon(delta) > epsilon:
        raise BudgetError("no auction of this many rounds keeps the budget", "raise epsilon or delta")
    return plan


def rho_epsilon(rho: float, delta: float) -> float:
    """ε at δ of ρ-zCDP: the least over orders a of ρa + ln(1/(aδ))/(a − 1) + ln(1 − 1/a).

    Source: Canonne, Kamath and Steinke 2020, corollary 13.
    """
    if rho <= 0:
        return 0.0
    best = inf
    centre = sqrt(log(1 / delta) / rho)
    for step in range(-200, 201):
        order = 1 + centre * exp(step / 40)
        best = min(best, rho * order + (-log(order) - log(delta)) / (order - 1) + log1p(-1 / order))
    return max(best, 0.0)


def largest_rho(epsilon: float, delta: float) -> float:
    """The largest ρ whose ε at δ is at most this, from below."""
    low, high = 0.0, max(epsilon, epsilon**2)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


@dataclass(frozen=True)
class Published:
    """The paper's auction as printed, with what it claims and what follows from what it does.

    A choice by e^ψ costs 2Δ = 4 whatever ε says, as scores change by Δ = 2 when a vector is replaced; a measurement of
    scale 1/ε costs 2ε. The first round measures public seeds alone and costs nothing. The ask curve starts at 1.
    """

    rounds: int
    first: int
    later: int
    validation_epsilon: float
    first_epsilon: float
    later_epsilon: float
    ask_epsilon: float

    def measurements_alone(self, delta: float, validation: bool = False) -> float:
        """ε of the measurements, with the right sensitivity, without the choices."""
        return rho_epsilon(self._measured(validation), delta)

    def broadcasts(self, delta: float, validation: bool = False) -> float:
        """ε of choices and measurements."""
        steps = self.first if validation else (self.rounds - 1) * self.later
        return rho_epsilon(self._measured(validation) + steps * 4.0**2 / 8, delta)

    @property
    def shifted_round_delta(self) -> float:
        """The least δ of one round in which the owner's rank moves from 1 to 2: "not asked" is impossible before."""
        return -expm1(-self.ask_epsilon)

    def asks_delta(self, shifted: int) -> float:
        """The least δ of rounds of which this many are shifted: 1 − e^(−ε·shifted)."""
        return -expm1(-self.ask_epsilon * shifted)

    def _measured(self, validation: bool) -> float:
        if validation:
            return self.first * (2 * self.validation_epsilon) ** 2 / 2
        return (self.rounds - 1) * self.later * (2 * self.later_epsilon) ** 2 / 2


def as_published(rounds: int, ask_epsilon: float) -> Published:
    """Table 1 of the paper: T_init = 1656, T_subs = 5, ε_v = 0.01, 0.05 in the first epoch and 0.01/√(5p) later."""
    return Published(rounds, 1656, 5, 0.01, 0.05, 0.01 / sqrt(5 * rounds), ask_epsilon)


CLAIMED = {"validation set": (1.4, 0.01), "summary": (0.043, 0.0001)}
