"""How far apart two tables are: the maximum mean discrepancy of two releases, from the same Fourier features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsketch.calibration import noise_variance
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.fourier_sums import FEWEST, Complex, part_sums, spread_factor
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.maps.fourier.fourier import BoundFourier
from dpsketch.privacy.mechanisms import MECHANISMS
from dpsketch.sketch.released import ReleasedPart

if TYPE_CHECKING:
    from dpsketch.learn.view import View


@dataclass(frozen=True)
class Side:
    """The Fourier sums of one release as means, the noise variance of their real and imaginary parts, the variance of
    that noise's energy that all frequencies share, and the relative standard error of the number of records.
    """

    means: Complex
    noise: float
    shared: float
    counting: float
    rows: float

    @property
    def energy(self) -> float:
        """Mean of |φ|² over the frequencies: that of the kernel over pairs of the table's records."""
        return max(float((np.abs(self.means) ** 2).mean()) - 2 * self.noise, 0.0)


def mmd(one: View, other: View) -> Answer:
    """The squared maximum mean discrepancy of two tables: E k(x, x') − 2·E k(x, y) + E k(y, y') over their records.

    Both releases hold a part Fourier(kernel=…, width=…) of the same columns, bounds, frequencies and seed. The kernel k
    is the one that its frequencies were drawn for: 0 means that the tables have the same distribution of records.

    `raw` is unbiased and may be negative; `value` is at least 0. The standard error covers the noise of both releases,
    their noisy numbers of records and the finite number of frequencies, not the difference between two samples of one
    population, which `explain` prints for comparison. Source: Gretton et al., JMLR 13 (2012) 723; m2m §2.1.
    """
    first, second, how = _shared(one, other)
    raw, stderr = estimated(first, second)
    chance = (1 / first.rows + 1 / second.rows) * (1 - min(first.energy, second.energy, 1.0))
    note = f"two samples of these sizes from one population would have about {chance:.2g}"
    return Answer(max(raw, 0.0), stderr, how, raw=raw, possible=(0.0, 4.0), notes=(note,))


def estimated(first: Side, second: Side) -> tuple[float, float]:
    """The mean of |φ₁ − φ₂|² over the frequencies and its standard error."""
    count = len(first.means)
    difference = first.means - second.means
    energies = np.abs(difference) ** 2 - 2 * (first.noise + second.noise)
    counts = [side.counting**2 * side.energy for side in (first, second)]
    # A relative error e of the number of records turns φ into φ·(1 − e) at all frequencies.
    slopes = [
        2 * (float((difference.conj() * side.means).real.mean()) + sign * 2 * side.noise)
        for side, sign in ((first, -1), (second, 1))
    ]
    linear = sum((slope * side.counting) ** 2 for slope, side in zip(slopes, (first, second), strict=True))
    square = sum(counts) ** 2  # `linear` is 4 times this if the tables are equal, as the difference is then that of e
    variance = float(energies.var(ddof=1)) / count + first.shared + second.shared
    variance += max(linear - 4 * square, 0.0) + 2 * square
    return float(energies.mean()) - sum(counts), float(np.sqrt(variance)) * spread_factor(count)


def _shared(one: View, other: View) -> tuple[Side, Side, str]:
    """The first part that both releases have, with the same frequencies of a kernel."""
    kernels = set()
    for view in (one, other):
        if view.released.recipe.sampling is not None:
            raise QueryError("a release of a sample of the rows has no discrepancy of tables", "release all rows")
    theirs = {bound.fingerprint(): part for part, bound in other.released.parts_with(BoundFourier)}
    for part, bound in one.released.parts_with(BoundFourier):
        law = bound.law
        if law is None or bound.size < FEWEST * bound.sums_per_term:
            continue
        kernels.add(f"'{law.kernel}' of {', '.join(bound.columns)}")
        match = theirs.get(bound.fingerprint())
        if match is not None and np.array_equal(match.sums, part.sums):
            raise QueryError("this is the same release twice", "compare two releases, each with noise of its own")
        if match is not None:
            how = f"{bound.size // 2} Fourier frequencies, kernel '{law.kernel}', width {law.width:g}"
            return _side(one, part, bound), _side(other, match, bound), how
    if kernels:
        raise QueryError(
            f"the two releases share no Fourier features (the first has {'; '.join(sorted(kernels))})",
            "release both with one recipe: the same columns and bounds, size, seed, kernel and width",
        )
    raise QueryError(
        "the first release has no Fourier sums of a kernel",
        'release both with a part Fourier(columns=[…], size=500, kernel="gaussian", width=0.1)',
    )


def _side(view: View, part: ReleasedPart, bound: BoundFourier) -> Side:
    noise = ReleaseNoise(view.released)
    rows, sums = noise.rows(), part_sums(noise, part, bound)
    counted = float(rows.value)
    unit = counted * part.map.rate * bound.grid
    # Noise of a body is a random length times a direction: the square of the length, that of a sum of size + 1
    # exponential numbers, has a relative variance of 4/(size + 1) to first order.
    bodies = [each for each in part.noises if MECHANISMS[each.mechanism].shape is not None]
    shared = sum((2 * noise_variance(each, part.map) / unit**2) ** 2 * 4 / (bound.size + 1) for each in bodies)
    return Side(sums.values, sums.noise, shared, float(rows.stderr) / counted, counted)
