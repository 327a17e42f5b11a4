"""Feature subsampling: each record contributes only the features that a secret random mask selects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from heapq import nlargest
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records, Words
from dpsketch.errors import RecipeError
from dpsketch.maps.base import Body, BoundMap, FeatureMap, Sensitivity, Sums, cannot_be_subsampled, check_whole
from dpsketch.maps.grouped import Grouped
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.masks import Masks
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

SCHEMES = ("block", "uniform", "poisson")
MOST_BLOCKS = 10_000
_STEP = 1 << 22  # mask entries drawn together


@dataclass(frozen=True)
class Subsampled(FeatureMap):
    """About `size` of the frequencies or directions of `map` for each record, chosen anew for every record.

    "block" divides them into blocks of `size` and selects one block at random. "uniform" selects `size` of them at
    random. "poisson" selects each with probability `size`/all. Only "block" saves time: a record then costs `size`
    features instead of all of them. The other schemes evaluate one feature at a time and draw a random word for each.
    No scheme improves privacy. With Laplace noise and one more or one less unit, "poisson" needs about the noise of
    "uniform", but then the raw sketch can be released only once.
    """

    map: FeatureMap
    size: int
    scheme: str = "block"

    name: ClassVar[str] = "subsampled"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.map, FeatureMap) or isinstance(self.map, Grouped | Subsampled):
            raise RecipeError(
                "Subsampled: map must be a feature map that is neither grouped nor subsampled itself",
                "group last: Grouped(Subsampled(Fourier(), size=50), column)",
            )
        if self.scheme not in SCHEMES:
            raise RecipeError(f"Subsampled: scheme must be one of {', '.join(SCHEMES)}, got {self.scheme!r} instead")
        check_whole("Subsampled", "size", self.size, 1, self.features)
        if self.scheme == "block" and self.features % self.size:
            raise RecipeError(
                f"Subsampled: size must divide the {self.features} features of {self.map.name} into blocks, "
                f"got {self.size} instead",
                "choose a divisor, or scheme 'uniform'",
            )
        if self.features // self.block > MOST_BLOCKS:
            raise RecipeError(
                f"Subsampled: {self.features // self.block} blocks are more than {MOST_BLOCKS}",
                "raise size, with scheme 'block'",
            )

    @property
    def features(self) -> int:
        """Number of frequencies or directions of the full map."""
        count = getattr(self.map, "size", None)
        if not isinstance(count, int):
            raise cannot_be_subsampled(self.map)
        return count

    @property
    def block(self) -> int:
        """Number of features that a mask selects or drops together."""
        return self.size if self.scheme == "block" else 1

    @property
    def rate(self) -> float:
        """Expected fraction of the records that a feature includes."""
        return self.size / self.features

    def length(self, schema: Schema) -> int:
        return self.map.length(schema)

    def work(self, schema: Schema) -> int:
        return self.map.work(schema)

    def bind(self, schema: Schema) -> BoundSubsampled:
        return BoundSubsampled(self, schema)

    def to_dict(self) -> dict[str, Any]:
        facts = {"map": self.name, "version": self.version, "of": self.map.to_dict()}
        return facts | {"size": self.size, "scheme": self.scheme}


class BoundSubsampled(BoundMap):
    """Guarantee: a record adds its features under a mask that is secret, drawn for this record alone and independent of
    its cells and of its position in the table. The bounds hold for every mask and, for a replaced row, for every pair
    of masks. Adding or removing a row: the largest block's L1 and L2² ("block"); the smaller of the full map's and the
    `size` largest single features' ("uniform"); the full map's ("poisson"), of which `masks` says what Laplace noise
    has to hide of them. Replacing a row: 2·L1, and 4·L2², or for
    "block" max(L2²_replace, 2·L2²). Source: compressive L. 16, 20, 22-24, but not its L. 25; docs/proofs/subsampled.md.
    """

    secret = True

    def __init__(self, description: Subsampled, schema: Schema) -> None:
        self.inner = description.map.bind(schema)
        super().__init__(replace(description, map=self.inner.description), schema, self.inner.columns)
        self.size, self.largest, self.grid = self.inner.size, self.inner.largest, self.inner.grid
        self.rate, self.certified = description.rate, self.inner.certified
        self.separates_points, self.sparse = self.inner.separates_points, self.inner.sparse
        self.title, self.term, self.sums_per_term = self.inner.title, self.inner.term, self.inner.sums_per_term
        self._scheme, self._chosen, self._features = description.scheme, description.size, description.features
        edges = range(0, self._features, description.block)
        self.blocks = [self.inner.restricted(first, first + description.block) for first in edges]

    def accumulate(self, records: Records, sums: Sums) -> None:
        if records.secret is None:
            raise RuntimeError("a bug: these records come without secret words to draw masks from")
        parts = sums.reshape(len(self.blocks), -1)
        step = max(1, _STEP // len(self.blocks))
        for start in range(0, len(records), step):
            some = records.take(np.arange(start, min(start + step, len(records))))
            for block, members in self._members(len(some), records.secret):
                self.blocks[block].accumulate(some.take(members), parts[block])

    def _members(self, records: int, secret: Words) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield each block with the records that selected it, from words drawn record by record."""
        count = len(self.blocks)
        if self._scheme == "block":
            choice = secret.words(records).astype(np.uint64) * np.uint64(count) >> np.uint64(32)
            order = np.argsort(choice, kind="stable")
            present, starts = np.unique(choice[order], return_index=True)
            yield from zip(present.tolist(), np.split(order, starts[1:]), strict=True)
            return
        words = secret.words(records * count).reshape(records, count)
        if self._scheme == "poisson":
            mask = words < np.uint64(self._threshold)
        else:
            mask = np.zeros(words.shape, bool)
            np.put_along_axis(mask, np.argpartition(words, self._chosen - 1)[:, : self._chosen], True, axis=1)
        for block in range(count):
            members = np.flatnonzero(mask[:, block])
            if len(members):
                yield block, members

    @property
    def _threshold(self) -> int:
        """The number of words with which a feature is kept, of 2^32."""
        return round(self.rate * 2**32)

    @cached_property
    def masks(self) -> Masks | None:  # type: ignore[override]
        """For "poisson", the probability with which features are kept, exactly, and the largest of them."""
        if self._scheme != "poisson" or not self._threshold:
            return None
        largest = max(block.record_sensitivity(Relation.ADD_REMOVE).l1 for block in self.blocks)
        return Masks(largest, Fraction(self._threshold, 2**32))

    @property
    def core(self) -> BoundMap:
        return self.inner.core

    def features(self, records: Records) -> Floats:
        """The expectation over masks: the map's features times `rate`. The sums therefore need no rescaling."""
        return self.inner.features(records) * self.rate

    @cached_property
    def _alone(self) -> Sensitivity:
        if self._scheme == "poisson":
            return self.inner.record_sensitivity(Relation.ADD_REMOVE)
        each = [block.record_sensitivity(Relation.ADD_REMOVE) for block in self.blocks]
        if self._scheme == "block":
            return Sensitivity(max(bound.l1 for bound in each), max(bound.l2_squared for bound in each))
        full = self.inner.record_sensitivity(Relation.ADD_REMOVE)
        l1 = sum(nlargest(self._chosen, (bound.l1 for bound in each)))
        l2_squared = sum(nlargest(self._chosen, (bound.l2_squared for bound in each)))
        return Sensitivity(min(full.l1, l1), min(full.l2_squared, l2_squared))

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        alone = self._alone
        if relation is Relation.ADD_REMOVE:
            return alone
        if self._scheme != "block":
            return Sensitivity(2 * alone.l1, 4 * alone.l2_squared)
        within = max(block.record_sensitivity(relation).l2_squared for block in self.blocks)
        return Sensitivity(2 * alone.l1, max(within, 2 * alone.l2_squared))

    def record_body(self, relation: Relation) -> Body | None:
        """The body of the full map. A mask only removes pairs or single sums, which increases none of these norms."""
        full = self.inner.record_body(Relation.ADD_REMOVE)
        if full is None or relation is Relation.ADD_REMOVE:
            return full
        return Body(full.shape, 2 * full.radius)

    def parameters(self) -> bytes:
        return self.inner.parameters()
