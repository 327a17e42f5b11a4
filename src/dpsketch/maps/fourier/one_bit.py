"""One-bit Fourier features: the signs of a dithered cosine and sine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import pi
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.maps.base import Body, FeatureMap, Sensitivity, Shape, Sums, chosen_columns
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.fourier.fourier import (
    ABSENT,
    RADII,
    BoundFrequencies,
    check_frequencies,
    chosen_structure,
    draw,
    frequencies_length,
    frequencies_work,
    law_of,
)
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


@dataclass(frozen=True)
class OneBitFourier(FeatureMap):
    """The signs of cos(p + ξ) and sin(p + ξ) for the frequencies of `Fourier`, where ξ is a public uniform dither."""

    columns: tuple[str, ...] | None = None
    size: int = 200
    seed: int = 0
    radii: tuple[float, float] | None = field(default=None, metadata={"filled": RADII})
    structure: str = "auto"
    kernel: str | None = None
    width: float | None = None

    name: ClassVar[str] = "one_bit_fourier"
    good_for: ClassVar[str] = "clusters and smooth functions"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = ABSENT

    def __post_init__(self) -> None:
        check_frequencies("OneBitFourier", self)

    def length(self, schema: Schema) -> int:
        return frequencies_length("OneBitFourier", self, schema)

    def work(self, schema: Schema) -> int:
        return frequencies_work(self, schema)

    def bind(self, schema: Schema) -> BoundOneBitFourier:
        return BoundOneBitFourier(self, schema)


class BoundOneBitFourier(BoundFrequencies):
    """Guarantee: every feature is −1 or 1, so with m frequencies L1 = L2² = 2m for adding or removing a row, and 4m and
    8m for replacing a row, all attained by opposite records. Every sum changes by at most 1, or by 2. Source:
    compressive L. 7, 11; docs/proofs/one_bit_fourier.md.
    """

    largest = 1
    title = "one-bit Fourier frequencies"
    amplitude = 4 / pi
    mean_square = 2.0
    dithers: NDArray[np.int32]

    def __init__(self, description: OneBitFourier, schema: Schema) -> None:
        columns = chosen_columns(schema, description.columns)
        description = replace(description, structure=chosen_structure(description, len(columns)))
        super().__init__(description, schema, columns)
        self.size = description.length(schema)
        self.law = law_of(description)
        self._drawn = draw(description, len(columns))
        words = PublicStream("one-bit dithers", description.seed).words(description.size)
        self.dithers = (words >> np.uint64(32)).astype(np.uint32).view(np.int32)
        self._rows = np.array([schema.index(name) for name in self.columns])

    @property
    def frequencies(self) -> NDArray[Any]:
        return self._drawn.matrix

    def accumulate(self, records: Records, sums: Sums) -> None:
        self._drawn.accumulate(records.codes, self._rows, self.dithers, sums)

    def features(self, records: Records) -> Floats:
        """Signs of the cosines in the even columns and of the sines in the odd ones, exactly as they are summed."""
        phases = self._drawn.phases(records.codes[self._rows]).astype(np.int64) + self.dithers
        features = np.empty((len(records), self.size))
        features[:, 0::2] = _signs(phases + (1 << 30))
        features[:, 1::2] = _signs(phases)
        return features

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        if relation is Relation.ADD_REMOVE:
            return Sensitivity(self.size, self.size)
        return Sensitivity(2 * self.size, 4 * self.size)

    def record_body(self, relation: Relation) -> Body:
        return Body(Shape.CUBE, 1 if relation is Relation.ADD_REMOVE else 2)

    def restricted(self, first: int, last: int) -> BoundOneBitFourier:
        drawn = self._drawn.restricted(first, last)
        return self._with(size=2 * (last - first), _drawn=drawn, dithers=self.dithers[first:last])

    def parameters(self) -> bytes:
        return self._drawn.parameters() + self.dithers.astype("<i4").tobytes()


def _signs(phases: NDArray[np.int64]) -> Floats:
    """1 where the phase modulo one turn (2^32) is in the first half of the turn, −1 in the second."""
    return np.where(phases & (1 << 31), -1.0, 1.0)
