"""Fourier sums of a release as a noisy characteristic function on the scale of the declared bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import QueryError
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.maps.fourier.fourier import BoundFrequencies
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.columns import SPAN
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

Complex = NDArray[np.complex128]
Harmonics = tuple[tuple[int, Complex], ...]
TURN = 2.0**32
# Of one-bit sums; higher ones see only structure smaller than clusters.
MOST_HARMONIC: Annotated[int, UNRECORDED] = 31
FEWEST = 2  # frequencies, whose spread can be measured
LEVEL = 0.975  # quantile at the upper end of an interval of 95 %
LEAST_SPREAD: Annotated[float, UNRECORDED] = 0.05  # of 1 − |φ|², which noise can make negative


@dataclass(frozen=True)
class FourierSums:
    """`values` estimate Σ_h c_h·φ(h·ω) for each frequency ω, φ the characteristic function of the records.

    Points are positions between the bounds, from −½ to ½; frequencies are in radians per width of the bounds, one per
    matrix row. `deviations` are standard deviations of the real and of the imaginary part, from the release's noise and
    the sampling of the records. All values share an unknown factor near 1, with standard deviation `scale_deviation`,
    because sums are divided by a noisy count. `noise` is the variance that the release's noise, and masks, add to the
    real and to the imaginary part. Fourier sums have one harmonic, φ itself; signs of dithered cosines and
    sines have all odd ones: (4/π)·(e^it − e^−3it/3 + e^5it/5 − …). Source: compressive §2.2.
    """

    columns: tuple[str, ...]
    frequencies: Floats
    values: Complex
    deviations: Floats
    scale_deviation: float
    harmonics: Harmonics
    noise: float = 0.0

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def dimension(self) -> int:
        return self.frequencies.shape[1]

    def lowest(self, share: float) -> FourierSums:
        """The sums of the shortest frequencies, this share of all."""
        return self._kept(self._by_length[: max(1, round(share * self.size))])

    def thinned(self, count: int) -> FourierSums:
        """The sums of `count` frequencies of all lengths."""
        return self._kept(self._by_length[np.linspace(0, self.size - 1, count).astype(np.int64)])

    @property
    def _by_length(self) -> NDArray[np.int64]:
        return np.argsort(np.linalg.norm(self.frequencies, axis=1), kind="stable")

    def _kept(self, kept: NDArray[np.int64]) -> FourierSums:
        harmonics = tuple((order, factor[kept]) for order, factor in self.harmonics)
        return replace(
            self,
            frequencies=self.frequencies[kept],
            values=self.values[kept],
            deviations=self.deviations[kept],
            harmonics=harmonics,
        )


def holds_sums(released: ReleasedSketch, columns: Sequence[str] | None = None) -> bool:
    """Whether a part of a release has Fourier sums, of exactly these columns where they are named."""
    return any(_of_columns(released, columns))


def fourier_sums(released: ReleasedSketch, columns: Sequence[str] | None = None) -> FourierSums:
    """Fourier sums of the first part of a release that has them, of exactly these columns where they are named."""
    noise = ReleaseNoise(released)
    for part, bound in _of_columns(released, columns):
        return part_sums(noise, part, bound)
    of = "" if columns is None else f" of {', '.join(columns)} alone"
    raise QueryError(
        f"this release holds no Fourier sums{of}", "release with Recipe.clusters(…), on the command line --clusters K"
    )


def _of_columns(
    released: ReleasedSketch, columns: Sequence[str] | None
) -> Iterator[tuple[ReleasedPart, BoundFrequencies]]:
    for part, bound in released.parts_with(BoundFrequencies):  # type: ignore[type-abstract]
        if columns is None or set(columns) == set(bound.columns):
            yield part, bound


def part_sums(noise: ReleaseNoise, part: ReleasedPart, bound: BoundFrequencies) -> FourierSums:
    """Fourier sums of one part."""
    rows = noise.rows()
    counted = float(rows.value)
    unit = counted * part.map.rate * bound.grid * bound.amplitude
    numbers = np.asarray(part.sums, np.float64).reshape(-1, 2) / unit
    values: Complex = numbers[:, 0] + 1j * numbers[:, 1]
    harmonics: Harmonics = ((1, np.ones(len(values), np.complex128)),)
    if bound.dithers is not None:
        dithers = bound.dithers.astype(np.float64) * (2 * np.pi / TURN)
        values = values * np.exp(-1j * dithers)
        harmonics = one_bit_harmonics(dithers)
    spread = np.maximum(1 - np.abs(values) ** 2, LEAST_SPREAD)
    spread = bound.mean_square / bound.amplitude**2 - 1 + spread
    added = noise.variance(part) / unit**2
    variances = added + spread / (2 * counted)
    relative = float(rows.stderr) / counted
    frequencies = bound.frequencies.astype(np.float64) * (2 * np.pi * SPAN / TURN)
    return FourierSums(bound.columns, frequencies, values, np.sqrt(variances), relative, harmonics, added)


def one_bit_harmonics(dithers: Floats) -> Harmonics:
    """Orders and coefficients of the harmonics of one-bit sums.

    With t = p + ξ, and divided by (4/π)·e^iξ: orders 1, −3, 5, −7, where those of −3 and so on are rotated by ξ·(order
    − 1).
    """
    orders = [order if order % 4 == 1 else -order for order in range(1, MOST_HARMONIC + 1, 2)]
    return tuple((order, np.exp(1j * dithers * (order - 1)) / order) for order in orders)


def spread_factor(count: int) -> float:
    """The factor for a standard error from the spread of `count` numbers: intervals of 95 % of normal errors are then
    those of Student's t.
    """
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(count - 1, LEVEL) / ndtri(LEVEL))
