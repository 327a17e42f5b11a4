"""Kernel densities from Fourier sums whose frequencies were drawn for a kernel.

The mean of cos ωᵀ(x − q) over the frequencies is k(x, q), so the real part of a sum, rotated by −ωᵀq, estimates
Σ k(x, q). Frequencies are independent: the spread of these estimates between frequencies includes the noise and the
error of having only some frequencies. Source: m2m §2.1; Rahimi & Recht (NIPS 2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from dpsketch.learn.estimators.fourier_sums import FEWEST, Complex, part_sums, spread_factor
from dpsketch.learn.estimators.radial_kernels import NAMES, Radial, named
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.saved import Arrays, Facts, Saved, finite, real
from dpsketch.maps.fourier.fourier import BoundFrequencies
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.recipe import declared_rows
from dpsketch.sketch.released import ReleasedSketch

_CHUNK = 1 << 21  # waves at a time
MOST_NORMALISED = 100  # with more, the integral of a kernel may not be a float


class FourierKernel:
    """Sums of a kernel over the records at any point, with standard errors.

    `sums` are complex sums in records; `noise` is the variance of the real part of each; `skipped` is the share of the
    table's rows that are not in them.
    """

    def __init__(
        self, columns: tuple[str, ...], frequencies: Floats, sums: Complex, noise: float, skipped: float = 0.0
    ) -> None:
        self.columns, self.frequencies, self.sums = columns, frequencies, sums
        self.noise, self.skipped = noise, skipped

    def at(self, places: Floats) -> tuple[Floats, Floats]:
        """Sums and standard errors at points between the bounds, scaled to 0 … 1, one per matrix row;
        NaN if missing.

        The spread is at least that of the noise.
        """
        count = len(self.sums)
        value, variance = np.empty(len(places)), np.empty(len(places))
        step = max(1, _CHUNK // count)
        for start in range(0, len(places), step):
            own = slice(start, start + step)
            phases = (places[own] - 0.5) @ self.frequencies.T
            terms = np.cos(phases) * self.sums.real + np.sin(phases) * self.sums.imag
            value[own], variance[own] = terms.mean(axis=1), terms.var(axis=1, ddof=1)
        variance = np.maximum(variance, self.noise) / count + self.skipped * np.maximum(value, 0.0)
        return value, np.sqrt(variance) * spread_factor(count)

    @property
    def least_error(self) -> float:
        """The standard error of the noise at any point."""
        return float(np.sqrt(self.noise / len(self.sums)))

    def to_saved(self) -> Saved:
        facts = {"columns": list(self.columns), "noise": self.noise, "skipped": self.skipped}
        return facts, {"frequencies": self.frequencies, "real": self.sums.real, "imaginary": self.sums.imag}

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> FourierKernel:
        columns = tuple(facts["columns"])
        frequencies = finite(arrays, "frequencies", -1, len(columns))
        if len(frequencies) < FEWEST:
            raise ValueError("frequencies")
        sums = finite(arrays, "real", len(frequencies)) + 1j * finite(arrays, "imaginary", len(frequencies))
        return cls(columns, frequencies, sums, real(facts["noise"], 0), real(facts["skipped"], 0))


def fourier_kernels(
    released: ReleasedSketch, columns: Sequence[str] | None = None
) -> list[tuple[Radial, FourierKernel]]:
    """The kernels of a release's Fourier sums of number columns, of exactly these columns if any are named, in their
    order. Adapted radii have none: the mean of their cosines has no closed form, and is negative at some distances.
    """
    found, noise, schema = [], ReleaseNoise(released), released.schema
    for part, bound in released.parts_with(BoundFrequencies):  # type: ignore[type-abstract]
        law, own = bound.law, bound.columns
        if law is None or law.kernel not in NAMES or bound.size < FEWEST * bound.sums_per_term:
            continue
        if len(own) > MOST_NORMALISED:
            continue
        if not all(schema.column(name).numeric for name in own) or (columns is not None and set(columns) != set(own)):
            continue
        sums = part_sums(noise, part, bound)
        rows, names = float(noise.rows().value), tuple(columns or own)
        order = [own.index(name) for name in names]
        sampling = released.recipe.sampling
        skipped = 0.0 if sampling is None else 1 - 1 / sampling.weight(declared_rows(schema))
        kernel = named(schema, names, law.kernel, law.width)
        if not 0 < kernel.integral < inf:
            continue
        values = FourierKernel(names, sums.frequencies[:, order], sums.values * rows, sums.noise * rows**2, skipped)
        found.append((kernel, values))
    return found
