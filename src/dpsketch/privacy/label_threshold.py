"""The noise and the threshold with which the labels of a column are found, from public numbers alone."""

from __future__ import annotations

from fractions import Fraction

from dpsketch.errors import BudgetError
from dpsketch.numerics.precision import precise
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.schema.relation import Relation


def label_event(budget: Budget, most: int, relation: Relation) -> Release:
    """The release of all labels whose noisy count exceeds a threshold, if a unit counts for at most `most` labels.

    Guarantee: (ε, δ)-differential privacy for one unit. Source: docs/proofs/labels.md.
    """
    if not budget.private or budget.rho is not None:
        raise BudgetError(
            "labels are found with epsilon and delta, not with rho or without privacy",
            "pass --epsilon 0.1 --delta 1e-6, or type the labels into the schema",
        )
    if budget.pure:
        raise BudgetError(
            "labels cannot be found with pure epsilon: a label that one person alone has must stay hidden, "
            "and that fails with probability delta",
            "pass --delta 1e-6, or type the labels into the schema",
        )
    sensitivity = most if relation is Relation.ADD_REMOVE else 2 * most
    scale = sensitivity / budget.exact_epsilon
    threshold = least_threshold(most, scale, budget.exact_delta)
    return Release(budget, (Noise(Mechanism.LAPLACE, sensitivity, scale),), threshold=threshold)


def least_threshold(most: int, scale: Fraction, delta: Fraction) -> int:
    """The least integer τ with most·P(most + Z > τ) ≤ delta, Z discrete Laplace, exactly.

    With a = exp(−1/scale), P(Z > k) = a^(k+1)/(1+a) for k ≥ 0, so k+1 is scale·ln(most/(delta·(1+a))), rounded up. The
    number is never an integer, so more precision always decides.
    """
    if not 0 < delta < Fraction(1, 2):
        raise ValueError("delta")  # else the threshold could lie below `most`, where the formula does not hold
    bits = 256
    while True:
        with precise(bits) as exact:
            wide = exact.mpf(scale.numerator) / scale.denominator
            chance = exact.mpf(delta.numerator) / delta.denominator
            steps = wide * exact.log(most / (chance * (1 + exact.exp(-1 / wide))))
            margin = exact.ldexp(1 + steps, 64 - bits)  # 2^64 times the rounding error
            low, high = int(exact.ceil(steps - margin)), int(exact.ceil(steps + margin))
        if low == high:
            return most + low - 1
        bits *= 2
