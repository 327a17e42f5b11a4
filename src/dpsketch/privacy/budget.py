"""The privacy budget of a release, as exact fractions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from numbers import Real

from dpsketch.displays import brief
from dpsketch.errors import BudgetError, PublicNote

MOST_EPSILON = 100
MOST_DELTA = 0.01
MOST_RHO = MOST_EPSILON**2 / 2
NOT_IN_LEDGER = "a release with infinite epsilon is not private and never enters a ledger"


@dataclass(frozen=True)
class Budget:
    """ε-, (ε, δ)- or ρ-zero-concentrated differential privacy.

    `epsilon` = infinity is for studies: no noise, and a file marked NOT PRIVATE.
    """

    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "rho"):
            value = getattr(self, name)
            if isinstance(value, Real) and not isinstance(value, bool):
                object.__setattr__(self, name, float(value))  # a NumPy number would have another repr
        if self.rho is not None:
            self._check_rho()
            return
        if self.epsilon is None:
            raise BudgetError("a budget is needed", "pass --epsilon 1, with --delta or without, or --rho 0.5")
        if not isinstance(self.epsilon, float) or not self.epsilon > 0:
            raise BudgetError(f"epsilon must be a number above 0, got {self.epsilon!r} instead", "1 is a common choice")
        if not 1e-9 <= self.epsilon <= MOST_EPSILON and not math.isinf(self.epsilon):
            raise BudgetError(
                f"epsilon must be between 1e-9 and {MOST_EPSILON}, got {self.epsilon!r} instead",
                "for a study without privacy use epsilon = inf, which marks the file NOT PRIVATE",
            )
        if not isinstance(self.delta, float) or not (self.delta == 0 or 1e-30 <= self.delta <= MOST_DELTA):
            raise BudgetError(
                f"delta must be 0, or between 1e-30 and {MOST_DELTA}, got {self.delta!r} instead",
                "it should be far below one over the number of people; 1e-6 is a common choice",
            )
        if self.delta and not self.private:
            raise BudgetError("delta has no meaning without privacy", "leave it out")

    def _check_rho(self) -> None:
        if self.epsilon is not None or self.delta != 0:
            raise BudgetError("a budget is either epsilon, with delta or without, or rho", "pass one of them")
        if not isinstance(self.rho, float) or not 1e-18 <= self.rho <= MOST_RHO:
            raise BudgetError(
                f"rho must be a number from 1e-18 to {MOST_RHO:g}, got {self.rho!r} instead",
                "0.5 is about as strict as epsilon = 1 of pure privacy",
            )

    @property
    def private(self) -> bool:
        return self.epsilon is None or not math.isinf(self.epsilon)

    @property
    def pure(self) -> bool:
        """Whether this is pure ε-differential privacy: a finite ε, without δ or ρ."""
        return self.private and self.rho is None and not self.delta

    @property
    def exact_epsilon(self) -> Fraction:
        """The number as written: 0.1 is exactly one tenth, so ten such releases spend exactly 1."""
        return Fraction(repr(self.epsilon))

    @property
    def exact_delta(self) -> Fraction:
        return Fraction(repr(self.delta))

    @property
    def exact_rho(self) -> Fraction:
        return Fraction(repr(self.rho))

    @property
    def strength(self) -> float:
        """The pure ε with noise of about the same size, for rules that choose sizes."""
        return math.sqrt(2 * self.rho) if self.epsilon is None and self.rho is not None else float(self.epsilon or 0)

    def __repr__(self) -> str:
        return brief(self)

    def __str__(self) -> str:
        if self.rho is not None:
            return f"rho {decimal_text(self.exact_rho)}"
        epsilon = f"epsilon {decimal_text(self.exact_epsilon) if self.private else 'inf'}"
        return f"{epsilon} and delta {self.delta:g}" if self.delta else epsilon


def decimal_text(fraction: Fraction) -> str:
    """An exact fraction in decimal notation, as 0.125; or as 1/3 if it has no finite decimal expansion."""
    denominator = fraction.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    if denominator != 1:
        return str(fraction)
    places = 0
    while (fraction * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(fraction * 10**places))).rjust(places + 1, "0")
    whole, part = (digits[:-places], "." + digits[-places:]) if places else (digits, "")
    return ("-" if fraction < 0 else "") + whole + part


def rounded_text(number: Fraction, up: bool = True) -> str:
    """A number rounded up or down to six significant digits."""
    context = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{float(context.divide(Decimal(number.numerator), Decimal(number.denominator))):g}"


def spend_stands(dataset: str, budget: Budget) -> PublicNote:
    """The note that a message adds when something fails after a spend was recorded."""
    return PublicNote(f"The spend of {budget} by dataset '{dataset}' stands, but nothing was released.")
