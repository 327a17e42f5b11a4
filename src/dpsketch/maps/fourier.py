"""Random Fourier features with integer phases: cosine and sine of many frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsketch.errors import RecipeError
from dpsketch.maps.base import (
    BoundMap,
    FeatureMap,
    Relation,
    Sensitivity,
    Sums,
    check_columns,
    check_whole,
    chosen_columns,
)
from dpsketch.maps.draw import PublicStream
from dpsketch.precise import precise
from dpsketch.records import Records
from dpsketch.schema import SPAN, Floats, Schema

GRID = 32768
# Largest |cos|, |cos|+|sin| and cos²+sin² of the frozen kernel: tests/unit/maps/test_fourier.py goes through
# all 2^32 phases. The rounded features exceed the nominal 1, √2 and 1 a little; only these numbers count.
LARGEST = 32768
LARGEST_L1 = 46341
LARGEST_L2_SQUARED = 1073789908
_TURN = 2.0**32
MOST_PARAMETERS = 2**25


@dataclass(frozen=True)
class Fourier(FeatureMap):
    """`size` frequencies with isotropic directions and radii spread log-uniformly over `radii`.

    A radius is in radians per width of a column's declared bounds: 2 sees the shape of the whole table,
    30 sees details of a thirtieth of a column's width.
    """

    columns: tuple[str, ...] | None = None
    size: int = 200
    seed: int = 0
    radii: tuple[float, float] = (2.0, 30.0)

    name: ClassVar[str] = "fourier"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_frequencies("Fourier", self)

    def length(self, schema: Schema) -> int:
        return frequencies_length("Fourier", self, schema)

    def bind(self, schema: Schema) -> BoundFourier:
        return BoundFourier(self, schema)


class BoundFourier(BoundMap):
    """Guarantee: with a = max(|c|+|s|) and b = max(c²+s²) over all phases of the integer kernel and m
    frequencies, L1 = m·a and L2² = m·b for a row more or less; 2m·a and 4m·b for a row replaced.
    Source: compressive L. 7, 11, 12, 17; docs/proofs/fourier.md.
    """

    largest = LARGEST
    grid = GRID

    def __init__(self, description: Fourier, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = description.length(schema)
        self.frequencies = draw_frequencies(description, len(self.columns))
        self._rows = np.array([schema.index(name) for name in self.columns])

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.kernels import fourier_sums

        fourier_sums(records.codes, self._rows, *self._halves, np.empty(0, np.int32), sums)

    @cached_property
    def _halves(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        from dpsketch.maps.phases import split_frequencies

        return split_frequencies(self.frequencies)

    def features(self, records: Records) -> Floats:
        """Cosines in the even columns, sines in the odd ones, of the quantised frequencies."""
        phases = records.codes[self._rows].T.astype(np.float64) @ (self.frequencies.T * (2 * np.pi / _TURN))
        features = np.empty((len(records), self.size))
        np.cos(phases, out=features[:, 0::2])
        np.sin(phases, out=features[:, 1::2])
        return features

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        count = len(self.frequencies)
        if relation is Relation.ADD_REMOVE:
            return Sensitivity(count * LARGEST_L1, count * LARGEST_L2_SQUARED)
        return Sensitivity(2 * count * LARGEST_L1, 4 * count * LARGEST_L2_SQUARED)

    def restricted(self, first: int, last: int) -> BoundFourier:
        return self._with(size=2 * (last - first), frequencies=self.frequencies[first:last])

    def parameters(self) -> bytes:
        return self.frequencies.astype("<i4").tobytes()


class Frequencies(Protocol):
    """What a map says about the frequencies it draws."""

    @property
    def columns(self) -> tuple[str, ...] | None: ...
    @property
    def size(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def radii(self) -> tuple[float, float]: ...


def check_frequencies(owner: str, description: Frequencies) -> None:
    """Check the parameters and put them into their plain forms."""
    check_whole(owner, "size", description.size, 1, 10**7)
    check_whole(owner, "seed", description.seed, 0, 2**64 - 1)
    object.__setattr__(description, "columns", check_columns(owner, description.columns))
    radii = description.radii
    if (
        not isinstance(radii, list | tuple)
        or len(radii) != 2
        or not all(isinstance(r, Real) and not isinstance(r, bool) for r in radii)
        or not 0.01 <= radii[0] <= radii[1] <= 10_000
    ):
        raise RecipeError(f"{owner}: radii must be two numbers, 0.01 <= low <= high <= 10000, got {radii!r} instead")
    object.__setattr__(description, "radii", (float(radii[0]), float(radii[1])))


def frequencies_length(owner: str, description: Frequencies, schema: Schema) -> int:
    """Two sums a frequency."""
    dimension = len(chosen_columns(schema, description.columns))
    if description.size * dimension > MOST_PARAMETERS:
        raise RecipeError(
            f"{owner}: {description.size} frequencies of {dimension} columns are more than {MOST_PARAMETERS} numbers",
            "lower size or name fewer columns",
        )
    return 2 * description.size


def draw_frequencies(description: Frequencies, dimension: int) -> NDArray[np.int32]:
    """Frequencies in units of 2^-32 turn per code step, one matrix row each. docs/formats/draw.md.

    The radius of frequency i is low·(high/low)^((i+u)/size): one in each of `size` equal strata of log radius.
    """
    count = description.size
    low, high = description.radii
    normals = PublicStream("fourier directions", description.seed).normals(count * dimension).reshape(count, dimension)
    square = np.zeros(count)
    for j in range(dimension):  # a fixed order of additions, unlike np.sum
        square = square + normals[:, j] * normals[:, j]
    shares = (np.arange(count) + PublicStream("fourier radii", description.seed).uniforms(count)) / count
    with precise(100) as exact:
        spread = exact.log(exact.mpf(high) / low)
        turns = exact.mpf(_TURN) / (2 * exact.pi * SPAN)
        lengths = np.array([float(low * exact.exp(spread * share) * turns) for share in shares.tolist()])
    return np.rint(normals * (lengths / np.sqrt(square))[:, None]).astype(np.int32)
