"""Accounts: the cap and the spends of a dataset, as read from the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsketch.privacy.accounting import ADD_REMOVE, Cost, Partition, samples
from dpsketch.privacy.advisories import Advisory, advisories
from dpsketch.privacy.budget import Budget, rounded_text
from dpsketch.privacy.composition import composed_spends
from dpsketch.privacy.events import Release

Accounted = tuple[str, int, str]  # unit, its maximum number of rows, relation


@dataclass(frozen=True)
class Cap:
    """A cap, or what is left of it: Σε with Σδ, or Σρ. The other kind is None."""

    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction | None

    @classmethod
    def of(cls, budget: Budget) -> Cap:
        if budget.rho is not None:
            return cls(None, Fraction(0), budget.exact_rho)
        return cls(budget.exact_epsilon, budget.exact_delta, None)

    def text(self, up: bool = False) -> str:
        """The cap as text, such as "epsilon 0.5 and delta 1e-06", with numbers rounded up or down."""
        kinds = {"epsilon": self.epsilon, "delta": self.delta or None, "rho": self.rho}
        return " and ".join(f"{kind} {rounded(much, up)}" for kind, much in kinds.items() if much is not None)

    def covers(self, cost: Cost) -> bool:
        if self.rho is not None:
            return cost.rho <= self.rho
        return cost.epsilon is not None and cost.epsilon <= (self.epsilon or 0) and cost.delta <= self.delta

    def of_kind(self, cost: Cost) -> Cap:
        """A cost in the same terms as this cap."""
        if self.rho is not None:
            return Cap(None, Fraction(0), cost.rho)
        return Cap(cost.epsilon, cost.delta, None)

    def after(self, cost: Cost) -> Cap:
        """The remaining budget after `cost`; negative where the cap was lowered below the amount already spent."""
        if self.rho is not None:
            return Cap(None, Fraction(0), self.rho - cost.rho)
        return Cap((self.epsilon or Fraction(0)) - (cost.epsilon or 0), self.delta - cost.delta, None)


@dataclass(frozen=True)
class Spend:
    """One reserved release. `committed` means that its noise was added and the release handed over."""

    id: str
    release: Release
    lineage: frozenset[str] = frozenset()
    partition: Partition | None = None
    plan: str | None = None
    event: str | None = None
    created: str = ""
    committed: bool = False
    library: str | None = None  # the version that made it; earlier versions recorded none

    @property
    def advisories(self) -> tuple[Advisory, ...]:
        """Known privacy faults that may affect it: a ledger does not hold the names of maps."""
        known = [] if self.library is None else [self.library]
        return advisories(known, None, [noise.mechanism.value for noise in self.release.noises])


@dataclass(frozen=True)
class Plan:
    """Releases declared up front, which together cost `epsilon` at `delta`, whether or not all are made."""

    name: str
    used: tuple[Budget, ...]
    unused: tuple[Budget, ...]
    epsilon: Fraction
    delta: Fraction
    created: str

    @property
    def cost(self) -> Cost:
        return Cost(self.epsilon, self.delta, Fraction(0))

    @property
    def saves(self) -> bool:
        """Whether the releases would cost more one by one."""
        budgets = self.used + self.unused
        if any(budget.rho is not None for budget in budgets):
            return True  # a cap of epsilon could not account for them
        epsilon = sum(budget.exact_epsilon for budget in budgets)
        return epsilon > self.epsilon or sum(budget.exact_delta for budget in budgets) > self.delta


@dataclass(frozen=True)
class Standing:
    """A dataset's cap and the total spent from it, committed or not: what a decision needs.

    Unit and relation are None before the first spend.
    """

    dataset: str
    accounted: Accounted | None
    cap: Cap
    total: Cost

    @property
    def unit(self) -> str | None:
        return None if self.accounted is None else unit_text(self.accounted)

    @property
    def relation(self) -> str | None:
        return None if self.accounted is None else self.accounted[2]

    @property
    def spent(self) -> Cap:
        """The total in the same terms as the cap."""
        return self.cap.of_kind(self.total)

    @property
    def left(self) -> Cap:
        return self.cap.after(self.total)


@dataclass(frozen=True)
class Record:
    """A spend in its dataset's account: the `number`-th one, with the totals before and after it, in terms of the cap
    that held then.
    """

    dataset: str
    number: int
    cap: Cap
    before: Cap
    after: Cap
    first_report: str | None = None  # digest of the schema with which exact counts of cells were first shown


@dataclass(frozen=True)
class Account(Standing):
    """A dataset's cap, its total, and every spend from it."""

    plans: tuple[Plan, ...]
    spends: tuple[Spend, ...]

    @property
    def parts(self) -> int:
        """Number of disjoint parts of the table with releases of their own."""
        return len({spend.partition for spend in self.spends} - {None})

    @property
    def samples(self) -> int:
        """Number of samples of the rows that were released from."""
        return samples(self.spends)

    def as_one_plan(self, delta: Fraction) -> Fraction:
        """The ε at δ of all releases, had they been declared as one plan."""
        return composed_spends(self.spends, delta, self.relation or ADD_REMOVE) if self.spends else Fraction(0)


def rounded(number: Fraction, up: bool) -> str:
    """A number rounded up or down to six significant digits."""
    return rounded_text(number, up)


def unit_text(accounted: Accounted) -> str:
    unit, most, _ = accounted
    return unit if unit == "row" or most == 0 else f"'{unit}' with up to {most} rows"
