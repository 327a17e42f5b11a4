"""Which noise each part of a release gets, and how much: from public numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log

import numpy as np

from dpsketch.errors import BudgetError
from dpsketch.maps.base import Body, BoundMap, Sensitivity
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.accounting import inner_budget
from dpsketch.privacy.analytic_gaussian import gaussian_delta, gaussian_deviation, rho_deviation
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.mechanisms import BY_SHAPE, MECHANISMS, Mechanism, Norm, sum_variances
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

CHOICES = ("auto", "laplace", "gaussian")
_NOTHING = Noise(Mechanism.LAPLACE, 0, Fraction(0))


def calibrated(
    schema: Schema, recipe: Recipe, maps: Sequence[BoundMap], budget: Budget, mechanism: str = "auto"
) -> Release:
    """The noise of every part, such that all parts together keep the budget.

    Pure ε is split by shares. Gaussian parts share one squared L2 budget by their shares: together they are a single
    Gaussian mechanism. With δ > 0 each part gets the noise that makes the geometric mean of the parts' variances least.
    Parts that neighbouring tables cannot differ in leave their share to the others.
    Source: docs/proofs/release.md.
    """
    if mechanism not in CHOICES:
        raise BudgetError(
            f"mechanism must be one of {', '.join(CHOICES)}, got {mechanism!r} instead", "auto takes the least noise"
        )
    parts = _parts(schema, recipe, shown(maps))
    rate = amplifying_rate(schema, recipe)
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


def shown(maps: Sequence[BoundMap]) -> tuple[BoundMap, ...]:
    """Maps with the sensitivities of what a release shows, which may be less than all that a raw sketch holds.

    A map itself always states the sensitivity of all its sums.
    """
    return tuple(bound.shown() for bound in maps)


def keeps_budget(release: Release) -> bool:
    """Whether the noises add up to no more than the budget: a check of `calibrated` that shares none of its steps."""
    if release.budget.rho is not None:
        return release.rho <= release.budget.exact_rho
    epsilon, delta = inner_budget(release.budget, release.rate)
    pure = sum((noise.epsilon for noise in release.noises if noise.epsilon is not None), Fraction(0))
    ratio = sum((2 * noise.rho for noise in release.noises if noise.epsilon is None), Fraction(0))
    if ratio == 0:
        return pure <= epsilon
    return pure < epsilon and gaussian_delta(epsilon - pure, ratio) <= delta


def amplifying_rate(schema: Schema, recipe: Recipe) -> Fraction | None:
    """The rate of a sample that hides who is in it: rows or units drawn independently, one more or less."""
    sampling = recipe.sampling
    if sampling is None or sampling.count is not None or schema.relation is not Relation.ADD_REMOVE:
        return None
    return sampling.exact_rate


def part_sensitivity(schema: Schema, recipe: Recipe, bound: BoundMap) -> Sensitivity:
    """Exact sensitivity of a part for this schema's unit and relation, on all of the table or a part of it."""
    bounds = [bound.sensitivity(relation, schema.rows_per_unit) for relation in _relations(schema, recipe)]
    return Sensitivity(max(each.l1 for each in bounds), max(each.l2_squared for each in bounds))


def part_body(schema: Schema, recipe: Recipe, bound: BoundMap) -> Body | None:
    bodies = [bound.body(relation, schema.rows_per_unit) for relation in _relations(schema, recipe)]
    found = [body for body in bodies if body is not None]
    return max(found, key=lambda body: body.radius) if found else None


def _relations(schema: Schema, recipe: Recipe) -> tuple[Relation, ...]:
    """How the rows that are sketched may differ between neighbouring tables.

    A row more may take another's place in a sample of a fixed count, and a row replaced may enter or leave a sample or
    the kept part of the table. Source: docs/proofs/row_sampling.md.
    """
    sampling = recipe.sampling
    if schema.relation is Relation.ADD_REMOVE and (sampling is None or sampling.count is None):
        return (Relation.ADD_REMOVE,)
    if schema.relation is Relation.REPLACE_ONE and sampling is None and recipe.only is None:
        return (Relation.REPLACE_ONE,)
    return (Relation.ADD_REMOVE, Relation.REPLACE_ONE)


def promised(schema: Schema, recipe: Recipe, maps: Sequence[BoundMap], release: Release) -> bool:
    """Whether a release's noises are such as this library adds, and keep the budget that it states."""
    if not release.budget.private or len(release.noises) != len(maps) or not keeps_budget(release):
        return False
    if release.rate not in (None, amplifying_rate(schema, recipe)):
        return False
    if release.budget.rho is not None and any(noise.epsilon not in (None, 0) for noise in release.noises):
        return False
    return all(
        _matches(noise, part_sensitivity(schema, recipe, bound), part_body(schema, recipe, bound), bound.certified)
        for noise, bound in zip(release.noises, maps, strict=True)
    )


def _matches(noise: Noise, limit: Sensitivity, body: Body | None, certified: bool) -> bool:
    """Noise of certified bounds may fall short by a thousandth: those of another machine may differ in their last bits.
    Other sensitivities are exact.
    """
    facts = MECHANISMS[noise.mechanism]
    radius = body.radius if body is not None and body.shape == facts.shape else None
    wanted = {Norm.L1: limit.l1, Norm.L2_SQUARED: limit.l2_squared, Norm.BODY: radius}[facts.norm]
    if wanted is None or (wanted == 0 and noise.sensitivity != 0):
        return False
    return (999 if certified else 1000) * wanted <= 1000 * noise.sensitivity


def noise_variance(noise: Noise, bound: BoundMap) -> float:
    """Of each sum; of second moments under ball noise, of the squares, which have the most."""
    return float(np.max(noise_variances(noise, bound)))


def noise_variances(noise: Noise, bound: BoundMap) -> Floats:
    """Of each sum of a group of the map; one number where all have the same."""
    return np.asarray(0.0 if noise.sensitivity == 0 else _variances(noise, bound.size // bound.groups))


def _variances(noise: Noise, size: int) -> float | Floats:
    return sum_variances(noise.mechanism, size, float(noise.scale))


def noise_reach(noise: Noise, bound: BoundMap) -> Fraction:
    """What the noise of a sum exceeds with a probability below 10^-40."""
    return noise.scale * MECHANISMS[noise.mechanism].reach(bound.size // bound.groups)


@dataclass(frozen=True)
class _Part:
    """What the noise of a part depends on. `share` is 0 where neighbouring tables cannot differ."""

    size: int
    sensitivity: Sensitivity
    body: Body | None
    share: Fraction

    def laplace(self, epsilon: Fraction) -> Noise:
        if not self.share:
            return _NOTHING
        return Noise(Mechanism.LAPLACE, self.sensitivity.l1, self.sensitivity.l1 / (self.share * epsilon))

    def pure(self, epsilon: Fraction) -> Noise:
        """Laplace or, where it is less, noise in the shape of the part's body."""
        noise = self.laplace(epsilon)
        if self.body is None or not self.share:
            return noise
        shaped = Noise(BY_SHAPE[self.body.shape], self.body.radius, self.body.radius / (self.share * epsilon))
        return min(noise, shaped, key=self.mean_variance)

    def gaussian(self, epsilon: Fraction, delta: Fraction, all_shares: Fraction) -> Noise:
        """σ for this part's share of the squared L2 budget that (ε, δ) gives to parts of `all_shares` together."""
        if not self.share:
            return _NOTHING
        square = self.sensitivity.l2_squared * all_shares / self.share
        return self._gaussian(gaussian_deviation(epsilon, delta, square))

    def gaussian_of_rho(self, rho: Fraction) -> Noise:
        if not self.share:
            return _NOTHING
        return self._gaussian(rho_deviation(rho * self.share, self.sensitivity.l2_squared))

    def _gaussian(self, deviation: float) -> Noise:
        return Noise(Mechanism.GAUSSIAN, self.sensitivity.l2_squared, Fraction(deviation))

    def mean_variance(self, noise: Noise) -> float:
        return float(np.mean(_variances(noise, self.size)))


def _parts(schema: Schema, recipe: Recipe, maps: Sequence[BoundMap]) -> list[_Part]:
    bounds = [part_sensitivity(schema, recipe, bound) for bound in maps]
    shares = [part.exact_share if bound.l1 else Fraction(0) for part, bound in zip(recipe.parts, bounds, strict=True)]
    every, spent = sum(part.exact_share for part in recipe.parts), sum(shares)
    return [
        _Part(bound.size // bound.groups, limit, part_body(schema, recipe, bound), share * every / (spent or 1))
        for bound, limit, share in zip(maps, bounds, shares, strict=True)
    ]


def _mixed(parts: Sequence[_Part], epsilon: Fraction, delta: Fraction, gaussian: Sequence[int]) -> list[Noise]:
    """Gaussian noise on the named parts with their shares of ε and all of δ, pure noise on the others."""
    shares = sum((parts[place].share for place in gaussian), Fraction(0))
    return [
        part.gaussian(shares * epsilon, delta, shares) if place in gaussian else part.pure(epsilon)
        for place, part in enumerate(parts)
    ]


def _least_noise(parts: Sequence[_Part], epsilon: Fraction, delta: Fraction) -> list[Noise]:
    """Parts turn Gaussian in the order of what they gain by it, as long as all parts together gain."""
    pure = [part.pure(epsilon) for part in parts]
    every = _mixed(parts, epsilon, delta, range(len(parts)))
    active = [place for place, part in enumerate(parts) if part.share]

    def gain(place: int) -> float:
        return parts[place].mean_variance(pure[place]) / parts[place].mean_variance(every[place])

    order = sorted(active, key=gain, reverse=True)
    choices = [pure] + [_mixed(parts, epsilon, delta, order[:count]) for count in range(1, len(order) + 1)]
    return min(choices, key=lambda noises: sum(log(parts[place].mean_variance(noises[place])) for place in active))
