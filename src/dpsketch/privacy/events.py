"""Records of what was done: the noise of each part of a release, frozen. Its cost follows from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsketch.privacy.budget import Budget
from dpsketch.privacy.masks import Masks
from dpsketch.privacy.mechanisms import MECHANISMS, Mechanism

_MOST_SCALE = 2**64  # larger than any mechanism draws
_MOST_RATIO = 10**6  # of a masked feature to the noise scale, far more than any budget allows
_FRACTION = re.compile(r"[0-9]{1,400}(/[0-9]{1,400})?")


@dataclass(frozen=True)
class Noise:
    """Noise added to one part.

    `sensitivity` is in the norm to which the mechanism is calibrated (`MECHANISMS`): L1 for Laplace noise, the squared
    L2 for Gaussian noise, the radius in the norm of its body for the others. `scale` is the Laplace scale, the standard
    deviation, or radius/ε. Both are 0 where neighbouring tables cannot differ: then nothing is added and nothing is
    spent. With `masks`, which only Laplace noise has, the sensitivity is that without them, and ε is less.
    """

    mechanism: Mechanism
    sensitivity: int
    scale: Fraction
    masks: Masks | None = None

    @property
    def epsilon(self) -> Fraction | None:
        """Pure ε; None for Gaussian noise, which has none."""
        if self.sensitivity == 0:
            return Fraction(0)
        if self.masks is not None:
            return self.masks.epsilon(self.sensitivity, self.scale)
        return self.sensitivity / self.scale if MECHANISMS[self.mechanism].pure else None

    @property
    def rho(self) -> Fraction:
        """ρ of zero-concentrated privacy: Δ²/2σ², or ε²/2 (Bun and Steinke 2016, Propositions 1.6 and 1.4)."""
        epsilon = self.epsilon
        return self.sensitivity / (2 * self.scale**2) if epsilon is None else epsilon**2 / 2

    def to_dict(self) -> dict[str, Any]:
        facts = {"mechanism": self.mechanism.value, "sensitivity": self.sensitivity, "scale": str(self.scale)}
        if self.masks is None:
            return facts
        return facts | {"masks": {"largest": self.masks.largest, "rate": str(self.masks.rate)}}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Noise:
        """Parse and check a noise: files and ledgers come from elsewhere."""
        sensitivity, scale = facts["sensitivity"], exact_number(facts["scale"])
        if isinstance(sensitivity, bool) or not isinstance(sensitivity, int) or not 0 <= sensitivity < 2**400:
            raise ValueError("sensitivity")
        if (sensitivity == 0) != (scale == 0) or scale > _MOST_SCALE or 0 < scale < 1 / _MOST_SCALE:
            raise ValueError("scale")
        mechanism = Mechanism(facts["mechanism"])
        if "masks" not in facts:
            return cls(mechanism, sensitivity, scale)
        largest, rate = facts["masks"]["largest"], exact_number(facts["masks"]["rate"])
        if isinstance(largest, bool) or not isinstance(largest, int) or not 0 < largest < 2**400 or not 0 < rate <= 1:
            raise ValueError("masks")
        if mechanism is not Mechanism.LAPLACE or sensitivity == 0 or largest / scale > _MOST_RATIO:
            raise ValueError("masks")
        return cls(mechanism, sensitivity, scale, Masks(largest, rate))


@dataclass(frozen=True)
class Release:
    """One release: its budget and the noise of every part.

    With rows sampled at `rate`, the budget holds for the table and the noises for the sample. ρ is the same for both.
    With a `threshold`, the release shows the labels whose noisy counts exceed it: δ is the probability that it shows a
    label of one unit alone, which no noise accounts for and no ρ covers.
    """

    budget: Budget
    noises: tuple[Noise, ...]
    rate: Fraction | None = None
    threshold: int | None = None

    @property
    def once(self) -> bool:
        """Whether the cost holds only if the raw sketch is released just once: masks are the same in every release."""
        return any(noise.masks is not None for noise in self.noises)

    @property
    def rho(self) -> Fraction:
        """ρ of the whole release. Sampling can only lower it (joint convexity of the Rényi divergence), but no gain is
        claimed.
        """
        return sum((noise.rho for noise in self.noises), Fraction(0))

    def to_dict(self) -> dict[str, Any]:
        rate = {} if self.rate is None else {"rate": str(self.rate)}
        shown = {} if self.threshold is None else {"threshold": self.threshold}
        noises = {"noises": [noise.to_dict() for noise in self.noises]}
        return {"budget": budget_facts(self.budget)} | rate | shown | noises

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Release:
        rate = exact_number(facts["rate"]) if "rate" in facts else None
        if rate is not None and not 0 < rate <= 1:
            raise ValueError("rate")
        noises = tuple(Noise.from_dict(noise) for noise in facts["noises"])
        threshold = facts.get("threshold")
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 1):
            raise ValueError("threshold")
        return cls(Budget(**facts["budget"]), noises, rate, threshold)


def budget_facts(budget: Budget) -> dict[str, Any]:
    """The arguments that construct this budget."""
    facts = {"rho": budget.rho} if budget.rho is not None else {"epsilon": budget.epsilon}
    return facts | ({"delta": budget.delta} if budget.delta else {})


def exact_number(text: object) -> Fraction:
    """Parse a fraction as `str` writes it."""
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise ValueError("fraction")
    return Fraction(text)
