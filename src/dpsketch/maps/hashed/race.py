"""RACE: tables of counters indexed by locality-sensitive hashes; a counter estimates a kernel sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import IdSets, Records
from dpsketch.errors import RecipeError
from dpsketch.maps.base import MOST_COUNTERS, FeatureMap, Sensitivity, Sums, check_columns, check_whole
from dpsketch.maps.counter_table import BoundTable
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.hashed.embedding import Embedding, embedding_from_dict
from dpsketch.maps.hashed.hash_inputs import EQUAL, LABELS, ORDERED, input_count
from dpsketch.maps.hashed.hash_parameters import Permutations, Projection, Weigher
from dpsketch.maps.hashed.hashes import (
    Euclidean,
    Factor,
    Hamming,
    HashFamily,
    InnerProduct,
    Manhattan,
    MinHash,
    Product,
    SignedProjection,
    hash_from_dict,
)
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import HIGHEST, IdSet
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

MOST_PARAMETERS = 2**24
MOST_WEIGHT = HIGHEST
_LANES = 128  # rows of the table hashed together for sets
_CHUNK = 512  # records whose keys fit the cache
_FEW = 16  # queries; smaller batches are faster one by one


@dataclass(frozen=True)
class Race(FeatureMap):
    """`rows` tables of `width` counters. A record adds its weight to one counter of each, which `hash` selects.

    Without `weight`, every record adds one. `weight` names a column. For a number, a record adds the value scaled from
    its bounds to −1 … 1; for a category or boolean, the entry of `weights` for its label. A missing weight adds
    nothing.

    A missing cell of a hashed number counts as the midpoint of its bounds. Labels count by equality, a missing one as
    a label of its own; `labels="ordered"` places them on a line in their order in the schema, missing ones in the
    middle. With a public `embedding`, its outputs are hashed in place of the columns, and a bandwidth is in widths of
    an output's range; it takes labels in order.
    """

    columns: tuple[str, ...] | None = None
    rows: int = 500
    width: int = 1000
    seed: int = 0
    hash: HashFamily = field(default_factory=Euclidean)
    weight: str | None = None
    weights: tuple[int, ...] | None = None
    embedding: Embedding | None = None
    labels: str | None = None  # EQUAL, or ORDERED with an embedding or sets alone

    name: ClassVar[str] = "race"
    good_for: ClassVar[str] = "densities, classes and anomalies"
    version: ClassVar[int] = 1
    absent: ClassVar[Mapping[str, Any]] = {"labels": ORDERED}

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", hash_from_dict(self.hash))
        object.__setattr__(self, "columns", check_columns("Race", self.columns))
        check_whole("Race", "rows", self.rows, 1, 10**6)
        check_whole("Race", "width", self.width, 2, 2**30)
        check_whole("Race", "seed", self.seed, 0, 2**64 - 1)
        if isinstance(self.hash, Product) and self.columns is not None:
            raise RecipeError("Race: a product names the columns of each factor", "leave out columns")
        if self.embedding is not None:
            object.__setattr__(self, "embedding", embedding_from_dict(self.embedding))
            if isinstance(self.hash, Product | MinHash | Hamming) or not getattr(self.hash, "scaled", True):
                raise RecipeError(
                    "Race: an embedding is hashed by a scaled Euclidean or Manhattan, SignedProjection or InnerProduct",
                    "the outputs of an embedding have no units of a column",
                )
        by_code = self.embedding is not None or isinstance(self.hash, MinHash)
        if self.labels is None:
            object.__setattr__(self, "labels", ORDERED if by_code else EQUAL)
        elif self.labels not in LABELS or (by_code and self.labels != ORDERED):
            raise RecipeError(
                f"Race: labels must be one of {', '.join(LABELS)}, and ordered for an embedding or sets, "
                f"got {self.labels!r} instead",
                "leave out labels",
            )
        if self.weight is not None and not isinstance(self.weight, str):
            raise RecipeError(f"Race: weight must be a column's name, got {self.weight!r} instead")
        if self.weights is not None:
            if self.weight is None:
                raise RecipeError("Race: weights are given but no weight column", "name it: weight='column'")
            if not isinstance(self.weights, list | tuple) or not any(self.weights):
                raise RecipeError("Race: weights must be a list of whole numbers, not all zero")
            for number in self.weights:
                check_whole("Race", "each of weights", number, -MOST_WEIGHT, MOST_WEIGHT)
            object.__setattr__(self, "weights", tuple(self.weights))

    def factors(self, schema: Schema) -> tuple[Factor, ...]:
        """Hash families with their columns, checked against the schema."""
        if isinstance(self.hash, Product):
            factors = self.hash.factors
        elif isinstance(self.hash, MinHash) and self.columns is None:
            if len(schema.sets) != 1:
                raise RecipeError("Race: MinHash needs the name of a set column", "name it in columns")
            factors = (Factor(self.hash, (schema.sets[0].name,)),)
        else:
            names = self.columns or tuple(column.name for column in schema.scalars if column.name != self.weight)
            if not names:
                raise RecipeError("Race: there is no number, category or boolean column to hash", "use hash=MinHash()")
            factors = (Factor(self.hash, names),)
        for factor in factors:
            sets = [name for name in factor.columns if isinstance(schema.column(name), IdSet)]
            if isinstance(factor.hash, MinHash):
                if len(factor.columns) != 1 or not sets:
                    raise RecipeError(
                        f"Race: MinHash hashes one set column, got {', '.join(factor.columns)}",
                        'declare the column with kind = "set" and its universe, or use Euclidean()',
                    )
            elif sets:
                raise RecipeError(
                    f"Race: {factor.hash.family} cannot hash the set column '{sets[0]}'", "use hash=MinHash() for it"
                )
        if self.embedding is not None and self.embedding.inputs != len(factors[0].columns):
            raise RecipeError(
                f"Race: the embedding takes {self.embedding.inputs} columns, got {len(factors[0].columns)}",
                "name the columns that it was fitted on, in their order",
            )
        return factors

    def length(self, schema: Schema) -> int:
        counters = self.rows * self.width
        if counters > MOST_COUNTERS:
            raise RecipeError(f"Race: {counters} counters are more than {MOST_COUNTERS}", "lower rows or width")
        if self.work(schema) > MOST_PARAMETERS:
            raise RecipeError(
                f"Race: {self.rows} rows of these hashes need more than {MOST_PARAMETERS} numbers",
                "lower rows, or the power or bits of the hash, or name fewer columns",
            )
        return counters

    def work(self, schema: Schema) -> int:
        factors = self.factors(schema)
        inputs = sum(
            (1 if isinstance(f.hash, MinHash) else input_count(f, schema, self)) * (1 + isinstance(f.hash, Manhattan))
            + 2
            for f in factors
        )
        return self.rows * self.hash.hashes * inputs

    def summary(self) -> dict[str, Any]:
        facts = self.to_dict()
        if self.embedding is not None:
            facts["embedding"] = f"{len(self.embedding.layers)} layers to {self.embedding.outputs} outputs"
        return facts

    def bind(self, schema: Schema) -> BoundRace:
        return BoundRace(self, schema)

    def to_dict(self) -> dict[str, Any]:
        embedding = None if self.embedding is None else self.embedding.to_dict()
        facts = super().to_dict() | {"hash": self.hash.to_dict(), "embedding": embedding}
        return {key: value for key, value in facts.items() if value is not None or key == "columns"}


@dataclass(frozen=True)
class Prepared:
    """A batch in the form that the hash kernels take: int16 numbers to project, sets, and weights (empty means one
    each).
    """

    records: int
    inputs: Codes
    sets: Mapping[str, IdSets]
    weights: NDArray[np.int32]

    def part(self, start: int, stop: int) -> Prepared:
        """A range of consecutive records, without weights."""
        stop = min(stop, self.records)
        sets = {name: IdSets(column.offsets[start : stop + 1], column.ids) for name, column in self.sets.items()}
        return Prepared(stop - start, np.ascontiguousarray(self.inputs[:, start:stop]), sets, self.weights[:0])


class BoundRace(BoundTable):
    """Guarantee: a record adds one integer w to one counter of each of R rows, so with M = max |w|, L1 = R·M and L2² =
    R·M² for adding or removing a row; 2R·M and R·max(2M², (max w − min w)²) for replacing a row. Source: race Thm 3.2;
    docs/proofs/race.md.
    """

    separates_points = True

    def __init__(self, description: Race, schema: Schema) -> None:
        factors = description.factors(schema)
        names = list(dict.fromkeys(name for factor in factors for name in factor.columns))
        if description.weight is not None and description.weight not in names:
            names.append(description.weight)
        super().__init__(description, schema, tuple(names))
        self.size = description.length(schema)
        self.rows, self.width = description.rows, description.width
        self.unit_increments = description.weight is None
        self._weigh = None if description.weight is None else Weigher(description, schema)
        self.largest = 1 if self._weigh is None else self._weigh.largest
        self.grid = 1 if self._weigh is None else self._weigh.grid
        self.factors = factors
        self.projected = tuple(
            Projection(factor, schema, description, PublicStream(f"race projections {index}", description.seed))
            for index, factor in enumerate(factors)
            if not isinstance(factor.hash, MinHash)
        )
        self.minhashed = tuple(
            Permutations(factor, description.rows, PublicStream(f"race permutations {index}", description.seed))
            for index, factor in enumerate(factors)
            if isinstance(factor.hash, MinHash)
        )
        words = PublicStream("race salts", description.seed).words(self.rows)
        self.salts = (words >> np.uint64(32)).astype(np.uint32)
        alone = factors[0].hash if len(factors) == 1 else None
        # There is one counter per code: the code itself is the index, and there are no accidental collisions.
        self.direct = isinstance(alone, SignedProjection | InnerProduct) and self.width == 1 << alone.bits

    @property
    def euclidean(self) -> Euclidean | None:
        """The hash family, if it is a single one of Euclidean distances."""
        family = self.factors[0].hash
        return family if len(self.factors) == 1 and isinstance(family, Euclidean) else None

    def prepare(self, records: Records, query: bool = False) -> Prepared:
        inputs = [projection.inputs(records.codes, query) for projection in self.projected]
        stacked = inputs[0] if len(inputs) == 1 else np.concatenate(inputs) if inputs else np.empty((0, 0), np.int16)
        weights = np.empty(0, np.int32) if query or self._weigh is None else self._weigh(records.codes)
        return Prepared(len(records), np.ascontiguousarray(stacked), records.sets, weights)

    def accumulate_rows(self, prepared: Prepared, sums: Sums, first: int, last: int) -> None:
        from dpsketch.maps.hashed.race_kernels import keys_to_places, projected_sums, scatter_places

        if not self.minhashed:
            common = (*self._halves, *self._parameters, self.width, self.direct)
            projected_sums(prepared.inputs, *common, prepared.weights, first, last, sums)
            return
        # The odd length keeps the rows of `places` out of the same cache lines.
        places = np.empty((_LANES, prepared.records + 16), np.uint32)
        for start in range(first, last, _LANES):
            stop = min(start + _LANES, last)
            for record in range(0, prepared.records, _CHUNK):
                keys = self._keys(prepared.part(record, record + _CHUNK), start, stop)
                keys_to_places(keys, self.width, record, places)
            scatter_places(places[: stop - start], prepared.records, self.width, prepared.weights, start, sums)

    def totals(self, records: Records, sums: Sums, groups: int) -> tuple[NDArray[np.int64], Floats]:
        """Each record's counters as a query, summed over `groups` consecutive groups of rows, and the sums of their
        squares.

        Group g has the rows r with ⌊r·groups/rows⌋ = g. The sums have one matrix row per group.
        """
        from dpsketch.maps.hashed.race_kernels import key_totals, projected_totals

        totals, squares = np.zeros((groups, len(records)), np.int64), np.zeros(len(records))
        prepared = self.prepare(records, query=True)
        if self.minhashed or len(records) < _FEW:
            key_totals(self._keys(prepared, 0, self.rows), self.width, self.direct, sums, totals, squares)
        else:
            halves, parameters = self._halves, self._parameters
            projected_totals(prepared.inputs, *halves, *parameters, self.width, self.direct, sums, totals, squares)
        return totals, squares

    def entries(self, records: Records, rows: int) -> tuple[NDArray[np.int64], Floats]:
        keys = self._keys(self.prepare(records), 0, rows).astype(np.uint64)
        places = (keys if self.direct else keys * np.uint64(self.width) >> np.uint64(32)).astype(np.int64)
        weights = np.ones(len(records)) if self._weigh is None else self._weigh(records.codes) / self.grid
        return places + np.arange(rows) * self.width, np.repeat(weights[:, None], rows, axis=1)

    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        most = self.largest
        if relation is Relation.ADD_REMOVE:
            return Sensitivity(self.rows * most, self.rows * most**2)
        spread = most if self._weigh is None else self._weigh.spread
        return Sensitivity(2 * self.rows * most, self.rows * max(2 * most**2, spread**2))

    def parameters(self) -> bytes:
        parts = [self.salts.astype("<u4").tobytes()]
        for projection in self.projected:
            parts += [projection.coefficients.astype("<i4").tobytes(), projection.offsets.astype("<i4").tobytes()]
            parts.append(projection.shift.to_bytes(1, "little", signed=True))
        for permutations in self.minhashed:
            parts += [permutations.factors.astype("<u4").tobytes(), permutations.masks.astype("<u4").tobytes()]
        return b"".join(parts)

    def _keys(self, prepared: Prepared, first: int, last: int) -> NDArray[np.uint32]:
        from dpsketch.maps.hashed.race_kernels import fold_sets, projected_keys

        if self.projected:
            keys = np.empty((prepared.records, last - first), np.uint32)
            projected_keys(prepared.inputs, self._coefficients, *self._parameters, self.direct, first, keys)
        else:
            keys = np.repeat(self.salts[None, first:last], prepared.records, axis=0)
        for permutations in self.minhashed:
            sets = prepared.sets[permutations.column]
            for factors, masks in zip(permutations.factors, permutations.masks, strict=True):
                fold_sets(sets.offsets, sets.ids, factors[first:last], masks[first:last], keys)
        return keys

    @cached_property
    def _coefficients(self) -> NDArray[np.int32]:
        """Coefficients of all projections, by row of the table, with zeros outside a factor's own inputs."""
        each = sum(projection.hashes for projection in self.projected)
        width = sum(projection.dimension for projection in self.projected)
        coefficients = np.zeros((self.rows, each, width), np.int32)
        hash_, column = 0, 0
        for projection in self.projected:
            hash_, column = hash_ + projection.hashes, column + projection.dimension
            coefficients[:, hash_ - projection.hashes : hash_, column - projection.dimension : column] = (
                projection.coefficients
            )
        return coefficients.reshape(-1, width)

    @cached_property
    def _halves(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        from dpsketch.maps.fourier.phases import FREQUENCIES, split_frequencies

        # Blocks of rows may start anywhere and extend past the last projection.
        return split_frequencies(np.pad(self._coefficients, ((0, FREQUENCIES), (0, 0))))

    @cached_property
    def _parameters(self) -> tuple[NDArray[Any], ...]:
        """Offsets of all projections; shift of each projection of a row and whether it is the last of its factor;
        salts.
        """
        offsets = np.concatenate([projection.offsets for projection in self.projected], axis=1)
        shifts = [projection.shift for projection in self.projected for _ in range(projection.hashes)]
        ends = [j == p.hashes - 1 for p in self.projected for j in range(p.hashes)]
        return np.ascontiguousarray(offsets).ravel(), np.array(shifts, np.int32), np.array(ends), self.salts
