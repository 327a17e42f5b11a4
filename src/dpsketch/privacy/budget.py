"""The privacy budget of a release, as exact fractions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real

from dpsketch.errors import BudgetError

MOST_EPSILON = 100
NOT_IN_LEDGER = "a release with infinite epsilon is not private and never enters a ledger"


@dataclass(frozen=True)
class Budget:
    """Pure ε-differential privacy. `epsilon` = infinity is for studies: no noise, a file marked NOT PRIVATE."""

    epsilon: float

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, Real) and not isinstance(self.epsilon, bool):
            object.__setattr__(self, "epsilon", float(self.epsilon))  # a NumPy number has another repr
        if not isinstance(self.epsilon, float) or not self.epsilon > 0:
            raise BudgetError(f"epsilon must be a number above 0, got {self.epsilon!r} instead", "1 is a common choice")
        if not 1e-9 <= self.epsilon <= MOST_EPSILON and not math.isinf(self.epsilon):
            raise BudgetError(
                f"epsilon must be between 1e-9 and {MOST_EPSILON}, got {self.epsilon!r} instead",
                "for a study without privacy use epsilon = inf, which marks the file NOT PRIVATE",
            )

    @property
    def private(self) -> bool:
        return not math.isinf(self.epsilon)

    @property
    def exact_epsilon(self) -> Fraction:
        """The number as written: 0.1 is one tenth, so ten releases of it spend exactly 1."""
        return Fraction(repr(self.epsilon))


def decimal_text(fraction: Fraction) -> str:
    """An exact fraction as people write it: 0.125, or 1/3 if no finite decimal exists."""
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
