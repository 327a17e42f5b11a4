"""Predicted noise-to-signal ratio of a sketch, by closed formulas from public numbers, before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np

from dpsketch.calibration import noise_variances
from dpsketch.errors import BudgetError, RecipeError
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Noise
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

RECORDS, POPULATION = "records", "population"


@dataclass(frozen=True)
class NoiseToSignal:
    """E‖s − z‖² / ‖z‖² of normalised sums s, by cause.

    The table is itself a draw from a population, only some rows and some features of each may be summed, and the sums
    and the count have privacy noise.
    """

    draw: float
    sampling: float
    masks: float
    noise: float
    count: float

    @property
    def total(self) -> float:
        return self.draw + self.sampling + self.masks + self.noise + self.count


class SumsNoise:
    """The noise-to-signal ratio of the sums of one part of a recipe, divided by the recipe's count.

    The part is the first that is not a count. Without a count, sums are divided by the public number of rows. Nothing
    is read: sensitivities and noises are those of a release.

    Source: compressive L. 26 and 27 and App. D, with two differences. Dividing by the count of the *sample* removes the
    random size of a Poisson sample. The variance of one over a noisy count is taken as σ²/n⁴: the Cramér–Rao bound of
    L. 27 is half of it for Laplace noise, which no estimator here attains.
    """

    def __init__(self, schema: Schema, recipe: Recipe, mechanism: str = "auto") -> None:
        self.schema, self.recipe, self._mechanism = schema, recipe, mechanism
        self._bound = recipe.bind(schema)
        self.maps = self._bound.maps
        indices = [index for index, feature_map in enumerate(self.maps) if not feature_map.only_counts]
        if not indices:
            raise RecipeError("this recipe holds nothing but counts", "add a part, such as Part(Fourier(), share=0.9)")
        self.part_index = indices[0]
        self.map = self.maps[self.part_index]
        self._count = next((i for i, feature_map in enumerate(self.maps) if feature_map.only_counts), None)
        core, self.rate = self.map.core, self.map.rate
        self.energy = core.record_sensitivity(Relation.ADD_REMOVE).l2_squared / core.grid**2

    def noises(self, budget: Budget) -> tuple[Noise, Noise | None]:
        """The noise of the sums, and that of the count."""
        if not budget.private:
            raise BudgetError("a plan is for private releases", "pass a finite epsilon")
        noises = self._bound.calibrated(budget, self._mechanism).noises
        return noises[self.part_index], None if self._count is None else noises[self._count]

    def mechanism(self, budget: Budget) -> Mechanism:
        return self.noises(budget)[0].mechanism

    def noise_energy(self, budget: Budget) -> float:
        """Expected squared length of the noise, in units of the real features, with masked sums scaled up."""
        noise, _ = self.noises(budget)
        mean = float(np.mean(noise_variances(noise, self.map)))
        return mean * self.map.size / (self.map.grid * self.rate) ** 2

    def at(
        self,
        budget: Budget,
        rows: int,
        signal: float = 1.0,
        reference: str = RECORDS,
        energy: float | None = None,
    ) -> NoiseToSignal:
        """The ratio relative to the exact mean features of the table's records (z_X), or of the `population` they come
        from (z).

        `energy` is the mean squared length of a record's features. The default is the largest, which all records have
        for Fourier features, histograms and hashes. `signal` is ‖z‖²/energy, which depends on the data; 1 is the
        strongest.
        """
        if reference not in (RECORDS, POPULATION):
            raise RecipeError(f"reference must be {RECORDS} or {POPULATION}, got {reference!r} instead")
        if not 0 < signal <= 1:
            raise RecipeError(f"signal must be above 0 and at most 1, got {signal!r} instead")
        energy = self.energy if energy is None else energy
        _, count = self.noises(budget)
        variance = (
            0.0 if count is None or self._count is None else float(noise_variances(count, self.maps[self._count]))
        )
        return self._ratio(self.noise_energy(budget) / energy, variance, rows, signal, reference)

    def _ratio(self, noise: float, count: float, rows: int, signal: float, reference: str) -> NoiseToSignal:
        """The ratio from the noise's energy relative to a record's, and the variance of the count."""
        kept = self.kept(rows)
        beta = kept / rows
        loss = 1 / beta - 1
        draw = 0.0 if reference == RECORDS else (1 / signal - 1) / rows
        sampling = 0.0
        if loss:
            poisson = self.recipe.sampling is not None and self.recipe.sampling.count is None
            if poisson and self._count is None:
                sampling = loss / signal / rows
            else:
                sampling = loss * (1 / signal - 1) / (rows if reference == POPULATION or poisson else max(rows - 1, 1))
        masks = (1 / self.rate - 1) / signal / kept
        added = noise / signal / kept**2
        rest = draw + sampling + masks + added
        return NoiseToSignal(draw, sampling, masks, added, count / kept**2 * (1 + rest))

    def kept(self, rows: int) -> float:
        """Number of rows that are sketched."""
        sampling = self.recipe.sampling
        if sampling is None:
            return float(rows)
        return float(min(sampling.count, rows) if sampling.count is not None else rows * sampling.exact_rate)

    def rows_needed(self, budget: Budget, limit: float, signal: float = 1.0, reference: str = RECORDS) -> int | None:
        """The smallest number of rows with a ratio of at most `limit`; None if 10^15 are too few."""
        noise, count = self.noise_energy(budget) / self.energy, self.noises(budget)[1]
        variance = (
            0.0 if count is None or self._count is None else float(noise_variances(count, self.maps[self._count]))
        )

        def enough(rows: int) -> bool:
            return self._ratio(noise, variance, rows, signal, reference).total <= limit

        low, high = 0, 1
        while not enough(high):
            low, high = high, 2 * high
            if high > 10**15:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def epsilon_needed(
        self, delta: float, rows: int, limit: float, signal: float = 1.0, reference: str = RECORDS
    ) -> float | None:
        """The smallest ε, rounded up to three digits, with a ratio of at most `limit`; None if 100 is too small."""

        def ratio(epsilon: float) -> float:
            return self.at(Budget(epsilon, delta), rows, signal, reference).total

        low, high = 1e-6, 100.0
        if ratio(high) > limit:
            return None
        while high / low > 1.001:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if ratio(middle) <= limit else (middle, high)
        return _rounded_up(high)


def _rounded_up(number: float) -> float:
    """The number rounded up to three significant digits."""
    exponent = int(np.floor(np.log10(number))) - 2
    unit = Fraction(10) ** exponent
    return float(-(-Fraction(number) // unit) * unit)


def amplified(epsilon: float, rate: float) -> float:
    """The ε' to use on a sample so that rows sampled at this rate keep ε for the table: compressive (22)."""
    return float(np.log1p(np.expm1(epsilon) / rate)) if rate > 0 else inf
