"""Random Fourier features with integer phases: cosine and sine of many frequencies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isqrt
from numbers import Real
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import (
    Body,
    BoundMap,
    FeatureMap,
    Sensitivity,
    Shape,
    Sums,
    check_columns,
    check_whole,
    chosen_columns,
)
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.fourier import hadamard
from dpsketch.maps.fourier.laws import Law, check_law
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.precision import precise
from dpsketch.schema.columns import SPAN
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

GRID = 32768
# Largest |cos|, |cos|+|sin| and cos²+sin² of the frozen kernel: tests/unit/maps/test_fourier.py checks all 2^32 phases.
# The rounded features slightly exceed the nominal 1, √2 and 1; only these numbers count.
LARGEST = 32768
LARGEST_L1 = 46341
LARGEST_L2_SQUARED = 1073789908
LARGEST_MODULUS = isqrt(LARGEST_L2_SQUARED - 1) + 1
_TURN = 2.0**32
MOST_PARAMETERS = 2**25
_LENGTH_WORK = 200  # cost of computing a frequency's length, in drawn normal numbers
STRUCTURES = ("auto", "dense", "hadamard")
RADII = (2.0, 30.0)
# What a description without these parameters means: the only structure and law before they existed.
ABSENT = {"structure": "dense", "radii": None, "kernel": None, "width": None}


@dataclass(frozen=True)
class Fourier(FeatureMap):
    """`size` frequencies with isotropic directions and radii spread log-uniformly over `radii`, or with the radii of a
    kernel.

    A radius is in radians per width of a column's declared bounds: 2 resolves the shape of the whole table, 30 resolves
    details of a thirtieth of a column's width. The default is 2 to 30.

    `kernel` draws frequencies independently such that the mean of ⟨Φ(x), Φ(y)⟩ over them is a kernel of the distance r
    of x and y, both scaled to [0, 1] by the bounds: "gaussian", exp(−r²/(2·width²)); "laplacian", exp(−r/width); or
    "adapted", the adapted radii of the compressive papers, for clusters of deviation `width`.

    `structure` selects how directions are drawn. "dense" uses normal numbers. "hadamard" uses rows of Hadamard blocks,
    which are faster for many columns and have nearly the same kernel. "auto" takes the faster one, from the public
    numbers of columns and frequencies alone.
    """

    columns: tuple[str, ...] | None = None
    size: int = 200
    seed: int = 0
    radii: tuple[float, float] | None = field(default=None, metadata={"filled": RADII})
    structure: str = "auto"
    kernel: str | None = None
    width: float | None = None

    name: ClassVar[str] = "fourier"
    good_for: ClassVar[str] = "clusters, mixtures and smooth functions"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = ABSENT

    def __post_init__(self) -> None:
        check_frequencies("Fourier", self)

    def length(self, schema: Schema) -> int:
        return frequencies_length("Fourier", self, schema)

    def work(self, schema: Schema) -> int:
        return frequencies_work(self, schema)

    def bind(self, schema: Schema) -> BoundFourier:
        return BoundFourier(self, schema)


class BoundFrequencies(BoundMap):
    """A map with two sums for each of its frequencies, as estimators of Fourier sums read it."""

    separates_points = True
    term = "frequencies"
    sums_per_term = 2
    amplitude: float = 1.0  # amplitude of a feature's first harmonic
    mean_square: float = 1.0  # mean square of a pair of features
    dithers: NDArray[np.int32] | None = None  # phases added to each frequency, in units of 2^-32 turn
    law: Law | None = None  # the kernel of the frequencies, if they were drawn for one

    @property
    @abstractmethod
    def frequencies(self) -> NDArray[Any]:
        """Frequencies in units of 2^-32 turn per code step, one per matrix row: integers if dense, else real."""


class BoundFourier(BoundFrequencies):
    """Guarantee: with a = max(|c|+|s|) and b = max(c²+s²) over all phases of the integer kernel and m frequencies, L1 =
    m·a and L2² = m·b for adding or removing a row; 2m·a and 4m·b for replacing a row. Every pair of sums changes by at
    most ⌈√b⌉, or by twice that. Source: compressive L. 7, 11, 12, 17; docs/proofs/fourier.md.
    """

    largest = LARGEST
    grid = GRID
    title = "Fourier frequencies"

    def __init__(self, description: Fourier, schema: Schema) -> None:
        columns = chosen_columns(schema, description.columns)
        description = replace(description, structure=chosen_structure(description, len(columns)))
        super().__init__(description, schema, columns)
        self.size = description.length(schema)
        self.law = law_of(description)
        self._drawn = draw(description, len(columns))
        self._rows = np.array([schema.index(name) for name in self.columns])

    @property
    def frequencies(self) -> NDArray[Any]:
        return self._drawn.matrix

    def accumulate(self, records: Records, sums: Sums) -> None:
        self._drawn.accumulate(records.codes, self._rows, np.empty(0, np.int32), sums)

    def features(self, records: Records) -> Floats:
        """Cosines in the even columns and sines in the odd ones, for the quantised frequencies."""
        phases = self._drawn.radians(records.codes[self._rows])
        features = np.empty((len(records), self.size))
        np.cos(phases, out=features[:, 0::2])
        np.sin(phases, out=features[:, 1::2])
        return features

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        count = self.size // 2
        if relation is Relation.ADD_REMOVE:
            return Sensitivity(count * LARGEST_L1, count * LARGEST_L2_SQUARED)
        return Sensitivity(2 * count * LARGEST_L1, 4 * count * LARGEST_L2_SQUARED)

    def record_body(self, relation: Relation) -> Body:
        return Body(Shape.DISC, LARGEST_MODULUS if relation is Relation.ADD_REMOVE else 2 * LARGEST_MODULUS)

    def restricted(self, first: int, last: int) -> BoundFourier:
        return self._with(size=2 * (last - first), _drawn=self._drawn.restricted(first, last))

    def parameters(self) -> bytes:
        return self._drawn.parameters()


class Frequencies(Protocol):
    """The parameters from which a map draws its frequencies."""

    @property
    def columns(self) -> tuple[str, ...] | None: ...
    @property
    def size(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def radii(self) -> tuple[float, float] | None: ...
    @property
    def structure(self) -> str: ...
    @property
    def kernel(self) -> str | None: ...
    @property
    def width(self) -> float | None: ...


def check_frequencies(owner: str, description: Frequencies) -> None:
    """Check the parameters and convert them to plain values."""
    check_whole(owner, "size", description.size, 1, 10**7)
    check_whole(owner, "seed", description.seed, 0, 2**64 - 1)
    object.__setattr__(description, "columns", check_columns(owner, description.columns))
    law = check_law(owner, description.kernel, description.width)
    if law is None:
        object.__setattr__(description, "radii", _checked_radii(owner, description.radii))
    elif description.radii is not None:
        raise RecipeError(
            f"{owner}: kernel '{law.kernel}' determines the radii", "leave out radii, or kernel and width"
        )
    else:
        object.__setattr__(description, "width", law.width)
    if description.structure not in STRUCTURES:
        raise RecipeError(
            f"{owner}: structure must be one of {', '.join(STRUCTURES)}, got {description.structure!r} instead"
        )


def _checked_radii(owner: str, radii: object) -> tuple[float, float]:
    if radii is None:
        return RADII
    if (
        not isinstance(radii, list | tuple)
        or len(radii) != 2
        or not all(isinstance(r, Real) and not isinstance(r, bool) for r in radii)
        or not 0.01 <= radii[0] <= radii[1] <= 10_000
    ):
        raise RecipeError(f"{owner}: radii must be two numbers, 0.01 <= low <= high <= 10000, got {radii!r} instead")
    return float(radii[0]), float(radii[1])


def law_of(description: Frequencies) -> Law | None:
    """The law of a checked description; None for radii spread log-uniformly."""
    if description.kernel is None or description.width is None:
        return None
    return Law(description.kernel, description.width)


def frequencies_length(owner: str, description: Frequencies, schema: Schema) -> int:
    """Number of sums: two per frequency."""
    dimension = len(chosen_columns(schema, description.columns))
    if description.size * dimension > MOST_PARAMETERS:
        raise RecipeError(
            f"{owner}: {description.size} frequencies of {dimension} columns are more than {MOST_PARAMETERS} numbers",
            "lower size or name fewer columns",
        )
    if description.structure == "hadamard" and dimension > hadamard.MOST_COLUMNS:
        raise RecipeError(
            f"{owner}: phases of Hadamard frequencies of {dimension} columns would lose precision: rounding would move"
            f" them like an error of {hadamard.precision(dimension):.2f} steps in every code, beside the 0.5 of coding",
            f"name at most {hadamard.MOST_COLUMNS} columns, or pass structure='dense'",
        )
    return 2 * description.size


def frequencies_work(description: Frequencies, schema: Schema) -> int:
    """Cost of computing lengths in high precision and of drawing directions."""
    dimension = len(chosen_columns(schema, description.columns))
    dense = chosen_structure(description, dimension) == "dense"
    return description.size * (_LENGTH_WORK + (dimension if dense else 0))


def chosen_structure(description: Frequencies, dimension: int) -> str:
    """The structure that "auto" selects, from public numbers.

    A block is transformed as a whole, so the work of Hadamard frequencies is blocks · width, whatever their number. On
    a Zen 4 core, dense frequencies take about 0.037 ns for each of size · dimension products, and Hadamard frequencies
    2.2 to 3 ns for each of blocks · width rows. The measured speed-up is 2.1 at (d, m) = (128, 128), 2.0 at (256, 128),
    2.1 at (257, 257), 1.8 at (1024, 128), 3.3 at (256, 256), 6.0 at (512, 512) and 12 at (1024, 1024). Below the
    threshold it is at most 1.4. The threshold is at a speed-up of about two, so that every machine gains something.
    """
    if description.structure != "auto":
        return description.structure
    width = hadamard.padded_width(dimension)
    blocks = -(-description.size // width)
    faster = description.size * dimension >= 128 * blocks * width
    return "hadamard" if faster and dimension <= hadamard.MOST_COLUMNS else "dense"


@dataclass(frozen=True)
class Dense:
    """Frequencies as an integer matrix."""

    matrix: NDArray[np.int32]

    def accumulate(self, codes: Codes, rows: NDArray[np.int64], dithers: NDArray[np.int32], sums: Sums) -> None:
        from dpsketch.maps.kernels import fourier_sums

        fourier_sums(codes, rows, *self._halves, dithers, sums)

    @cached_property
    def _halves(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        from dpsketch.maps.fourier.phases import split_frequencies

        return split_frequencies(self.matrix)

    def phases(self, codes: Codes) -> NDArray[np.int64]:
        """Phases in units of 2^-32 turn, exact: one matrix row per record."""
        return codes.T.astype(np.int64) @ self.matrix.T.astype(np.int64)

    def radians(self, codes: Codes) -> Floats:
        return codes.T.astype(np.float64) @ (self.matrix.T * (2 * np.pi / _TURN))

    def restricted(self, first: int, last: int) -> Dense:
        return Dense(self.matrix[first:last])

    def parameters(self) -> bytes:
        return self.matrix.astype("<i4").tobytes()


def draw(description: Frequencies, dimension: int) -> Dense | hadamard.Hadamard:
    """Draw the frequencies of a description whose structure is chosen."""
    if description.structure == "hadamard":
        return hadamard.draw_hadamard(description.seed, draw_lengths(description, dimension), dimension)
    return Dense(draw_frequencies(description, dimension))


def draw_frequencies(description: Frequencies, dimension: int) -> NDArray[np.int32]:
    """Draw dense frequencies in units of 2^-32 turn per code step, one per matrix row. See docs/formats/draw.md."""
    count = description.size
    normals = PublicStream("fourier directions", description.seed).normals(count * dimension).reshape(count, dimension)
    square = np.zeros(count)
    for j in range(dimension):  # a fixed order of additions, unlike np.sum
        square = square + normals[:, j] * normals[:, j]
    return np.rint(normals * (draw_lengths(description, dimension) / np.sqrt(square))[:, None]).astype(np.int32)


def draw_lengths(description: Frequencies, dimension: int) -> Floats:
    """Draw the lengths of the frequencies in units of 2^-32 turn per code step. See docs/formats/draw.md.

    Without a kernel, the radius of frequency i is low·(high/low)^((i+u)/size): one in each of `size` equal strata of
    log radius.
    """
    count, law = description.size, law_of(description)
    if law is not None:
        return law.lengths(count, dimension, description.seed)
    low, high = description.radii or RADII
    shares = (np.arange(count) + PublicStream("fourier radii", description.seed).uniforms(count)) / count
    with precise(100) as exact:
        spread = exact.log(exact.mpf(high) / low)
        turns = exact.mpf(_TURN) / (2 * exact.pi * SPAN)
        return np.array([float(low * exact.exp(spread * share) * turns) for share in shares.tolist()])
