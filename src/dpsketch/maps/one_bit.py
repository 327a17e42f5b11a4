"""One-bit Fourier features: the signs of a dithered cosine and sine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.maps.base import BoundMap, FeatureMap, Relation, Sensitivity, Sums, chosen_columns
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.fourier import check_frequencies, draw_frequencies, frequencies_length
from dpsketch.records import Records
from dpsketch.schema import Floats, Schema


@dataclass(frozen=True)
class OneBitFourier(FeatureMap):
    """Frequencies as in `Fourier`; of each only the signs of cos(p + ξ) and sin(p + ξ), ξ a public uniform dither."""

    columns: tuple[str, ...] | None = None
    size: int = 200
    seed: int = 0
    radii: tuple[float, float] = (2.0, 30.0)

    name: ClassVar[str] = "one_bit_fourier"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_frequencies("OneBitFourier", self)

    def length(self, schema: Schema) -> int:
        return frequencies_length("OneBitFourier", self, schema)

    def bind(self, schema: Schema) -> BoundOneBitFourier:
        return BoundOneBitFourier(self, schema)


class BoundOneBitFourier(BoundMap):
    """Guarantee: every feature is −1 or 1, so with m frequencies L1 = L2² = 2m for a row more or less, and 4m and 8m
    for a row replaced, all attained by opposite records. Source: compressive L. 7, 11; docs/proofs/one_bit_fourier.md.
    """

    largest = 1

    def __init__(self, description: OneBitFourier, schema: Schema) -> None:
        super().__init__(description, schema, chosen_columns(schema, description.columns))
        self.size = description.length(schema)
        self.frequencies = draw_frequencies(description, len(self.columns))
        words = PublicStream("one-bit dithers", description.seed).words(description.size)
        self.dithers = (words >> np.uint64(32)).astype(np.uint32).view(np.int32)
        self._rows = np.array([schema.index(name) for name in self.columns])

    @cached_property
    def _halves(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        from dpsketch.maps.phases import split_frequencies

        return split_frequencies(self.frequencies)

    def accumulate(self, records: Records, sums: Sums) -> None:
        from dpsketch.maps.kernels import fourier_sums

        fourier_sums(records.codes, self._rows, *self._halves, self.dithers, sums)

    def features(self, records: Records) -> Floats:
        """Signs of the cosine in the even columns, of the sine in the odd ones, exactly those that are summed."""
        phases = records.codes[self._rows].T.astype(np.int64) @ self.frequencies.T.astype(np.int64) + self.dithers
        features = np.empty((len(records), self.size))
        features[:, 0::2] = _signs(phases + (1 << 30))
        features[:, 1::2] = _signs(phases)
        return features

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        if relation is Relation.ADD_REMOVE:
            return Sensitivity(self.size, self.size)
        return Sensitivity(2 * self.size, 4 * self.size)

    def restricted(self, first: int, last: int) -> BoundOneBitFourier:
        chosen = slice(first, last)
        return self._with(size=2 * (last - first), frequencies=self.frequencies[chosen], dithers=self.dithers[chosen])

    def parameters(self) -> bytes:
        return self.frequencies.astype("<i4").tobytes() + self.dithers.astype("<i4").tobytes()


def _signs(phases: NDArray[np.int64]) -> Floats:
    """1 where the phase modulo one turn (2^32) is in its first half, −1 in its second."""
    return np.where(phases & (1 << 31), -1.0, 1.0)
