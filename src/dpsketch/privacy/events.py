"""Records of what was done: the noise of each part of a release, frozen. Its cost follows from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import Any

from dpsketch.privacy.budget import Budget
from dpsketch.privacy.masks import Masks
from dpsketch.privacy.mechanisms import LAPLACE_LIKE, MECHANISMS, Mechanism
from dpsketch.privacy.noise_shares import (
    LEAST_DEVIATION,
    ROUNDING_VARIANCE,
    Shares,
    closeness,
    summation_closeness,
)

_MOST_SCALE = 2**64  # larger than any mechanism draws
_MOST_RATIO = 10**6  # of a masked feature to the noise scale, far more than any budget allows
_FRACTION = re.compile(r"[0-9]{1,400}(/[0-9]{1,400})?")


@dataclass(frozen=True)
class Noise:
    """Noise added to one part.

    `sensitivity` is in the norm to which the mechanism is calibrated (`MECHANISMS`): L1 for Laplace noise, the squared
    L2 for Gaussian noise, the radius in the norm of its body for the others. `scale` is the Laplace scale, the standard
    deviation, or radius/ε. Both are 0 where neighbouring tables cannot differ: then nothing is added and nothing is
    spent. With `masks`, which only Laplace noise has, the sensitivity is that without them, and ε is less. With
    `shares` the noise is a sum of holders' shares, and the scale that of the shares on which the cost counts.
    """

    mechanism: Mechanism
    sensitivity: int
    scale: Fraction
    masks: Masks | None = None
    shares: Shares | None = None

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
        """ρ of zero-concentrated privacy: Δ²/2σ², or ε²/2 (Bun and Steinke 2016, Propositions 1.6 and 1.4).

        A sum of d discrete Gaussian vectors' shares has ½·(Δ/σ + 2τ·√d)², rounded up: docs/proofs/shares.md.
        """
        epsilon = self.epsilon
        if epsilon is not None:
            return epsilon**2 / 2
        alone = self.sensitivity / (2 * self.scale**2)
        if self.shares is None:
            return alone
        tau, size = summation_closeness(self.scale**2, self.shares.honest), self.shares.size
        return alone + 2 * tau * (isqrt(self.sensitivity * size) + 1) / self.scale + 2 * tau**2 * size

    @property
    def ratio_squared(self) -> Fraction:
        """(Δ/σ)² of Gaussian noise; in shares, that of the continuous Gaussian mechanism that it is close to."""
        return self.sensitivity / (self.scale**2 - (0 if self.shares is None else ROUNDING_VARIANCE))

    @property
    def closeness(self) -> Fraction:
        """T: results of any table are within a factor e^(±T) as likely as under that mechanism; 0 without shares."""
        if self.shares is None or self.epsilon is not None:
            return Fraction(0)
        return self.shares.size * closeness(self.scale**2, self.shares.honest)

    def to_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "mechanism": self.mechanism.value,
            "sensitivity": self.sensitivity,
            "scale": str(self.scale),
        }
        if self.masks is not None:
            facts["masks"] = {"largest": self.masks.largest, "rate": str(self.masks.rate)}
        return facts if self.shares is None else facts | {"shares": self.shares.to_dict()}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Noise:
        """Parse and check a noise: files and ledgers come from elsewhere."""
        sensitivity, scale = facts["sensitivity"], exact_number(facts["scale"])
        if isinstance(sensitivity, bool) or not isinstance(sensitivity, int) or not 0 <= sensitivity < 2**400:
            raise ValueError("sensitivity")
        if (sensitivity == 0) != (scale == 0) or scale > _MOST_SCALE or 0 < scale < 1 / _MOST_SCALE:
            raise ValueError("scale")
        mechanism = Mechanism(facts["mechanism"])
        shares = Shares.from_dict(facts["shares"]) if "shares" in facts else None
        if (shares is not None) != MECHANISMS[mechanism].shared or (shares is not None and sensitivity == 0):
            raise ValueError("shares")
        if shares is not None and not MECHANISMS[mechanism].pure and scale**2 < LEAST_DEVIATION**2 * shares.honest:
            raise ValueError("shares")
        if "masks" not in facts:
            return cls(mechanism, sensitivity, scale, shares=shares)
        largest, rate = facts["masks"]["largest"], exact_number(facts["masks"]["rate"])
        if isinstance(largest, bool) or not isinstance(largest, int) or not 0 < largest < 2**400 or not 0 < rate <= 1:
            raise ValueError("masks")
        if mechanism not in LAPLACE_LIKE or sensitivity == 0 or largest / scale > _MOST_RATIO:
            raise ValueError("masks")
        return cls(mechanism, sensitivity, scale, Masks(largest, rate), shares)


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

    @property
    def ratio_squared(self) -> Fraction:
        """(Δ/σ)² of all Gaussian noises together; 0 without any."""
        return sum((noise.ratio_squared for noise in self.noises if noise.epsilon is None), Fraction(0))

    @property
    def closeness(self) -> Fraction:
        """T of all noises together, by which the cost of Gaussian noise in shares differs from that of one noise."""
        return sum((noise.closeness for noise in self.noises), Fraction(0))

    @property
    def shares(self) -> Shares | None:
        """The shares in the noise of the first part that has any; their numbers are the same in all parts."""
        return next((noise.shares for noise in self.noises if noise.shares is not None), None)

    def added(self, holders: int) -> Release:
        """The release with this number of shares in every noise. Its cost is the same."""
        noises = [
            noise if noise.shares is None else replace(noise, shares=replace(noise.shares, added=holders))
            for noise in self.noises
        ]
        return replace(self, noises=tuple(noises))

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
        if len({(noise.shares.honest, noise.shares.added) for noise in noises if noise.shares is not None}) > 1:
            raise ValueError("shares")
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
