"""What a feature map is: a pure function from a record's codes to a bounded integer vector.

A map is a frozen, public description (`Fourier(size=200, seed=7)`); `bind(schema)` gives the
object that knows the columns, draws the public parameters and does the work.
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
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

Sums = NDArray[np.int64] | NDArray[np.int32]
MOST_COUNTERS = 2**31
# What binding maps may cost, about a tenth of a microsecond each: as much for every recipe, and more for more sums.
# So a small file is read in about a second, however many columns and parts it names.
FREE_WORK, WORK_PER_SUM = 1 << 24, 1 << 10
LARGE = 1 << 22  # sums; from here on counters take four bytes where they fit, and are shared between threads


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of a part's sums between neighbouring tables, exact integers over all codes."""

    l1: int
    l2_squared: int


class Shape(StrEnum):
    """A body whose norm fits features better than L1: a disc for every pair of sums, a cube, or the Frobenius ball of
    symmetric matrices, given by their upper triangle.
    """

    DISC = "disc"
    CUBE = "cube"
    BALL = "ball"


@dataclass(frozen=True)
class Body:
    """The difference of a part's sums between neighbouring tables lies in `radius` times the body; in a grouped part
    the norms of the groups add up to at most `radius`.
    """

    shape: Shape
    radius: int


@dataclass(frozen=True)
class SumBlock:
    """Sums first .. last-1 of a map, or of each of its groups: those that depend on `columns` alone."""

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
    """A part as a release has it so far: its settled map, its noisy sums, and the variance of the noise in each."""

    map: BoundMap
    sums: Sums
    variance: float


class FeatureMap(ABC):
    """Public description of a map; subclasses are frozen dataclasses of plain values."""

    name: ClassVar[str]
    version: ClassVar[int]
    good_for: ClassVar[str] = ""  # which questions a release of it answers, in the words of `dpsketch show`
    absent: ClassVar[Mapping[str, Any]] = {}  # what a parameter is where a description does not say it

    @classmethod
    def kind_for(cls, parameters: Mapping[str, Any]) -> type[FeatureMap]:
        """The class of a description of this name with these parameters."""
        return cls

    @abstractmethod
    def bind(self, schema: Schema) -> BoundMap:
        """The map on this schema's columns."""

    @abstractmethod
    def length(self, schema: Schema) -> int:
        """Number of sums, by arithmetic alone: a hostile file must not make us allocate."""

    def work(self, schema: Schema) -> int:
        """Cost of binding and of the sensitivities, in drawn normal numbers, by arithmetic alone."""
        return 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values; a parameter that says what its absence means is left out, as before it existed."""
        facts = {"map": self.name, "version": self.version} | asdict(self)  # type: ignore[call-overload]
        return {key: value for key, value in facts.items() if key not in self.absent or value != self.absent[key]}

    def unsettled(self) -> FeatureMap:
        """The description as it was before a release chose what it shows of the map."""
        return self

    def summary(self) -> dict[str, Any]:
        """The description for a reader: as `to_dict`, but short."""
        return self.to_dict()


class BoundMap(ABC):
    """A map on a schema.

    Guarantee: `accumulate` adds, for each record, a vector that depends on that record's codes only (and, if `secret`,
    on fresh secret words), whose entries are at most `largest` in absolute value, and which obeys `sensitivity`.
    """

    size: int
    largest: int
    grid: int = 1  # integer features are the real ones times `grid`
    narrow: bool = False  # whether `accumulate` also takes int32 sums
    secret: bool = False  # whether `accumulate` draws from `records.secret`
    groups: int = 1  # equal blocks of sums, of which a record changes one
    certified: bool = False  # whether sensitivities are proven bounds that another machine may find a little different

    adaptive: bool = False  # whether a release settles what it shows of this map: `settle`

    # What readers of a release ask a map. The defaults claim nothing beyond `columns`, `size` and `features`.
    rate: float = 1.0  # the share of the records that a sum sees
    grouped_by: str | None = None  # the column that has a block of sums for each of its labels
    counter_table: bool = False  # whether sums are hashed counters, of which there may be 10^9
    only_counts: bool = False  # whether the number of records is all that the sums say
    separates_points: bool = False  # whether the sums of a block say more of its columns than means and products
    sparse: bool = False  # whether few of the features of a record are in one block and other than zero
    title: str | None = None  # of the terms, for a reader; by default they are "sums of" the map's name
    term: str = "sums"  # what a size is given in: sums, or frequencies of `sums_per_term` sums each
    sums_per_term: int = 1

    def __init__(self, description: FeatureMap, schema: Schema, columns: tuple[str, ...]) -> None:
        self.description = description
        self.columns = columns
        self._facts = [schema.column(name).to_dict() | {"name": name} for name in columns]

    @abstractmethod
    def accumulate(self, records: Records, sums: Sums) -> None:
        """Add the features of every record to `sums`, modulo 2^64, or 2^32 for sums of four bytes."""

    @abstractmethod
    def features(self, records: Records) -> Floats:
        """Real features of each record, from the same quantised parameters: one matrix row a record."""

    @abstractmethod
    def record_sensitivity(self, relation: Relation) -> Sensitivity:
        """Sensitivity when the privacy unit is one row."""

    def sensitivity(self, relation: Relation, rows_per_unit: int | None = None) -> Sensitivity:
        """Sensitivity for units of up to `rows_per_unit` rows; None means that a unit is a row.

        A unit's c rows add vectors that may all be the worst one: c·L1 and c²·L2². Replacing a unit
        takes c rows away and adds c others. Source: PRIVACY "Sensitivity"; docs/proofs/units.md.
        """
        if rows_per_unit is None:
            return self.record_sensitivity(relation)
        single = self.record_sensitivity(Relation.ADD_REMOVE)
        times = rows_per_unit * (1 if relation is Relation.ADD_REMOVE else 2)
        return Sensitivity(times * single.l1, times**2 * single.l2_squared)

    def record_body(self, relation: Relation) -> Body | None:
        """The body that holds the features, if noise of its shape may be better than Laplace's; for units of a row."""
        return None

    def body(self, relation: Relation, rows_per_unit: int | None = None) -> Body | None:
        """As `sensitivity`: c rows of a unit have c times the radius, replaced ones 2c times."""
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

    @property
    def core(self) -> BoundMap:
        """The map without groups and masks."""
        return self

    @property
    def ungrouped(self) -> BoundMap:
        """The map of one group."""
        return self

    def group_numbers(self, records: Records) -> NDArray[np.int64]:
        """The group of each record."""
        return np.zeros(len(records), np.int64)

    def group_of(self, codes: Codes) -> NDArray[np.int64]:
        """The group of each code of the grouping column."""
        return np.zeros(len(codes), np.int64)

    def sum_blocks(self) -> Iterator[SumBlock]:
        """The sums by the columns that they depend on; of groups those of the first."""
        yield SumBlock(self.columns, 0, self.size)

    @property
    def entries_per_record(self) -> int:
        """Features of a record that may be other than zero, those of `sparse_entries` where it gives some."""
        return self.size

    def sparse_entries(self, records: Records, block: SumBlock, rows: int) -> tuple[NDArray[np.int64], Floats] | None:
        """Indices into the sums and features of each record, one matrix row a record: at least all of `block` that are
        other than zero, of a table of counters those in its first `rows` rows. None: take `features`.
        """
        return None

    @property
    def record_count(self) -> RecordCount | None:
        """Which sums add up to the number of records, if some do."""
        return None

    @property
    def column_totals(self) -> Mapping[str, int]:
        """Indices of the sums that hold the sum of a column's codes, missing ones as 0."""
        return {}

    def read_as_tables(self, maps: Sequence[BoundMap]) -> bool:
        """Whether an estimator of its own reads the sums beside those of `maps`, so that no regression has to."""
        return False

    def noise_coordinates(self, maps: Sequence[BoundMap]) -> int:
        """Independent coordinates of the noise, beside those of `maps`: of a table of counters that of its total."""
        return 1 if self.counter_table else self.size

    def restricted(self, first: int, last: int) -> BoundMap:
        """The same map with only frequencies or directions first .. last-1 of those that it has."""
        raise cannot_be_subsampled(self.description)

    def _with(self, **changes: Any) -> Self:
        """This map with other parameters; what was computed from the old ones is forgotten."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            if not isinstance(getattr(type(self), name, None), cached_property):
                setattr(other, name, value)
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def parameters(self) -> bytes:
        """The drawn public parameters, for the fingerprint."""
        return b""

    def fingerprint(self) -> str:
        """Equal only if two sketches may be added: same map, version, columns and parameters."""
        facts = json.dumps([self.description.to_dict(), self._facts], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(facts.encode() + b"\0" + self.parameters()).hexdigest()


@contextmanager
def named_errors(description: FeatureMap) -> Iterator[None]:
    """Errors about the schema say which map needs what it lacks."""
    try:
        yield
    except SchemaError as error:
        raise RecipeError(f"map {description.name}: {error.fact}", error.hint) from None


def check_work(maps: Sequence[FeatureMap], schema: Schema) -> None:
    """Refuses maps that would take disproportionately long to bind: a hostile file must not keep us busy."""
    work, most = 0, FREE_WORK
    for each in maps:
        with named_errors(each):
            work, most = work + each.work(schema), most + WORK_PER_SUM * each.length(schema)
    if work > most:
        raise RecipeError(
            f"the parameters of {', '.join(dict.fromkeys(each.name for each in maps if each.work(schema)))} on "
            f"{len(schema.columns)} columns would take too long to draw, for so few sums",
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
    """None, or a tuple of distinct names."""
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
    """The named columns, checked against the schema, or every scalar column."""
    if columns is None:
        return tuple(column.name for column in schema.scalars)
    for name in columns:
        schema.index(name)
    return columns
