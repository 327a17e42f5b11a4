"""Feature maps: pure functions from a record's codes to a bounded integer vector.

A map is a frozen, public description (`Fourier(size=200, seed=7)`). Its `bind(schema)` returns the object that resolves
the columns, draws the public parameters and computes the sums.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError, SchemaError
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.privacy.masks import Masks
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

Sums = NDArray[np.int64] | NDArray[np.int32]
MOST_COUNTERS = 2**31
# Largest cost of binding maps, in units of about a tenth of a microsecond: a fixed allowance for every recipe, and more
# for each sum. It keeps the reading of a small file to about a second, however many columns and parts it names.
FREE_WORK, WORK_PER_SUM = 1 << 24, 1 << 10
LARGE = 1 << 22  # sums; from this size on, counters take four bytes where they fit and are shared between threads


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of a part's sums between neighbouring tables: exact integers, the maximum over all codes."""

    l1: int
    l2_squared: int


class Shape(StrEnum):
    """Norm balls that fit some features better than the L1 ball.

    A product of discs has one disc for every pair of sums. The ball is that of the Frobenius norm of symmetric
    matrices, given by their upper triangles.
    """

    DISC = "disc"
    CUBE = "cube"
    BALL = "ball"


@dataclass(frozen=True)
class Body:
    """A bound on how a part's sums differ between neighbouring tables: the difference lies in `radius` times the body.

    In a grouped part, the norms of the groups add up to at most `radius`.
    """

    shape: Shape
    radius: int


@dataclass(frozen=True)
class SumBlock:
    """Sums first .. last-1 of a map, or of each of its groups, which depend on `columns` alone."""

    columns: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True)
class RecordCount:
    """The first `sums` sums add up to `times` the number of records."""

    sums: int
    times: int


@dataclass(frozen=True, eq=False)
class NoisyPart:
    """A part as a release has it so far: its settled map, its noisy sums, the variance of the noise in each, and
    whether it is Laplace noise.
    """

    map: BoundMap
    sums: Sums
    variance: float
    laplace: bool = False

    def published(self) -> NoisyPart:
        """What a file holds of the part: all of it, unless it served only later stages."""
        shown = self.map.published()
        return self if shown is self.map else NoisyPart(shown, self.sums[: shown.size], self.variance, self.laplace)


class FeatureMap(ABC):
    """Public description of a map; subclasses are frozen dataclasses of plain values."""

    name: ClassVar[str]
    version: ClassVar[int]
    good_for: ClassVar[str] = ""  # the questions that a release of this map answers, as `dpsketch show` prints them
    absent: ClassVar[Mapping[str, Any]] = {}  # the value of each parameter that a description may omit

    @classmethod
    def kind_for(cls, parameters: Mapping[str, Any]) -> type[FeatureMap]:
        """The class of a description of this name with these parameters."""
        return cls

    @abstractmethod
    def bind(self, schema: Schema) -> BoundMap:
        """Bind the map to the columns of this schema."""

    @abstractmethod
    def length(self, schema: Schema) -> int:
        """Number of sums. Computed by arithmetic alone, so that a hostile file cannot make us allocate memory."""

    def work(self, schema: Schema) -> int:
        """Cost of binding and of computing sensitivities, in drawn normal numbers. Computed by arithmetic alone."""
        return 0

    def to_dict(self) -> dict[str, Any]:
        """The description as plain values. Parameters at their `absent` value are omitted, as in files older than they
        are.
        """
        facts = {"map": self.name, "version": self.version} | asdict(self)  # type: ignore[call-overload]
        return {key: value for key, value in facts.items() if key not in self.absent or value != self.absent[key]}

    def unsettled(self) -> FeatureMap:
        """The description as it was before a release chose which part of the map to publish."""
        return self

    def counted(self) -> FeatureMap:
        """The description of what the sums hold, without parameters that only readers of a release follow."""
        return self

    def summary(self) -> dict[str, Any]:
        """A short form of `to_dict`, for a reader."""
        return self.to_dict()


class BoundMap(ABC):
    """A map bound to a schema.

    Guarantee: `accumulate` adds, for each record, a vector that depends on that record's codes only (and, if `secret`,
    on fresh secret words), whose entries are at most `largest` in absolute value, and which obeys `sensitivity`.
    """

    size: int
    largest: int
    grid: int = 1  # integer features are the real features times `grid`
    narrow: bool = False  # whether `accumulate` also accepts int32 sums
    secret: bool = False  # whether `accumulate` draws from `records.secret`
    groups: int = 1  # number of equal blocks of sums; a record changes only one of them
    certified: bool = False  # whether sensitivities are proven upper bounds that may differ slightly between machines

    masks: Masks | None = None  # secret masks of single features, on which one release with Laplace noise may count

    adaptive: bool = False  # whether a release settles what it shows of this map: `settle`

    # Properties that readers of a release ask for. The defaults claim nothing beyond `columns`, `size` and `features`.
    rate: float = 1.0  # fraction of the records that a sum includes
    grouped_by: str | None = None  # the column that has one block of sums for each of its labels
    counter_table: bool = False  # whether sums are hashed counters, possibly 10^9 of them
    only_counts: bool = False  # whether the sums contain nothing but the number of records
    separates_points: bool = False  # whether the sums of a block determine more than means and products of its columns
    sparse: bool = False  # whether only few features of a record in a block are nonzero
    title: str | None = None  # how a reader sees the terms; by default "sums of" and the map's name
    term: str = "sums"  # unit of a map's size: sums, or frequencies of `sums_per_term` sums each
    sums_per_term: int = 1

    def __init__(self, description: FeatureMap, schema: Schema, columns: tuple[str, ...]) -> None:
        self.description = description
        self.columns = columns
        self._facts = [schema.column(name).to_dict() | {"name": name} for name in columns]

    @abstractmethod
    def accumulate(self, records: Records, sums: Sums) -> None:
        """Add the features of every record to `sums`, modulo 2^64, or modulo 2^32 for four-byte sums."""

    @abstractmethod
    def features(self, records: Records) -> Floats:
        """Real features of each record, from the same quantised parameters: one matrix row per record."""

    @abstractmethod
    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        """Sensitivity when the privacy unit is one row."""

    def sensitivity(self, relation: Relation, rows_per_unit: int | None = None) -> Sensitivity:
        """Sensitivity for units of up to `rows_per_unit` rows; None means that a unit is a row.

        A unit's c rows may all add the worst vector: c·L1 and c²·L2². Replacing a unit removes c rows and adds c
        others. Source: PRIVACY "Sensitivity"; docs/proofs/units.md.
        """
        if rows_per_unit is None:
            return self.record_sensitivity(relation)
        single = self.record_sensitivity(Relation.ADD_REMOVE)
        times = rows_per_unit * (1 if relation is Relation.ADD_REMOVE else 2)
        return Sensitivity(times * single.l1, times**2 * single.l2_squared)

    def record_body(self, relation: Relation) -> Body | None:
        """The body that contains a record's features, if noise of its shape may be better than Laplace noise; None
        otherwise.
        """
        return None

    def body(self, relation: Relation, rows_per_unit: int | None = None) -> Body | None:
        """The body for units of up to `rows_per_unit` rows: c times the radius, or 2c times for replaced units."""
        single = self.record_body(relation if rows_per_unit is None else Relation.ADD_REMOVE)
        if rows_per_unit is None or single is None:
            return single
        times = rows_per_unit * (1 if relation is Relation.ADD_REMOVE else 2)
        return Body(single.shape, times * single.radius)

    # How a release treats an adaptive map, in stages: `sketch.adaptive`. The defaults are those of any other map.

    def depends_on(self, other: BoundMap) -> bool:
        """Whether `settle` reads the noisy sums of `other`, a map of the same recipe."""
        return False

    def check_beside(self, maps: Sequence[BoundMap]) -> None:  # noqa: B027
        """Refuse a recipe whose `maps` lack one that this map depends on."""

    def noised(self) -> BoundMap:
        """A map with the sensitivities of whatever `settle` may return: noise is calibrated to it beforehand."""
        return self

    def settle(self, earlier: Sequence[NoisyPart], variance: float) -> BoundMap:
        """The map that gets noise of this variance, chosen from `earlier`, the parts that this map depends on.

        Guarantee: a function of noisy sums and public numbers, never of exact sums.
        """
        return self

    def settle_as(self, other: BoundMap) -> BoundMap:
        """The map that gets noise if the choice is that of `other`, a settled map of another release."""
        raise RecipeError(f"map {self.description.name} leaves nothing to a release to choose")

    def coarsen(self, sums: Sums, settled: BoundMap) -> Sums:
        """Exact sums of the settled map, from those of this one."""
        return sums

    def published(self) -> BoundMap:
        """The map whose sums a file holds, once later stages have read the noisy sums of this one."""
        return self

    @property
    def core(self) -> BoundMap:
        """The innermost map, without groups and masks."""
        return self

    @property
    def ungrouped(self) -> BoundMap:
        """The map of a single group."""
        return self

    def group_numbers(self, records: Records) -> NDArray[np.int64]:
        """The group index of each record."""
        return np.zeros(len(records), np.int64)

    def group_of(self, codes: Codes) -> NDArray[np.int64]:
        """The group index of each code of the grouping column."""
        return np.zeros(len(codes), np.int64)

    def sum_blocks(self) -> Iterator[SumBlock]:
        """Blocks of sums with the columns that they depend on. For a grouped map, those of the first group."""
        yield SumBlock(self.columns, 0, self.size)

    @property
    def entries_per_record(self) -> int:
        """Largest number of nonzero features of a record; of the entries in `sparse_entries` where it returns some."""
        return self.size

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats] | None:
        """Indices into the sums, and the features there: one matrix row per record. None means: use `features`.

        They include at least all nonzero features in `block`; for a table of counters, those in its first `rows` rows.
        """
        return None

    @property
    def record_count(self) -> RecordCount | None:
        """Which sums add up to the number of records; None if no sums do."""
        return None

    @property
    def column_totals(self) -> Mapping[str, int]:
        """Index of the sum of each column's codes, missing codes counted as 0, for columns that have one."""
        return {}

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        """Whether a separate estimator reads these sums beside those of `maps`, so that the regression on sums can skip
        them.
        """
        return False

    def noise_coordinates(self, maps: Sequence[BoundMap]) -> int:
        """Number of independent noise coordinates beside those of `maps`. A table of counters contributes its total
        alone.
        """
        return 1 if self.counter_table else self.size

    def restricted(self, first: int, last: int) -> BoundMap:
        """The same map with only its frequencies or directions first .. last-1."""
        raise cannot_be_subsampled(self.description)

    def _with(self, **changes: Any) -> Self:
        """A copy of this map with other parameters. Cached properties are dropped."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            if not isinstance(getattr(type(self), name, None), cached_property):
                setattr(other, name, value)
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def parameters(self) -> bytes:
        """The drawn public parameters, which enter the fingerprint."""
        return b""

    def fingerprint(self) -> str:
        """A hash of map, version, columns and parameters. Two sketches may be added only if it is equal."""
        facts = json.dumps([self.description.to_dict(), self._facts], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(facts.encode() + b"\0" + self.parameters()).hexdigest()


@contextmanager
def named_errors(description: FeatureMap) -> Iterator[None]:
    """Name the map in errors about the schema."""
    try:
        yield
    except SchemaError as error:
        raise RecipeError(f"map {description.name}: {error.fact}", error.hint) from None


def check_work(maps: Sequence[FeatureMap], schema: Schema) -> None:
    """Refuse maps that would take disproportionately long to bind, so that a hostile file cannot keep us busy."""
    work, most = 0, FREE_WORK
    for each in maps:
        with named_errors(each):
            work, most = work + each.work(schema), most + WORK_PER_SUM * each.length(schema)
    if work > most:
        raise RecipeError(
            f"the parameters of {', '.join(dict.fromkeys(each.name for each in maps if each.work(schema)))} on "
            f"{len(schema.columns)} columns would take too long to draw for this number of sums",
            "name fewer columns, use fewer parts, or Hadamard directions",
        )


def cannot_be_subsampled(description: FeatureMap) -> RecipeError:
    return RecipeError(
        f"map {description.name} cannot be subsampled", "subsample fourier, one_bit_fourier or quadratic"
    )


def check_whole(owner: str, name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RecipeError(f"{owner}: {name} must be a whole number from {low} to {high}, got {value!r} instead")


def check_columns(owner: str, columns: object, name: str = "columns") -> tuple[str, ...] | None:
    """Check a list of distinct column names and return it as a tuple, or None."""
    if columns is None:
        return None
    if (
        isinstance(columns, str)
        or not isinstance(columns, list | tuple)
        or not all(isinstance(c, str) for c in columns)
    ):
        raise RecipeError(f"{owner}: {name} must be a list of column names, got {columns!r} instead")
    if not columns or len(set(columns)) < len(columns):
        raise RecipeError(f"{owner}: {name} must name at least one column, each once")
    return tuple(columns)


def chosen_columns(schema: Schema, columns: tuple[str, ...] | None) -> tuple[str, ...]:
    """The named columns, checked against the schema; by default, every scalar column."""
    if columns is None:
        return tuple(column.name for column in schema.scalars)
    for name in columns:
        schema.index(name)
    return columns
