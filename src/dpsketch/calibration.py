"""The noise oracle: the mechanism and the noise scale of each part of a release, from public numbers alone.

`calibrate` decides for a release. The closed forms at the end ignore rounding; rules that choose sizes ask them.
`recipe.bound_recipe` prepares these inputs from a schema, a recipe and its maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, inf, log, nextafter, sqrt

import numpy as np

from dpsketch.errors import BudgetError
from dpsketch.maps.base import Body, BoundMap, Sensitivity
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.accounting import inner_budget
from dpsketch.privacy.analytic_gaussian import gaussian_delta, gaussian_deviation, rho_deviation
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.masks import Masks
from dpsketch.privacy.mechanisms import BY_SHAPE, MECHANISMS, Mechanism, Norm, disc_variance, sum_variances
from dpsketch.privacy.noise_shares import LEAST_DEVIATION, ROUNDING_VARIANCE, Consortium, Shares, closeness
from dpsketch.schema.relation import Relation

CHOICES = ("auto", "laplace", "gaussian")
_NOTHING = Noise(Mechanism.LAPLACE, 0, Fraction(0))


@dataclass(frozen=True)
class PartFacts:
    """Inputs for the noise of a part.

    These are the number of its sums (in one group), its sensitivity and body for the unit and relation, its share of
    the budget, the masks of its records where Laplace noise may count on them, the number of its groups, and the
    consortium whose holders add its noise, if there is one.
    """

    size: int
    sensitivity: Sensitivity
    body: Body | None
    share: Fraction
    masks: Masks | None = None
    groups: int = 1
    consortium: Consortium | None = None

    @property
    def shares(self) -> Shares | None:
        """The shares in the noise, with those of all holders added."""
        group = self.consortium
        return None if group is None else Shares(group.honest, group.holders, self.size * self.groups)

    def laplace(self, epsilon: Fraction) -> Noise:
        if not self.share:
            return _NOTHING
        mechanism = Mechanism.LAPLACE if self.consortium is None else Mechanism.POLYA
        scale = self.sensitivity.l1 / (self.share * epsilon)
        if self.masks is not None:
            scale = self.masks.scale(self.sensitivity.l1, self.share * epsilon)
        return Noise(mechanism, self.sensitivity.l1, scale, self.masks, self.shares)

    def pure(self, epsilon: Fraction) -> Noise:
        """Laplace noise, or noise in the shape of the part's body where that has a smaller variance.

        Noise in the shape of a body is no sum of independent shares, so a consortium has none.
        """
        noise = self.laplace(epsilon)
        if self.body is None or not self.share or self.consortium is not None:
            return noise
        shaped = Noise(BY_SHAPE[self.body.shape], self.body.radius, self.body.radius / (self.share * epsilon))
        return min(noise, shaped, key=self.mean_variance)

    def gaussian(self, epsilon: Fraction, delta: Fraction, all_shares: Fraction) -> Noise:
        """Gaussian noise for this part's share of the squared L2 budget that (ε, δ) gives to parts of `all_shares`
        together.
        """
        if not self.share:
            return _NOTHING
        square = self.sensitivity.l2_squared * all_shares / self.share
        return self._gaussian(gaussian_deviation(epsilon, delta, square))

    def gaussian_of_rho(self, rho: Fraction) -> Noise:
        if not self.share:
            return _NOTHING
        deviation = rho_deviation(rho * self.share, self.sensitivity.l2_squared)
        if self.consortium is None:
            return self._gaussian(deviation)
        noise = self._in_shares(Fraction(deviation) ** 2)
        while noise.rho > rho * self.share:
            noise = replace(noise, scale=Fraction(nextafter(float(noise.scale), inf)))
        return noise

    def _gaussian(self, deviation: float) -> Noise:
        if self.consortium is not None:
            return self._in_shares(Fraction(deviation) ** 2 + ROUNDING_VARIANCE)
        return Noise(Mechanism.GAUSSIAN, self.sensitivity.l2_squared, Fraction(deviation))

    def _in_shares(self, variance: Fraction) -> Noise:
        """Discrete Gaussian noise of at least this variance whose shares are wide enough to add up."""
        assert self.consortium is not None
        variance = max(variance, Fraction(LEAST_DEVIATION**2 * self.consortium.honest))
        deviation = sqrt(variance)
        while Fraction(deviation) ** 2 < variance:
            deviation = nextafter(deviation, inf)
        scale, square = Fraction(deviation), self.sensitivity.l2_squared
        return Noise(Mechanism.DISCRETE_GAUSSIAN, square, scale, shares=self.shares)

    def mean_variance(self, noise: Noise) -> float:
        return float(np.mean(_variances(noise, self.size)))


def calibrate(
    parts: Sequence[PartFacts], budget: Budget, rate: Fraction | None = None, mechanism: str = "auto"
) -> Release:
    """The noise of every part, such that all parts together keep the budget.

    Pure ε is split by shares. Gaussian parts split one squared L2 budget by their shares: together they are a single
    Gaussian mechanism. With δ > 0, the mechanisms minimise the geometric mean of the parts' variances. Parts in which
    neighbouring tables cannot differ leave their share to the others. `rate` is that of a sample of rows that amplifies
    privacy. Parts of a consortium get noise that is a sum of shares. Source: docs/proofs/release.md,
    docs/proofs/shares.md.
    """
    if mechanism not in CHOICES:
        raise BudgetError(
            f"mechanism must be one of {', '.join(CHOICES)}, got {mechanism!r} instead", "auto takes the least noise"
        )
    parts = _active(parts)
    if budget.rho is not None:
        if mechanism == "laplace":
            raise BudgetError("a rho budget is spent by Gaussian noise", "pass epsilon, or leave out the mechanism")
        return Release(budget, tuple(part.gaussian_of_rho(budget.exact_rho) for part in parts), rate)
    epsilon, delta = inner_budget(budget, rate)
    if mechanism == "gaussian" and not delta:
        raise BudgetError("Gaussian noise needs delta above 0", "pass --delta 1e-6, or leave out the mechanism")
    if mechanism == "laplace":
        noises = [part.laplace(epsilon) for part in parts]
    elif mechanism == "gaussian":
        noises = _mixed(parts, epsilon, delta, range(len(parts)))
    elif delta:
        noises = _least_noise(parts, epsilon, delta)
    else:
        noises = [part.pure(epsilon) for part in parts]
    return Release(budget, tuple(noises), rate)


def _active(parts: Sequence[PartFacts]) -> list[PartFacts]:
    """Parts with their effective shares: zero where neighbouring tables cannot differ."""
    every = sum(part.share for part in parts)
    spent = sum(part.share for part in parts if part.sensitivity.l1)
    return [replace(part, share=part.share * every / spent if part.sensitivity.l1 else Fraction(0)) for part in parts]


def keeps_budget(release: Release) -> bool:
    """Whether the noises add up to at most the budget: an independent check of `calibrate`."""
    if release.budget.rho is not None:
        return release.rho <= release.budget.exact_rho
    epsilon, delta = inner_budget(release.budget, release.rate)
    pure = sum((noise.epsilon for noise in release.noises if noise.epsilon is not None), Fraction(0))
    ratio, near = release.ratio_squared, release.closeness
    if ratio == 0:
        return pure <= epsilon
    left = epsilon - pure - 2 * near
    return left > 0 and gaussian_delta(left, ratio) * (1 + 2 * near) <= delta


def matches(
    noise: Noise, limit: Sensitivity, body: Body | None, certified: bool, masks: Masks | None = None, size: int = 0
) -> bool:
    """Whether the noise covers the sensitivity and `size` sums, and counts on no other masks than those of the map.

    Certified bounds may fall short by a thousandth, because their last bits may differ between machines. Other
    sensitivities are exact.
    """
    if noise.masks is not None and not noise.masks.covers(masks):
        return False
    if noise.shares is not None and noise.shares.size < size:
        return False
    facts = MECHANISMS[noise.mechanism]
    radius = body.radius if body is not None and body.shape == facts.shape else None
    wanted = {Norm.L1: limit.l1, Norm.L2_SQUARED: limit.l2_squared, Norm.BODY: radius}[facts.norm]
    if wanted is None or (wanted == 0 and noise.sensitivity != 0):
        return False
    return (999 if certified else 1000) * wanted <= 1000 * noise.sensitivity


def noise_variance(noise: Noise, feature_map: BoundMap) -> float:
    """Variance of each sum. For second moments under ball noise, that of the squares, which is the largest."""
    return float(np.max(noise_variances(noise, feature_map)))


def noise_variances(noise: Noise, feature_map: BoundMap) -> Floats:
    """Variance of each sum in a group of the map; a single number where all are equal."""
    return np.asarray(0.0 if noise.sensitivity == 0 else _variances(noise, feature_map.size // feature_map.groups))


def _variances(noise: Noise, size: int) -> float | Floats:
    variances = sum_variances(noise.mechanism, size, float(noise.scale))
    return variances if noise.shares is None else variances * float(noise.shares.times)


def times_one_curator(noise: Noise, feature_map: BoundMap, body: Body | None) -> float:
    """The standard deviation of noise in shares over that of one trusted curator's noise at the same cost.

    One curator draws a single share, and for some parts noise in the shape of their body, which cannot be shared out.
    """
    if noise.shares is None:
        return 1.0
    epsilon, mine = noise.epsilon, noise_variance(noise, feature_map)
    if epsilon is None:
        return sqrt(mine / float(noise.sensitivity / noise.ratio_squared + Fraction(1, 12)))
    alone = [replace(noise, mechanism=Mechanism.LAPLACE, shares=None)]
    if body is not None:
        alone.append(Noise(BY_SHAPE[body.shape], body.radius, body.radius / epsilon))
    return sqrt(mine / min(float(np.mean(noise_variances(each, feature_map))) for each in alone))


def noise_reach(noise: Noise, feature_map: BoundMap) -> Fraction:
    """A bound that the noise of a sum exceeds with a probability below 10^-40, for each set of `honest` shares."""
    times = 1 if noise.shares is None else ceil(noise.shares.times)
    return times * noise.scale * MECHANISMS[noise.mechanism].reach(feature_map.size // feature_map.groups)


def _mixed(parts: Sequence[PartFacts], epsilon: Fraction, delta: Fraction, gaussian: Sequence[int]) -> list[Noise]:
    """Gaussian noise on the parts with these indices, with their shares of ε and all of δ; pure noise on the others."""
    shares = sum((parts[index].share for index in gaussian), Fraction(0))
    near = sum((_closeness(parts[index]) for index in gaussian), Fraction(0))
    left, slack = shares * epsilon - 2 * near, delta * (1 - 2 * near)
    if near and left <= 0:
        raise BudgetError("epsilon is too small for Gaussian noise in shares on this number of sums", "raise epsilon")
    return [
        part.gaussian(left, slack, shares) if index in gaussian else part.pure(epsilon)
        for index, part in enumerate(parts)
    ]


def _closeness(part: PartFacts) -> Fraction:
    """T of the narrowest Gaussian noise in shares that a part may get: a bound on that of any other."""
    if part.shares is None or not part.share:
        return Fraction(0)
    return part.shares.size * closeness(Fraction(LEAST_DEVIATION**2 * part.shares.honest), part.shares.honest)


def _least_noise(parts: Sequence[PartFacts], epsilon: Fraction, delta: Fraction) -> list[Noise]:
    """The best choice when parts become Gaussian in decreasing order of their gain."""
    pure = [part.pure(epsilon) for part in parts]
    every = _mixed(parts, epsilon, delta, range(len(parts)))
    active = [index for index, part in enumerate(parts) if part.share]

    def gain(index: int) -> float:
        return parts[index].mean_variance(pure[index]) / parts[index].mean_variance(every[index])

    order = sorted(active, key=gain, reverse=True)
    choices = [pure] + [_mixed(parts, epsilon, delta, order[:count]) for count in range(1, len(order) + 1)]
    return min(choices, key=lambda noises: sum(log(parts[index].mean_variance(noises[index])) for index in active))


def unit_variance(budget: Budget) -> float:
    """Variance of the Gaussian noise of a sum of L2 sensitivity 1 that gets a whole budget with δ or ρ."""
    if budget.rho is not None:
        return 0.5 / budget.rho
    return gaussian_deviation(budget.exact_epsilon, budget.exact_delta, 1) ** 2


def counter_noise(
    budget: Budget,
    rows_per_unit: int = 1,
    relation: Relation = Relation.ADD_REMOVE,
    tables: int = 1,
    share: float = 1.0,
    signed: bool = False,
) -> float:
    """Standard deviation of the noise of a counter, where a row changes one counter in each of `tables` by 1 (or ±1).

    `signed` means that a row may change a counter by −1. Laplace or Gaussian noise, whichever is smaller, without
    rounding.
    """
    if not budget.private:
        return 0.0
    most, square = 1, 1
    if relation is Relation.REPLACE_ONE:
        most, square = 2, 4 if signed else 2
    gaussian = 0.0 if budget.pure else rows_per_unit * sqrt(square * tables / share * unit_variance(budget))
    if budget.rho is not None:
        return gaussian
    laplace = sqrt(2) * rows_per_unit * most * tables / (share * budget.strength)
    return laplace if budget.pure else min(laplace, gaussian)


def affordable(variance: float, budget: Budget, *, share: float = 1.0, together: int = 1, pure: float) -> float:
    """The number of tables or frequencies whose sums can have noise of this variance: the inverse of `counter_noise`.

    `together` bounds the change of each. `pure` is the standard deviation of the noise of one of them under ε = 1: √2
    for Laplace noise, 1 for a disc.
    """
    if budget.rho is not None:
        return variance * 2 * share * budget.rho / together**2
    shaped = budget.strength / together * sqrt(variance) * share / pure
    return shaped if budget.pure else max(shaped, share * variance / (unit_variance(budget) * together**2))


def count_and_sums(budget: Budget, frequencies: int) -> list[tuple[float, float, bool]]:
    """Variance of a count and noise energy of m Fourier sums over m, for every pair of noises that a release may
    choose.

    Each has the whole budget. The last entry of a pair is true where shares divide the squared L2 budget, false where
    they divide ε.
    """
    if budget.rho is not None:
        return [(0.5 / budget.rho, frequencies / budget.rho, True)]
    laplace, disc = 2 / budget.strength**2, 2 * disc_variance(frequencies, 1 / budget.strength)
    if budget.pure:
        return [(laplace, disc, False)]
    gaussian = unit_variance(budget)
    # σ decreases with ε about like a Laplace scale, so shares beside Laplace noise divide ε itself.
    return [
        (laplace, disc, False),
        (laplace, 2 * frequencies * gaussian, False),
        (gaussian, 2 * frequencies * gaussian, True),
    ]
